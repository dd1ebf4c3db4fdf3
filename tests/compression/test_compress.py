"""Trained models with Kronecker layers in the place of dense ones."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

import kru

LAYERS = {
    "rnn": lambda: nn.RNN(3, 12),
    "relu": lambda: nn.RNN(3, 12, nonlinearity="relu", bias=False),
    "lstm": lambda: nn.LSTM(3, 12, num_layers=2, bidirectional=True),
    "gru": lambda: nn.GRU(3, 12),
    "complex": lambda: kru.KRU(3, 12, factors=[12]),
    "factors": lambda: kru.KRUGRU(3, 12, factors=[2, 6]),
}


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.rnn = nn.LSTM(8, 16, batch_first=True)
        self.hidden = nn.Linear(16, 36)
        self.head = nn.Linear(36, 7)

    def forward(self, symbols: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(self.rnn(self.embedding(symbols))[0])))


@pytest.mark.parametrize("data", [False, True], ids=["matrix", "inputs"])
@pytest.mark.parametrize("kind", LAYERS)
def test_with_all_terms_the_function_stays(kind: str, data: bool) -> None:
    torch.manual_seed(0)
    layer = LAYERS[kind]().double()
    x = torch.randn(7, 5, 3, dtype=torch.float64)
    before = copy.deepcopy(layer.state_dict())
    small, report = kru.compress(layer, factors=[3, 4], rank=9, data=[x] if data else None)
    torch.testing.assert_close(small(x), layer(x), atol=1e-5, rtol=1e-5)
    assert all(matrix.error < 1e-5 for matrix in report.matrices)
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())
    assert type(small) in (kru.KRU, kru.KRULSTM, kru.KRUGRU)
    assert small.matrix().rank == 9


def test_report() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(5, 12, num_layers=2, bidirectional=True)
    small, report = kru.compress(lstm, factors=[3, 4], rank=2)
    assert [matrix.name for matrix in report.matrices[:5]] == [
        *(f"recurrent_l0.{gate}" for gate in "ifgo"),
        "recurrent_l0_reverse.i",
    ]
    assert len(report.matrices) == 16
    assert report.entries == 16 * 144
    assert report.compressed == 16 * 2 * (9 + 16) == kru.parameter_count(small).recurrent
    assert report.parameters_before == sum(p.numel() for p in lstm.parameters())
    assert report.parameters == kru.parameter_count(small).total
    for g, matrix in enumerate(report.matrices[:4]):
        w = lstm.weight_hh_l0[12 * g : 12 * (g + 1)]
        v = kru.kron_dense(small.matrix().dense_factors(g))
        assert ((w - v).norm() / w.norm()).item() == pytest.approx(matrix.error, rel=1e-4)
    assert "recurrent_l1.f: 12x12 -> 2 x (3x3 ⊗ 4x4), error 0." in str(report)
    assert "2,304 entries in 800 parameters, 2.9 times fewer" in str(report)


def test_a_complex_entry_is_two_parameters() -> None:
    layer = kru.KRU(5, 12, factors=[12])
    small, report = kru.compress(layer, max_parameters=120)
    assert report.entries == kru.parameter_count(layer).recurrent == 288
    assert report.compressed == kru.parameter_count(small).recurrent <= 120


def test_a_whole_model_within_a_number_of_parameters() -> None:
    torch.manual_seed(0)
    model = Tagger()
    symbols = torch.randint(20, (4, 9))
    small, report = kru.compress(model, max_parameters=700)
    assert isinstance(small.rnn, kru.KRULSTM)
    assert isinstance(small.hidden, kru.KroneckerLinear)
    assert report.compressed <= 700
    assert report.parameters == kru.parameter_count(small).total
    assert small(symbols).shape == (4, 9, 7)
    assert isinstance(model.rnn, nn.LSTM)
    wide, _ = kru.compress(model, max_parameters=1400)
    difference, wider = ((m(symbols) - model(symbols)).norm() for m in (small, wide))
    assert wider < difference
    only, report = kru.compress(model, max_parameters=300, only=["rnn"])
    assert isinstance(only.hidden, nn.Linear)
    assert {matrix.name.split(".")[0] for matrix in report.matrices} == {"rnn"}


def test_fitted_to_the_inputs_that_occur() -> None:
    """States and features in a few directions: what the matrices do to others does not count."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"rnn": nn.LSTM(3, 24, batch_first=True), "head": nn.Linear(24, 10)})
    with torch.no_grad():
        model["rnn"].weight_ih_l0.mul_(3)
        model["rnn"].weight_hh_l0.mul_(2)
    run = Both(model)
    data = [torch.randn(30, 12, 3) * torch.tensor([3.0, 0.3, 0.1]) for _ in range(4)]
    inputs = torch.randn(30, 12, 3) * torch.tensor([3.0, 0.3, 0.1])
    plain, _ = kru.compress(run, max_parameters=400)
    fitted, report = kru.compress(run, max_parameters=400, data=data)
    errors = [(m(inputs) - run(inputs)).norm().item() for m in (plain, fitted)]
    assert errors[1] < 0.8 * errors[0]
    assert all(matrix.error < 0.9 for matrix in report.matrices)
    assert fitted.training
    again, _ = kru.compress(run.eval(), max_parameters=400, data=data)
    assert not again.training
    # a tuple has several arguments, and a packed batch says where sequences end
    packed = pack_padded_sequence(inputs.transpose(0, 1), torch.arange(1, 31) % 12 + 1, enforce_sorted=False)
    lstm = nn.LSTM(3, 24)
    state = torch.zeros(1, 30, 24), torch.zeros(1, 30, 24)
    _, report = kru.compress(lstm, factors=[4, 6], data=[(packed, state)])
    assert all(0 < matrix.error < 1 for matrix in report.matrices)


