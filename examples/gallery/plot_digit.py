"""
A digit read pixel by pixel
===========================

A network with 72 recurrent parameters reads an image as 784 numbers, one after the other, from the top left to the
bottom right. Its weights come with kru. What does it believe on the way?
"""

from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot
from scipy.ndimage import zoom
from sklearn.datasets import load_digits

import kru
from kru.lab.data.errors import DataError
from kru.lab.result import read_weights
from kru.lab.tasks.mnist import Mnist

(weights,) = Path(kru.__file__).parents[2].glob("results/**/mnist-kru-seed1.safetensors")
recipe, model = read_weights(weights)
model.eval()


# %%
# The pixels come from the test images of MNIST if they are there (``kru data fetch mnist``), otherwise from the
# digits of scikit-learn, which are of 8x8 pixels and enlarged: another hand, another pen, and the network is right less
# often.


def enlarged(image):
    """An image (28, 28) from one of scikit-learn's (8, 8), with its centre of mass in the middle."""
    large = zoom(image / 16, 2.5, order=3).clip(0, 1)
    corner = [14 - (large.sum(1 - axis) @ (np.arange(20) + 0.5)) / large.sum() for axis in (0, 1)]
    top, left = (int(np.clip(round(c), 0, 8)) for c in corner)
    canvas = np.zeros((28, 28))
    canvas[top : top + 20, left : left + 20] = large
    return canvas


try:
    pixels, labels = Mnist().load().take("test", np.arange(300))
    pixels, labels = pixels, labels.numpy()
    print("MNIST, the first 300 test images")
except DataError:
    digits = load_digits()
    images = np.stack([enlarged(image) for image in digits.images[:300]])
    pixels = torch.from_numpy(images).float().reshape(300, 784, 1).transpose(0, 1)
    labels = digits.target[:300]
    print("the first 300 digits of scikit-learn, enlarged")
with torch.no_grad():
    guesses = model(pixels)[0].argmax(-1).numpy()
print(f"{(guesses == labels).mean():.1%} right")

# %%
# The read-out was trained on the state after the last pixel alone. Applied to every state, it shows how the belief
# forms. Columns are pixels in the order in which they are read; the picture above each column has the same order.

shown = [int(np.flatnonzero((labels == digit) & (guesses == digit))[0]) for digit in (2, 3, 7)]
with torch.no_grad():
    states, _ = model.layer(pixels[:, shown])
    belief = model.output(states).softmax(-1)
figure, axes = pyplot.subplots(2, 3, figsize=(10, 5), height_ratios=[1, 1.6])
for column in range(3):
    axes[0, column].imshow(pixels[:, shown[column], 0].reshape(28, 28), cmap="gray_r")
    axes[0, column].axis("off")
    axes[1, column].imshow(belief[:, column].T, aspect="auto", cmap="viridis", interpolation="nearest")
    axes[1, column].set(xlabel="pixels read", yticks=range(10))
axes[1, 0].set_ylabel("digit")
figure.suptitle("What is shown, and the probability of each digit after each pixel (yellow: 1)")
figure.tight_layout()

# %%
# The state of the network while it reads the first one: 30 of its 1,024 features.

figure, axes = pyplot.subplots(figsize=(10, 3))
axes.imshow(states[:, 0, :30].T, aspect="auto", cmap="RdBu_r", vmin=-0.2, vmax=0.2, interpolation="nearest")
axes.set(xlabel="pixels read", ylabel="feature of the state")
figure.tight_layout()
