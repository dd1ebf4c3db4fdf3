"""
A forecast with intervals
=========================

`kru.estimators.KRUForecaster` continues a series and says how sure it is. The series is the carbon dioxide in the air
above Mauna Loa, once a week; it comes with statsmodels. The last two years are not shown to the model.
"""

from matplotlib import pyplot
from statsmodels.datasets import co2

from kru.estimators import KRUForecaster, backtest

series = co2.load_pandas().data["co2"].interpolate().to_numpy()[-700:]
HORIZON, START = 10, len(series) - 104
model = KRUForecaster(horizon=HORIZON, steps=100, random_state=0).fit(series[:START])

# %%
# `backtest` forecasts the rest from one origin after the other, each time with all the values before it. The model is
# not fitted again.

result = backtest(model, series, start=START, level=0.9)
for step in (0, HORIZON - 1):
    print(
        f"{step + 1:>2} weeks ahead: root mean square error {result.rmse[step]:.2f} ppm, "
        f"{result.coverage[step]:.0%} of the values within the 90 % interval"
    )

# %%
# The intervals come from errors on the end of the known series, which was held out first; the errors of these two years
# happen to be smaller. Drawn is every twelfth forecast.

figure, axes = pyplot.subplots(figsize=(9, 3.8))
axes.plot(range(-60, 104), series[START - 60 :], color="0.4", linewidth=1, label="measured")
for number in range(0, len(result.origins), 12):
    weeks = range(result.origins[number] - START, result.origins[number] - START + HORIZON)
    label = {"label": "forecast"} if number == 0 else {}
    axes.plot(weeks, result.forecasts[number], color="tab:blue", **label)
    label = {"label": "90 % interval"} if number == 0 else {}
    band = (result.lower[number], result.upper[number])
    axes.fill_between(weeks, *band, color="tab:blue", alpha=0.25, linewidth=0, **label)
axes.axvline(0, color="0.7", linestyle="--")
axes.set(xlabel="weeks from the last value of the fit", ylabel="CO2, ppm")
axes.legend()
figure.tight_layout()
