"""Read-outs against literal least squares: streamed, many strengths, cross-validation, gradients, online."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from kru.reservoir import (
    KroneckerProjection,
    NormalEquations,
    RecursiveLeastSquares,
    TriangularEquations,
    fit_conjugate_gradients,
    fit_ridge,
)


def problem(rows: int = 60, features: int = 7, outputs: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(rows, features, dtype=torch.float64, generator=generator) + 3
    y = f @ torch.randn(features, outputs, dtype=torch.float64, generator=generator) + 5
    return f, y + 0.5 * torch.randn(rows, outputs, dtype=torch.float64, generator=generator)


def literal(f: Tensor, y: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Ridge regression with an intercept by stacking rows, without normal equations."""
    size = f.shape[1]
    centred, targets = f - f.mean(0), y - y.mean(0)
    stacked = torch.cat([centred, strength**0.5 * torch.eye(size, dtype=f.dtype)])
    weight = torch.linalg.lstsq(
        stacked, torch.cat([targets, torch.zeros(size, y.shape[1], dtype=f.dtype)])
    ).solution.T
    return weight, y.mean(0) - weight @ f.mean(0)


def chunks(f: Tensor, y: Tensor, size: int = 13) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(torch.split(f, size), torch.split(y, size), strict=True)


KINDS = [NormalEquations, TriangularEquations]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [0.0, 1e-3, 10.0])
def test_streamed_equations_give_the_literal_solution(
    strength: float, kind: type[NormalEquations | TriangularEquations]
) -> None:
    f, y = problem()
    equations = kind(7, 2)
    for part in chunks(f, y):
        equations.add(*part)
    found = equations.solve(strength)
    weight, bias = literal(f, y, strength)
    torch.testing.assert_close(found.weight, weight)
    torch.testing.assert_close(found.bias, bias)
    assert equations.squared_error(found) == pytest.approx(float((found(f) - y).square().sum()), rel=1e-9)
    if strength:
        [other] = equations.path([strength])
        torch.testing.assert_close(other.weight, weight)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_equations_are_the_equations_of_all_rows(
    kind: type[NormalEquations | TriangularEquations],
) -> None:
    f, y = problem()
    first, second = kind(7, 2), kind(7, 2)
    first.add(f[:5], y[:5])  # fewer rows than features
    second.add(f[5:], y[5:])
    first += second  # type: ignore[operator, misc]
    weight, bias = literal(f, y, 0.1)
    found = first.solve(0.1)
    assert first.count == len(f)
    torch.testing.assert_close(found.weight, weight)
    torch.testing.assert_close(found.bias, bias)


def test_a_triangular_factor_keeps_the_digits_that_products_lose() -> None:
    f, y = problem()
    small = torch.cat([f, f[:, :1] + 1e-10 * y[:, :1]], 1)  # the target is in the last digits of a feature
    errors = {}
    for kind in KINDS:
        equations = kind(8, 2)
        equations.add(small, y)
        errors[kind] = float((equations.solve(1e-26)(small) - y)[:, 0].abs().max())
    assert errors[TriangularEquations] < 1e-3
    assert errors[NormalEquations] > 0.1


@pytest.mark.parametrize("method", ["normal", "qr"])
@pytest.mark.parametrize("validation", ["blocked", "leave-one-out"])
def test_validation_errors_equal_those_of_literal_refits(validation: str, method: str) -> None:
    f, y = problem()
    strengths = [1e-2, 1.0, 100.0]
    found = fit_ridge(lambda: chunks(f, y), 7, 2, strengths, validation=validation, folds=4, method=method)
    folds = (
        [range(15 * k, 15 * (k + 1)) for k in range(4)]
        if validation == "blocked"
        else [range(k, k + 1) for k in range(60)]
    )
    for strength in strengths:
        error = 0.0
        for fold in folds:
            out = torch.tensor(list(fold))
            rest = torch.tensor([row for row in range(60) if row not in fold])
            weight, bias = literal(f[rest], y[rest], strength)
            error += float((f[out] @ weight.T + bias - y[out]).square().sum())
        assert found.errors[strength] == pytest.approx(error / y.numel(), rel=1e-8)
    assert found.strength == min(strengths, key=lambda strength: found.errors[strength])
    torch.testing.assert_close(found.linear.weight, literal(f, y, found.strength)[0])


