import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import kru
from kru.linalg import unitary
from kru.linalg.unitary import gram_defect, initial_factor


def as_matrix(factor: torch.Tensor, field: str) -> torch.Tensor:
    return torch.complex(factor[..., 0, :, :], factor[..., 1, :, :]) if field == "complex" else factor


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("method", ["haar", "identity", "diagonal"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_initial_factors_are_unitary(field: str, method: str, size: int) -> None:
    w = as_matrix(initial_factor(size, size, field=field, method=method, count=3), field)
    eye = torch.eye(size, dtype=w.dtype).expand_as(w)
    torch.testing.assert_close(w.mH @ w, eye)
    if method == "identity":
        assert torch.equal(w, eye)
    if method == "diagonal":
        torch.testing.assert_close(w.abs(), eye.abs())


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (3, 5)])
def test_rectangular_initial_factors_are_isometries(field: str, rows: int, columns: int) -> None:
    w = as_matrix(initial_factor(rows, columns, field=field)[0], field)
    assert w.shape == (rows, columns)
    torch.testing.assert_close(torch.linalg.svdvals(w), torch.ones(3, dtype=torch.float64))


def test_complex_haar_matrices_are_uniformly_distributed() -> None:
    torch.manual_seed(0)
    w = as_matrix(initial_factor(2, 2, count=20_000), "complex")
    # Under the Haar measure |w_00|^2 is uniform on [0, 1] for n = 2, and every entry's phase is uniform.
    size = w[:, 0, 0].abs().square()
    assert size.mean().item() == pytest.approx(1 / 2, abs=0.01)
    assert size.square().mean().item() == pytest.approx(1 / 3, abs=0.01)
    for entry in w.flatten(1).unbind(1):
        assert (entry / entry.abs()).mean().abs() < 0.02
    # The trace's second moment is 1, which a QR without the correction of the phases misses.
    trace = w.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert trace.abs().square().mean().item() == pytest.approx(1, abs=0.04)


def test_real_haar_matrices_have_both_determinants() -> None:
    torch.manual_seed(0)
    w = initial_factor(3, 3, field="real", count=2000)
    assert torch.linalg.det(w).mean().abs() < 0.1
    trace = w.diagonal(dim1=-2, dim2=-1).sum(-1)
    assert trace.square().mean().item() == pytest.approx(1, abs=0.1)


def test_unknown_method() -> None:
    with pytest.raises(
        ValueError, match="recurrent_init: expected one of haar, identity, diagonal, got 'ones'"
    ):
        initial_factor(2, 2, method="ones")


@pytest.mark.parametrize("field", ["real", "complex"])
def test_gram_defect(field: str) -> None:
    factor = (
        torch.randn(4, 2, 3, 3, dtype=torch.float64) if field == "complex" else torch.randn(4, 3, 3).double()
    )
    w = as_matrix(factor, field)
    expected = (w.mH @ w - torch.eye(3)).abs().square().sum((-2, -1))
    torch.testing.assert_close(gram_defect(factor, field=field), expected)


@pytest.mark.parametrize("method", ["haar", "identity", "diagonal"])
def test_layers_start_where_they_are_told(method: str) -> None:
    for constraint in ("soft", "exact", "none"):
        layer = kru.KRU(3, 12, recurrent_init=method, constraint=constraint)
        assert kru.spectrum(layer).distance_from_unitary < 1e-6
        if method == "identity":
            torch.testing.assert_close(kru.kron_dense(layer.matrix().dense_factors()).real, torch.eye(12))


SUMS = {"real": ("real", ()), "complex": ("complex", (2,)), "gates": ("real", (4,))}


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("block", [1, 400])
def test_defect_of_a_sum_in_blocks(kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, gradients and gradients of gradients are those of one block."""
    torch.manual_seed(0)
    field, leading = SUMS[kind]
    factors = [
        torch.randn(5, *leading, size, size, dtype=torch.float64, requires_grad=True) for size in (2, 3)
    ]

    def results() -> tuple[torch.Tensor, ...]:
        defect = unitary.sum_gram_defect(factors, field=field)
        first = torch.autograd.grad(defect.sum(), factors, create_graph=True)
        second = torch.autograd.grad(sum(part.square().sum() for part in first), factors)
        return defect, *first, *second

    expected = results()
    monkeypatch.setattr(unitary, "SUM_BLOCK", block)
    assert len(unitary._strips(torch.empty(25, 9))) > 1
    torch.testing.assert_close(results(), expected)

    def defect(*given: torch.Tensor) -> torch.Tensor:
        return unitary.sum_gram_defect(given, field=field).sum()

    transformed = torch.func.grad(defect, argnums=(0, 1))(*factors)
    torch.testing.assert_close(transformed, expected[1:3])


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that any operation makes."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [part for part in torch.utils._pytree.tree_leaves(result) if isinstance(part, torch.Tensor)]
        self.entries = max([self.entries, *(part.numel() for part in made)])
        return result


def test_defect_of_a_sum_of_many_terms_takes_bounded_memory() -> None:
    factors = [torch.randn(40, 2, 3, 3, requires_grad=True) for _ in range(2)]
    with Largest() as largest:
        unitary.sum_gram_defect(factors, field="complex").backward()
    assert 40**4 > 2 * unitary.SUM_BLOCK > largest.entries
    assert all(factor.grad.isfinite().all() for factor in factors)
