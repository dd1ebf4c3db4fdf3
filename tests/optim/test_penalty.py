import math

import pytest
import torch
from torch import nn

import kru
from kru.matrices import RecurrentMatrix


def disturbed(layer: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def dense_penalty(model: nn.Module) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for matrix in model.modules():
        if isinstance(matrix, RecurrentMatrix) and matrix.constraint == "soft":
            for gate in range(matrix.gates):
                factors = matrix.dense_factors(gate)
                scale = 1.0
                if matrix.rank > 1:
                    sizes = [size for size, _ in matrix.shapes]
                    scale = sum(sizes) / len(sizes) / math.prod(sizes)
                    factors = [kru.kron_dense(factors)]
                for w in factors:
                    total = total + scale * (w.mH @ w - torch.eye(w.shape[0])).abs().square().sum()
    return total


def test_value_and_gradient_over_all_factors_of_a_model() -> None:
    torch.manual_seed(0)
    model = nn.ModuleList(
        disturbed(layer.double())
        for layer in (
            kru.KRU(3, 12, 2, bidirectional=True),
            kru.KRU(3, 8, field="real"),
            kru.KRULSTM(3, 6),
            kru.KRUGRU(3, 6),
            kru.KRU(3, 8, constraint="exact"),
            kru.KRU(3, 8, constraint="none"),
            kru.KRU(3, 12, rank=3),
            kru.KRUGRU(3, 6, rank=2),
            kru.KroneckerLinear(12, 10),
            nn.LSTM(3, 4),
        )
    )
    penalty, expected = kru.unitary_penalty(model), dense_penalty(model)
    torch.testing.assert_close(penalty, expected)
    parameters = [p for m in model.modules() if isinstance(m, RecurrentMatrix) for p in m.parameters()]
    gradients = [
        torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        for value in (penalty, expected)
    ]
    torch.testing.assert_close(*gradients)


def test_gradient_descent_on_the_penalty_gives_a_unitary_matrix() -> None:
    torch.manual_seed(0)
    layer = disturbed(kru.KRU(3, 12))
    optimizer = kru.optimizer(layer, "adam", lr=0.1, recurrent_lr=0.02)
    assert kru.spectrum(layer).distance_from_unitary > 0.1
    for _ in range(300):
        optimizer.zero_grad()
        kru.unitary_penalty(layer).backward()
        optimizer.step()
    assert kru.spectrum(layer).distance_from_unitary < 1e-3


def test_zero_without_soft_factors() -> None:
    assert kru.unitary_penalty(nn.LSTM(3, 4)) == 0
    assert kru.unitary_penalty(nn.ReLU()) == 0
    assert kru.unitary_penalty(kru.KRU(3, 4, constraint="exact")) == 0


def test_half_precision_is_computed_in_float32() -> None:
    penalty = kru.unitary_penalty(kru.KRU(3, 4).bfloat16())
    assert penalty.dtype == torch.float32
    penalty.backward()


def test_autocast_does_not_lower_the_precision() -> None:
    layer = disturbed(kru.KRU(3, 12))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        penalty = kru.unitary_penalty(layer)
    assert torch.equal(penalty, kru.unitary_penalty(layer))


def test_rectangular_factors_are_refused() -> None:
    model = nn.Sequential(kru.KRU(3, 6, factors=[(2, 3), (3, 2)]))
    with pytest.raises(ValueError, match=r'2x3 ⊗ 3x2.* in 0.recurrent_l0.*constraint="none"'):
        kru.unitary_penalty(model)


def test_only_modules() -> None:
    with pytest.raises(TypeError, match=r"module: expected a module .*, got list"):
        kru.unitary_penalty([torch.eye(2)])


def test_of_a_sum_is_as_strong_as_of_one_product() -> None:
    """One factor's Gram matrix is off by a matrix of trace zero; the sum has a second term that is still zero."""
    one, two = kru.KRU(3, 27, field="real").double(), kru.KRU(3, 27, field="real", rank=2).double()
    with torch.no_grad():
        scales = torch.tensor([1.1, 0.9, 1.0], dtype=torch.float64).sqrt()
        one.matrix().factor_1.mul_(scales)
        two.matrix().factor_1[0].mul_(scales)
    assert kru.unitary_penalty(one).item() == pytest.approx(0.02)
    assert kru.unitary_penalty(two).item() == pytest.approx(0.02)
    loss = kru.unitary_penalty(kru.KRU(3, 2**12, rank=3))  # rounding in float32 stays far below what matters
    assert abs(loss.item()) < 1e-6
