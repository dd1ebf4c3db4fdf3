"""Modules of one's own in every format, from raw values to labels, against PyTorch."""

import ctypes

import numpy as np
import pytest
import torch
from torch import nn

import kru
from kru.export import Exportable, c99, onnx
from kru.export.source import network_from
from kru.export.torch_modules import Sequence
from kru.export.torch_program import _sequence, _step

from .compiled import Compiled

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
LABELS = ["walk", 'a "run" */ é', "??/"]


class Own(nn.Module):
    """A recurrent layer, a way to read it, and a small network behind that."""

    def __init__(self, layer, readout: str, *tail: nn.Module, words: int = 0) -> None:
        super().__init__()
        self.words = nn.Embedding(words, layer.input_size) if words else None
        self.rnn = layer
        self.readout = readout
        self.drop = nn.Dropout(0.5)
        size = getattr(layer, "output_size", layer.hidden_size * (2 if layer.bidirectional else 1))
        self.tail = nn.Sequential(nn.Linear(size, 7), *tail)

    def forward(self, x, state=None):
        x = x if self.words is None else self.words(x)
        y, state = self.rnn(x, state)
        h = state[0] if isinstance(self.rnn, nn.LSTM | kru.KRULSTM) else state
        if self.readout == "last":
            y = y[:, -1] if self.rnn.batch_first else y[-1]
        elif self.readout == "h":
            y = h[-1]
        elif self.readout == "mean":
            y = y.mean(dim=1 if self.rnn.batch_first else 0)
        return self.tail(self.drop(y))


OWN = {
    "lstm, last": lambda: Own(nn.LSTM(3, 6, 2, batch_first=True, dropout=0.1), "last"),
    "gru, mean": lambda: Own(nn.GRU(3, 6, batch_first=True), "mean", nn.ReLU(), nn.Linear(7, 3)),
    "gru, no bias": lambda: Own(nn.GRU(3, 6, 2, bias=False), "h", nn.GELU(), nn.Linear(7, 4), nn.Sigmoid()),
    "rnn, all": lambda: Own(nn.RNN(3, 6, 2), "all", nn.Tanh(), nn.Linear(7, 5), nn.LogSoftmax(dim=-1)),
    "rnn relu": lambda: Own(nn.RNN(3, 6, nonlinearity="relu", batch_first=True), "all", nn.Softmax(dim=2)),
    "kru, mean": lambda: Own(
        kru.KRU(3, 6, 2), "mean", nn.Tanh(), nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 3)
    ),
    "kru-lstm, h": lambda: Own(kru.KRULSTM(3, 6), "h", nn.Identity(), nn.Linear(7, 1)),
    "words": lambda: Own(nn.LSTM(4, 6, batch_first=True), "mean", words=9),
}


def case(name: str):
    torch.manual_seed(0)
    module = OWN[name]().eval()
    shape = (2, 5) if module.rnn.batch_first else (5, 2)
    x = torch.randint(9, shape) if module.words else torch.randn(*shape, 3)
    return module, x


def steps_of(module, x):
    """The inputs of the second sequence, and what the module gives after each step."""
    first = module.rnn.batch_first
    x = x[1:] if first else x[:, 1:]
    parts = [x[:, : t + 1] if first else x[: t + 1] for t in range(5)]
    with torch.no_grad():
        outputs = [module(part) for part in parts]
    if module.readout == "all":
        outputs = [y[:, -1] if first else y[-1] for y in outputs]
    return (x[0] if first else x[:, 0]), torch.stack(outputs)[:, 0]


def near(actual, expected) -> None:
    scale = max(1.0, float(expected.abs().max()))
    np.testing.assert_allclose(np.asarray(actual), expected.numpy(), rtol=0, atol=2e-6 * scale)


@pytest.mark.parametrize("name", list(OWN))
def test_c99_step_by_step(name: str, tmp_path) -> None:
    module, x = case(name)
    x, expected = steps_of(module, x)
    model = Compiled(c99(module, tmp_path / "c"))
    near(np.stack([model.step(part) for part in x]), expected)


