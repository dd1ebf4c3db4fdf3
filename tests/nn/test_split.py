"""Splitting a factor: the nearest Kronecker product, with its error."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kru


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([kru.KRU, kru.KRULSTM, kru.KRUGRU]),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from(["soft", "exact"]),
    st.integers(0, 10**6),
)
def test_it_undoes_a_merge(kind, sizes, constraint: str, seed: int) -> None:
    torch.manual_seed(seed)
    factors = [2, *sizes]
    layer = kind(3, 2 * sizes[0] * sizes[1], 2, factors=factors, constraint=constraint, dtype=torch.float64)
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    expected = layer(x)
    parameters = kru.parameter_count(layer).total
    layer.merge(1)
    change = layer.split(1, sizes)
    torch.testing.assert_close(layer(x), expected, rtol=1e-9, atol=1e-9)
    assert change.parameters == parameters
    assert change.error < 1e-9
    assert len(change.errors) == 2 * len(layer.gates)
    # The scale is shared so that both factors are near unitary.
    assert kru.unitary_penalty(layer).item() < 1e-12


@pytest.mark.parametrize("field", ["real", "complex"])
def test_the_error_is_that_of_the_best_product(field: str) -> None:
    torch.manual_seed(0)
    layer = kru.KRU(3, 6, factors=[6], field=field, dtype=torch.float64)
    torch.nn.init.normal_(layer.matrix().factor_0)
    before = kru.kron_dense(layer.matrix().dense_factors())
    change = layer.split(0, (2, 3))
    product = kru.kron_dense(layer.matrix().dense_factors())
    relative = (torch.linalg.norm(before - product) / torch.linalg.norm(before)).item()
    assert change.error == pytest.approx(relative)
    # Van Loan and Pitsianis: the best is the first term of the decomposition of the rearranged matrix.
    blocks = before.reshape(2, 3, 2, 3).transpose(1, 2).reshape(4, 9)
    values = torch.linalg.svdvals(blocks)
    assert relative == pytest.approx((values[1:].square().sum() / values.square().sum()).sqrt().item())


def test_exact_factors_stay_unitary() -> None:
    layer = kru.KRU(3, 6, factors=[6], constraint="exact", dtype=torch.float64)
    before = kru.kron_dense(layer.matrix().dense_factors())
    change = layer.split(0, (2, 3))
    assert kru.spectrum(layer).distance_from_unitary < 1e-12
    product = kru.kron_dense(layer.matrix().dense_factors())
    expected = (torch.linalg.norm(before - product) / torch.linalg.norm(before)).item()
    assert change.error == pytest.approx(expected)
    assert 0.1 < change.error < 1.5
    with pytest.raises(ValueError, match=r'split: expected square factors with constraint="exact"'):
        layer.split(1, [(1, 3), (3, 1)])


def test_rectangular_factors_of_a_linear_layer() -> None:
    layer = kru.KroneckerLinear(12, 10, [(2, 3), (5, 4)], dtype=torch.float64)
    x = torch.randn(7, 12, dtype=torch.float64)
    expected = layer(x)
    layer.merge(0)
    assert layer.split(0, [(2, 3), (5, 4)]).error < 1e-12
    torch.testing.assert_close(layer(x), expected)
    assert layer.shapes == ((2, 3), (5, 4))


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
@pytest.mark.parametrize("field", ["real", "complex"])
def test_moments_come_back(name: str, field: str) -> None:
    """Averages of gradients survive a merge and a split, squares come back in size."""
    torch.manual_seed(0)
    layer = kru.KRU(3, 12, factors=[3, 4], field=field, dtype=torch.float64)
    optimizer = kru.optimizer(layer, name, lr=1e-9)
    x = torch.randn(8, 5, 3, dtype=torch.float64)
    for _ in range(3):
        optimizer.zero_grad()
        layer(x)[0].square().sum().backward()
        optimizer.step()
    known = [copy.deepcopy(optimizer.state[p]) for p in layer.matrix().parameters()]
    layer.merge(0, optimizer=optimizer)
    layer.split(0, (3, 4), optimizer=optimizer)
    for before, parameter in zip(known, layer.matrix().parameters(), strict=True):
        after = optimizer.state[parameter]
        assert after.keys() == before.keys()
        for key in ("exp_avg", "grad_avg"):
            if key in before:
                # A and B are known up to a phase, which is that of their gradients too.
                norms = [torch.linalg.norm(state[key]).item() for state in (before, after)]
                assert norms[1] == pytest.approx(norms[0], rel=1e-6)
        key = "exp_avg_sq" if name == "adam" else "square_avg"
        assert after[key].mean().item() == pytest.approx(before[key].mean().item(), rel=1.0)
        assert after["step"] == before["step"]


@pytest.mark.parametrize(
    ("i", "factors", "kind", "message"),
    [
        (2, (2, 2), ValueError, "i: expected 0 <= i < 2, got 2"),
        ("0", (2, 2), TypeError, "i: expected the position of a factor, got str"),
        (
            0,
            (2, 3),
            ValueError,
            r"factors: expected rows whose product is rows of factor 0=4, got 2 \* 3 = 6",
        ),
        (0, (2, 2, 1), ValueError, "factors: expected two to split factor 0 into, got 3"),
        (0, 2, TypeError, "factors: expected a list of sizes"),
    ],
)
def test_errors(i, factors, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        kru.KRU(3, 12, factors=[4, 3]).split(i, factors)
