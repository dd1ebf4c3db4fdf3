"""The reservoir: a recurrent layer that is drawn once and not trained."""

from collections.abc import Sequence
from functools import partial
from math import isfinite, prod

import torch
from torch import Tensor, nn

from kru.matrices import kronecker_matrix
from kru.nn.elman import Elman
from kru.nn.spectrum import spectrum
from kru.ops.precision import computing_dtype
from kru.reservoir.checks import check_leak, check_scaling, check_share, check_size

NONLINEARITIES = ("tanh", "modrelu", "identity")


class Reservoir(Elman):
    """h_t = (1 - a) h_{t-1} + a sigma(W h_{t-1} + U x_t + b) with random W, U and b: an echo state network's reservoir.

    W = ⊗_f W_f is a Kronecker product of random orthogonal (complex: unitary) factors, scaled to the spectral radius.
    The radius is exact: that of a Kronecker product is the product of its factors' radii. A step costs
    O(N sum_f n_f) operations, O(N log N) with the smallest factors, instead of N^2.

    The contract is that of `kru.KRU`: sequences (T, B, D) give states (T, B, S) and the last state (1, B, S). All
    parameters have ``requires_grad=False``; `requires_grad_(True)` makes the reservoir trainable.

    Args:
        input_size: features D of the input.
        units: N. With None for `factors`, a product of small primes is fastest.
        spectral_radius: largest modulus of an eigenvalue of W. Below one, a tanh reservoir forgets its initial state.
        leak: a in (0, 1], one number or one per unit. Small values make slow units.
        input_scaling: U is uniform within ± this; one number, or one per input feature.
        input_connectivity: share of the inputs that each unit sees, in (0, 1]; at least one.
        bias_scaling: b is uniform within ± this.
        factors: sizes of the square factors, with product N; None for the prime factors of N.
        field: "real" or "complex"; a complex state has S = 2N features, real parts then imaginary parts.
        nonlinearity: "tanh", "modrelu" or "identity".
        recurrent_init: "haar" (random rotations) or "gaussian" (normal entries: eigenvalues spread inside the disc).
        seed: draws the same reservoir again; None for torch's global generator.

    >>> import torch, kru
    >>> reservoir = kru.reservoir.Reservoir(3, 1024, spectral_radius=0.9, seed=0)
    >>> states, last = reservoir(torch.randn(50, 1, 3))
    >>> states.shape, round(kru.spectrum(reservoir).spectral_radius, 6)
    (torch.Size([50, 1, 1024]), 0.9)
    """

    leak: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        units: int,
        *,
        spectral_radius: float = 0.9,
        leak: float | Sequence[float] | Tensor = 1.0,
        input_scaling: float | Sequence[float] = 1.0,
        input_connectivity: float = 1.0,
        bias_scaling: float = 0.0,
        factors: Sequence[int] | None = None,
        field: str = "real",
        nonlinearity: str = "tanh",
        recurrent_init: str = "haar",
        seed: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if field not in ("real", "complex"):
            raise ValueError(f"field: expected real or complex, got {field!r}")
        if nonlinearity not in NONLINEARITIES:
            raise ValueError(
                f"nonlinearity: expected one of {', '.join(NONLINEARITIES)}, got {nonlinearity!r}"
            )
        if recurrent_init not in ("haar", "gaussian"):
            raise ValueError(f"recurrent_init: expected haar or gaussian, got {recurrent_init!r}")
        check_size("units", units)
        check_scaling("spectral_radius", spectral_radius)
        check_scaling("bias_scaling", bias_scaling)
        check_share("input_connectivity", input_connectivity)
        leaks = check_leak(leak, units)
        self._draw = (float(spectral_radius), input_scaling, float(input_connectivity), float(bias_scaling))
        self._normal = recurrent_init == "gaussian"
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            super().__init__(
                input_size,
                units,
                1,
                True,
                batch_first,
                0.0,
                False,
                matrix=partial(
                    kronecker_matrix,
                    units,
                    factors,
                    field=field,
                    constraint="none",
                    device=device,
                    dtype=dtype,
                ),
                field=field,
                nonlinearity=nonlinearity,
                train_recurrent=False,
                proj_size=0,
                device=device,
                dtype=dtype,
            )
            self._draw_values()
        stored = None if leaks is None else nn.Parameter(leaks.to(self.weight_ih_l0))
        self.register_parameter("leak", stored)
        self.requires_grad_(False)

    @property
    def units(self) -> int:
        """N."""
        return self.hidden_size

    @property
    def spectral_radius(self) -> float:
        """The largest modulus of an eigenvalue of W, from the factors."""
        return spectrum(self).spectral_radius

    def reset_parameters(self) -> None:
        """Draw another reservoir with the same settings."""
        super().reset_parameters()
        self._draw_values()

    @torch.no_grad()
    def _draw_values(self) -> None:
        radius, scaling, connectivity, bias_scaling = self._draw
        matrix = self.matrix()
        if any(rows != columns for rows, columns in matrix.shapes):
            raise ValueError(f"factors: expected square factors, got {matrix.shapes}")
        parameters = [getattr(matrix, f"factor_{f}") for f in range(len(matrix.shapes))]
        drawn = [self._factor(parameter.double().cpu()) for parameter in parameters]
        radii = [_radius(factor, self.field) for factor in drawn]
        gain = (radius / prod(radii)) ** (1 / len(drawn))
        for parameter, factor in zip(parameters, drawn, strict=True):
            parameter.copy_(gain * factor)
        weight = self.weight_ih_l0
        size = weight.shape[1]
        scales = torch.as_tensor(scaling, dtype=torch.float64)
        if scales.dim() > 1 or (scales.dim() == 1 and len(scales) != size):
            raise ValueError(
                f"input_scaling: expected one number or {size}, one per input feature, got {scaling!r}"
            )
        if not bool((scales.isfinite() & (scales >= 0)).all()):
            raise ValueError(f"input_scaling: expected finite numbers of at least zero, got {scaling!r}")
        values = (2 * torch.rand(weight.shape, dtype=torch.float64) - 1) * scales
        seen = max(1, round(connectivity * size))
        if seen < size:
            ranks = torch.rand(self.hidden_size, size, dtype=torch.float64).argsort(1).argsort(1)
            values *= (ranks < seen).repeat(weight.shape[0] // self.hidden_size, 1)
        weight.copy_(values)
        bias = self.bias_l0
        assert isinstance(bias, nn.Parameter)
        bias.copy_((2 * torch.rand(bias.shape, dtype=torch.float64) - 1) * bias_scaling)

    def _scan_options(self) -> dict[str, Tensor]:
        dtype = computing_dtype(self.weight_ih_l0.dtype)
        return {} if self.leak is None else {"leak": self.leak.to(dtype)}

    def _factor(self, drawn: Tensor) -> Tensor:
        """A factor as the settings want it, from the random unitary one that the matrix came with."""
        if self._normal:
            return torch.randn(drawn.shape, dtype=torch.float64)
        if self.field == "real" and len(drawn) % 2 == 0 and torch.linalg.det(drawn) < 0:
            # A reflection of even size has the eigenvalues 1 and -1, so a product of several small ones has few
            # eigenvalues, each many times, and remembers little. Rotations spread them around the circle.
            drawn = torch.cat([-drawn[:1], drawn[1:]])
        return drawn

    def extra_repr(self) -> str:
        radius = self._draw[0]
        leak = (
            "" if self.leak is None else ", leak=..." if self.leak.dim() else f", leak={self.leak.item():g}"
        )
        return f"{super().extra_repr()}, spectral_radius={radius:g}{leak}"


def _radius(factor: Tensor, field: str) -> float:
    dense = torch.complex(factor[0], factor[1]) if field == "complex" else factor
    radius = torch.linalg.eigvals(dense).abs().max().item()
    assert isfinite(radius)
    assert radius > 0
    return float(radius)
