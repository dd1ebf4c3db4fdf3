"""The generated C on a Cortex-M4: sizes by its own tools, numbers by an emulator."""

import numpy as np
import pytest
import torch

from kru.export import C99Export, c99
from kru.export.cortex_m import FLAGS

from .cases import STREAMS, build, inputs
from .compiled import HERE, Compiled, read_outputs, run, tool, write_inputs

CASES = ["complex", "lstm, large factors"]


def build_object(export: C99Export, out, *options: str) -> None:
    run(tool("arm-none-eabi-gcc"), *FLAGS, "-std=c99", "-Os", *options, "-c", export.files[1], "-o", out)


@pytest.mark.parametrize(
    ("name", "int8"), [("complex", False), ("lstm, large factors", False), ("lstm, large factors", True)]
)
def test_flash_and_ram_are_as_reported(name: str, int8: bool, tmp_path) -> None:
    tool("arm-none-eabi-size")
    export = c99(build(STREAMS[name]), tmp_path / "c", int8=int8)
    assert export.notes[0].startswith(f"flash: {export.weight_bytes:,} bytes of weights and ")
    build_object(export, tmp_path / "model.o")
    text, data, bss = map(int, run("arm-none-eabi-size", tmp_path / "model.o").splitlines()[1].split()[:3])
    assert (data, bss) == (0, 0)
    assert text == export.weight_bytes + export.code_bytes
    sections = dict(
        line.split()[:2]
        for line in run("arm-none-eabi-size", "-A", tmp_path / "model.o").splitlines()[2:]
        if line
    )
    constants = sum(int(size) for section, size in sections.items() if section.startswith(".rodata"))
    assert 0 <= constants - export.weight_bytes <= 8  # alignment
    (tmp_path / "state.c").write_text(f'#include "{export.files[0]}"\nmodel_state state;\n')
    run("arm-none-eabi-gcc", *FLAGS, "-c", tmp_path / "state.c", "-o", tmp_path / "state.o")
    assert (
        int(run("arm-none-eabi-size", tmp_path / "state.o").splitlines()[1].split()[2]) == export.state_bytes
    )


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_board_computes_the_same(name: str, tmp_path) -> None:
    compiler, emulator = tool("arm-none-eabi-gcc"), tool("qemu-system-arm")
    if run(compiler, *FLAGS, "-print-file-name=libm.a").strip() == "libm.a":
        pytest.skip("no newlib for arm-none-eabi here")
    layer = build(STREAMS[name])
    export = c99(layer, tmp_path / "c")
    x = inputs(layer, 8)
    write_inputs(tmp_path / "inputs.h", x)
    board = HERE / "cortex_m4"
    sources = [HERE / "stream.c", export.files[1], board / "start.c"]
    link = ["--specs=rdimon.specs", "-T", board / "link.ld", "-lm", "-o", tmp_path / "stream.elf"]
    where = ["-I", export.files[0].parent, "-I", tmp_path]
    run(compiler, *FLAGS, "-std=c99", "-O2", *where, *sources, *link)
    machine = ["-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none"]
    printed = run(emulator, *machine, "-semihosting", "-kernel", tmp_path / "stream.elf")
    actual = read_outputs(printed)
    host = Compiled(export)
    expected = np.stack([host.step(part) for part in x])
    with torch.no_grad():
        np.testing.assert_allclose(actual, layer(x)[0].numpy(), rtol=0, atol=1e-5)
    if layer.cell == "elman":
        # Sums, products and roots are rounded alike everywhere; only exp and tanh differ between libraries.
        np.testing.assert_array_equal(actual, expected)
    else:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
