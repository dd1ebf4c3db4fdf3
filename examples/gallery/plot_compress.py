"""
An LSTM, compressed
===================

`kru.compress` replaces the recurrent matrix of each gate of a trained `torch.nn.LSTM` by the nearest sum of Kronecker
products, fitted to the states that occur in the data. How much accuracy is left?
"""

import numpy as np
import torch
from matplotlib import pyplot
from sklearn.datasets import load_digits
from torch import nn

import kru

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.images))
images = torch.from_numpy(digits.images[order] / 16).float()  # eight rows of eight pixels: eight steps
labels = torch.from_numpy(digits.target[order])
train, test = slice(0, 1400), slice(1400, None)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, rows):
        return self.head(self.rnn(rows)[0][:, -1])


def fit(model, epochs, rate):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(epochs):
        for part in torch.randperm(1400).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[train][part]), labels[train][part]).backward()
            optimizer.step()


def accuracy(model):
    with torch.no_grad():
        return (model(images[test]).argmax(1) == labels[test]).float().mean().item()


torch.manual_seed(0)
model = Reader()
fit(model, 10, 5e-3)
print(
    f"LSTM: {model.rnn.weight_hh_l0.numel():,} recurrent parameters, {accuracy(model):.1%} of the test digits right"
)

# %%
# Three budgets, each without and with two epochs of fine-tuning.

batches = list(images[train].split(50))
found = []
for budget in (8_000, 4_000, 2_000):
    small, report = kru.compress(model, max_parameters=budget, data=batches, only=["rnn"])
    before = accuracy(small)
    fit(small, 2, 1e-3)
    found.append((report.compressed, before, accuracy(small)))
    print(f"{report.compressed:,} recurrent parameters: {before:.1%}, fine-tuned {found[-1][2]:.1%}")

figure, axes = pyplot.subplots(figsize=(7, 3.6))
parameters, before, after = zip(*found, strict=True)
axes.semilogx(parameters, before, "o-", label="compressed")
axes.semilogx(parameters, after, "o-", label="and fine-tuned for two epochs")
axes.axhline(accuracy(model), color="0.6", linestyle="--", label="the LSTM, 16,384 parameters")
axes.set(xlabel="recurrent parameters", ylabel="accuracy on the test digits")
axes.legend()
figure.tight_layout()
