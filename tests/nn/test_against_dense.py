"""Every layer against its equations with the dense recurrent matrix, one sequence after the other."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import kru
from kru.nn.recurrent import Recurrent

INPUT, HIDDEN, STEPS, BATCH = 3, 6, 5, 3
LENGTHS = torch.tensor([3, 5, 2])
LEAKS = {"leaky_relu": {"negative_slope": 0.1}}

KINDS = {
    "complex modrelu": (kru.KRU, {}),
    "complex tanh": (kru.KRU, {"nonlinearity": "tanh"}),
    "complex exact": (kru.KRU, {"constraint": "exact"}),
    "real modrelu": (kru.KRU, {"field": "real"}),
    "real relu": (kru.KRU, {"field": "real", "nonlinearity": "relu"}),
    "real rectangular": (kru.KRU, {"field": "real", "factors": [(2, 3), (3, 2)], "constraint": "none"}),
    "complex sum": (kru.KRU, {"rank": 3}),
    "lstm sum": (kru.KRULSTM, {"rank": 2}),
    "lstm": (kru.KRULSTM, {}),
    "gru": (kru.KRUGRU, {}),
    "gru exact": (kru.KRUGRU, {"constraint": "exact"}),
    "rc urnn": (kru.baselines.RCURNN, {"learn_initial": False}),
    "fc urnn": (kru.baselines.FCURNN, {"learn_initial": False}),
    "ornn": (kru.baselines.ORNN, {"learn_initial": False, "reflections": 3}),
    "eurnn": (kru.baselines.EURNN, {}),
    "exprnn": (kru.baselines.ExpRNN, {}),
    "antisymmetric": (kru.baselines.AntisymmetricRNN, {"step": 0.3}),
    "antisymmetric gated": (kru.baselines.AntisymmetricRNN, {"step": 0.3, "gated": True}),
}


def build(kind: str, **options: object) -> Recurrent:
    layer_class, own = KINDS[kind]
    layer = layer_class(INPUT, HIDDEN, dtype=torch.float64, **own, **options)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if not name.startswith("weight"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def dense_step(layer: Recurrent, suffix: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step of one sequence: x (D,), h and c (S,)."""
    matrix = getattr(layer, f"recurrent{suffix}")
    a = getattr(layer, f"weight_ih{suffix}") @ x
    bias = getattr(layer, f"bias{suffix}")
    if layer.cell == "elman":
        if layer.nonlinearity != "modrelu":
            a = a if bias is None else a + bias
            z = kru.kron_dense(matrix.dense_factors()) @ as_field(layer, h) + as_field(layer, a)
            return getattr(torch.nn.functional, layer.nonlinearity)(
                as_real(z), **LEAKS.get(layer.nonlinearity, {})
            ), c
        z = kru.kron_dense(matrix.dense_factors()) @ as_field(layer, h) + as_field(layer, a)
        b = torch.zeros(HIDDEN, dtype=h.dtype) if bias is None else bias
        return as_real(torch.clamp(z.abs() + b, min=0) * z / z.abs()), c
    a = a if bias is None else a + bias
    if layer.cell == "antisymmetric":
        product = kru.kron_dense(matrix.dense_factors()) @ h
        gate = (a[:HIDDEN] + product).sigmoid() if layer.gated else 1
        return h + layer.step_size * gate * (a[-HIDDEN:] + product).tanh(), c
    products = [kru.kron_dense(matrix.dense_factors(gate)) @ h for gate in range(len(layer.gates))]
    parts = a.chunk(len(layer.gates))
    if layer.cell == "lstm":
        i, f, g, o = (part + product for part, product in zip(parts, products, strict=True))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    extra = getattr(layer, f"recurrent_bias{suffix}")
    r, z = (parts[0] + products[0]).sigmoid(), (parts[1] + products[1]).sigmoid()
    n = torch.tanh(parts[2] + r * (products[2] if extra is None else products[2] + extra))
    return (1 - z) * n + z * h, c


def as_field(layer: Recurrent, state: Tensor) -> Tensor:
    return torch.complex(*state.chunk(2)) if layer.field == "complex" else state


def as_real(z: Tensor) -> Tensor:
    return torch.cat([z.real, z.imag]) if z.is_complex() else z


