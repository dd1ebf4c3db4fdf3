"""ONNX models in onnxruntime against PyTorch."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import kru
from kru.export import onnx
from kru.nn.model import SequenceModel

from .cases import BIDIRECTIONAL, STREAMS, as_state, build, inputs, random_state, state_tuple

onnx_format = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

ALL = {**STREAMS, **BIDIRECTIONAL}


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def assert_near(actual, expected) -> None:
    scale = max(1.0, float(expected.abs().max()))
    assert actual.shape == tuple(expected.shape)
    np.testing.assert_allclose(actual, expected.numpy(), rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("symbols", [False, True], ids=["values", "symbols"])
@pytest.mark.parametrize("make", list(ALL.values()), ids=list(ALL))
def test_sequences_of_any_batch_and_length(make, symbols: bool, tmp_path) -> None:
    layer = build(make)
    onnx(layer, tmp_path / "o", symbols=symbols)
    model = session(tmp_path / "o" / "model_sequence.onnx")
    for leading in ((7, 2), (1, 1), (2, 5)):
        x = inputs(layer, *leading, symbols=symbols)
        with torch.no_grad():
            expected, last = layer(x)
        output, *states = model.run(None, {"input": x.numpy()})
        assert_near(output, expected)
        for actual, state in zip(states, state_tuple(last), strict=True):
            assert_near(actual, state)


@pytest.mark.parametrize("make", list(STREAMS.values()), ids=list(STREAMS))
def test_steps(make, tmp_path) -> None:
    layer = build(make)
    onnx(layer, tmp_path / "o", name="stream")
    model = session(tmp_path / "o" / "stream_step.onnx")
    for batch in (1, 4):
        states, x = random_state(layer, batch), inputs(layer, batch)
        with torch.no_grad():
            expected, after = layer.step(x, as_state(states))
        feed = {"input": x, **dict(zip(layer.states, states, strict=True))}
        output, *new = model.run(None, {name: value.numpy() for name, value in feed.items()})
        assert_near(output, expected)
        for actual, state in zip(new, state_tuple(after), strict=True):
            assert_near(actual, state)


@pytest.mark.parametrize("last_only", [False, True])
def test_models_of_recipes(last_only: bool, tmp_path) -> None:
    model = SequenceModel(build(STREAMS["complex"]), 5, readout="last" if last_only else "all")
    onnx(model, tmp_path / "o")
    x = torch.randn(6, 3, 3)
    with torch.no_grad():
        expected, last = model(x)
    output, h = session(tmp_path / "o" / "model_sequence.onnx").run(
        ["output", "h_last"], {"input": x.numpy()}
    )
    assert_near(output, expected)
    assert_near(h, last)


def test_embedding_and_output(tmp_path) -> None:
    torch.manual_seed(0)
    layer = kru.KRUGRU(6, 8, batch_first=True)
    embedding, output = nn.Embedding(11, 6), nn.Linear(8, 4, bias=False)
    onnx(layer, tmp_path / "o", embedding=embedding, output=output)
    words = torch.randint(11, (3, 9))
    with torch.no_grad():
        expected = output(layer(embedding(words))[0])
    actual, _ = session(tmp_path / "o" / "model_sequence.onnx").run(None, {"input": words.numpy()})
    assert_near(actual, expected)


def test_half_precision_is_exported_in_float32(tmp_path) -> None:
    layer = kru.KRULSTM(3, 8).to(torch.bfloat16)
    onnx(layer, tmp_path / "o")
    x = torch.randn(5, 2, 3).bfloat16()
    with torch.no_grad():
        expected, _ = layer(x)
    actual, *_ = session(tmp_path / "o" / "model_sequence.onnx").run(None, {"input": x.float().numpy()})
    np.testing.assert_allclose(actual, expected.float().numpy(), atol=0.01)


def test_metadata_and_names(tmp_path) -> None:
    written = onnx(build(STREAMS["lstm"]), tmp_path / "o")
    assert [file.name for file in written.files] == ["model_sequence.onnx", "model_step.onnx"]
    for file in written.files:
        model = onnx_format.load(file)
        onnx_format.checker.check_model(model, full_check=True)
        assert (model.producer_name, model.producer_version) == ("kru", kru.__version__)
        assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18)]
        assert {entry.key: entry.value for entry in model.metadata_props}["cell"] == "lstm"
        floats = {onnx_format.TensorProto.FLOAT, onnx_format.TensorProto.INT64}
        assert {tensor.data_type for tensor in model.graph.initializer} <= floats
    assert [value.name for value in model.graph.input] == ["input", "h", "c"]
    assert [value.name for value in model.graph.output] == ["output", "h_next", "c_next"]
    assert "layer_1/input_weight" in {tensor.name for tensor in model.graph.initializer}


def test_two_directions_have_no_step(tmp_path) -> None:
    written = onnx(build(BIDIRECTIONAL["complex, both directions"]), tmp_path / "o")
    assert [file.name for file in written.files] == ["model_sequence.onnx"]
    assert any(note.startswith("no step: its second direction begins at the end") for note in written.notes)


def test_a_learned_first_state_is_there_for_the_step(tmp_path) -> None:
    layer = build(STREAMS["oRNN"])
    onnx(layer, tmp_path / "o")
    h = np.array(json.loads((tmp_path / "o" / "model_h.json").read_text()), dtype=np.float32)[:, None]
    x = inputs(layer, 1)
    with torch.no_grad():
        expected, _ = layer.step(x)
    output, _ = session(tmp_path / "o" / "model_step.onnx").run(None, {"input": x.numpy(), "h": h})
    assert_near(output, expected)
