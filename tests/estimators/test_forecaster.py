"""Forecasts, their intervals, and backtests."""

import numpy as np
import pytest
from sklearn.base import clone

from kru.estimators import KRUForecaster, backtest, load
from kru.estimators.spread import Spread, bound

pytestmark = pytest.mark.usefixtures("one_thread")


def noisy_cycle(length: int = 300, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 50 + 10 * np.sin(np.arange(length) / 4) + rng.normal(size=length)


def small(horizon: int = 4, strategy: str = "recursive", **changes: object) -> KRUForecaster:
    return KRUForecaster(horizon, strategy, **{"units": 8, "steps": 40, "random_state": 0, **changes})


@pytest.mark.parametrize("strategy", ["recursive", "direct"])
@pytest.mark.parametrize("linear", [True, False])
def test_it_beats_the_last_value_and_comes_back_from_a_file(strategy, linear, tmp_path):
    y = noisy_cycle()
    model = small(strategy=strategy, linear=linear, context=16, steps=300, learning_rate=0.02).fit(y[:240])
    result = backtest(model, y, start=240)
    naive = np.sqrt([((y[240 + h : 300 - 3 + h] - y[239 : 300 - 4]) ** 2).mean() for h in range(4)])
    assert (result.rmse < naive).all()
    assert result.forecasts.shape == (57, 4)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(), model.predict())
    np.testing.assert_array_equal(loaded.predict(y), model.predict(y))
    np.testing.assert_array_equal(loaded.predict_interval(level=0.8), model.predict_interval(level=0.8))


def test_intervals_cover_what_they_say():
    y = noisy_cycle(600)
    model = small(horizon=3, steps=20).fit(y[:300])
    wide, narrow = (backtest(model, y, start=300, level=level) for level in (0.9, 0.5))
    assert 0.8 < wide.coverage.mean() < 0.98
    assert 0.35 < narrow.coverage.mean() < 0.65


@pytest.mark.parametrize("strategy", ["recursive", "direct"])
def test_a_trend_goes_on(strategy):
    y = 5.0 * np.arange(200) + np.random.default_rng(0).normal(size=200)
    model = small(strategy=strategy).fit(y)
    assert model.relative_
    np.testing.assert_allclose(model.predict(), 5.0 * np.arange(200, 204), atol=4)


@pytest.mark.parametrize("strategy", ["recursive", "direct"])
def test_exogenous_inputs_decide(strategy):
    rng = np.random.default_rng(0)
    x = rng.normal(size=304)
    y = 3 * x[:300] + 0.1 * rng.normal(size=300)  # only the value of the same time tells
    model = small(strategy=strategy).fit(y, x[:300])
    np.testing.assert_allclose(model.predict(y, x), 3 * x[300:], atol=1)
    np.testing.assert_allclose(model.predict(X=x[300 - model.context_ :]), model.predict(y, x), atol=1e-6)
    with pytest.raises(
        ValueError, match="X: expected 300 times and the 4 of the horizon, got 300 in series 0"
    ):
        model.predict(y, x[:300])
    with pytest.raises(ValueError, match="X: expected the exogenous inputs of the fit, got none"):
        model.predict(y)


def test_several_series_of_unequal_lengths_and_scales():
    series = [noisy_cycle(200), 1000 * noisy_cycle(150, seed=1)]
    model = small().fit(series)
    forecasts = model.predict()
    assert forecasts.shape == (2, 4)
    assert 30 < forecasts[0].mean() < 70
    assert 30_000 < forecasts[1].mean() < 70_000
    np.testing.assert_allclose(model.predict(series), forecasts, rtol=1e-6)
    lower, upper = model.predict_interval()
    assert (lower < forecasts).all()
    assert (forecasts < upper).all()


def test_seeds_and_conventions():
    y = noisy_cycle(120)
    model = small()
    assert clone(model).get_params() == model.get_params()
    np.testing.assert_array_equal(small().fit(y).predict(), small().fit(y).predict())


