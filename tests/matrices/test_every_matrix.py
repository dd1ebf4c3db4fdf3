"""One test case for every parametrisation of a recurrent matrix: each supplies how to make it and its equation."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from kru.matrices import (
    AntisymmetricMatrix,
    ExponentialMatrix,
    FullUnitaryMatrix,
    HouseholderMatrix,
    KroneckerMatrix,
    RecurrentMatrix,
    RestrictedUnitaryMatrix,
    RotationMatrix,
    UnitaryKroneckerMatrix,
)
from kru.nn.spectrum import Spectrum
from kru.ops import kron_dense
from kru.optim import optimizer

N = 6


@dataclass
class Case:
    """How to make a matrix of a size, W by its equation, and how many parameters it has by formula."""

    make: Callable[..., RecurrentMatrix]
    dense: Callable[[RecurrentMatrix], Tensor]
    count: Callable[[int], int]
    size: int = N


def phase(angle: Tensor) -> Tensor:
    return torch.exp(1j * angle)


def restricted(matrix: RestrictedUnitaryMatrix) -> Tensor:
    size = len(matrix.permutation)
    k = torch.arange(size, dtype=torch.float64)
    fourier = phase(-2 * math.pi * torch.outer(k, k) / size) / math.sqrt(size)
    permute = torch.eye(size, dtype=fourier.dtype)[matrix.permutation]
    d = [torch.diag(phase(row)) for row in matrix.phases]
    r = [reflection(torch.complex(*v)) for v in matrix.reflections]
    return d[2] @ r[1] @ fourier.mH @ d[1] @ permute @ r[0] @ fourier @ d[0]


def reflection(v: Tensor) -> Tensor:
    return torch.eye(len(v), dtype=v.dtype) - 2 * torch.outer(v, v.conj()) / v.abs().square().sum()


def householder(matrix: HouseholderMatrix) -> Tensor:
    size, count = matrix.size, matrix.reflections
    vectors = torch.zeros(size, count, dtype=matrix.vectors.dtype)
    entries = iter(matrix.vectors)
    for i in range(size):
        for k in range(min(i + 1, count)):
            vectors[i, k] = next(entries)
    w = torch.eye(size, dtype=vectors.dtype)
    for k in range(count):
        if k == size - 1:
            w = w @ torch.diag(torch.tensor([1.0] * k + [vectors[k, k].sign().item()], dtype=w.dtype))
        else:
            w = w @ reflection(vectors[:, k])
    return w


def rotations(matrix: RotationMatrix) -> Tensor:
    size = matrix.size
    w = torch.diag(phase(matrix.omega))
    angles = iter(zip(matrix.theta, matrix.phi, strict=True))
    for layer in range(matrix.capacity):
        if matrix.arrangement == "tunable":
            pairs = [(a, a + 1) for a in range(layer % 2, size - 1, 2)]
        else:
            distance = size // 2 ** (layer + 1)
            pairs = [(a, a + distance) for a in range(size) if not a & distance]
        turn = torch.eye(size, dtype=w.dtype)
        for a, b in pairs:
            theta, phi = next(angles)
            turn[a, a], turn[a, b] = phase(phi) * theta.cos(), -phase(phi) * theta.sin()
            turn[b, a], turn[b, b] = theta.sin(), theta.cos()
        w = w @ turn
    return w


def exponential(matrix: ExponentialMatrix) -> Tensor:
    a = torch.zeros(matrix.size, matrix.size, dtype=matrix.skew.dtype)
    a[tuple(torch.tril_indices(matrix.size, matrix.size, -1))] = matrix.skew
    values, vectors = torch.linalg.eigh(1j * (a - a.T))
    return ((vectors * phase(-values)) @ vectors.mH).real


def antisymmetric(matrix: AntisymmetricMatrix) -> Tensor:
    m = torch.zeros(matrix.size, matrix.size, dtype=matrix.skew.dtype)
    m[tuple(torch.tril_indices(matrix.size, matrix.size, -1))] = matrix.skew
    return m - m.T - matrix.diffusion * torch.eye(matrix.size)


def kronecker(matrix: RecurrentMatrix) -> Tensor:
    return kron_dense(matrix.dense_factors())


def three_layers(size: int) -> int:
    return sum(2 * ((size - layer % 2) // 2) for layer in range(3)) + size


def shapes(size: int) -> tuple[tuple[int, int], ...]:
    return ((2, 2), (size // 2, size // 2))


CASES = {
    "kronecker": Case(
        lambda n, **o: KroneckerMatrix(shapes(n), field="complex", **o), kronecker, lambda n: 8 + 2 * (n // 2) ** 2
    ),
    "kronecker exact": Case(
        lambda n, **o: UnitaryKroneckerMatrix(shapes(n), field="complex", **o), kronecker, lambda n: 4 + (n // 2) ** 2
    ),
    "restricted": Case(RestrictedUnitaryMatrix, restricted, lambda n: 7 * n),
    "full": Case(FullUnitaryMatrix, lambda m: torch.complex(*m.unitary), lambda n: 2 * n * n),
    "one reflection": Case(lambda n, **o: HouseholderMatrix(n, 1, **o), householder, lambda n: n),
    "reflections": Case(lambda n, **o: HouseholderMatrix(n, 4, **o), householder, lambda n: 4 * n - 6),
    "all reflections": Case(HouseholderMatrix, householder, lambda n: n * (n + 1) // 2),
    "rotations": Case(lambda n, **o: RotationMatrix(n, 3, **o), rotations, three_layers),
    "rotations, odd": Case(lambda n, **o: RotationMatrix(n, 3, **o), rotations, three_layers, size=5),
    "rotations, fft": Case(
        lambda n, **o: RotationMatrix(n, arrangement="fft", **o), rotations, lambda n: n * n.bit_length(), size=8
    ),
    "exponential": Case(ExponentialMatrix, exponential, lambda n: n * (n - 1) // 2),
    "exponential, odd": Case(ExponentialMatrix, exponential, lambda n: n * (n - 1) // 2, size=5),
    "antisymmetric": Case(lambda n, **o: AntisymmetricMatrix(n, 0.3, **o), antisymmetric, lambda n: n * (n - 1) // 2),
}  # fmt: skip
every_matrix = pytest.mark.parametrize("case", list(CASES.values()), ids=list(CASES))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def make(case: Case, **options: object) -> RecurrentMatrix:
    return case.make(case.size, **{"dtype": torch.float64, **options})


@every_matrix
def test_is_what_its_equation_says(case: Case) -> None:
    matrix = make(case)
    torch.testing.assert_close(kron_dense(matrix.dense_factors()), case.dense(matrix))


@every_matrix
def test_parameters_by_formula(case: Case) -> None:
    for size in (case.size, 2 * case.size):
        assert sum(p.numel() for p in case.make(size).parameters()) == case.count(size)


@every_matrix
def test_factors_have_the_declared_shapes(case: Case) -> None:
    matrix = make(case)
    planes = (2,) if matrix.field == "complex" else ()
    assert [tuple(factor.shape) for factor in matrix.factors()] == [(*planes, *s) for s in matrix.shapes]
    assert matrix.extra_repr().startswith(" ⊗ ".join(f"{p}x{q}" for p, q in matrix.shapes))


@every_matrix
def test_gradients(case: Case) -> None:
    matrix = make(case)
    names = [name for name, _ in matrix.named_parameters()]

    def factors(*values: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            torch.func.functional_call(
                Factors(matrix), {f"matrix.{n}": v for n, v in zip(names, values, strict=True)}
            )
        )

    values = [p.detach().clone().requires_grad_() for p in matrix.parameters()]
    assert torch.autograd.gradcheck(factors, values)


class Factors(torch.nn.Module):
    def __init__(self, matrix: RecurrentMatrix) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self) -> list[Tensor]:
        return self.matrix.factors()


@every_matrix
@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_unitary_before_and_after_training_steps(case: Case, name: str) -> None:
    matrix = make(case, dtype=torch.float32)
    before = kron_dense(matrix.dense_factors()).detach()
    target = torch.randn_like(before)
    steps = optimizer(matrix, name, recurrent_lr=0.03)
    first = last = 0.0
    for step in range(50):
        steps.zero_grad()
        loss = (kron_dense(matrix.dense_factors()) - target).abs().square().sum()
        loss.backward()
        steps.step()
        first, last = (loss.item() if step == 0 else first), loss.item()
    after = kron_dense(matrix.dense_factors()).detach()
    assert (after - before).abs().max() > 0.05
    assert last < first
    if matrix.constraint == "exact":
        for w in (before, after):
            assert (w.mH @ w - torch.eye(case.size)).abs().max() < 2e-6


@every_matrix
def test_spectrum(case: Case) -> None:
    matrix = make(case)
    spectrum = Spectrum([factor.detach() for factor in matrix.dense_factors()])
    torch.testing.assert_close(spectrum.singular_values, torch.linalg.svdvals(case.dense(matrix)))
    if matrix.constraint == "none":
        torch.testing.assert_close(
            spectrum.eigenvalues.real, torch.full((case.size,), -0.3, dtype=torch.float64)
        )
    else:
        assert spectrum.distance_from_unitary < 1e-12


@every_matrix
def test_state_dict_and_reset(case: Case) -> None:
    matrix, other = make(case), make(case)
    assert not torch.equal(matrix.factors()[0], other.factors()[0])
    other.load_state_dict(matrix.state_dict())
    assert torch.equal(matrix.factors()[0], other.factors()[0])
    drawn = []
    for each in (matrix, other):
        torch.manual_seed(1)
        each.reset_parameters()
        drawn.append(each.factors()[0])
    assert torch.equal(*drawn)


@every_matrix
@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_precision_is_storage(case: Case, stored: torch.dtype) -> None:
    matrix = make(case, dtype=torch.float32).to(stored)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        factors = matrix.factors()
    assert {factor.dtype for factor in factors} == {torch.float32}
    if matrix.constraint == "exact":
        assert Spectrum([f.detach() for f in matrix.dense_factors()]).distance_from_unitary < 2e-6


@every_matrix
def test_meta_device(case: Case) -> None:
    matrix = make(case, device="meta")
    assert {t.device.type for t in matrix.state_dict().values()} == {"meta"}
    matrix = matrix.to_empty(device="cpu")
    matrix.reset_parameters()
    assert kron_dense(matrix.dense_factors()).isfinite().all()


@every_matrix
def test_large_matrices_are_unitary_in_single_precision(case: Case) -> None:
    matrix = make(Case(case.make, case.dense, case.count, 64), dtype=torch.float32)
    if matrix.constraint == "exact":
        w = kron_dense(matrix.dense_factors()).detach()
        assert (w.mH @ w - torch.eye(64)).abs().max() < 1e-5


def test_errors() -> None:
    with pytest.raises(ValueError, match="reflections: expected 1 to hidden_size=6, got 7"):
        HouseholderMatrix(6, 7)
    with pytest.raises(ValueError, match="reflections: expected 1 to hidden_size=6, got 0"):
        HouseholderMatrix(6, 0)
    with pytest.raises(ValueError, match="capacity: expected at least 1, got 0"):
        RotationMatrix(6, 0)
    with pytest.raises(ValueError, match="arrangement: expected one of tunable, fft, got 'ring'"):
        RotationMatrix(6, arrangement="ring")
    with pytest.raises(ValueError, match='power of two with arrangement="fft", got 6'):
        RotationMatrix(6, arrangement="fft")
