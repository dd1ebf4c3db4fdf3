"""
A reservoir of a million units
==============================

A random recurrent matrix of 2^20 units has a trillion entries, four terabytes. As a Kronecker product of twenty 2x2
rotations it has 80, and a step takes about as long as reading the state a few times.
"""

import time

import numpy as np
import torch
from matplotlib import pyplot

from kru.reservoir import EchoStateRegressor, Reservoir

# %%
# The processor time of a step grows a little faster than the number of units: N log N.

sizes = [2**k for k in range(8, 21, 2)]
micros = []
with torch.no_grad():
    for size in sizes:
        reservoir = Reservoir(1, size, seed=0)
        inputs = torch.randn(max(8, 2**17 // size), 1, 1)
        _, state = reservoir(inputs[:4])
        start = time.process_time()
        reservoir(inputs, state)
        micros.append(1e6 * (time.process_time() - start) / len(inputs))
        print(f"{size:>9,} units: {micros[-1]:10.1f} µs a step")

figure, axes = pyplot.subplots(figsize=(7, 3.6))
axes.loglog(sizes, micros, "o-", label="measured here")
axes.loglog(
    sizes,
    [micros[0] * (n / sizes[0]) ** 2 for n in sizes],
    "--",
    color="0.6",
    label="growth of a dense matrix, N²",
)
axes.set(xlabel="units", ylabel="processor time of a step, µs")
axes.legend()
figure.tight_layout()

# %%
# And it can be fitted: a read-out of 256 random features of the state, by ridge regression. The task is to give back
# the input of five steps ago.

signal = np.random.default_rng(0).uniform(-1, 1, (1, 250))
start = time.perf_counter()
model = EchoStateRegressor(2**20, n_features=256, precision="float32").fit(signal, np.roll(signal, 5))
print(f"fitted to 250 steps in {time.perf_counter() - start:.1f} s")
print(f"R² of the training data: {model.score(signal, np.roll(signal, 5)):.3f}")
