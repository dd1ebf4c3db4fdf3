"""
The spectrum during training
============================

Gradients survive thousands of steps as long as the eigenvalues of the recurrent matrix stay near the unit circle.
`kru.spectrum` finds them from the factors, without building the matrix. Here a small network trains for a while on the
adding problem, twice: with the penalty that keeps the factors nearly unitary, and without.
"""

import torch
from matplotlib import pyplot
from torch import nn

import kru

STEPS, LENGTH = 300, 30


def batch(size, generator):
    """Random numbers of which two are marked, and the sum of the two."""
    values = torch.rand(LENGTH, size, generator=generator)
    first = torch.randint(LENGTH // 2, (size,), generator=generator)
    second = torch.randint(LENGTH // 2, LENGTH, (size,), generator=generator)
    marks = torch.zeros(LENGTH, size)
    marks[first, torch.arange(size)] = marks[second, torch.arange(size)] = 1.0
    return torch.stack([values, marks], -1), (values * marks).sum(0)


def train(penalty):
    """The eigenvalues every 100 steps, and the distance from the nearest unitary matrix every ten."""
    torch.manual_seed(0)
    rnn = kru.KRU(2, 64)
    model = nn.ModuleDict({"rnn": rnn, "head": nn.Linear(rnn.output_size, 1)})
    optimizer = kru.optimizer(model, "adam", lr=1e-2, recurrent_lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    eigenvalues, curve = [], []
    for step in range(STEPS + 1):
        if step % 100 == 0:
            eigenvalues.append(kru.spectrum(rnn).eigenvalues)
        inputs, target = batch(32, generator)
        output, _ = model["rnn"](inputs)
        loss = nn.functional.mse_loss(model["head"](output[-1])[:, 0], target)
        if step % 10 == 0:
            curve.append((step, kru.spectrum(rnn).distance_from_unitary))
        optimizer.zero_grad()
        (loss + penalty * kru.unitary_penalty(model)).backward()
        optimizer.step()
    return eigenvalues, curve


# %%
# Every eigenvalue of a Kronecker product is a product of one eigenvalue of each factor: the 64 dots of one picture come
# from six 2x2 matrices.

runs = {"with the penalty": train(1.0), "without": train(0.0)}
circle = torch.exp(1j * torch.linspace(0, 2 * torch.pi, 200))
figure, rows = pyplot.subplots(2, 4, figsize=(10, 5.4), sharex=True, sharey=True)
for axes_row, (name, (eigenvalues, _)) in zip(rows, runs.items(), strict=True):
    for column, (axes, values) in enumerate(zip(axes_row, eigenvalues, strict=True)):
        axes.plot(circle.real, circle.imag, color="0.8", linewidth=1)
        axes.plot(values.real, values.imag, ".", markersize=4)
        axes.set(title=f"step {100 * column}", aspect="equal")
    axes_row[0].set_ylabel(name)
figure.tight_layout()

# %%
# The learning rate of the factors is ten times the usual one, so that a short run shows what happens. On the right is
# what is left of a signal after t steps in the direction of each eigenvector, ``|λ|^t``, on average.

figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.4))
t = torch.arange(200)
for name, (eigenvalues, curve) in runs.items():
    left.plot(*zip(*curve, strict=True), label=name)
    right.semilogy(t, (eigenvalues[-1].abs()[:, None] ** t).mean(0), label=name)
left.set(xlabel="training step", ylabel="distance from unitary")
right.set(xlabel="steps back in time", ylabel="what is left")
left.legend()
figure.tight_layout()
