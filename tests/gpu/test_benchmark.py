"""The comparison of benchmarks/gpu.py, on small cases in the interpreter: it agrees, and it notices what is wrong."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

# Importing the compiler uses a part of torch that torch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def benchmark_module():
    spec = importlib.util.spec_from_file_location("gpu_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_small_cases_agree(benchmark_module) -> None:
    for cell, factors in (("elman", (2, 2, 2)), ("lstm", (3, 2)), ("gru", (2, 2))):
        case = benchmark_module.Case(cell, factors, 4, 2)
        assert benchmark_module.disagreement(case, CPU) < benchmark_module.TOLERANCE


def test_a_wrong_result_is_noticed(benchmark_module, monkeypatch: pytest.MonkeyPatch) -> None:
    case = benchmark_module.Case("elman", (2, 2), 3, 2)
    kernels = benchmark_module.Case.kernels
    monkeypatch.setattr(benchmark_module.Case, "kernels", lambda self, tensors: kernels(self, tensors) * 1.01)
    assert benchmark_module.disagreement(case, CPU) > benchmark_module.TOLERANCE


def test_every_contestant_runs(benchmark_module) -> None:
    case = benchmark_module.Case("elman", (2, 2), 2, 2)
    runs = benchmark_module.contestants(case, CPU)
    assert set(runs) == {"kernels", "PyTorch loop", "compiled loop", "nn.LSTM", "nn.GRU"}
    for name, run in runs.items():
        if name != "compiled loop":  # a C++ compiler's work
            run()
    benchmark_module.inference(case, CPU)()
