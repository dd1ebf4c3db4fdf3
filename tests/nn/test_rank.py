"""Layers whose matrix is a sum of Kronecker products: start, learning, storage, errors."""

import copy

import pytest
import torch
from torch import nn

import kru

LAYERS = {"kru": kru.KRU, "lstm": kru.KRULSTM, "gru": kru.KRUGRU}


@pytest.mark.parametrize("init", ["haar", "identity", "diagonal"])
@pytest.mark.parametrize("kind", LAYERS)
def test_starts_unitary_as_its_first_term(kind: str, init: str) -> None:
    layer = LAYERS[kind](3, 12, rank=3, recurrent_init=init, dtype=torch.float64)
    matrix = layer.matrix()
    for gate in range(matrix.gates):
        factors = matrix.dense_factors(gate)
        w = kru.kron_dense(factors)
        torch.testing.assert_close(w, kru.kron_dense([factor[0] for factor in factors]))
        torch.testing.assert_close(w.mH @ w, torch.eye(12, dtype=w.dtype))
    assert kru.unitary_penalty(layer).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_every_term_learns(kind: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[kind](3, 8, rank=3)
    before = copy.deepcopy(layer.matrix())
    x, wanted = torch.randn(6, 5, 3), torch.randn(6, 5, layer.output_size)
    optimizer = kru.optimizer(layer, "adam", lr=1e-2, recurrent_lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(layer(x)[0], wanted).backward()
        optimizer.step()
    for old, new in zip(before.factors(), layer.matrix().factors(), strict=True):
        assert (old - new).abs().flatten(1).max(1).values.min() > 1e-3


def test_storage_and_description() -> None:
    layer, other = kru.KRULSTM(3, 12, factors=[4, 3], rank=2), kru.KRULSTM(3, 12, factors=[4, 3], rank=2)
    assert layer.recurrent_l0.factor_0.shape == (2, 4, 4, 4)
    assert layer.recurrent_l0.factor_1.shape == (2, 4, 3, 3)
    assert kru.parameter_count(layer).recurrent == 2 * 4 * (16 + 9)
    assert "4 x 4x4 ⊗ 3x3, rank=2, field=real" in repr(layer)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(5, 2, 3)
    assert torch.equal(layer(x)[0], other(x)[0])
    half = copy.deepcopy(layer).to(torch.bfloat16)
    assert half(x.to(torch.bfloat16))[0].dtype == torch.bfloat16
    assert kru.KRU(3, 12, rank=1).recurrent_l0.factor_0.shape == (2, 2, 2)


def test_compiled_and_step_by_step() -> None:
    layer = kru.KRU(3, 12, rank=2)
    nn.init.normal_(layer.recurrent_l0.factor_0, std=0.5)
    x = torch.randn(5, 2, 3)
    output, last = layer(x)
    assert torch.equal(torch.compile(layer, backend="eager", fullgraph=True)(x)[0], output)
    state = None
    for t in range(5):
        y, state = layer.step(x[t], state)
        torch.testing.assert_close(y, output[t])
    torch.testing.assert_close(state, last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear(dtype: torch.dtype) -> None:
    layer = kru.KroneckerLinear(12, 10, rank=4).to(dtype)
    assert repr(layer) == "KroneckerLinear(12, 10, 2x3 ⊗ 5x4, rank=4, bias=True)"
    assert layer.factor_1.shape == (4, 5, 4)
    x = torch.randn(7, 12).to(dtype)
    w = kru.kron_dense([factor.float() for factor in layer.factors])
    expected = x.float() @ w.mT + layer.bias.float()
    torch.testing.assert_close(
        layer(x), expected.to(dtype), rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-2
    )


@pytest.mark.parametrize("rank", [1, 6])
def test_linear_keeps_the_variance(rank: int) -> None:
    torch.manual_seed(0)
    layer = kru.KroneckerLinear(64, 64, [8, 8], bias=False, rank=rank)
    assert 0.8 < layer(torch.randn(1000, 64)).var().item() < 1.2


@pytest.mark.parametrize(
    ("rank", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)]
)
def test_bad_rank(rank: object, error: type[Exception]) -> None:
    for make in (lambda: kru.KRU(3, 8, rank=rank), lambda: kru.KroneckerLinear(8, 8, rank=rank)):
        with pytest.raises(error, match="rank: expected"):
            make()


def test_a_sum_is_not_exactly_unitary() -> None:
    with pytest.raises(ValueError, match=r'rank: expected 1 with constraint="exact", got 2'):
        kru.KRU(3, 8, constraint="exact", rank=2)
