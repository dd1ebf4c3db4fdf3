"""
Copy memory
===========

Ten symbols are shown, then fifty empty steps, then the network has to repeat the symbols in order. A model without
memory can only guess one of eight. `kru.KRU` and `torch.nn.LSTM` are trained on the same sequences.
"""

import torch
from matplotlib import pyplot
from torch import nn

import kru

SYMBOLS, LENGTH, GAP = 8, 10, 50


def batch(size, generator):
    """Symbols (T, B) and what to recall (LENGTH, B): 8 is the empty step, 9 says that it is time to recall."""
    words = torch.randint(SYMBOLS, (LENGTH, size), generator=generator)
    inputs = torch.full((GAP + 2 * LENGTH, size), SYMBOLS)
    inputs[:LENGTH] = words
    inputs[-LENGTH - 1] = SYMBOLS + 1
    return inputs, words


# %%
# Both read one-hot symbols and have 128 units. The factors of `KRU` are 2x2, so that its recurrent matrix has 56
# parameters. They are unitary at the start and stay as they are drawn: copy memory does not need to train them.

torch.manual_seed(0)
models = {
    "KRU": kru.KRU(SYMBOLS + 2, 128, train_recurrent=False),
    "LSTM": nn.LSTM(SYMBOLS + 2, 128),
}
curves = {}
for name, rnn in models.items():
    size = 256 if name == "KRU" else 128  # 128 complex units are 256 features
    model = nn.ModuleDict({"rnn": rnn, "head": nn.Linear(size, SYMBOLS)})
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=5e-3)
    generator = torch.Generator().manual_seed(1)
    curves[name] = []
    for _ in range(200):
        inputs, words = batch(20, generator)
        one_hot = nn.functional.one_hot(inputs, SYMBOLS + 2).float()
        output, _ = model["rnn"](one_hot)
        logits = model["head"](output[-LENGTH:])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curves[name].append(loss.item())
    right = (logits.argmax(-1) == words).float().mean()
    print(f"{name}: {kru.parameter_count(rnn)}; {right:.0%} of the last batch recalled")

# %%
# The LSTM stays near the guess for much longer than this example runs.

figure, axes = pyplot.subplots(figsize=(7, 3.5))
for name, losses in curves.items():
    axes.plot(losses, label=name)
axes.axhline(torch.tensor(SYMBOLS).log(), color="0.6", linestyle="--", label="guessing")
axes.set(xlabel="training step", ylabel="cross entropy of the recalled symbols")
axes.legend()
figure.tight_layout()
