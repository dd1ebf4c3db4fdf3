"""Resets inside a sequence give what separate calls with the pieces give, in values and gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import kru
from kru.nn.recurrent import Recurrent

LAYERS: dict[str, Callable[..., Recurrent]] = {
    "KRU": kru.KRU,
    "KRU, tanh": lambda *sizes, **options: kru.KRU(*sizes, field="real", nonlinearity="tanh", **options),
    "KRULSTM": kru.KRULSTM,
    "KRUGRU": kru.KRUGRU,
    "RCURNN": kru.baselines.RCURNN,
    "ExpRNN": kru.baselines.ExpRNN,
    "AntisymmetricRNN": lambda *sizes, **options: kru.baselines.AntisymmetricRNN(*sizes, step=0.3, **options),
    "LRU": kru.baselines.LRU,
    "LRDGRU": kru.baselines.LRDGRU,
    "RHN": kru.baselines.RHN,
    "HyperLSTM": kru.baselines.HyperLSTM,
}
BEGINS = [[0, 3, 4], [0, 6], [0], [0, 1, 2, 8]]
"""First steps of the pieces of each row."""
STEPS = 9
each_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


def mask(begins: list[list[int]] = BEGINS) -> Tensor:
    out = torch.zeros(STEPS, len(begins), dtype=torch.bool)
    for b, row in enumerate(begins):
        out[row[1:], b] = True
    return out


def pieces(model: Recurrent, x: Tensor, lengths: list[int], h: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """Outputs (T, B, S) and the last state of each row, by one call for each piece."""
    rows, last = [], []
    for b, length in enumerate(lengths):
        ends = [*[begin for begin in BEGINS[b][1:] if begin < length], length]
        begin, outputs = 0, []
        for end in ends:
            start = None if h is None or begin else h[:, b : b + 1]
            output, state = model(x[begin:end, b : b + 1], start)
            outputs.append(output)
            begin = end
        rest = x.new_zeros(STEPS - length, 1, model.output_size)
        rows.append(torch.cat([*outputs, rest]))
        last.append(state[0] if isinstance(state, tuple) else state)
    return torch.cat(rows, 1), last


def gradients(model: Recurrent, loss: Tensor, *inputs: Tensor) -> dict[str, Tensor]:
    named = dict(model.named_parameters()) | {f"input {place}": t for place, t in enumerate(inputs)}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {name: g for name, g in zip(named, found, strict=True) if g is not None}


@each_layer
@pytest.mark.parametrize("lengths", [[9, 9, 9, 9], [9, 5, 7, 8]], ids=str)
def test_as_separate_calls(layer: Callable[..., Recurrent], lengths: list[int]) -> None:
    torch.manual_seed(0)
    model = layer(3, 12, dtype=torch.float64)
    x = torch.randn(STEPS, 4, 3, dtype=torch.float64, requires_grad=True)
    given = None if lengths == [9, 9, 9, 9] else torch.tensor(lengths)
    got, state = model(x, lengths=given, reset=mask())
    expected, last = pieces(model, x, lengths, None)
    torch.testing.assert_close(got, expected)
    h = state[0] if isinstance(state, tuple) else state
    torch.testing.assert_close(h, torch.cat(last, 1))
    weights = torch.randn_like(got)
    for (name, a), b in zip(
        gradients(model, (got * weights).sum() + h.sum(), x).items(),
        gradients(model, (expected * weights).sum() + torch.cat(last, 1).sum(), x).values(),
        strict=True,
    ):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


@each_layer
def test_hx_is_where_the_first_piece_starts(layer: Callable[..., Recurrent]) -> None:
    """With a state of an earlier call, only the first pieces continue it; a reset at the first step forgets it."""
    torch.manual_seed(1)
    model = layer(3, 12)
    if len(model.states) > 1:
        pytest.skip("a pair: see the test with all layers and directions")
    x, h = torch.randn(STEPS, 4, 3), torch.randn(1, 4, model.state_size, requires_grad=True)
    got, _ = model(x, h, reset=mask())
    torch.testing.assert_close(got, pieces(model, x, [STEPS] * 4, h)[0])
    at_once = mask()
    at_once[0, 1] = True
    got, _ = model(x, h, reset=at_once)
    torch.testing.assert_close(got[:, 1:2], model(x[:, 1:2], reset=mask()[:, 1:2])[0])
    [dh] = torch.autograd.grad(got.sum(), h)
    assert not dh[:, 1].any()
    assert dh[:, [0, 2, 3]].abs().sum(-1).all()


@each_layer
def test_layers_and_directions(layer: Callable[..., Recurrent]) -> None:
    """Nothing flows from one piece into another, in any layer and direction."""
    torch.manual_seed(2)
    model = layer(3, 12, num_layers=2, bidirectional=True, dtype=torch.float64)
    x = torch.randn(STEPS, 4, 3, dtype=torch.float64, requires_grad=True)
    got, _ = model(x, reset=mask())
    expected, _ = pieces(model, x, [STEPS] * 4, None)
    torch.testing.assert_close(got, expected)
    [a] = torch.autograd.grad(got.square().sum(), x)
    [b] = torch.autograd.grad(expected.square().sum(), x)
    torch.testing.assert_close(a, b)


@each_layer
def test_every_form_of_input(layer: Callable[..., Recurrent]) -> None:
    torch.manual_seed(3)
    model, lengths = layer(3, 12, bidirectional=True), torch.tensor([9, 5, 7, 8])
    x, reset = torch.randn(STEPS, 4, 3), mask()
    expected, last = model(x, lengths=lengths, reset=reset)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    output, state = model(packed, reset=reset)
    assert isinstance(output, PackedSequence)
    torch.testing.assert_close(pad_packed_sequence(output)[0], expected)
    torch.testing.assert_close(state, last)
    alone, _ = model(x[:, 0], reset=reset[:, 0])
    torch.testing.assert_close(alone, expected[:, 0])
    model.batch_first = True
    turned, _ = model(x.transpose(0, 1), lengths=lengths, reset=reset.t())
    torch.testing.assert_close(turned.transpose(0, 1), expected)
    symbols = torch.randint(3, (4, STEPS))
    one_hot = torch.nn.functional.one_hot(symbols, 3).float()
    torch.testing.assert_close(model(symbols, reset=reset.t())[0], model(one_hot, reset=reset.t())[0])


def test_bad_masks_are_named() -> None:
    model, x = kru.KRU(3, 8, batch_first=True), torch.randn(4, STEPS, 3)
    with pytest.raises(ValueError, match=r"reset: expected shape \(4, 9\), got \(9, 4\)"):
        model(x, reset=mask())
    with pytest.raises(TypeError, match=r"reset: expected a mask of dtype torch.bool, got torch.int64"):
        model(x, reset=mask().t().long())
    with pytest.raises(TypeError, match="reset: expected a tensor, got list"):
        model(x, reset=mask().tolist())
    with pytest.raises(ValueError, match=r"reset: expected shape \(9,\), got \(9, 4\)"):
        model(x[0], reset=mask())


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_compiled_and_exported() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([kru.KRU(3, 8), kru.KRULSTM(16, 8, bidirectional=True)])

        def forward(self, x: Tensor, reset: Tensor) -> Tensor:
            for layer in self.layers:
                x, _ = layer(x, reset=reset)
            return x

    torch.compiler.reset()
    model, x, reset = Model(), torch.randn(STEPS, 4, 3), mask()
    expected = model(x, reset)
    exported = torch.export.export(model, (x, reset)).module()
    torch.testing.assert_close(exported(x, reset), expected)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x, reset)
    torch.testing.assert_close(compiled, expected)
    parameters = list(model.parameters())
    for a, b in zip(
        torch.autograd.grad(compiled.sum(), parameters),
        torch.autograd.grad(expected.sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
