"""The wheel in a fresh environment without a compiler: README's programs and a selection of the tests."""

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ["ops/test_kron.py", "ops/test_threads.py", "ops/test_fork.py", "nn/test_against_torch.py"]


def check_installed(wheel: Path, folder: Path) -> str:
    """Install the wheel with the pinned versions, run everything; returns what was run.

    Raises:
        RuntimeError: something failed.
    """
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    # Nothing but Python: no compiler, no make, no cmake. Settings of pip such as package folders stay.
    variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CXX", "CC")}
    variables |= {"PATH": str(environment / "bin"), "HOME": os.environ.get("HOME", str(folder))}
    python = str(environment / "bin" / "python")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [python, *arguments], env=variables, cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"python {' '.join(arguments)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    # What README's programs and the tests below import besides kru.
    packages = ["pytest", "pytest-timeout", "hypothesis", "scikit-learn", "pandas", "aeon"]
    run("-m", "pip", "install", "-qq", *constraints, "--only-binary", ":all:", str(wheel), *packages)
    level = run("-W", "error", "-c", "import kru.ops.bindings as b; print(b.simd())").strip()
    if level == "none":
        raise RuntimeError("the installed wheel has no native library")
    programs = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    for program in programs:
        run("-c", program)
    shutil.copytree(ROOT / "tests", folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in TESTS))
    version = run("-m", "kru", "--version").splitlines()[0]
    return f"installed without a compiler ({level}, {version}): README's {len(programs)} programs, {', '.join(TESTS)}"
