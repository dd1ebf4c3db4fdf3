"""Contestants of the streaming benchmark: each takes STEPS steps at a call, with an output for every step."""

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

import kru
from kru.export import c99
from kru.nn.model import SequenceModel

STEPS = 50
COMPILER = ("gcc", "-std=c99", "-O3", "-march=native")


@dataclass(frozen=True)
class Contestant:
    """A call of STEPS steps, and bytes: of a file or of parameters; in C the flash of a Cortex-M4, and RAM."""

    model: str
    runtime: str
    call: Callable[[], object]
    size: int
    ram: int | None = None


class CModel(nn.Module):
    """A model exported to C and compiled, in the place of the model."""

    def __init__(
        self, model: SequenceModel, folder: Path, *, int8: bool = False, activations: bool = False
    ) -> None:
        super().__init__()
        self.export = c99(model, folder, int8=int8, int8_activations=activations)
        self.outputs = model.output.out_features
        self.last_only = model.readout == "last"
        library = folder / "model.so"
        sources = [self.export.files[1], Path(__file__).with_name("stream.c")]
        command = [*COMPILER, f"-I{folder}", "-fPIC", "-shared", *sources, "-o", library, "-lm"]
        subprocess.run(command, check=True)
        self.function = ctypes.CDLL(str(library)).run_sequences

    def forward(self, inputs: Tensor, state: None = None) -> tuple[Tensor, None]:
        """Outputs of sequences (T, B, D), each from the first state: (T, B, C), or (B, C) of the last step."""
        return self.run(inputs, self.last_only), None

    def run(self, inputs: Tensor, last_only: bool) -> Tensor:
        steps, batch, _ = inputs.shape
        x = inputs.transpose(0, 1).contiguous()
        y = torch.empty(batch, self.outputs) if last_only else torch.empty(batch, steps, self.outputs)
        self.function(
            ctypes.c_void_p(x.data_ptr()),
            ctypes.c_void_p(y.data_ptr()),
            ctypes.c_long(batch),
            ctypes.c_long(steps),
            ctypes.c_int(last_only),
        )
        return y if last_only else y.transpose(0, 1)

    def contestant(self, model: str, runtime: str, x: Tensor) -> Contestant:
        size = self.export.weight_bytes + (self.export.code_bytes or 0)
        return Contestant(model, runtime, lambda: self.run(x, False), size, self.export.state_bytes)


def onnx_contestant(model: str, path: Path, states: dict[str, tuple[int, ...]]) -> Contestant:
    """A step in onnxruntime. Its tensors are bound to memory once: two sets of states, which take turns."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    shape = [size if isinstance(size, int) else 1 for size in session.get_inputs()[0].shape]
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    x = value(np.random.default_rng(0).random(shape, dtype=np.float32))
    memory = {
        name: [value(np.zeros(size, dtype=np.float32)) for _ in range(2)] for name, size in states.items()
    }
    bindings = []
    for turn in range(2):
        binding = session.io_binding()
        binding.bind_ortvalue_input("input", x)
        for name, values in memory.items():
            binding.bind_ortvalue_input(name, values[turn])
            binding.bind_ortvalue_output(f"{name}_next", values[1 - turn])
        binding.bind_output("output")
        bindings.append(binding)

    def call() -> None:
        for step in range(STEPS):
            session.run_with_iobinding(bindings[step % 2])

    return Contestant(model, "onnxruntime", call, path.stat().st_size)


def torch_contestant(model: str, layer: nn.Module, output: nn.Linear, x: Tensor) -> Contestant:
    """A step in PyTorch, of a layer with the contract of nn.LSTM."""

    @torch.inference_mode()
    def call() -> None:
        state = None
        for part in x:
            states, state = layer(part.unsqueeze(0), state)
            output(states[0])

    size = sum(4 * p.numel() for module in (layer, output) for p in module.parameters())
    return Contestant(model, "PyTorch", call, size)


def lstm_contestants(
    model: str, inputs: int, size: int, outputs: int, folder: Path, x: Tensor
) -> list[Contestant]:
    """nn.LSTM with a linear map of its states: in PyTorch, in onnxruntime by ONNX's own LSTM, and exported to C."""
    lstm, output = nn.LSTM(inputs, size), nn.Linear(size, outputs)
    path = folder / f"lstm{size}.onnx"
    onnx.save(_lstm_step(lstm, output), path)
    state = (1, 1, size)
    ours = SequenceModel(kru.KRULSTM(inputs, size, factors=[size]), outputs)
    return [
        CModel(ours, folder / f"lstm{size}").contestant(model, "C", x),
        onnx_contestant(model, path, {"h": state, "c": state}),
        torch_contestant(model, lstm, output, x),
    ]


def _lstm_step(lstm: nn.LSTM, output: nn.Linear) -> onnx.ModelProto:
    def reordered(tensor: Tensor) -> Tensor:
        """The gates i, f, g, o of torch as ONNX has them: i, o, f, g."""
        i, f, g, o = tensor.chunk(4)
        return torch.cat([i, o, f, g])

    constants = {
        "W": reordered(lstm.weight_ih_l0)[None],
        "R": reordered(lstm.weight_hh_l0)[None],
        "B": torch.cat([reordered(lstm.bias_ih_l0), reordered(lstm.bias_hh_l0)])[None],
        "V": output.weight.t(),
        "d": output.bias,
    }
    size = lstm.hidden_size
    state = [1, 1, size]

    def values(**shapes: list[int]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in shapes.items()]

    graph = helper.make_graph(
        [
            helper.make_node(
                "LSTM", ["input", "W", "R", "B", "", "h", "c"], ["", "h_next", "c_next"], hidden_size=size
            ),
            helper.make_node("MatMul", ["h_next", "V"], ["read"]),
            helper.make_node("Add", ["read", "d"], ["output"]),
        ],
        "lstm_step",
        values(input=[1, 1, lstm.input_size], h=state, c=state),
        values(output=[1, 1, output.out_features], h_next=state, c_next=state),
        [numpy_helper.from_array(t.detach().contiguous().numpy(), name) for name, t in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