def test_conjugate_gradients_reach_the_literal_solution() -> None:
    f, y = problem()
    found = fit_conjugate_gradients(lambda: chunks(f, y), 7, 2, 0.5, tolerance=1e-12)
    weight, bias = literal(f, y, 0.5)
    torch.testing.assert_close(found.weight, weight)
    torch.testing.assert_close(found.bias, bias)


def test_a_singular_readout_needs_regularisation() -> None:
    f, y = problem()
    twice = torch.cat([f, f[:, :1]], 1)
    with pytest.raises(ValueError, match="ridge: the 8 features of 60 steps are linearly dependent"):
        fit_ridge(lambda: chunks(twice, y), 8, 2, 0.0)
    weight, _ = literal(twice, y, 1e-3)
    torch.testing.assert_close(fit_ridge(lambda: chunks(twice, y), 8, 2, 1e-3).linear.weight, weight)


@pytest.mark.parametrize(
    ("ridge", "message"),
    [
        (-1.0, "ridge: expected a finite number of at least zero"),
        (float("nan"), "ridge: expected a finite number"),
        ([], "ridge: expected at least one strength"),
        ([0.0, 1.0], "ridge: expected strengths above zero to choose from"),
    ],
)
def test_bad_strengths_are_named(ridge: object, message: str) -> None:
    f, y = problem()
    with pytest.raises(ValueError, match=message):
        fit_ridge(lambda: chunks(f, y), 7, 2, ridge)  # type: ignore[arg-type]


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_recursive_least_squares_equal_weighted_ridge(forgetting: float) -> None:
    f, y = problem()
    online = RecursiveLeastSquares(7, 2, ridge=0.1, forgetting=forgetting)
    for row, target in zip(f, y, strict=True):
        online.update(row, target)
    ones = torch.cat([f, torch.ones(60, 1, dtype=f.dtype)], 1)
    weights = forgetting ** torch.arange(59, -1, -1, dtype=f.dtype).unsqueeze(1)
    gram = ones.T @ (weights * ones) + 0.1 * forgetting**60 * torch.eye(8, dtype=f.dtype)
    solution = torch.linalg.solve(gram, ones.T @ (weights * y)).T
    torch.testing.assert_close(online.weight, solution, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(online.linear(f[:1])[0], online.predict(f[0]))
    with pytest.raises(ValueError, match="features: expected finite numbers"):
        online.update(torch.full((7,), float("nan")), y[0])
    with pytest.raises(ValueError, match=r"features: expected one row of 7 numbers, got shape \(6,\)"):
        online.predict(f[0, :6])
    with pytest.raises(ValueError, match="targets: expected one row of 2 numbers"):
        online.update(f[0], y[:1])


@pytest.mark.parametrize("features", [64, 100])
def test_projections_keep_lengths_on_average_and_come_back(features: int) -> None:
    x = torch.randn(5, features, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ratios = torch.stack(
        [
            KroneckerProjection(features, 16, seed=seed)(x).norm(dim=1) ** 2 / x.norm(dim=1) ** 2
            for seed in range(300)
        ]
    )
    assert (ratios.mean(0) - 1).abs().max() < 0.1
    projection = KroneckerProjection(features, 16, seed=0)
    y = projection(x)
    if features == 64:
        torch.testing.assert_close(projection(projection.back(y)), y)
    full = KroneckerProjection(features, 64 if features == 64 else 128, seed=0)
    torch.testing.assert_close(full.back(full(x)), x)
