"""Factors that are unitary by construction."""

import pytest
import torch

import kru
from kru.matrices import UnitaryKroneckerMatrix

FIELDS = [("real", 1), ("complex", 1), ("real", 4)]


def build(field: str, gates: int) -> UnitaryKroneckerMatrix:
    shapes = tuple((n, n) for n in (1, 2, 2, 3))
    return UnitaryKroneckerMatrix(shapes, field=field, gates=gates, dtype=torch.float64)


@pytest.mark.parametrize(("field", "gates"), FIELDS)
def test_unitary_whatever_the_parameters(field: str, gates: int) -> None:
    torch.manual_seed(0)
    matrix = build(field, gates)
    for parameter in matrix.parameters():
        torch.nn.init.normal_(parameter, std=3)
    for gate in range(gates):
        for w in matrix.dense_factors(gate):
            torch.testing.assert_close(w.mH @ w, torch.eye(w.shape[0], dtype=w.dtype))


def test_large_factors_of_several_gates_on_several_threads() -> None:
    """torch factors such a batch in parallel, which MKL does not bear."""
    matrix = UnitaryKroneckerMatrix(((160, 160),), field="real", gates=4, dtype=torch.float64)
    for parameter in matrix.parameters():
        torch.nn.init.normal_(parameter)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (factor,) = matrix.factors()
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(factor.mT @ factor, torch.eye(160, dtype=factor.dtype).expand(4, -1, -1))


@pytest.mark.parametrize(("field", "gates"), FIELDS)
def test_starts_at_its_base(field: str, gates: int) -> None:
    matrix = build(field, gates)
    for f, factor in enumerate(matrix.factors()):
        torch.testing.assert_close(factor, getattr(matrix, f"base_{f}"))


@pytest.mark.parametrize(("field", "gates"), FIELDS)
def test_gradients(field: str, gates: int) -> None:
    matrix = build(field, gates)
    names = [name for name, p in matrix.named_parameters() if p.numel()]
    values = [torch.randn_like(matrix.get_parameter(name), requires_grad=True) for name in names]

    def factors(*parameters: torch.Tensor) -> list[torch.Tensor]:
        replaced = dict(zip(names, parameters, strict=True))
        return list(
            torch.func.functional_call(Factors(matrix), {f"matrix.{k}": v for k, v in replaced.items()}, ())
        )

    assert torch.autograd.gradcheck(lambda *p: tuple(factors(*p)), values)


class Factors(torch.nn.Module):
    def __init__(self, matrix: UnitaryKroneckerMatrix) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self) -> list[torch.Tensor]:
        return self.matrix.factors()


def test_every_direction_of_the_unitary_set_is_reached() -> None:
    """At the start the map's Jacobian has full rank: as many directions as free parameters."""
    matrix = UnitaryKroneckerMatrix(((3, 3),), field="complex", dtype=torch.float64)
    wrapper = Factors(matrix)

    def factor(skew: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(wrapper, {"matrix.skew_0": skew}, ())[0]

    jacobian = torch.autograd.functional.jacobian(factor, matrix.skew_0.detach())
    assert torch.linalg.matrix_rank(jacobian.reshape(18, 9)) == 9


def test_training_keeps_a_layer_unitary() -> None:
    torch.manual_seed(0)
    layer = kru.KRU(3, 12, constraint="exact")
    before = kru.kron_dense(layer.matrix().dense_factors()).detach()
    optimizer = kru.optimizer(layer, "adam", lr=0.1)
    x = torch.randn(5, 2, 3)
    for _ in range(20):
        optimizer.zero_grad()
        layer(x)[0][..., 0].sum().backward()
        optimizer.step()
    assert (kru.kron_dense(layer.matrix().dense_factors()) - before).abs().max() > 0.1
    assert kru.spectrum(layer).distance_from_unitary < 1e-5


def test_factors_are_computed_once_per_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    computed = UnitaryKroneckerMatrix.factors
    monkeypatch.setattr(UnitaryKroneckerMatrix, "factors", lambda self: calls.append(self) or computed(self))
    kru.KRU(3, 12, constraint="exact")(torch.randn(50, 2, 3))
    assert len(calls) == 1
