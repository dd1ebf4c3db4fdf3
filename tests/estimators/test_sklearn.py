"""The conventions of scikit-learn, by its own checks and with its own tools."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kru.estimators import KRUClassifier, KRURegressor

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"units": 16, "steps": 120, "batch_size": 32, "learning_rate": 0.03, "random_state": 0}
STOCHASTIC = "batches are drawn at random, so that repeating a case is not the same as a weight of two"
ROUNDING = "single precision: a matrix product rounds differently for another number of sequences"


def expected_failures(estimator: object) -> dict[str, str]:
    return {
        "check_sample_weight_equivalence_on_dense_data": STOCHASTIC,
        "check_methods_subset_invariance": ROUNDING,
        "check_sample_weight_equivalence_on_sparse_data": STOCHASTIC,
    }


@parametrize_with_checks(
    [KRUClassifier(**SMALL), KRURegressor("kru", **SMALL)], expected_failed_checks=expected_failures
)
def test_checks(estimator, check):
    check(estimator)
