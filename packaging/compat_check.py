"""What `make compat` runs in each environment: layers forward and backward, an estimator, exports. Needs no sources."""

import platform
import tempfile
from pathlib import Path

import numpy as np
import torch

import kru
from kru.estimators import KRUClassifier, load
from kru.export import c99, javascript, program
from kru.ops import bindings

LAYERS = {"KRU": kru.KRU, "KRULSTM": kru.KRULSTM, "KRUGRU": kru.KRUGRU}


def products() -> None:
    x = torch.randn(5, 24, dtype=torch.float64, requires_grad=True)
    factors = [torch.randn(n, n, dtype=torch.float64, requires_grad=True) for n in (2, 3, 4)]
    expected = x @ kru.kron_dense(factors).T
    torch.testing.assert_close(kru.kron_matmul(x, factors), expected)
    assert torch.autograd.gradcheck(lambda x, *f: kru.kron_matmul(x, list(f)), (x, *factors))


def layers() -> None:
    for name, make in LAYERS.items():
        torch.manual_seed(0)
        layer = make(3, 16)
        x = torch.randn(12, 4, 3)
        whole, _ = layer(x)
        first, state = layer(x[:5])
        second, _ = layer(x[5:], state)
        torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-4, atol=1e-5, msg=name)
        optimizer = kru.optimizer(layer, "adam", lr=1e-2)
        before = None
        for _ in range(20):
            loss = (layer(x)[0] - 0.3).square().mean() + 1e-3 * kru.unitary_penalty(layer)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before = before or loss.item()
        assert loss.item() < before, f"{name}: training does not lower the loss"


def estimator() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(["slow", "fast"], 20)
    speed = np.repeat([0.2, 1.0], 20)[:, None]
    X = np.sin(speed * np.arange(30) + rng.uniform(0, 6, (40, 1)))[:, None]
    model = KRUClassifier(units=16, epochs=20, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        loaded = load(Path(folder) / "model.safetensors")
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def exports() -> None:
    layer = kru.KRU(3, 16)
    x = torch.randn(6, 1, 3)
    with tempfile.TemporaryDirectory() as folder:
        for write in (c99, javascript, program):
            written = write(layer, Path(folder) / write.__name__)
            assert all(file.stat().st_size for file in written.files)
        [sequence] = (Path(folder) / "program").glob("*_sequence.pt2")
        loaded = torch.export.load(sequence).module()
        with torch.no_grad():
            torch.testing.assert_close(loaded(x)[0], layer(x)[0], rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    assert bindings.library is not None, "the installed wheel has no native library"
    for part in (products, layers, estimator, exports):
        part()
    where = f"Python {platform.python_version()}, torch {torch.__version__}, {bindings.simd()}"
    print(f"{where}: products, layers, estimator, exports")
