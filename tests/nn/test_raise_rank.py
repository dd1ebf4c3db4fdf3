"""More terms in the sum of Kronecker products: exactly the same function, and the new terms learn."""

from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kru


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([kru.KRU, kru.KRULSTM, kru.KRUGRU]),
    st.lists(st.integers(1, 4), min_size=2, max_size=3),
    st.sampled_from(["real", "complex"]),
    st.integers(1, 2),
    st.booleans(),
    st.integers(1, 2),
    st.integers(0, 10**6),
)
def test_the_function_is_the_same(kind, sizes, field, layers, bidirectional, by, seed) -> None:
    torch.manual_seed(seed)
    options = {"field": field} if kind is kru.KRU else {}
    layer = kind(
        3, prod(sizes), layers, bidirectional=bidirectional, factors=sizes, dtype=torch.float64, **options
    )
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    expected = layer(x)
    count = kru.parameter_count(layer).recurrent
    penalty = kru.unitary_penalty(layer).item()
    for rank in (1 + by, 1 + 2 * by):
        change = layer.raise_rank(by)
        torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)
        assert layer.matrix().rank == rank
        assert kru.parameter_count(layer).recurrent == rank * count
        assert change.penalty == pytest.approx(penalty, abs=1e-9)
    # Merging keeps the function of a sum as well.
    layer.merge(0)
    torch.testing.assert_close(layer(x), expected, rtol=1e-11, atol=1e-12)
    built = kind(
        3,
        layer.hidden_size,
        layers,
        bidirectional=bidirectional,
        factors=[rows for rows, _ in layer.matrix().shapes],
        rank=layer.matrix().rank,
        dtype=torch.float64,
        **options,
    )
    built.load_state_dict(layer.state_dict())
    torch.testing.assert_close(built(x), layer(x), rtol=0, atol=0)
    assert repr(built) == repr(layer)


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_new_terms_learn(name: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"rnn": kru.KRUGRU(3, 12, factors=[3, 4]), "head": torch.nn.Linear(12, 1)})
    optimizer = kru.optimizer(model, name, lr=0.01)
    x = torch.randn(6, 16, 3)

    def step() -> float:
        loss = (model["head"](model["rnn"](x)[0]) - x.cumsum(0)[..., :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(20)]
    matrix = model["rnn"].matrix()
    squares = "exp_avg_sq" if name == "adam" else "square_avg"
    known = [optimizer.state[factor][squares].clone() for factor in matrix.parameters()]
    model["rnn"].raise_rank(2, optimizer=optimizer)
    for before, factor in zip(known, matrix.parameters(), strict=True):
        state = optimizer.state[factor]
        assert torch.equal(state[squares][0], before)
        assert state[squares][2].mean((-2, -1)) == pytest.approx(before.mean((-2, -1)))
        assert state["step"] == 20
        if name == "adam":
            assert not state["exp_avg"][1:].any()
    drawn = matrix.factor_1[1:].detach().clone()
    assert not matrix.factor_0[1:].any()
    losses += [step() for _ in range(20)]
    assert losses[-1] < 0.9 * losses[19]
    assert matrix.factor_0[1:].abs().min() > 0
    assert not torch.equal(matrix.factor_1[1:], drawn)
    fresh = kru.optimizer(model, name, lr=0.01)
    for group, other in zip(optimizer.param_groups, fresh.param_groups, strict=True):
        assert [id(p) for p in group["params"]] == [id(p) for p in other["params"]]


def test_one_layer_alone_and_linear() -> None:
    layer = kru.KRU(3, 6, 2, dtype=torch.float64)
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    expected = layer(x)
    layer.raise_rank(layer=1)
    torch.testing.assert_close(layer(x), expected)
    assert [layer.matrix(k).rank for k in (0, 1)] == [1, 2]
    linear = kru.KroneckerLinear(12, 10, dtype=torch.float64)
    x = torch.randn(7, 12, dtype=torch.float64)
    expected = linear(x)
    change = linear.raise_rank(2)
    torch.testing.assert_close(linear(x), expected, rtol=0, atol=0)
    assert linear.rank == 3
    assert change.parameters - change.parameters_before == 2 * (2 * 3 + 5 * 4)
    names = [name for name, _ in kru.KroneckerLinear(12, 10, rank=3).named_parameters()]
    assert [name for name, _ in linear.named_parameters()] == names


def test_errors() -> None:
    with pytest.raises(ValueError, match="by: expected at least one term, got 0"):
        kru.KRU(3, 6).raise_rank(0)
    with pytest.raises(TypeError, match="by: expected a number of terms, got float"):
        kru.KRU(3, 6).raise_rank(1.0)
    with pytest.raises(ValueError, match="a sum of dense matrices is one dense matrix"):
        kru.KRU(3, 6, factors=[6]).raise_rank()
    with pytest.raises(ValueError, match=r'raise_rank: expected constraint="soft" or "none", got "exact"'):
        kru.KRU(3, 6, constraint="exact").raise_rank()
