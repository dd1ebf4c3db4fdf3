"""The same numbers in processes with another instruction set, poisoned memory, or no native library."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kru
from kru.ops import bindings

AGREEMENT = Path(__file__).with_name("agreement.py")
LEVELS = {"avx512": ["avx512", "avx2", "baseline"], "avx2": ["avx2", "baseline"]}.get(
    bindings.simd(), [bindings.simd()]
)
needs_native = pytest.mark.skipif(bindings.library is None, reason="there are no native kernels")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    return done


@needs_native
@pytest.mark.parametrize("level", LEVELS[1:])
def test_lower_instruction_sets(level: str) -> None:
    assert run(str(AGREEMENT), KRU_SIMD=level).stdout.split() == [level]


@needs_native
def test_unknown_instruction_set() -> None:
    """A name that does not exist gives the plainest level."""
    report = run("-c", "from kru.ops import bindings; print(bindings.simd())", KRU_SIMD="nonsense")
    assert report.stdout.split() == [LEVELS[-1]]


POISON = """
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
// Fresh memory is full of 0xFF, which is NaN in every format of floating point numbers.
#define NEXT(name, result, ...) \\
  static result (*next)(__VA_ARGS__); \\
  if (!next) next = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name);
static void* filled(void* memory, size_t size) { return memory ? memset(memory, 0xFF, size) : memory; }
extern "C" {
void* malloc(size_t size) { NEXT(malloc, void*, size_t) return filled(next(size), size); }
void* aligned_alloc(size_t to, size_t size) {
  NEXT(aligned_alloc, void*, size_t, size_t)
  return filled(next(to, size), size);
}
int posix_memalign(void** out, size_t to, size_t size) {
  NEXT(posix_memalign, int, void**, size_t, size_t)
  const int status = next(out, to, size);
  if (!status) filled(*out, size);
  return status;
}
}
"""


@needs_native
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs LD_PRELOAD")
def test_memory_full_of_nan(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    (tmp_path / "poison.cpp").write_text(POISON)
    library = str(tmp_path / "poison.so")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", str(tmp_path / "poison.cpp"), "-o", library, "-ldl"], check=True
    )
    shown = run("-c", "import torch; print(torch.empty(50).isnan().all().item())", LD_PRELOAD=library)
    assert shown.stdout.split() == ["True"]
    assert run(str(AGREEMENT), LD_PRELOAD=library).stdout.split() == [bindings.simd()]


@needs_native
def test_tensors_full_of_nan() -> None:
    """torch fills what it allocates; the C library what the kernels allocate, with large numbers."""
    assert run(str(AGREEMENT), "--fill", MALLOC_PERTURB_="1").stdout.split() == [bindings.simd()]


def test_native_kernels_switched_off() -> None:
    assert run(str(AGREEMENT), "--few", KRU_NATIVE="0").stdout.split() == ["none"]


WITHOUT = """
import sys, warnings
sys.meta_path = [finder for finder in sys.meta_path if "kru" not in type(finder).__module__]
sys.path.insert(0, sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
    import kru
    import kru.ops.bindings
    y = kru.kron_matmul(torch.ones(1, 4), [torch.ones(2, 2)] * 2)
    layer = kru.KRU(3, 4)
    layer(torch.ones(2, 1, 3))[0].sum().backward()
ours = [str(w.message) for w in caught if "kru" in str(w.message)]
assert kru.__file__.startswith(sys.argv[1]), kru.__file__
assert kru.ops.bindings.library is None
assert y.tolist() == [[4.0] * 4]
print(len(ours), kru.ops.bindings.simd(), *ours)
"""


@pytest.mark.parametrize("damaged", [False, True], ids=["missing", "damaged"])
def test_without_the_library(damaged: bool, tmp_path: Path) -> None:
    """It imports, says so once, and works."""
    source = next(Path(folder) for folder in kru.__path__ if (Path(folder) / "__init__.py").exists())
    shutil.copytree(
        source, tmp_path / "kru", ignore=shutil.ignore_patterns("*.so", "*.dylib", "*.dll", "__pycache__")
    )
    if damaged:
        for name in ("libkru.so", "libkru.dylib", "kru.dll"):
            (tmp_path / "kru" / name).write_bytes(b"this is no library")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    count, level, *message = done.stdout.split()
    assert (count, level) == ("1", "none")
    assert "native library could not be loaded" in " ".join(message)
    assert ("it was not built" in " ".join(message)) != damaged
