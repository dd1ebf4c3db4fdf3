"""Singular values and eigenvalues of a Kronecker product, computed from its factors; for sums, densely."""

from collections.abc import Sequence
from functools import cached_property, reduce
from math import inf, log, prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from kru.nn.linear import KroneckerLinear
from kru.nn.recurrent import Recurrent
from kru.ops.kron.reference import kron_dense, terms_of
from kru.ops.sharded import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DENSE_LIMIT = 4096
"""Up to this size, `spectrum(..., dense=True)` builds the matrix of a sum of Kronecker products."""
DRAWN = 10_000
"""`Spectrum.plot` draws at most this many values, spread evenly over all of them."""


class Spectrum:
    """The spectrum of W = W_0 ⊗ ... ⊗ W_{F-1}, without ever building W. See `kru.nn.spectrum`.

    The singular values of W are all products of one singular value of each factor, and zeros where a factor
    is rectangular; with square factors, its eigenvalues are all products of one eigenvalue of each. The
    extremes take one number per factor; the lists of all N values are made when they are asked for.
    Everything is computed in double precision.
    """

    def __init__(self, factors: Sequence[Tensor]) -> None:
        self.shapes = [(factor.shape[0], factor.shape[1]) for factor in factors]
        self.shape = (prod(rows for rows, _ in self.shapes), prod(columns for _, columns in self.shapes))
        self._factors = [
            factor.detach().cpu().to(torch.complex128 if factor.is_complex() else torch.float64)
            for factor in factors
        ]

    @cached_property
    def _factor_values(self) -> list[Tensor]:
        """The singular values of each factor, in descending order."""
        return [torch.linalg.svdvals(factor) for factor in self._factors]

    @cached_property
    def _factor_eigenvalues(self) -> list[Tensor]:
        self._expect_square("eigenvalues")
        return [torch.linalg.eigvals(factor) for factor in self._factors]

    @cached_property
    def singular_values(self) -> Tensor:
        """All min(N, K) singular values of W (N, K), in descending order."""
        values = reduce(_products, self._factor_values)
        zeros = values.new_zeros(min(self.shape) - len(values))
        return torch.cat([values.sort(descending=True).values, zeros])

    @cached_property
    def eigenvalues(self) -> Tensor:
        """All N eigenvalues, complex, in no particular order."""
        return reduce(_products, self._factor_eigenvalues)

    @property
    def spectral_norm(self) -> float:
        """The largest singular value."""
        return prod(values[0].item() for values in self._factor_values)

    @property
    def smallest_singular_value(self) -> float:
        """Zero if W has not full rank."""
        rank = prod(len(values) for values in self._factor_values)
        return prod(values[-1].item() for values in self._factor_values) if rank == min(self.shape) else 0.0

    @property
    def spectral_radius(self) -> float:
        """The largest modulus of an eigenvalue."""
        return prod(values.abs().max().item() for values in self._factor_eigenvalues)

    @property
    def condition_number(self) -> float:
        """The largest singular value over the smallest; infinite if W has not full rank."""
        smallest = self.smallest_singular_value
        return self.spectral_norm / smallest if smallest > 0 else inf

    @property
    def log_abs_det(self) -> float:
        """log |det W| = sum_f N/n_f log |det W_f|."""
        self._expect_square("a determinant")
        size = self.shape[0]
        return sum(size // len(values) * _log(values) for values in self._factor_values)

    @property
    def distance_from_unitary(self) -> float:
        """max_i |sigma_i - 1|, the distance from the nearest unitary matrix in the spectral norm."""
        self._expect_square("a distance from the unitary matrices")
        return max(abs(self.spectral_norm - 1), abs(self.smallest_singular_value - 1))

    def plot(self) -> "Figure":
        """A figure with the eigenvalues on the complex plane and the singular values."""
        from matplotlib import pyplot

        square = all(rows == columns for rows, columns in self.shapes)
        columns = 2 if square else 1
        figure, axes = pyplot.subplots(1, columns, figsize=(4.5 * columns, 4), squeeze=False)
        if square:
            plane = axes[0, 0]
            angle = torch.linspace(0, 2 * torch.pi, 200)
            plane.plot(angle.cos(), angle.sin(), color="0.7", linewidth=1)
            drawn = self.eigenvalues[_evenly(self.shape[0])]
            plane.plot(drawn.real, drawn.imag, ".", markersize=3)
            plane.set(xlabel="Re", ylabel="Im", title="eigenvalues", aspect="equal")
        rank = _evenly(min(self.shape))
        axes[0, -1].plot(rank + 1, self.singular_values[rank], ".-", markersize=3)
        axes[0, -1].set(xlabel="rank", title="singular values", ylim=(0, None))
        figure.tight_layout()
        return figure

    def __repr__(self) -> str:
        parts = [f"{self.shape[0]} x {self.shape[1]}", f"spectral_norm={self.spectral_norm:.4g}"]
        if all(rows == columns for rows, columns in self.shapes):
            parts.append(f"spectral_radius={self.spectral_radius:.4g}")
        return f"Spectrum({', '.join(parts)}, condition_number={self.condition_number:.4g})"

    def _expect_square(self, what: str) -> None:
        for f, (rows, columns) in enumerate(self.shapes):
            if rows != columns:
                raise ValueError(
                    f"factors[{f}]: expected a square factor, got {rows} x {columns}: "
                    f"{what} can't be had from rectangular factors"
                )


def spectrum(
    source: nn.Module | Sequence[Tensor],
    *,
    layer: int = 0,
    reverse: bool = False,
    gate: str | None = None,
    dense: bool = False,
) -> Spectrum:
    """The spectrum of a recurrent matrix, from its factors alone.

    Args:
        source: a recurrent layer, a `KroneckerLinear`, or factors (P_f, Q_f), real or complex; of a sum of R
            products (R, P_f, Q_f).
        layer, reverse: which matrix of a recurrent layer with several layers or directions.
        gate: which gate's matrix: "i", "f", "g" or "o" of a `KRULSTM`; "r", "z" or "n" of a `KRUGRU`.
        dense: the spectrum of a sum of several products cannot be computed from its factors. With True the dense
            matrix is built, up to a size of 4096, which takes N^2 memory and N^3 operations.

    Returns:
        an object with `singular_values`, `eigenvalues`, `spectral_norm`, `smallest_singular_value`,
        `spectral_radius`, `condition_number`, `log_abs_det`, `distance_from_unitary` and `plot()`. For
        millions of units too, as long as the lists of all values aren't asked for. Parameters that are sharded over
        processes (`fully_shard`) are gathered first: all processes have to call this.

    >>> import torch, kru
    >>> kru.spectrum(kru.KRU(10, 2**20))
    Spectrum(1048576 x 1048576, spectral_norm=1, spectral_radius=1, condition_number=1)
    >>> kru.spectrum([torch.tensor([[1.0, 0.0], [0.0, 2.0]]), 3 * torch.eye(2)]).singular_values
    tensor([6., 6., 3., 3.], dtype=torch.float64)
    """
    if isinstance(source, Recurrent):
        matrix = source.matrix(layer, reverse=reverse)
        factors = matrix.dense_factors(_gate_index(source, matrix.gates, gate))
        return _spectrum_of(factors, dense=dense)
    if isinstance(source, KroneckerLinear):
        return _spectrum_of(source.factors, dense=dense)
    if isinstance(source, Tensor | nn.Module) or not isinstance(source, Sequence):
        kinds = "a recurrent layer, a KroneckerLinear or a list of factors"
        raise TypeError(f"source: expected {kinds}, got {type(source).__name__}")
    if len(source) == 0:
        raise ValueError("source: expected at least one factor, got none")
    for f, factor in enumerate(source):
        if not isinstance(factor, Tensor):
            raise TypeError(f"source[{f}]: expected a tensor, got {type(factor).__name__}")
        if factor.dim() not in (2, 3) or 0 in factor.shape or factor.shape[:-2] != source[0].shape[:-2]:
            raise ValueError(
                f"source[{f}]: expected a matrix (P, Q), or in all factors (R, P, Q), got shape {tuple(factor.shape)}"
            )
    return _spectrum_of(source, dense=dense)


def _spectrum_of(factors: Sequence[Tensor], *, dense: bool) -> Spectrum:
    """Of one product from its factors, of a sum from the matrix that it is."""
    factors = [whole(factor) for factor in factors]
    # LAPACK may end the process where a number is not finite.
    if not all(factor.isfinite().all() for factor in factors):
        raise ValueError("source: expected finite numbers, got some that are not")
    terms = list(terms_of(factors))
    if len(terms) == 1:
        return Spectrum(terms[0])
    size = max(prod(factor.shape[dim] for factor in factors) for dim in (-2, -1))
    if not dense or size > DENSE_LIMIT:
        way = (
            "dense=True builds it" if size <= DENSE_LIMIT else f"here it has {size} rows or columns, too many"
        )
        raise ValueError(
            f"source: expected a single Kronecker product, got a sum of {len(terms)}: its spectrum needs the dense "
            f"matrix, up to a size of {DENSE_LIMIT}; {way}"
        )
    return Spectrum([kron_dense([factor.detach() for factor in factors])])


def _gate_index(layer: Recurrent, matrices: int, gate: str | None) -> int:
    if matrices == 1 and gate is None:
        return 0
    if gate not in layer.gates or matrices == 1:
        wanted = f"one of {', '.join(layer.gates)}" if matrices > 1 else "None"
        raise ValueError(f"gate: expected {wanted} for {type(layer).__name__}, got {gate!r}")
    return layer.gates.index(gate)


def _products(left: Tensor, right: Tensor) -> Tensor:
    return torch.outer(left, right).flatten()


def _log(values: Tensor) -> float:
    return sum(log(value) if value > 0 else -inf for value in values.tolist())


def _evenly(count: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, DRAWN)).round().long()