def test_batches_as_loaders_give_them() -> None:
    """Tuples and lists have several arguments, dicts named ones; all are the same inputs here."""
    torch.manual_seed(0)
    model = Tagger()
    symbols = torch.randint(20, (8, 9))
    loader = DataLoader(TensorDataset(symbols), batch_size=4)
    forms = [[symbols], loader, [(symbols,)], [{"symbols": symbols}], (part for part in symbols.chunk(2))]
    errors = [kru.compress(model, 700, data=data).report.matrices[0].error for data in forms]
    assert errors == pytest.approx([errors[0]] * len(forms), rel=1e-6)
    assert errors[0] < 0.9 * kru.compress(model, 700).report.matrices[0].error


def test_a_matrix_that_no_input_reaches_is_fitted_for_its_own_sake() -> None:
    torch.manual_seed(0)
    model = Tagger()
    model.register_module("spare", nn.Linear(12, 12))
    _, fitted = kru.compress(model, factors=[3, 4], data=[torch.randint(20, (8, 9))])
    _, plain = kru.compress(model, factors=[3, 4])
    assert [matrix.name for matrix in fitted.matrices] == ["spare"]
    assert fitted.matrices[0].error == pytest.approx(plain.matrices[0].error)


@pytest.mark.parametrize("layer", [nn.Linear(12, 12), nn.LSTM(3, 12)], ids=["linear", "lstm"])
def test_frozen_layers_stay_frozen(layer: nn.Module) -> None:
    for trained in (True, False):
        small, _ = kru.compress(layer.requires_grad_(trained), factors=[3, 4])
        assert {parameter.requires_grad for parameter in small.parameters()} == {trained}


def test_a_transformer_still_runs() -> None:
    """In evaluation mode torch's encoder layer reads the weights of its linear layers itself."""
    model = nn.Sequential(nn.TransformerEncoderLayer(12, 2, 24, batch_first=True), nn.Linear(12, 12)).eval()
    small, report = kru.compress(model, factors=[3, 4])
    assert report.kept["0.linear1"] == "nn.TransformerEncoderLayer reads its weights"
    assert isinstance(small[1], kru.KroneckerLinear)
    assert small(torch.randn(2, 5, 12)).shape == (2, 5, 12)


class Both(nn.Module):
    def __init__(self, parts: nn.ModuleDict) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        return self.parts["head"](self.parts["rnn"](x)[0])


def test_layers_that_stay_and_why() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(12, 8),
            "tied": nn.Linear(8, 12, bias=False),
            "projected": nn.LSTM(4, 12, proj_size=6),
            "tiny": nn.Linear(2, 1),
            "fine": nn.Linear(12, 12),
        }
    )
    model["tied"].weight = model["embedding"].weight
    small, report = kru.compress(model, max_parameters=100)
    assert report.kept == {
        "tied": "its weights are shared",
        "projected": "its states are projected",
        "tiny": "1 x 2 has no two factors with fewer entries",
    }
    assert small["tied"].weight is small["embedding"].weight
    assert isinstance(small["fine"], kru.KroneckerLinear)
    _, report = kru.compress(model, factors=[3, 4])
    assert "rows whose product is rows=1" in report.kept["tiny"]


