"""Echo state networks: random Kronecker reservoirs with a linear read-out, up to millions of units."""

from typing import TYPE_CHECKING, Any

from kru.reservoir.compose import Deep, Parallel
from kru.reservoir.conjugate import fit_conjugate_gradients
from kru.reservoir.equations import Linear
from kru.reservoir.normal import NormalEquations
from kru.reservoir.projection import KroneckerProjection
from kru.reservoir.recursive import RecursiveLeastSquares
from kru.reservoir.reservoir import Reservoir
from kru.reservoir.ridge import fit_ridge
from kru.reservoir.stepper import Stepper
from kru.reservoir.sweep import sweep
from kru.reservoir.triangular import TriangularEquations

if TYPE_CHECKING:
    from kru.reservoir.classifier import EchoStateClassifier
    from kru.reservoir.forecaster import EchoStateForecaster
    from kru.reservoir.random_projection import RandomProjection
    from kru.reservoir.regressor import EchoStateRegressor

__all__ = [
    "Deep",
    "EchoStateClassifier",
    "EchoStateForecaster",
    "EchoStateRegressor",
    "KroneckerProjection",
    "Linear",
    "NormalEquations",
    "Parallel",
    "RandomProjection",
    "RecursiveLeastSquares",
    "Reservoir",
    "Stepper",
    "TriangularEquations",
    "fit_conjugate_gradients",
    "fit_ridge",
    "sweep",
]

_ESTIMATORS = {
    "EchoStateClassifier": "classifier",
    "EchoStateForecaster": "forecaster",
    "EchoStateRegressor": "regressor",
    "RandomProjection": "random_projection",
}


def __getattr__(name: str) -> Any:
    """The estimators need scikit-learn, the rest does not: they are imported when they are asked for."""
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(f"kru.reservoir.{_ESTIMATORS[name]}")
    except ModuleNotFoundError as error:
        if "scikit-learn" not in str(error) and error.name != "sklearn":
            raise
        raise ImportError(
            f"{name}: needs scikit-learn; install it by pip install 'kru[estimators]'"
        ) from error
    return getattr(module, name)
