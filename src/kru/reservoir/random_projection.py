"""Random projections with the interface of `sklearn.random_projection`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.random_projection import johnson_lindenstrauss_min_dim
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from kru.reservoir.projection import KroneckerProjection


class RandomProjection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fewer features that keep the distances between samples, by a Kronecker product instead of a stored matrix.

    Where `GaussianRandomProjection` multiplies by k x M random numbers, this takes O(M log M) operations a sample and
    stores M signs and k row numbers. See `KroneckerProjection` for the mathematics.

    Args:
        n_components: k, or "auto" for the Johnson-Lindenstrauss bound of the samples that are fitted and `eps`.
        eps: with "auto", distances are kept within 1 ± eps.
        random_state: seed, or a generator of numpy.

    >>> import numpy as np, kru
    >>> X = np.random.default_rng(0).normal(size=(10, 5000))
    >>> kru.RandomProjection(n_components=300, random_state=0).fit_transform(X).shape
    (10, 300)
    """

    def __init__(
        self, n_components: int | str = "auto", *, eps: float = 0.1, random_state: Any = None
    ) -> None:
        self.n_components = n_components
        self.eps = eps
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RandomProjection:
        """Draw signs and rows for the number of features of X."""
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        samples, features = X.shape
        if self.n_components == "auto":
            count = int(johnson_lindenstrauss_min_dim(samples, eps=self.eps))
            if count > features:
                raise ValueError(
                    f"n_components: {samples} samples and eps={self.eps} need {count} components, expected at most "
                    f"the {features} features of X; choose a larger eps or a number"
                )
        else:
            given = self.n_components
            if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
                raise ValueError(f'n_components: expected a number of at least 1 or "auto", got {given!r}')
            count = int(given)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.n_components_ = count
        self._n_features_out = self.n_components_
        self.projection_ = KroneckerProjection(features, self.n_components_, seed=seed)
        return self

    def transform(self, X: Any) -> Any:
        """(samples, features) -> (samples, n_components)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self.projection_(torch.from_numpy(np.ascontiguousarray(X))).numpy()

    def inverse_transform(self, X: Any) -> Any:
        """(samples, n_components) -> (samples, features): the shortest vectors with these projections."""
        check_is_fitted(self)
        return self.projection_.back(torch.from_numpy(np.ascontiguousarray(X))).numpy()
