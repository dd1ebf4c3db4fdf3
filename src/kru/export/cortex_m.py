"""What a generated file takes in the flash of a microcontroller."""

import shutil
import subprocess
import tempfile
from pathlib import Path

FLAGS = ["-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"]
"""A Cortex-M4 with its unit for float."""


def code_bytes(source: Path, weight_bytes: int) -> int | None:
    """Bytes of flash beside the weights, as the compiler for Cortex-M makes it; None where there is none.

    The functions of math.h that are called are not counted.
    """
    compiler, size = shutil.which("arm-none-eabi-gcc"), shutil.which("arm-none-eabi-size")
    if compiler is None or size is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "model.o")
        command = [compiler, *FLAGS, "-std=c99", "-Os", "-c", str(source), "-o", out]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=120)
            shown = subprocess.run([size, out], capture_output=True, check=True, text=True, timeout=120)
        except (OSError, subprocess.SubprocessError):
            return None  # a compiler without its parts, such as headers
    # The first column of the second line: code and constants.
    return int(shown.stdout.splitlines()[1].split()[0]) - weight_bytes
