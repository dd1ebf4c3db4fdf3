"""The generated C: compiled by gcc and clang without a warning, run, and compared with PyTorch."""

import numpy as np
import pytest
import torch
from torch import nn

import kru
from kru.export import c99
from kru.nn.model import SequenceModel

from .cases import BIDIRECTIONAL, STREAMS, as_state, build, inputs, random_state, state_tuple
from .compiled import HERE, WARNINGS, Compiled, read_outputs, run, tool, write_inputs


def check_step(model: Compiled, layer, read, x: torch.Tensor) -> None:
    """One step from a random state: output and states to 1e-6 of what PyTorch computes."""
    states = random_state(layer, 1)
    with torch.no_grad():
        output, after = layer.step(x.unsqueeze(0), as_state(states))
        expected = read(output)[0]
    model.set_state(tuple(state[:, 0] for state in states))
    assert_near(model.step(x), expected)
    for name, state in zip("hc", state_tuple(after), strict=False):
        assert_near(model.states(name, layer.state_size), state[:, 0])


def assert_near(actual: np.ndarray, expected: torch.Tensor, tolerance: float = 1e-6) -> None:
    """Near, relative to the largest number where that is above one."""
    scale = max(1.0, float(expected.abs().max()))
    assert np.isfinite(actual).all()
    np.testing.assert_allclose(actual, expected.numpy(), rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize(
    ("name", "symbols"),
    [*((name, False) for name in STREAMS), *((name, True) for name in ("complex, one factor", "lstm"))],
)
def test_a_step_is_that_of_pytorch(name: str, symbols: bool, tmp_path) -> None:
    layer = build(STREAMS[name])
    model = Compiled(c99(layer, tmp_path / "c", symbols=symbols))
    for _ in range(3):
        check_step(model, layer, lambda y: y, inputs(layer, symbols=symbols))


@pytest.mark.parametrize(
    ("compiler", "level"), [("gcc", "-O0"), ("gcc", "-O3"), ("clang", "-O3"), ("clang", "-Os")]
)
def test_compilers_and_levels(compiler: str, level: str, tmp_path) -> None:
    layer = build(STREAMS["lstm, large factors"])
    model = Compiled(c99(layer, tmp_path / "c"), compiler, level)
    check_step(model, layer, lambda y: y, inputs(layer))


def test_clang_has_no_complaint(tmp_path) -> None:
    clang = tool("clang")
    for name in ("complex", "real", "lstm, large factors", "gru"):
        _, source = c99(build(STREAMS[name]), tmp_path / name, int8=True, symbols=name == "real").files
        run(clang, *WARNINGS, "-Wdouble-promotion", "-Wshadow", "-fsyntax-only", source)


def test_the_header_suits_cpp(tmp_path) -> None:
    header, _ = c99(build(STREAMS["gru"]), tmp_path / "c").files
    run(tool("g++"), "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c++", header)


@pytest.mark.parametrize("int8", [False, True])
def test_embedding_and_output(int8: bool, tmp_path) -> None:
    torch.manual_seed(0)
    layer, embedding, output = kru.KRULSTM(40, 24), nn.Embedding(50, 40), nn.Linear(24, 7)
    export = c99(layer, tmp_path / "c", name="tagger", embedding=embedding, output=output, int8=int8)
    assert [file.name for file in export.files] == ["tagger.h", "tagger.c"]
    model = Compiled(export)
    symbols = torch.randint(50, (20,))
    with torch.no_grad():
        expected = output(layer(embedding(symbols))[0])
    actual = np.stack([model.step(symbol) for symbol in symbols])
    assert_near(actual, expected, 0.02 if int8 else 1e-6)


def test_a_learned_first_state(tmp_path) -> None:
    layer = build(STREAMS["oRNN"])
    model = Compiled(c99(layer, tmp_path / "c"))
    x = inputs(layer, 3)
    with torch.no_grad():
        expected, _ = layer(x)
    assert_near(np.stack([model.step(part) for part in x]), expected)


def test_a_symbol_out_of_range_changes_nothing(tmp_path) -> None:
    model = Compiled(c99(build(STREAMS["complex"]), tmp_path / "c", symbols=True))
    model.step(torch.tensor(1))
    before = model.memory.copy()
    y = np.zeros(model.outputs, dtype=np.float32)
    for wrong in (-1, 3, 2**31 - 1, -(2**31)):
        assert model.call(wrong, y) == 1
    np.testing.assert_array_equal(model.memory, before)
    assert not y.any()


def test_the_output_may_be_left_out(tmp_path) -> None:
    layer = build(STREAMS["real"])
    model = Compiled(c99(SequenceModel(layer, 4, readout="last"), tmp_path / "c"))
    x = inputs(layer, 5)
    with_output = [model.step(part) for part in x][-1]
    model.reset()
    for part in x[:-1]:
        assert model.call(part, None) == 0
    np.testing.assert_array_equal(model.step(x[-1]), with_output)


@pytest.mark.parametrize("name", ["complex", "real", "lstm", "gru"])
def test_drift_over_ten_thousand_steps(name: str, tmp_path, record_property) -> None:
    layer = build(STREAMS[name], recurrent_noise=0.0)  # unitary: the states of others may grow for ever
    model = Compiled(c99(layer, tmp_path / "c"))
    x = inputs(layer, 10_000)
    with torch.no_grad():
        expected, _ = layer.double()(x.double())
    actual = np.stack([model.step(part) for part in x])
    assert np.isfinite(actual).all()
    drift = np.abs(actual - expected.numpy()).max(axis=1) / max(1.0, float(expected.abs().max()))
    record_property("drift", float(drift.max()))
    assert drift.max() < 1e-3


@pytest.mark.parametrize(
    ("name", "int8"),
    [("complex, rectangular", False), ("real relu", False), ("lstm, rank 2", True), ("gru", False)],
)
def test_sanitizers(name: str, int8: bool, tmp_path) -> None:
    layer = build(STREAMS[name])
    header, source = c99(layer, tmp_path / "c", int8=int8).files
    x = inputs(layer, 20)
    write_inputs(tmp_path / "inputs.h", x)
    flags = [*WARNINGS, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    where = ["-I", header.parent, "-I", tmp_path]
    run(tool("gcc"), *flags, *where, HERE / "stream.c", source, "-o", tmp_path / "stream", "-lm")
    actual = read_outputs(run(tmp_path / "stream"))
    with torch.no_grad():
        assert_near(actual, layer(x)[0], 0.05 if int8 else 1e-5)


def test_no_call_but_to_the_mathematics(tmp_path) -> None:
    """No memory, no files, no recursion: what the object asks for is in math.h, or the compiler's own."""
    for name in ("complex", "real", "lstm", "gru, no bias"):
        _, source = c99(build(STREAMS[name]), tmp_path / name).files
        code = tmp_path / "model.o"
        run(tool("gcc"), "-std=c99", "-O2", "-fno-stack-protector", "-c", source, "-o", code)
        asked = {line.split()[-1] for line in run(tool("nm"), "--undefined-only", code).splitlines()}
        assert asked <= {"expf", "tanhf", "sqrtf", "memset", "memcpy", "_GLOBAL_OFFSET_TABLE_"}
        offered = run("nm", "--extern-only", "--defined-only", code).split()[2::3]
        assert sorted(offered) == ["model_reset", "model_step"]


def test_the_stack_stays_small(tmp_path) -> None:
    _, source = c99(build(STREAMS["complex, large factors"]), tmp_path / "c").files
    run(tool("gcc"), "-std=c99", "-O2", "-fstack-usage", "-c", source, "-o", tmp_path / "model.o")
    used = [line.split("\t") for line in (tmp_path / "model.su").read_text().splitlines()]
    assert all(kind == "static" for *_, kind in used)
    assert sum(int(size) for _, size, _ in used) < 1000


@pytest.mark.parametrize("make", list(BIDIRECTIONAL.values()), ids=list(BIDIRECTIONAL))
def test_two_directions_are_refused(make, tmp_path) -> None:
    with pytest.raises(ValueError, match=r"c99: expected a model with one direction.* a stream has not seen"):
        c99(build(make), tmp_path / "c")
    assert not (tmp_path / "c").exists()


def _rounded(matrix: np.ndarray) -> np.ndarray:
    unit = np.abs(matrix).max(-1, keepdims=True) / np.float32(127)
    return np.rint(matrix / np.where(unit > 0, unit, 1)) * unit


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_activations_of_8_bits(cell: str, tmp_path) -> None:
    torch.manual_seed(0)
    kind = {"elman": kru.KRU, "lstm": kru.KRULSTM, "gru": kru.KRUGRU}[cell]
    model = nn.ModuleList([kind(40, 32), nn.Linear(64 if cell == "elman" else 32, 40)]).eval()
    layer, head = model
    x = torch.randn(12, 40) * torch.logspace(-3, 3, 12)[:, None]
    x[5] = 0
    compiled = Compiled(c99(layer, tmp_path / "c", output=head, int8_activations=True))
    assert "dot_integers" in (tmp_path / "c" / "model.c").read_text()
    found = np.stack([compiled.step(part) for part in x])
    # The same in PyTorch: rounded weights, and rounded vectors in front of them.
    with torch.no_grad():
        for weights in (getattr(layer, "weight_ih_l0", None), head.weight):
            if weights is not None and weights.numel() >= 1024:
                weights.copy_(torch.from_numpy(_rounded(weights.numpy())))
        states = layer(torch.from_numpy(_rounded(x.numpy()))[:, None])[0][:, 0].numpy()
        expected = _rounded(states) @ head.weight.numpy().T + head.bias.numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.02 * np.abs(expected).max())