@pytest.mark.parametrize(
    ("y", "changes", "message"),
    [
        ([1.0, np.nan, 2.0], {}, "y: expected finite values, got nan in series 0, time 1"),
        (np.arange(3.0), {"horizon": 4, "context": 5}, "y: expected a series of at least"),
        (np.arange(30.0), {"strategy": "both"}, "strategy: expected direct or recursive, got 'both'"),
        (np.arange(30.0), {"horizon": 0}, "horizon: expected a positive integer, got 0"),
        (
            np.arange(30.0),
            {"calibration_fraction": 1.0},
            "calibration_fraction: expected above 0 and below 1",
        ),
    ],
)
def test_bad_arguments_are_named(y, changes, message):
    with pytest.raises(ValueError, match=message):
        small().set_params(**changes).fit(y)


def test_what_values_are_relative_to_is_decided_by_the_errors_ahead() -> None:
    rng = np.random.default_rng(0)
    walk, noise = np.cumsum(rng.normal(1, 1, size=120)), rng.normal(size=120)
    settings = {"horizon": 4, "context": 6, "units": 8, "steps": 2, "random_state": 0}
    for y, expected in ((walk, True), (noise, False)):
        found = KRUForecaster(**settings).fit(y)
        assert found.relative_ is expected
        other = KRUForecaster(relative=not expected, **settings).fit(y)
        assert other.relative_ is not expected
        assert (found.predict() != other.predict()).any()


def test_a_regression_that_explodes_is_not_chosen() -> None:
    """Over a long horizon, some of the candidates overflow float32."""
    rng = np.random.default_rng(3)
    y = np.exp(np.arange(160) / 6) * (1 + 0.1 * rng.normal(size=160))
    settings = {"context": 8, "units": 8, "steps": 2, "calibration_fraction": 0.4}
    found = KRUForecaster(60, random_state=0, **settings).fit(y)
    assert np.isfinite(found.predict()).all()


def growing_noise(count: int) -> np.ndarray:
    """A cycle whose noise is proportional to its level."""
    rng = np.random.default_rng(1)
    level = 10 + 8 * np.sin(np.arange(count) / 8)
    return level + 0.15 * level * rng.normal(size=count)


def test_gaussian_intervals_follow_the_level(tmp_path):
    y = growing_noise(700)
    model = small(horizon=2, steps=20).fit(y[:400])
    assert model.spread_ is not None
    result = backtest(model, y, start=400)
    widths = (result.upper - result.lower)[:, 0]
    level = 10 + 8 * np.sin(result.origins / 8)
    assert np.corrcoef(widths, level)[0, 1] > 0.8
    constant = small(horizon=2, steps=20, interval="constant").fit(y[:400])
    assert constant.spread_ is None
    np.testing.assert_array_equal(constant.predict(), model.predict())

    def unevenness(tested) -> float:
        inside = (tested.lower <= tested.actual) & (tested.actual <= tested.upper)
        return abs(inside[level > 10].mean() - inside[level <= 10].mean())

    assert unevenness(result) < unevenness(backtest(constant, y, start=400)) - 0.05
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_interval(y), model.predict_interval(y))
    with pytest.raises(ValueError, match="interval: expected one of auto, constant, gaussian, got 'wide'"):
        small(interval="wide").fit(y)


def test_a_spread_finds_the_deviations():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(4000, 3))
    sigma = np.exp(0.5 + 0.7 * features[:, 0] - 0.3 * features[:, 2])
    spread = Spread.fit(features, sigma[:, None] * rng.normal(size=(4000, 1)))
    np.testing.assert_allclose(spread.sigma(features)[:, 0] / sigma, 1, atol=0.5)
    # Outside of what was seen the deviation stays what it is at the border.
    far = np.array([[100.0, 0, 0], [features[:, 0].max(), 0, 0]])
    assert spread.sigma(far)[0] == pytest.approx(spread.sigma(far)[1])


def test_bounds_of_few_overlapping_errors():
    scores = np.arange(1.0, 21)[:, None] * np.array([1, -1, 1, 1])
    # ceil(0.5 * (1 + h / 20) * 20) of 20 ordered scores: 11, 11, 12, 12.
    assert bound(scores, 0.5).tolist() == [11, 11, 12, 12]
    assert bound(scores, 0.99).tolist() == [20, 20, 20, 20]
