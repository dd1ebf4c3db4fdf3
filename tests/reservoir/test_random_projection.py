"""kru.RandomProjection: distances, against the projections of scikit-learn, and its conventions."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

import kru

RNG = np.random.default_rng(0)
DATA = {
    "dense": RNG.normal(size=(40, 3000)),
    "sparse": np.eye(40, 3000) * 5 + (RNG.random((40, 3000)) < 0.001),
    "smooth": np.sin(np.linspace(0, 1, 3000) * RNG.uniform(1, 40, (40, 1))),
}


def distortion(projection: object, X: np.ndarray) -> float:
    """The deviation of the ratios of squared distances after and before."""
    ratios = pdist(projection.fit_transform(X)) ** 2 / pdist(X) ** 2  # type: ignore[attr-defined]
    return float(np.sqrt(((ratios - 1) ** 2).mean()))


@pytest.mark.parametrize("kind", DATA)
def test_distances_are_kept_as_well_as_by_dense_projections(kind: str) -> None:
    ours, gaussian, sparse = (
        np.mean([distortion(make(n_components=500, random_state=seed), DATA[kind]) for seed in range(4)])
        for make in (kru.RandomProjection, GaussianRandomProjection, SparseRandomProjection)
    )
    assert ours < 1.15 * gaussian
    assert ours < 1.15 * sparse


def test_the_bound_holds() -> None:
    X = RNG.normal(size=(20, 5000))
    ratios = pdist(kru.RandomProjection(eps=0.2, random_state=0).fit_transform(X)) ** 2 / pdist(X) ** 2
    assert 0.8 < ratios.min() <= ratios.max() < 1.2
    with pytest.raises(ValueError, match=r"n_components: 20 samples and eps=0\.1 need"):
        kru.RandomProjection(eps=0.1).fit(X[:, :100])


def test_it_is_scikit_learns() -> None:
    X = RNG.normal(size=(12, 64)).astype(np.float32)
    pipeline = make_pipeline(StandardScaler(), kru.RandomProjection(16, random_state=1))
    assert pipeline.fit_transform(X).shape == (12, 16)
    projection = clone(pipeline[-1]).fit(X)
    assert projection.transform(X).dtype == np.float32
    assert len(projection.get_feature_names_out()) == 16
    again = projection.transform(projection.inverse_transform(projection.transform(X)))
    np.testing.assert_allclose(again, projection.transform(X), atol=1e-5)
    with pytest.raises(ValueError, match="features"):
        projection.transform(X[:, :10])
    for bad in (0, "many", 1.5):
        with pytest.raises(ValueError, match="n_components: expected a number"):
            kru.RandomProjection(bad).fit(X)
    with pytest.raises(ValueError, match="NaN"):
        projection.fit(X * np.nan)
