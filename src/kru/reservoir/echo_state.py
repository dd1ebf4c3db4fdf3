"""What the echo state estimators share: reservoir, scaling, read-out, and how they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from kru.estimators.data import Cases
from kru.export import Exportable
from kru.reservoir.checks import check_finite, check_size, check_strengths
from kru.reservoir.compose import Deep
from kru.reservoir.conjugate import fit_conjugate_gradients
from kru.reservoir.equations import Linear
from kru.reservoir.pooling import Pool
from kru.reservoir.projection import KroneckerProjection
from kru.reservoir.reservoir import Reservoir
from kru.reservoir.ridge import STRENGTHS, Rows, fit_ridge
from kru.reservoir.sweep import chunk_steps, sweep

SOLVERS = ("auto", "normal", "qr", "conjugate-gradients", "random-features")
NORMAL_LIMIT = 8192
"""With more features than this, "auto" takes random features of the state."""
RANDOM_FEATURES = 2048
BATCH = 64
"""So many cases run through the reservoir together."""
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}

Array = NDArray[np.float64]


class EchoState(BaseEstimator):  # type: ignore[misc]
    """A reservoir and a linear read-out. Subclasses say what is predicted.

    Args:
        units: N of each reservoir.
        spectral_radius, leak, input_scaling, input_connectivity, bias_scaling, factors, field, nonlinearity: of
            `Reservoir`. Inputs are standardised first.
        layers: reservoirs one above the other; the read-out sees all of them.
        ridge: strength of the read-out's regularisation, or several to choose from; None for 1e-9 ... 1e2, with the
            solver "qr" for 1e-15 ... 1e2.
        validation, folds: how a strength is chosen, see `fit_ridge`.
        solver: "normal" (normal equations, S^2 memory), "qr" (triangular factor: slower, and exact to more digits),
            "conjugate-gradients" (no S^2, a pass over the data per iteration; with several strengths it takes their
            geometric mean), "random-features" (a random projection of the state to `n_features` values), or "auto":
            normal up to 8192 features, random features above; of a forecaster qr up to 1200 features.
        n_features: of "random-features".
        washout: steps at the start of each sequence that the read-out does not learn from, while the reservoir
            forgets its initial state. None for 100, or 0 where states are pooled over whole cases.
        input_to_readout: whether the read-out sees the input besides the state.
        precision: "float64" or "float32", of the states; the read-out is computed in float64.
        random_state: seed of the reservoir.
    """

    def __init__(
        self,
        units: int = 512,
        *,
        spectral_radius: float = 0.9,
        leak: float | Sequence[float] = 1.0,
        input_scaling: float | Sequence[float] = 0.5,
        input_connectivity: float = 1.0,
        bias_scaling: float = 0.5,
        factors: Sequence[int] | None = None,
        field: str = "real",
        nonlinearity: str = "tanh",
        layers: int = 1,
        ridge: float | Sequence[float] | None = None,
        validation: str = "blocked",
        folds: int = 5,
        solver: str = "auto",
        n_features: int = RANDOM_FEATURES,
        washout: int | None = None,
        input_to_readout: bool = True,
        precision: str = "float64",
        random_state: int | None = 0,
    ) -> None:
        self.units = units
        self.spectral_radius = spectral_radius
        self.leak = leak
        self.input_scaling = input_scaling
        self.input_connectivity = input_connectivity
        self.bias_scaling = bias_scaling
        self.factors = factors
        self.field = field
        self.nonlinearity = nonlinearity
        self.layers = layers
        self.ridge = ridge
        self.validation = validation
        self.folds = folds
        self.solver = solver
        self.n_features = n_features
        self.washout = washout
        self.input_to_readout = input_to_readout
        self.precision = precision
        self.random_state = random_state

    def save(self, path: str) -> None:
        """Write the fitted model to one safetensors file."""
        from kru.reservoir.storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str) -> Any:
        """Read a model that `save` wrote. Loading runs no code from the file."""
        from kru.reservoir.storage import load

        return load(path, cls)

    def exportable(self) -> Exportable:
        """The model as `kru.export` takes it; without feedback and random features."""
        from kru.reservoir.exporting import exportable

        return exportable(self)

    def _build(self, inputs: int, moments: bool = False) -> None:
        """Draw the reservoir for inputs of so many features. With `moments` the read-out sees two values of each."""
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision: expected float32 or float64, got {self.precision!r}")
        if self.solver not in SOLVERS:
            raise ValueError(f"solver: expected one of {', '.join(SOLVERS)}, got {self.solver!r}")
        check_size("layers", self.layers)
        if self.random_state is None:
            seed = int(np.random.default_rng().integers(2**31))
        else:
            seed = check_size("random_state", int(self.random_state), 0)
        below, stack = inputs, []
        for layer in range(self.layers):
            reservoir = Reservoir(
                below,
                self.units,
                spectral_radius=self.spectral_radius,
                leak=self.leak,
                # A layer above sees many inputs at once; this keeps their sum as large as one input.
                input_scaling=self.input_scaling if layer == 0 else 1 / below**0.5,
                input_connectivity=self.input_connectivity if layer == 0 else 1.0,
                bias_scaling=self.bias_scaling,
                factors=self.factors,
                field=self.field,
                nonlinearity=self.nonlinearity,
                seed=seed + layer,
                dtype=PRECISIONS[self.precision],
            )
            stack.append(reservoir)
            below = reservoir.output_size
        self.reservoir_: nn.Module = stack[0] if len(stack) == 1 else Deep(stack)
        self.readout_inputs_, self.moments_ = inputs, moments
        size = int(self.reservoir_.output_size) + (inputs if self.input_to_readout else 0)
        size *= 2 if moments else 1
        projected = self.solver == "random-features" or (self.solver == "auto" and size > NORMAL_LIMIT)
        self.projection_ = KroneckerProjection(size, self.n_features, seed=seed) if projected else None
        self.readout_size_ = self.n_features if projected else size

    def _scale(self, cases: Cases) -> None:
        """Means and deviations of the channels, which standardise the inputs."""
        rows = cases.values[cases.real()]
        self.mean_: Array = rows.mean(0)
        deviation = rows.std(0)
        self.scale_: Array = np.where(
            deviation > 1e-12 * np.maximum(np.abs(self.mean_), 1e-300), deviation, 1.0
        )

    def _inputs(self, values: Array) -> Tensor:
        """Standardised inputs (..., D)."""
        if values.shape[-1] != len(self.mean_):
            raise ValueError(f"X: expected {len(self.mean_)} channels, got {values.shape[-1]}")
        return torch.from_numpy((values - self.mean_) / self.scale_).to(PRECISIONS[self.precision])

    def _features(self, states: Tensor, inputs: Tensor) -> Tensor:
        """What the read-out sees of states (n, S) and inputs (n, D)."""
        features = torch.cat([states, inputs], dim=-1) if self.input_to_readout else states
        return features if self.projection_ is None else self.projection_(features)

    def _solve(self, rows: Rows, outputs: int) -> None:
        """Fit the read-out to chunks of features and targets."""
        if self.solver == "conjugate-gradients":
            strengths = check_strengths(STRENGTHS if self.ridge is None else self.ridge)
            self.strength_ = float(np.exp(np.mean(np.log(np.maximum(strengths, 1e-300)))))
            self.errors_: dict[float, float] = {}
            self.linear_: Linear = fit_conjugate_gradients(rows, self.readout_size_, outputs, self.strength_)
        else:
            self.linear_, self.strength_, self.errors_ = fit_ridge(
                rows,
                self.readout_size_,
                outputs,
                self.ridge,
                validation=self.validation,
                folds=self.folds,
                method="qr" if self._uses_qr() else "normal",
            )
        check_finite("the read-out", self.linear_.weight)

    def _uses_qr(self) -> bool:
        """Whether the read-out is fitted by a triangular factor."""
        return self.solver == "qr"

    def _washout(self, usual: int, cases: Cases) -> int:
        """The washout, which every case must be longer than."""
        washout = usual if self.washout is None else check_size("washout", self.washout, 0)
        shortest = int(cases.lengths.min())
        if shortest <= washout:
            raise ValueError(
                f"washout: expected fewer steps than the shortest case, which has {shortest}, got {washout}"
            )
        return washout

    def _batches(self, cases: Cases) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Cases side by side: which ones, their inputs (T, B, D) and lengths (B,)."""
        for first in range(0, len(cases), BATCH):
            which = slice(first, first + BATCH)
            lengths = cases.lengths[which]
            inputs = self._inputs(cases.values[: lengths.max(), which])
            yield which, inputs, torch.from_numpy(lengths)

    def _step_rows(
        self, cases: Cases, targets: Array, washout: int
    ) -> Callable[[], Iterator[tuple[Tensor, Tensor]]]:
        """Features and targets (T, B, O) of every step after the washout, in chunks."""

        def rows() -> Iterator[tuple[Tensor, Tensor]]:
            for which, inputs, lengths in self._batches(cases):
                wanted = torch.from_numpy(np.ascontiguousarray(targets[: len(inputs), which]))
                steps = torch.arange(len(inputs)).unsqueeze(1)
                real = (steps >= washout) & (steps < lengths)
                for start, states in sweep(self.reservoir_, inputs):
                    part = slice(start, start + len(states))
                    keep = real[part]
                    if keep.any():
                        yield self._features(states[keep], inputs[part][keep]), wanted[part][keep]

        return rows

    def _pooled(self, cases: Cases, washout: int, pooling: str) -> Tensor:
        """One row of features for each case: its states and inputs pooled over the steps after the washout."""
        pooled = []
        for _, inputs, lengths in self._batches(cases):
            pool = Pool(pooling)
            steps = torch.arange(len(inputs)).unsqueeze(1)
            real = (steps >= washout) & (steps < lengths)
            for start, states in sweep(self.reservoir_, inputs):
                part = slice(start, start + len(states))
                features = torch.cat([states, inputs[part]], -1) if self.input_to_readout else states
                pool.add(features, real[part])
            features = pool.result()
            pooled.append(features if self.projection_ is None else self.projection_(features))
        return torch.cat(pooled)


def chunked(features: Tensor, targets: Tensor) -> Rows:
    """Rows that are in memory, as `fit_ridge` wants them."""
    steps = chunk_steps(1, features.shape[1])
    return lambda: zip(torch.split(features, steps), torch.split(targets, steps), strict=True)