@pytest.mark.parametrize("name", list(OWN))
def test_programs(name: str) -> None:
    module, x = case(name)
    network = network_from(module)
    with torch.no_grad():
        near(Sequence(network)(x)[0], module(x))
        near(_sequence(network).module()(x)[0], module(x))
        x, expected = steps_of(module, x)
        step = _step(network).module()
        states = [torch.zeros(len(network.layers), 1, network.first.state_size) for _ in network.first.states]
        states += [torch.zeros(1, size) for size in network.carried.values()]
        for part, wanted in zip(x, expected, strict=True):
            y, *states = step(part[None], *states)
            near(y[0], wanted)


@pytest.mark.parametrize("name", list(OWN))
def test_onnx(name: str, tmp_path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    module, x = case(name)
    onnx(module, tmp_path / "o")
    session = runtime.InferenceSession(tmp_path / "o" / "model_sequence.onnx")
    with torch.no_grad():
        near(session.run(["output"], {"input": x.numpy()})[0], module(x))
    x, expected = steps_of(module, x)
    session = runtime.InferenceSession(tmp_path / "o" / "model_step.onnx")
    inputs = [value for value in session.get_inputs() if value.name != "input"]
    states = {
        value.name: np.zeros([size if isinstance(size, int) else 1 for size in value.shape], np.float32)
        for value in inputs
    }
    for part, wanted in zip(x, expected, strict=True):
        y, *after = session.run(None, {"input": part[None].numpy(), **states})
        states = dict(zip(states, after, strict=True))
        near(y[0], wanted)


@pytest.mark.parametrize("outputs", [3, 1])
def test_raw_values_in_labels_out(outputs: int, tmp_path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    module = Own(nn.GRU(3, 6), "mean", nn.ReLU(), nn.Linear(7, outputs)).eval()
    mean, scale = torch.tensor([100.0, -5.0, 0.1]), torch.tensor([30.0, 2.0, 0.01])
    labels = LABELS[: max(2, outputs)]
    trained = Exportable(module, scaling=(mean, scale), labels=labels, probabilities=True)
    raw = mean + scale * torch.randn(6, 4, 3)
    with torch.no_grad():
        y = module((raw - mean) / scale)
    expected = torch.softmax(y, -1) if outputs > 1 else torch.sigmoid(y)
    indices = expected.argmax(-1) if outputs > 1 else (expected[:, 0] > 0.5).long()
    names = [labels[index] for index in indices]
    model = Compiled(c99(trained, tmp_path / "c"))
    model.library.model_label.restype = ctypes.c_char_p
    for b in range(4):
        model.reset()
        last = [model.step(part) for part in raw[:, b].contiguous()][-1]
        near(last, expected[b])
        assert model.library.model_label(last.ctypes.data_as(ctypes.c_void_p)).decode() == names[b]
    onnx(trained, tmp_path / "o")
    session = runtime.InferenceSession(tmp_path / "o" / "model_sequence.onnx")
    probabilities, found = session.run(["output", "label"], {"input": raw.numpy()})
    near(probabilities, expected)
    assert found.tolist() == names
    output, _, index = Sequence(network_from(trained))(raw)
    near(output, expected)
    assert index.tolist() == indices.tolist()


def test_targets_are_scaled_back(tmp_path) -> None:
    torch.manual_seed(0)
    module = Own(nn.GRU(3, 6), "last").eval()
    mean, scale = torch.arange(7.0), torch.arange(1.0, 8)
    network = network_from(module, {"target_scaling": (mean, scale)})
    x = torch.randn(4, 2, 3)
    with torch.no_grad():
        near(Sequence(network)(x)[0], module(x) * scale + mean)


@pytest.mark.parametrize(
    ("around", "message"),
    [
        ({"scaling": ([0.0] * 3, [1.0, 0.0, 1.0])}, "scaling: expected 3 numbers each, the scale above 0"),
        ({"scaling": ([0.0], [1.0])}, "scaling: expected 3 numbers each"),
        ({"labels": ["a"]}, "labels: expected 7 for 7 outputs, got 1"),
    ],
)
def test_what_does_not_fit(around, message: str, tmp_path) -> None:
    with pytest.raises(ValueError, match=message):
        c99(Own(nn.GRU(3, 6), "last"), tmp_path / "c", **around)
    assert list(tmp_path.iterdir()) == []
