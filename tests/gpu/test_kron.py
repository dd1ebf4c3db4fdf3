"""kron_matmul on the GPU kernels, interpreted, against the dense matrix in double precision."""

import os
import random

import pytest
import torch
from torch.library import opcheck

import kru
from kru.ops.kron import triton

from ..ops.kron_cases import KronCase, assert_dense, random_kron_case

SHAPES = {
    "2x2": [(2, 2)],
    "four of 2x2": [(2, 2)] * 4,
    "dense": [(9, 9)],
    "rectangular": [(2, 3), (4, 1), (3, 5)],
    "two of odd size": [(3, 3), (7, 7)],
    "several tiles": [(2, 1), (70, 40)],
    "three after merging": [(33, 2), (2, 40), (17, 18)],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_value_and_gradients(shapes: list[tuple[int, int]], dtype: torch.dtype) -> None:
    for leading, rank in (((5,), None), ((0, 3), 2), ((2, 1), 2)):
        assert_dense(KronCase(tuple(shapes), leading, dtype, rank=rank))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("view", ["transposed", "adjoint", "expanded", "conjugated", "negated"])
def test_strides(view: str, dtype: torch.dtype) -> None:
    for shapes in (((3, 3), (2, 2)), ((2, 2),) * 3):
        assert_dense(KronCase(shapes, (3, 2), dtype, x_view=view, factor_views=(view, "plain")))


def test_random_products() -> None:
    rng = random.Random(3)
    for _ in range(200 if os.environ.get("KRU_FULL") else 10):
        assert_dense(random_kron_case(rng))


def test_the_kernels_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above would show nothing."""
    calls: list[str] = []
    for name in ("butterfly_kernel", "stage_kernel"):
        kernel = getattr(triton.kernels, name)

        class Counting:
            def __init__(self, kernel, name) -> None:
                self.kernel, self.name = kernel, name

            def __getitem__(self, grid):
                calls.append(self.name)
                return self.kernel[grid]

        monkeypatch.setattr(triton.kernels, name, Counting(kernel, name))
    kru.kron_matmul(torch.ones(2, 4), [torch.eye(2)] * 2)
    kru.kron_matmul(torch.ones(2, 6), [torch.eye(2), torch.eye(3)])
    assert calls == ["butterfly_kernel", "stage_kernel"]


def test_only_the_wanted_gradients() -> None:
    torch.manual_seed(0)
    x, factors = torch.randn(3, 12), [torch.randn(3, 3), torch.randn(2, 2), torch.randn(2, 2)]
    dy = torch.randn(3, 12)
    every = torch.ops.kru.kron_matmul_backward(dy, x, factors, [True] * 4)
    for wanted in range(4):
        some = torch.ops.kru.kron_matmul_backward(dy, x, factors, [f == wanted for f in range(4)])
        assert torch.equal(some[wanted], every[wanted])
        assert not any(t.numel() for f, t in enumerate(some) if f != wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_registration(dtype: torch.dtype) -> None:
    x, factors = (
        torch.randn(2, 12, dtype=dtype),
        [torch.randn(3, 3, dtype=dtype), torch.randn(4, 4, dtype=dtype)],
    )
    opcheck(torch.ops.kru.kron_matmul.default, (x.requires_grad_(), [f.requires_grad_() for f in factors]))


def test_second_derivatives() -> None:
    inputs = [torch.randn(2, 4), torch.randn(2, 2), torch.randn(2, 2)]

    def twice(x, *factors):
        leaves = [t.detach().to(x.dtype).requires_grad_() for t in (x, *factors)]
        y = kru.kron_matmul(leaves[0], leaves[1:])
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    for got, expected in zip(twice(*inputs), twice(*[t.double() for t in inputs]), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-3)
