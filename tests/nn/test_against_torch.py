"""With one dense factor and the same weights, the layers compute what those of torch do."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import kru
from kru.nn.recurrent import Recurrent

INPUT, HIDDEN, STEPS, BATCH = 3, 4, 6, 5
PAIRS = ["tanh", "relu", "lstm", "gru"]


def build(kind: str, **options: object) -> tuple[Recurrent, nn.RNNBase]:
    """A layer of each library with the same weights."""
    arguments = {"num_layers": 2, "bidirectional": True, "dtype": torch.float64, **options}
    if kind == "lstm":
        layer: Recurrent = kru.KRULSTM(INPUT, HIDDEN, factors=[HIDDEN], **arguments)
        theirs: nn.RNNBase = nn.LSTM(INPUT, HIDDEN, **arguments)
    elif kind == "gru":
        layer = kru.KRUGRU(INPUT, HIDDEN, factors=[HIDDEN], **arguments)
        theirs = nn.GRU(INPUT, HIDDEN, **arguments)
    else:
        layer = kru.KRU(INPUT, HIDDEN, factors=[HIDDEN], field="real", nonlinearity=kind, **arguments)
        theirs = nn.RNN(INPUT, HIDDEN, nonlinearity=kind, **arguments)
    weights = theirs.state_dict()
    copied = {}
    for name, tensor in layer.state_dict().items():
        suffix = name.split(".")[0][name.index("_l") :]
        if name.startswith("weight_ih"):
            copied[name] = weights[name]
        elif name.startswith("recurrent_l"):
            copied[name] = weights[f"weight_hh{suffix}"].reshape(tensor.shape)
        elif name.startswith("recurrent_bias"):
            copied[name] = weights[f"bias_hh{suffix}"][2 * HIDDEN :]
        else:
            extra = weights[f"bias_hh{suffix}"].clone()
            if kind == "gru":
                extra[2 * HIDDEN :] = 0
            copied[name] = weights[f"bias_ih{suffix}"] + extra
    layer.load_state_dict(copied)
    return layer, theirs


def flat(state: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return list(state) if isinstance(state, tuple) else [state]


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("form", ["time first", "batch first", "unbatched", "packed", "packed sorted"])
@pytest.mark.parametrize("given_state", [False, True])
def test_equal_to_torch(kind: str, form: str, given_state: bool) -> None:
    torch.manual_seed(0)
    layer, theirs = build(kind, batch_first=form == "batch first")
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64, requires_grad=True)
    h = torch.randn(4, BATCH, HIDDEN, dtype=torch.float64)
    c = torch.randn(4, BATCH, HIDDEN, dtype=torch.float64)
    given: Tensor | PackedSequence = x
    lengths = torch.tensor([4, 6, 1, 3, 4])
    if form == "batch first":
        given = x.transpose(0, 1)
    elif form == "unbatched":
        given, h, c = x[:, 0], h[:, 0], c[:, 0]
    elif form == "packed":
        given = pack_padded_sequence(x, lengths, enforce_sorted=False)
    elif form == "packed sorted":
        given = pack_padded_sequence(x, lengths.sort(descending=True).values)
    hx = ((h, c) if kind == "lstm" else h) if given_state else None

    output, state = layer(given, hx)
    expected, expected_state = theirs(given, hx)
    if isinstance(output, PackedSequence):
        for name in ("batch_sizes", "sorted_indices", "unsorted_indices"):
            ours, other = getattr(output, name), getattr(expected, name)
            assert (ours is None and other is None) or torch.equal(ours, other)
        output, expected = output.data, expected.data
    assert output.shape == expected.shape
    torch.testing.assert_close(output, expected)
    for got, want in zip(flat(state), flat(expected_state), strict=True):
        torch.testing.assert_close(got, want)

    def gradient(y: Tensor) -> Tensor:
        return torch.autograd.grad(y.square().sum(), x, retain_graph=True)[0]

    torch.testing.assert_close(gradient(output), gradient(expected))


def test_empty_batch() -> None:
    layer, theirs = build("lstm")
    x = torch.zeros(STEPS, 0, INPUT, dtype=torch.float64)
    assert layer(x)[0].shape == theirs(x)[0].shape


MISTAKES = {
    "4-D input": lambda rnn: rnn(torch.zeros(1, 2, 3, INPUT)),
    "1-D input": lambda rnn: rnn(torch.zeros(INPUT)),
    "features": lambda rnn: rnn(torch.zeros(5, 2, INPUT + 1)),
    "dtype": lambda rnn: rnn(torch.zeros(5, 2, INPUT, dtype=torch.float64)),
    "no steps": lambda rnn: rnn(torch.zeros(0, 2, INPUT)),
    "state size": lambda rnn: rnn(torch.zeros(5, 2, INPUT), torch.zeros(1, 2, HIDDEN + 1)),
    "state batch": lambda rnn: rnn(torch.zeros(5, 2, INPUT), torch.zeros(1, 3, HIDDEN)),
    "state layers": lambda rnn: rnn(torch.zeros(5, 2, INPUT), torch.zeros(2, 2, HIDDEN)),
    "unbatched state": lambda rnn: rnn(torch.zeros(5, 2, INPUT), torch.zeros(1, HIDDEN)),
    "batched state": lambda rnn: rnn(torch.zeros(5, INPUT), torch.zeros(1, 2, HIDDEN)),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_mistakes_in_a_call_raise_the_same_kind_of_error(mistake: str) -> None:
    layers = (kru.KRU(INPUT, HIDDEN, field="real", nonlinearity="tanh"), nn.RNN(INPUT, HIDDEN))
    kinds = []
    for layer in layers:
        with pytest.raises(Exception) as error:
            MISTAKES[mistake](layer)
        kinds.append(error.type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize(
    "arguments",
    [
        {"input_size": 0},
        {"input_size": 2.5},
        {"hidden_size": -4},
        {"hidden_size": "4"},
        {"num_layers": 0},
        {"bias": 1},
        {"batch_first": "yes"},
        {"dropout": 1.5},
        {"dropout": True},
        {"proj_size": 4},
        {"mode": "LSTM"},
    ],
    ids=str,
)
def test_mistakes_in_construction_raise_the_same_kind_of_error(arguments: dict[str, object]) -> None:
    usual = {"input_size": INPUT, "hidden_size": HIDDEN}
    kinds = []
    for layer_class in (kru.KRULSTM, nn.LSTM):
        with pytest.raises(Exception) as error:
            layer_class(**{**usual, **arguments})
        kinds.append(error.type)
    assert kinds[0] is kinds[1]


def test_positional_arguments_are_those_of_torch() -> None:
    arguments = (INPUT, HIDDEN, 2, False, True, 0.5, True)
    layer, theirs = kru.KRULSTM(*arguments), nn.LSTM(*arguments)
    for name in (
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
    ):
        assert getattr(layer, name) == getattr(theirs, name)
    with pytest.warns(UserWarning, match="num_layers=1"):
        kru.KRULSTM(INPUT, HIDDEN, dropout=0.5)