def dense_layers(layer: Recurrent, x: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All layers over one sequence x (T, D) from states (layers * directions, S)."""
    last_h, last_c = [], []
    for index in range(layer.num_layers):
        outputs = []
        for suffix in [f"_l{index}", f"_l{index}_reverse"][: 2 if layer.bidirectional else 1]:
            h, c = h0[len(last_h)], c0[len(last_h)]
            states = []
            for step in x.flip(0) if suffix.endswith("reverse") else x:
                h, c = dense_step(layer, suffix, step, h, c)
                states.append(h)
            outputs.append(torch.stack(states[::-1] if suffix.endswith("reverse") else states))
            last_h.append(h)
            last_c.append(c)
        x = torch.cat(outputs, dim=-1)
    return x, torch.stack(last_h), torch.stack(last_c)


def run_layer(
    layer: Recurrent, form: str, x: Tensor, h0: Tensor, c0: Tensor, lengths: Tensor
) -> tuple[Tensor, ...]:
    """The layer on x (T, B, D) in some form; outputs (T, B, S) with zeros beyond the lengths, and states."""
    given: Tensor | PackedSequence = x
    if form == "batch first":
        given = x.transpose(0, 1)
    if form == "unbatched":
        given, h0, c0 = x[:, 0], h0[:, 0], c0[:, 0]
    if form == "packed":
        given = pack_padded_sequence(x, lengths, enforce_sorted=False)
    if form == "packed sorted":
        given = pack_padded_sequence(x, lengths)
    output, state = layer(given, (h0, c0) if layer.cell == "lstm" else h0)
    states = state if layer.cell == "lstm" else (state,)
    if form == "batch first":
        output = output.transpose(0, 1)
    if form == "unbatched":
        output, states = output.unsqueeze(1), tuple(s.unsqueeze(1) for s in states)
    if isinstance(output, PackedSequence):
        assert isinstance(given, PackedSequence)
        assert torch.equal(output.batch_sizes, given.batch_sizes)
        output, _ = pad_packed_sequence(output)
    return output, *states


@pytest.mark.parametrize("form", ["time first", "batch first", "unbatched", "packed", "packed sorted"])
@pytest.mark.parametrize(("layers", "bidirectional"), list(product([1, 2], [False, True])))
@pytest.mark.parametrize("kind", list(KINDS))
def test_values_and_gradients_are_those_of_the_dense_equations(
    kind: str, layers: int, bidirectional: bool, form: str
) -> None:
    torch.manual_seed(0)
    layer = build(kind, num_layers=layers, bidirectional=bidirectional, batch_first=form == "batch first")
    batch = 1 if form == "unbatched" else BATCH
    lengths = {"packed": LENGTHS, "packed sorted": LENGTHS.sort(descending=True).values}.get(
        form, torch.full((batch,), STEPS)
    )
    rows = layers * (2 if bidirectional else 1)
    x = torch.randn(STEPS, batch, INPUT, dtype=torch.float64, requires_grad=True)
    h0, c0 = (
        torch.randn(rows, batch, layer.state_size, dtype=torch.float64, requires_grad=True) for _ in "hc"
    )
    results = run_layer(layer, form, x, h0, c0, lengths)

    outputs, last_h, last_c = [], [], []
    for b, length in enumerate(lengths.tolist()):
        output, h, c = dense_layers(layer, x[:length, b], h0[:, b], c0[:, b])
        outputs.append(torch.nn.functional.pad(output, (0, 0, 0, STEPS - length)))
        last_h.append(h)
        last_c.append(c)
    expected = (torch.stack(outputs, 1), torch.stack(last_h, 1), torch.stack(last_c, 1))[: len(results)]

    weights = [torch.randn_like(result) for result in results]
    variables = [x, h0, *([c0] if layer.cell == "lstm" else []), *layer.parameters()]
    gradients = torch.autograd.grad(weighted(results, weights), variables)
    expected_gradients = torch.autograd.grad(weighted(expected, weights), variables)
    for got, want in zip((*results, *gradients), (*expected, *expected_gradients), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10)


def weighted(tensors: tuple[Tensor, ...], weights: list[Tensor]) -> Tensor:
    return sum((tensor * weight).sum() for tensor, weight in zip(tensors, weights, strict=True))


@pytest.mark.parametrize("kind", ["complex modrelu", "complex tanh", "lstm", "gru"])
def test_without_biases(kind: str) -> None:
    torch.manual_seed(0)
    layer = build(kind, bias=False)
    assert not [name for name, _ in layer.named_parameters() if "bias" in name]
    x = torch.randn(STEPS, INPUT, dtype=torch.float64)
    zeros = torch.zeros(1, layer.state_size, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0], dense_layers(layer, x, zeros, zeros)[0])


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("packed", [False, True])
def test_symbols_are_one_hot_vectors(kind: str, packed: bool) -> None:
    torch.manual_seed(0)
    layer = build(kind, num_layers=2, bidirectional=True)
    symbols = torch.randint(INPUT, (STEPS, BATCH))
    one_hot = torch.nn.functional.one_hot(symbols, INPUT).double()
    if packed:
        results = [layer(pack_padded_sequence(x, LENGTHS, enforce_sorted=False)) for x in (symbols, one_hot)]
        outputs = [result[0].data for result in results]
    else:
        results = [layer(symbols), layer(one_hot)]
        outputs = [result[0] for result in results]
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(results[0][1], results[1][1])
    gradients = [torch.autograd.grad(output.square().sum(), layer.weight_ih_l0) for output in outputs]
    torch.testing.assert_close(*gradients)


def test_symbols_in_every_form() -> None:
    layer = kru.KRU(INPUT, HIDDEN)
    first = kru.KRU(INPUT, HIDDEN, batch_first=True)
    first.load_state_dict(layer.state_dict())
    symbols = torch.randint(INPUT, (STEPS, BATCH), dtype=torch.int32)
    output, _ = layer(symbols)
    torch.testing.assert_close(first(symbols.T)[0], output.transpose(0, 1))
    torch.testing.assert_close(layer(symbols[:, 1])[0], output[:, 1])
