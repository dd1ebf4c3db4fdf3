"""A forecaster as plain arrays: the values of a series go in, the next ones come out, with intervals."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from kru.export.network import Array, Network


@dataclass(frozen=True)
class Spread:
    """Deviations sigma_h = exp(a_h + w_h clip((u - centre) / width, low, high)), see `kru.estimators.spread`.

    Attributes:
        weights: (H, 4), a_h first.
        bounds: (4, 3): centre, width, low, high.
        recent: over how many changes the second and the third of u are means.
        smallest: what is added to a mean before its logarithm.
    """

    weights: Array
    bounds: Array
    recent: tuple[int, int]
    smallest: float


@dataclass(frozen=True)
class Forecast:
    """H values that follow the last T of a series, from C exogenous inputs that are known of the future too.

    With z = (y - base) / scale, where the base is the last value if `relative`, else the mean:

    - a model of one step forecasts z from the T values before, and is applied to its own forecasts; each time values
      are relative to the last one if `relative`;
    - a `direct` one forecasts all H at once.

    It is a regression on the last `lags` values, the exogenous inputs of the steps that it forecasts and a constant,
    plus a network, which reads at each of the T times the value and the exogenous inputs that follow it. The interval
    is the forecast plus and minus `half` times the scale and, with a spread, times its deviation.

    Attributes:
        network: of 1 + C or 1 + H C inputs and 1 or H outputs; none if it has no weight.
        linear: (lags + C + 1, 1), or (lags + H C + 1, H) if direct; no rows for none.
        means, scales: (series,).
        known: (mean, scale) of the exogenous inputs, or none.
        half: (H,).
        level: the probability of the interval.
    """

    origin: str
    network: Network | None
    context: int
    horizon: int
    lags: int
    relative: bool
    direct: bool
    linear: Array
    means: Array
    scales: Array
    known: tuple[Array, Array] | None
    half: Array
    spread: Spread | None
    level: float

    def __post_init__(self) -> None:
        if self.network is None and not len(self.linear):
            raise ValueError("forecast: expected a network, a linear part or both, got none")

    @property
    def channels(self) -> int:
        """C."""
        return 0 if self.known is None else len(self.known[0])

    @property
    def ahead(self) -> int:
        """Steps that the model forecasts at once."""
        return self.horizon if self.direct else 1


@runtime_checkable
class Forecasts(Protocol):
    """What knows how its forecasts are exported, such as a `KRUForecaster`."""

    def forecast_program(self, level: float = 0.9) -> Forecast: ...


def forecast_from(source: Any, around: Any) -> Forecast | None:
    """The forecast of a model that makes some, else None."""
    if isinstance(source, Forecasts):
        source = source.forecast_program()
    if not isinstance(source, Forecast):
        return None
    if around:
        raise ValueError(f"{next(iter(around))}: expected none for a forecaster, whose program has its own")
    return source


def expect_no_forecast(source: Any, what: str) -> None:
    """Raise for a format in which forecasters have no program."""
    if isinstance(source, Forecast | Forecasts):
        raise TypeError(
            f"{what}: expected a classifier, a regressor or a language model; forecasters go to c99 and js"
        )
