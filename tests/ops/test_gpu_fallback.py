"""Without a usable GPU, Triton or compiler: one warning that says why, and PyTorch operations take over."""

import warnings

import pytest
import torch

from kru.ops import gpu


@pytest.fixture(autouse=True)
def _nothing_tried_yet():
    gpu._failure.cache_clear()
    yield
    gpu._failure.cache_clear()


def test_one_warning_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "missing", lambda: "Triton is not installed")
    with pytest.warns(UserWarning, match="GPU kernels cannot be used .Triton is not installed."):
        assert not gpu.works(0)
    with warnings.catch_warnings(action="error"):
        assert not gpu.works(0)


def test_switched_off_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SWITCH", "0")
    assert not gpu.works(0)
    assert gpu.status() == "none: KRU_TRITON=0 switches them off"


def test_what_fails_at_the_first_product_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: torch.device) -> None:
        raise RuntimeError("Failed to find C compiler\nwith more on the next line")

    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(gpu, "_try", fail)
    with pytest.warns(UserWarning, match="RuntimeError: Failed to find C compiler.;"):
        assert not gpu.works(0)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("3.7.1", None),
        ("3.10.0+rocm7", None),
        ("3.6.0", "Triton 3.7.1 or later is needed, 3.6.0 is installed"),
    ],
)
def test_versions_of_triton(version: str, reason: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.metadata, "version", lambda name: version)
    assert gpu.missing() == reason


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiler_takes_it_for_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "SWITCH", "0")

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if gpu.works(0) else x - 1

    compiled = torch.compile(function, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.zeros(2))


def test_float64_and_tensors_on_the_cpu_are_not_for_the_gpu() -> None:
    assert not gpu.runs(torch.ones(2))
    assert not gpu.runs(torch.ones(2, dtype=torch.float64))
