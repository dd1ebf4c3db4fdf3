"""Estimators with the conventions of scikit-learn, for people with sequences of their own."""

from typing import Any

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("scikit-learn: not installed; run pip install 'kru[estimators]'") from error

from kru.estimators.backtest import Backtest, backtest
from kru.estimators.classifier import KRUClassifier
from kru.estimators.forecaster import KRUForecaster
from kru.estimators.language import KRULanguageModel
from kru.estimators.regressor import KRURegressor
from kru.estimators.saving import load

ESTIMATORS: dict[str, Any] = {
    estimator.__name__: estimator
    for estimator in (KRUClassifier, KRURegressor, KRUForecaster, KRULanguageModel)
}
"""What a file can hold."""

__all__ = [
    "Backtest",
    "KRUClassifier",
    "KRUForecaster",
    "KRULanguageModel",
    "KRURegressor",
    "backtest",
    "load",
]