def test_a_layer_used_twice_stays_one() -> None:
    layer = nn.Linear(12, 12)
    small, report = kru.compress(nn.Sequential(layer, nn.Tanh(), layer), factors=[3, 4])
    assert small[0] is small[2]
    assert len(report.matrices) == 1


def test_trained_further_it_gets_better() -> None:
    torch.manual_seed(0)
    teacher = nn.GRU(4, 16)
    small, _ = kru.compress(teacher, factors=[4, 4], rank=2)
    x = torch.randn(20, 16, 4)
    wanted = teacher(x)[0].detach()
    optimizer = kru.optimizer(small, "adam", lr=1e-2)
    losses = []
    for _ in range(30):
        loss = nn.functional.mse_loss(small(x)[0], wanted)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    assert kru.unitary_penalty(small).item() == 0  # fitted matrices need not be unitary


def test_prime_sizes_become_low_rank() -> None:
    small, report = kru.compress(nn.LSTM(3, 13), max_parameters=4 * 2 * 26)
    assert report.matrices[0].factors == ((13, 1), (1, 13))
    assert small.matrix().rank == 2
    assert math.isclose(report.entries / report.compressed, 13 * 13 / 52)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((nn.LSTM(3, 12),), ValueError, "max_parameters, factors: expected one of them, got neither"),
        (
            (nn.LSTM(3, 12), 100, [3, 4]),
            ValueError,
            "max_parameters, factors: expected one of them, got both",
        ),
        ((nn.LSTM(3, 12), 10), ValueError, "max_parameters: expected at least .*, got 10"),
        (
            (nn.LSTM(3, 12), None, [3, 5]),
            ValueError,
            "expected a layer that can be compressed, got none .*rows=12",
        ),
        ((nn.LSTM(3, 12), None, [3, 4], 10), ValueError, "rank: expected at most 9 for the module, got 10"),
        ((nn.LSTM(3, 12), None, [3, 4], 0), ValueError, "rank: expected at least one"),
        (
            (nn.Tanh(), 100),
            ValueError,
            r"expected a layer that can be compressed, got none \(no dense layer\)",
        ),
        ((torch.eye(3), 100), TypeError, "module: expected a module, got Tensor"),
        ((nn.LSTM(3, 12), 250.5), TypeError, "max_parameters: expected an integer, got float"),
        (
            (nn.Linear(4, 4), 100, None, 9),
            ValueError,
            "4 x 4 has no two factors with fewer entries in 9 terms",
        ),
    ],
)
def test_bad_arguments(arguments, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        kru.compress(*arguments)


def test_bad_names_and_data() -> None:
    with pytest.raises(
        ValueError, match="only: expected names of layers, got 'lstm'; there are '', 'embedding'"
    ):
        kru.compress(Tagger(), 500, only=["lstm"])
    with pytest.raises(TypeError, match="only: expected a list of names, got the string 'rnn'"):
        kru.compress(Tagger(), 500, only="rnn")
    with pytest.raises(ValueError, match="data: expected at least one batch, got none"):
        kru.compress(Tagger(), 700, data=[])
    with pytest.raises(TypeError, match="data: expected batches, such as a list of tensors, got Tensor"):
        kru.compress(Tagger(), 700, data=torch.zeros(4, 9, dtype=torch.long))
    with pytest.raises(TypeError, match="data: expected batches, such as a list of tensors, got int"):
        kru.compress(Tagger(), 700, data=3)
    symbols = torch.zeros(4, 9, dtype=torch.long)
    with pytest.raises(TypeError, match=r"what Tagger takes .*got list \(Tensor, Tensor\): "):
        kru.compress(Tagger(), 700, data=[[symbols, symbols]])
    with pytest.raises(ValueError, match="data: expected inputs on which all states are finite"):
        kru.compress(nn.LSTM(3, 12), factors=[3, 4], data=[torch.full((5, 2, 3), math.nan)])


@pytest.mark.parametrize("limit", [{"max_parameters": 700}, {"factors": [4, 4]}], ids=["limit", "factors"])
def test_weights_that_are_not_numbers(limit) -> None:
    model = Tagger()
    with torch.no_grad():
        model.rnn.weight_hh_l0[3, 5] = math.nan
    with pytest.raises(ValueError, match="module: expected finite weights, got some in rnn that are not"):
        kru.compress(model, **limit)
