"""kron_matmul against dense products, chains of reshapes, FastKron and jax."""

from collections.abc import Callable

import torch
from peers import fastkron, jax_elementwise, reshape_matmul
from timing import Case

import kru

C64, F32 = torch.complex64, torch.float32


def product(
    rows: int, sizes: list[int], dtype: torch.dtype, against: list[tuple[str, float]], backward: bool = False
) -> Case:
    """y = x W^T; `against` holds (contestant, at least this many times faster)."""
    generator = torch.Generator().manual_seed(0)
    factors = [
        torch.linalg.qr(torch.randn(p, p, dtype=dtype, generator=generator))[0].contiguous() for p in sizes
    ]
    dense = kru.kron_dense(factors)
    x = torch.randn(rows, dense.shape[1], dtype=dtype, generator=generator)
    transposed = dense.t()
    contestants: dict[str, Callable[[], object] | None] = {
        "kru": lambda: kru.kron_matmul(x, factors),
        "dense": lambda: x @ transposed,
        "reshape @ W^T": lambda: reshape_matmul(x, factors),
        "FastKron": fastkron(x, factors),
        "jax.jit": jax_elementwise(x, factors),
    }
    shape = "x".join(map(str, sizes)) if len(set(sizes)) > 1 else f"{sizes[0]}^{len(sizes)}"
    if backward:
        leaves = [x.clone().requires_grad_(), *(factor.clone().requires_grad_() for factor in factors)]
        weight = dense.clone().requires_grad_()
        gradient = torch.randn_like(x)

        def train(function: Callable[..., torch.Tensor]) -> Callable[[], object]:
            return lambda: torch.autograd.grad(function(leaves[0], leaves[1:]), leaves, gradient)

        contestants = {
            "kru": train(kru.kron_matmul),
            "dense": lambda: torch.autograd.grad(leaves[0] @ weight.t(), [leaves[0], weight], gradient),
            "reshape @ W^T": train(reshape_matmul),
        }
    kind = {C64: "c64", F32: "f32"}[dtype]
    there = {name: call for name, call in contestants.items() if call is not None}
    targets = [(peer, "kru", least) for peer, least in against if peer in there]
    direction = "forward + backward" if backward else "forward"
    return Case(f"kron_matmul {rows} x {shape} {kind}, {direction}", there, targets)


def cases() -> list[Case]:
    chain, fast = "reshape @ W^T", ("FastKron", 2.0)
    return [
        product(20, [2] * 7, F32, [fast]),
        product(20, [2] * 7, C64, [("dense", 1.0)]),
        product(50, [2] * 9, F32, [("dense", 10.0), fast]),
        product(50, [2] * 9, C64, [("dense", 15.0)]),
        product(128, [2] * 11, F32, [("dense", 50.0), fast]),
        product(128, [2] * 11, C64, [("dense", 60.0)]),
        product(32, [128, 16], F32, [(chain, 1.3), fast]),
        product(50, [137, 3], C64, [(chain, 1.3)]),
        product(1, [128, 16], F32, [(chain, 2.0), fast]),
        product(50, [8] * 3, C64, []),
        product(50, [2] * 9, C64, [], backward=True),
        product(128, [2] * 11, F32, [], backward=True),
    ]


def dispatch() -> Case:
    """A product so small that only the way to the kernel is left: no rows at all, nine factors."""
    factors = [torch.randn(2, 2) for _ in range(9)]
    x = torch.randn(0, 512)
    return Case("dispatch, 9 factors, no gradient", {"kru": lambda: kru.kron_matmul(x, factors)})


def growth(power: int) -> Case:
    """About the same number of values in all, from many short rows to a few long ones."""
    factors = [torch.linalg.qr(torch.randn(2, 2, dtype=C64))[0].contiguous() for _ in range(power)]
    x = torch.randn(2 ** (18 - power), 2**power, dtype=C64)
    return Case(f"2^{power}", {"kru": lambda: kru.kron_matmul(x, factors)})
