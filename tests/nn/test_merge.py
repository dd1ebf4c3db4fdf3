"""Merging factors keeps the function, in every layer, and the optimiser follows."""

import copy
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import kru
from kru.nn.recurrent import Recurrent

CELLS = {"kru": kru.KRU, "lstm": kru.KRULSTM, "gru": kru.KRUGRU}


@st.composite
def layers(draw) -> Recurrent:
    cell = draw(st.sampled_from(sorted(CELLS)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    options = {"field": draw(st.sampled_from(["real", "complex"]))} if cell == "kru" else {}
    constraint = draw(st.sampled_from(["soft", "exact", "none"]))
    factors: list[int | tuple[int, int]] = list(sizes)
    if constraint == "none" and draw(st.booleans()):
        factors = list(zip(sizes, draw(st.permutations(sizes)), strict=True))
    torch.manual_seed(draw(st.integers(0, 10**6)))
    layer = CELLS[cell](
        3,
        prod(sizes),
        draw(st.integers(1, 2)),
        bidirectional=draw(st.booleans()),
        factors=factors,
        constraint=constraint,
        dtype=torch.float64,
        **options,
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def outputs_and_input_gradient(layer: Recurrent, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    output, state = layer(x)
    states = state if isinstance(state, tuple) else (state,)
    (gradient,) = torch.autograd.grad(output.square().sum(), x)
    return [output, *states, gradient]


@settings(max_examples=60, deadline=None)
@given(layers(), st.data())
def test_the_function_is_the_same(layer: Recurrent, data) -> None:
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    before = outputs_and_input_gradient(layer, x)
    count = kru.parameter_count(layer)
    shapes = layer.matrix().shapes
    i = data.draw(st.integers(0, len(shapes) - 2))
    change = layer.merge(i)
    torch.testing.assert_close(outputs_and_input_gradient(layer, x), before, rtol=1e-11, atol=1e-12)
    (p, q), (r, s) = shapes[i], shapes[i + 1]
    assert layer.matrix().shapes == (*shapes[:i], (p * r, q * s), *shapes[i + 2 :])
    assert (change.parameters_before, change.parameters) == (count.total, kru.parameter_count(layer).total)


@settings(max_examples=30, deadline=None)
@given(layers())
def test_a_merged_layer_is_one_that_was_built_so(layer: Recurrent) -> None:
    merged = copy.deepcopy(layer)
    while len(merged.matrix().shapes) > 1:
        merged.merge(0)
    options = {"field": layer.field} if isinstance(layer, kru.KRU) else {}
    built = type(layer)(
        3,
        layer.hidden_size,
        layer.num_layers,
        bidirectional=layer.bidirectional,
        factors=[layer.hidden_size],
        constraint=layer.matrix().constraint,
        dtype=torch.float64,
        **options,
    )
    assert [name for name, _ in merged.named_parameters()] == [name for name, _ in built.named_parameters()]
    built.load_state_dict(merged.state_dict())
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(built(x), merged(x), rtol=0, atol=0)
    torch.testing.assert_close(merged(x), layer(x), rtol=1e-11, atol=1e-12)
    assert repr(merged) == repr(built)


@pytest.mark.parametrize("constraint", ["soft", "exact"])
def test_one_layer_and_direction_alone(constraint: str) -> None:
    layer = kru.KRULSTM(
        3, 12, 2, bidirectional=True, factors=[2, 2, 3], constraint=constraint, dtype=torch.float64
    )
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    expected = layer(x)[0]
    layer.merge(1, layer=1, reverse=True)
    torch.testing.assert_close(layer(x)[0], expected)
    assert layer.matrix(1, reverse=True).shapes == ((2, 2), (6, 6))
    others = [layer.matrix(0), layer.matrix(0, reverse=True), layer.matrix(1)]
    assert [matrix.shapes for matrix in others] == [((2, 2), (2, 2), (3, 3))] * 3
    # Not all matrices have a third factor now, so none is touched.
    with pytest.raises(ValueError, match=r"i: expected 0 <= i < 1 to merge .* of 2x2 ⊗ 6x6, got 1"):
        layer.merge(1)
    assert [matrix.shapes for matrix in others] == [((2, 2), (2, 2), (3, 3))] * 3
    layer.merge(0, layer=0)
    assert layer.matrix(0, reverse=True).shapes == ((4, 4), (3, 3))


@pytest.mark.parametrize("factors", [[(2, 3), (5, 4)], [(1, 2), (10, 2), (1, 3)], [(2, 2), (5, 2), (1, 3)]])
def test_linear(factors: list[tuple[int, int]]) -> None:
    layer = kru.KroneckerLinear(12, 10, factors, dtype=torch.float64)
    x = torch.randn(7, 12, dtype=torch.float64)
    expected = layer(x)
    change = layer.merge(0)
    torch.testing.assert_close(layer(x), expected)
    assert layer.shapes == ((factors[0][0] * factors[1][0], factors[0][1] * factors[1][1]), *factors[2:])
    built = kru.KroneckerLinear(12, 10, layer.shapes, dtype=torch.float64)
    assert [name for name, _ in layer.named_parameters()] == [name for name, _ in built.named_parameters()]
    assert change.parameters == kru.parameter_count(built).total


def test_exact_factors_stay_unitary() -> None:
    layer = kru.KRU(3, 12, factors=[2, 2, 3], constraint="exact")
    nn.init.normal_(layer.matrix().skew_0)
    layer.merge(0)
    assert kru.spectrum(layer).distance_from_unitary < 1e-5
    nn.init.normal_(layer.matrix().skew_0)
    assert kru.spectrum(layer).distance_from_unitary < 1e-5
    assert layer.merge(0).penalty == 0


def test_the_jump_of_the_penalty_is_reported() -> None:
    layer = kru.KRU(3, 6, factors=[2, 3], field="real", dtype=torch.float64)
    with torch.no_grad():
        layer.matrix().factor_0.mul_(1.1)
    before = kru.unitary_penalty(layer).item()
    change = layer.merge(0)
    assert change.penalty_before == before
    assert change.penalty == kru.unitary_penalty(layer).item()
    # Each of the two equal defects of the first factor is in W three times.
    assert change.penalty == pytest.approx(3 * before)


def test_rectangular_factors_have_no_penalty() -> None:
    layer = kru.KRU(3, 6, factors=[(2, 3), (3, 2)])
    change = layer.merge(0)
    assert change.penalty_before is None
    assert change.penalty is not None


def test_frozen_and_half_precision() -> None:
    layer = kru.KRU(3, 6, train_recurrent=False).bfloat16()
    layer.merge(0)
    assert layer.matrix().factor_0.dtype == torch.bfloat16
    assert not layer.matrix().factor_0.requires_grad


@pytest.mark.parametrize("constraint", ["soft", "exact"])
@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_training_goes_on(name: str, constraint: str) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"rnn": kru.KRULSTM(3, 8, constraint=constraint), "head": nn.Linear(8, 1)})
    optimizer = kru.optimizer(model, name, lr=0.01)
    x = torch.randn(6, 16, 3)

    def step() -> float:
        loss = (model["head"](model["rnn"](x)[0]) - x.cumsum(0)[..., :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(20)]
    model["rnn"].merge(0, optimizer=optimizer)
    model["rnn"].merge(0, optimizer=optimizer)
    before = copy.deepcopy(model["rnn"].matrix())
    losses += [step() for _ in range(20)]
    assert losses[-1] < 0.9 * losses[19]
    pairs = list(zip(before.parameters(), model["rnn"].matrix().parameters(), strict=True))
    assert all(not torch.equal(old, new) for old, new in pairs)
    # An optimiser built for the merged model has its parameters in the same order: checkpoints fit.
    fresh = kru.optimizer(model, name, lr=0.01)
    for group, other in zip(optimizer.param_groups, fresh.param_groups, strict=True):
        assert [id(p) for p in group["params"]] == [id(p) for p in other["params"]]
    fresh.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("field", ["real", "complex"])
def test_derived_squares_are_of_the_size_of_the_gradients(field: str) -> None:
    """Gradients of a recurrence aren't independent entries; the estimate that assumes so has the right size."""
    torch.manual_seed(0)
    layer = kru.KRU(3, 20, factors=[4, 5], field=field)
    head = nn.Linear(layer.output_size, 1)
    # The average of all squares so far: what Adam has when it forgets nothing and nothing moves.
    optimizer = torch.optim.Adam(layer.matrix().parameters(), lr=0.0, betas=(0.9, 0.9999))

    def backward(x: Tensor) -> None:
        layer.zero_grad()
        (head(layer(x)[0]) - x.cumsum(0)[..., :1]).square().mean().backward()

    batches = torch.randn(150, 10, 8, 3)
    for x in batches:
        backward(x)
        optimizer.step()
    layer.merge(0, optimizer=optimizer)
    merged = layer.matrix().factor_0
    derived = optimizer.state[merged]["exp_avg_sq"] / (1 - 0.9999 ** len(batches))
    true = torch.zeros_like(merged)
    for x in batches:
        backward(x)
        true += merged.grad.square() / len(batches)
    assert 0.5 < derived.mean().item() / true.mean().item() < 2


@pytest.mark.parametrize(
    ("i", "kind", "message"),
    [
        (2, ValueError, "i: expected 0 <= i < 2 to merge factors i and i . 1 of 2x2 ⊗ 2x2 ⊗ 3x3, got 2"),
        (-1, ValueError, "got -1"),
        (True, TypeError, "i: expected the position of a factor, got bool"),
    ],
)
def test_errors(i: int, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        kru.KRU(3, 12).merge(i)


def test_a_single_factor_has_no_neighbour() -> None:
    with pytest.raises(ValueError, match="expected two factors at least"):
        kru.KroneckerLinear(5, 5, [5]).merge(0)
