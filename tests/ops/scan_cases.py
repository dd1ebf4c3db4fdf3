"""Cases of the recurrence, evaluated three ways: by a dense matrix, by the reference, by `kru.ops.scan`."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import Tensor

from kru.ops import scan
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.reference import scan_reference

GATES = {"elman": 1, "lstm": 4, "gru": 3}
CELLS = [
    *[("elman", nonlinearity, field) for nonlinearity in ("modrelu", "tanh", "relu", "leaky_relu", "identity")
      for field in ("real", "complex")],
    ("lstm", "tanh", "real"),
    ("gru", "tanh", "real"),
]  # fmt: skip
INPUTS = {"small": 3, "large": 17, "symbols": 5, "part": 0}
"""Kinds of input with their D: multiplied inside the kernel, outside of it, looked up, or the part itself."""
SHAPES = [
    [(2, 2)] * 5,
    [(2, 3), (3, 2)],
    [(7, 7)],
    [(3, 3), (5, 5)],
    [(2, 2)] * 4,
    [(1, 1)],
    [(4, 2), (1, 3), (3, 2)],
    [(16, 16), (3, 3)],
    [(2, 2), (3, 3), (2, 2), (3, 3)],
    [(33, 33)],
    [(2, 2)] * 6,
    [(5, 5), (1, 1), (9, 9)],
]


def random_factor(values: Tensor) -> Tensor:
    """From normal values. Close to an isometry, so that products of many neither vanish nor explode."""
    shape = values.shape
    if shape[-1] == shape[-2]:
        values = torch.linalg.qr(values)[0] + 0.1 * values
    return values / (1 if shape[-1] == shape[-2] else max(shape[-2:]) ** 0.5)


@dataclass(frozen=True)
class ScanCase:
    cell: str = "elman"
    nonlinearity: str = "modrelu"
    field: str = "complex"
    inputs: str = "small"
    shapes: tuple[tuple[int, int], ...] = ((2, 2),) * 5
    steps: int = 5
    batch: int = 4
    lengths: str | None = None
    reverse: bool = False
    initial: bool = True
    bias: bool = True
    dtype: torch.dtype = torch.float32
    loss: str = "all"
    """Which results the loss depends on: all, states or last."""
    size: int | None = None
    """D, if it is not the usual one of the kind of input."""
    singular: float | None = None
    """The ratio of the singular values of every other factor, for factors of 2x2."""
    rank: int | None = None
    """The number of terms of the recurrent matrix; None for a single product without a dimension for them."""
    threads: int = 1
    leak: bool = False
    reset: bool = False
    seed: int = 0

    @property
    def units(self) -> int:
        return prod(p for p, _ in self.shapes)

    @property
    def state(self) -> int:
        return self.units * (2 if self.field == "complex" else 1)

    @property
    def settings(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("cell", "nonlinearity", "field", "reverse")}

    def tensors(self) -> dict[str, Tensor | None]:
        """Fresh leaves by the names of scan's arguments; factors.0, factors.1, ... for the factors."""
        generator = torch.Generator().manual_seed(self.seed)
        normal = partial(torch.randn, dtype=self.dtype, generator=generator)
        gates, dtype = GATES[self.cell], self.dtype
        width = gates * self.state
        size = INPUTS[self.inputs] if self.size is None else self.size
        out: dict[str, Tensor | None] = {}
        if self.inputs == "symbols":
            out["x"] = torch.randint(size, (self.steps, self.batch), generator=generator)
        else:
            last = width if self.inputs == "part" else size
            out["x"] = normal(self.steps, self.batch, last)
        out["weight"] = None if self.inputs == "part" else normal(width, size) / 2
        modrelu = self.cell == "elman" and self.nonlinearity == "modrelu"
        out["bias"] = normal(self.units if modrelu else width) / 4 if self.bias else None
        gru = self.bias and self.cell == "gru"
        out["recurrent_bias"] = normal(self.units) if gru else None
        out["h0"] = normal(self.batch, self.state) if self.initial else None
        lstm = self.initial and self.cell == "lstm"
        out["c0"] = normal(self.batch, self.state) if lstm else None
        out["lengths"] = None
        if self.lengths == "equal":
            out["lengths"] = torch.full((self.batch,), self.steps)
        elif self.lengths == "unsorted":
            ends = [
                0,
                self.steps,
                *torch.randint(self.steps + 1, (self.batch,), generator=generator).tolist(),
            ][: self.batch]
            random.Random(self.seed).shuffle(ends)
            out["lengths"] = torch.tensor(ends, dtype=torch.int64)
        planes = 2 if self.field == "complex" else gates
        terms = () if self.rank is None else (self.rank,)
        for f, shape in enumerate(self.shapes):
            factor = random_factor(normal((*terms, *shape) if planes == 1 else (*terms, planes, *shape)))
            if f == 0 and self.rank is not None:
                factor = factor / self.rank
            out[f"factors.{f}"] = factor / 2**0.5 if self.field == "complex" else factor
            if self.singular is not None and f % 2:
                turn = torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=dtype)
                factor[:] = turn.mT @ torch.diag(torch.tensor([1.0, self.singular], dtype=dtype)) @ turn
                out[f"factors.{f}"] = factor
        out["leak"] = torch.sigmoid(2 * normal(self.units)) if self.leak else None
        mask = torch.rand(self.steps, self.batch, generator=generator) < 0.4
        out["reset"] = mask if self.reset else None
        out["initial"] = normal(self.state) if self.reset and self.initial else None
        return out


def split(tensors: dict[str, Tensor | None]) -> tuple[dict[str, Tensor | None], list[Tensor]]:
    factors = [t for name, t in tensors.items() if name.startswith("factors.") and t is not None]
    return {name: t for name, t in tensors.items() if not name.startswith("factors.")}, factors


def run_scan(case: ScanCase, tensors: dict[str, Tensor | None]) -> tuple[Tensor, Tensor, Tensor | None]:
    named, factors = split(tensors)
    return tuple(scan(named.pop("x"), named.pop("weight"), factors, **named, **case.settings))


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_reference(case: ScanCase, tensors: dict[str, Tensor | None]) -> tuple[Tensor, Tensor, Tensor | None]:
    named, factors = split(tensors)
    settings = case.settings
    is_complex = settings.pop("field") == "complex"
    return scan_reference(ScanArguments(factors=factors, **named, **settings, is_complex=is_complex))


def run_dense(case: ScanCase, tensors: dict[str, Tensor | None]) -> tuple[Tensor, Tensor, Tensor | None]:
    """The equations sequence by sequence, with the matrix itself, complex numbers and double precision."""
    named, factors = split({name: t if t is None else widen(t) for name, t in tensors.items()})
    x, weight, bias = named["x"], named["weight"], named["bias"]
    modrelu = case.cell == "elman" and case.nonlinearity == "modrelu"
    if weight is None:
        a = x
    elif x.is_floating_point():
        a = x @ weight.mT
    else:
        a = torch.nn.functional.one_hot(x, weight.shape[1]).to(weight.dtype) @ weight.mT
    if bias is not None and not modrelu:
        a = a + bias
    if case.field == "complex":
        matrices = [dense_matrix([torch.complex(*factor.unbind(-3)) for factor in factors])]
    elif case.cell == "elman":
        matrices = [dense_matrix(factors)]
    else:
        matrices = [
            dense_matrix([factor.select(-3, g) for factor in factors]) for g in range(GATES[case.cell])
        ]
    states, last, cells = [], [], []
    for b in range(case.batch):
        length = case.steps if named["lengths"] is None else int(named["lengths"][b])
        h = named["h0"][b] if named["h0"] is not None else a.new_zeros(case.state)
        c = named["c0"][b] if named["c0"] is not None else a.new_zeros(case.state)
        row = [a.new_zeros(case.state)] * case.steps
        for t in reversed(range(length)) if case.reverse else range(length):
            begin = t + 1 if case.reverse else t
            if named["reset"] is not None and begin < length and named["reset"][begin, b]:
                c = torch.zeros_like(c)
                h = c if named["initial"] is None else named["initial"]
            before = h
            h, c = dense_step(case, matrices, a[t, b], h, c, bias, named["recurrent_bias"])
            if named["leak"] is not None:
                leak = named["leak"].repeat(case.state // case.units)
                h = (1 - leak) * before + leak * h
            row[t] = h
        states.append(torch.stack(row) if row else a.new_zeros(0, case.state))
        last.append(h)
        cells.append(c)
    stacked = (torch.stack(states, 1), torch.stack(last), torch.stack(cells) if case.cell == "lstm" else None)
    return tuple(t if t is None else t.to(case.dtype) for t in stacked)


def widen(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def dense_matrix(factors: list[Tensor]) -> Tensor:
    """By its definition: entry (p_0 p_1 .., q_0 q_1 ..) is the product of the factors' entries (p_f, q_f), summed over
    the terms if there are several."""
    if factors[0].dim() == 3:
        return sum(dense_matrix([factor[r] for factor in factors]) for r in range(len(factors[0])))
    matrix = factors[0].new_ones(1, 1)
    for factor in factors:
        (m, n), (p, q) = matrix.shape, factor.shape
        matrix = torch.einsum("ij,pq->ipjq", matrix, factor).reshape(m * p, n * q)
    return matrix


def dense_step(
    case: ScanCase,
    matrices: list[Tensor],
    a: Tensor,
    h: Tensor,
    c: Tensor,
    bias: Tensor | None,
    inner: Tensor | None,
) -> tuple[Tensor, Tensor]:
    n = case.units
    if case.cell == "elman":
        if case.field == "complex":
            z = matrices[0] @ torch.complex(h[:n], h[n:]) + torch.complex(a[:n], a[n:])
            if case.nonlinearity == "modrelu":
                z = modrelu(z, bias)
            planes = torch.cat([z.real, z.imag])
        else:
            z = matrices[0] @ h + a
            planes = modrelu(z, bias) if case.nonlinearity == "modrelu" else z
        plain = {"tanh": torch.tanh, "relu": torch.relu, "leaky_relu": leaky_relu}.get(case.nonlinearity)
        return (planes if plain is None else plain(planes)), c
    products = [matrix @ h for matrix in matrices]
    parts = a.split(n)
    if case.cell == "lstm":
        i, f, g, o = (part + product for part, product in zip(parts, products, strict=True))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    r, u = (parts[0] + products[0]).sigmoid(), (parts[1] + products[1]).sigmoid()
    candidate = (parts[2] + r * (products[2] + (0 if inner is None else inner))).tanh()
    return (1 - u) * candidate + u * h, c


def leaky_relu(z: Tensor) -> Tensor:
    return torch.where(z < 0, 0.1 * z, z)


def modrelu(z: Tensor, bias: Tensor | None) -> Tensor:
    size = z.abs()
    return torch.relu(size + (0 if bias is None else bias)) * z / size


def evaluate(
    case: ScanCase, run: Callable[[ScanCase, dict[str, Tensor | None]], tuple[Tensor, Tensor, Tensor | None]]
) -> dict[str, Tensor]:
    """The results and the gradients of everything that can have one, by name."""
    tensors = case.tensors()
    leaves = {name: t for name, t in tensors.items() if t is not None and t.is_floating_point()}
    for leaf in leaves.values():
        leaf.requires_grad_()
    results = {
        name: r for name, r in zip(("states", "h", "c"), run(case, tensors), strict=True) if r is not None
    }
    generator = torch.Generator().manual_seed(case.seed + 1)
    loss = sum(leaf.sum() * 0 for leaf in leaves.values())
    for name, result in results.items():
        weights = torch.randn(result.shape, dtype=case.dtype, generator=generator)
        if case.loss in ("all", "states" if name == "states" else "last"):
            loss = loss + (result * weights).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    out = {name: result.detach() for name, result in results.items()}
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        out[f"d{name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return out


TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-11}


def assert_equal(
    got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float, about: object
) -> None:
    """Each tensor equal but for `tolerance` times its largest entry (or 1, if that is larger)."""
    assert got.keys() == expected.keys(), (about, got.keys(), expected.keys())
    for name, tensor in got.items():
        wanted = expected[name]
        assert tensor.shape == wanted.shape, (about, name, tensor.shape, wanted.shape)
        assert tensor.dtype == wanted.dtype, (about, name, tensor.dtype, wanted.dtype)
        if not tensor.numel():
            continue
        error, size = float((tensor - wanted).abs().max()), max(1.0, float(wanted.abs().max()))
        assert error <= tolerance * size, (
            f"{about}: {name} is off by {error:.2e}, its largest entry is {size:.2e}"
        )


def assert_three_ways(case: ScanCase, *, dense: bool = True) -> None:
    with threads(case.threads):
        got = evaluate(case, run_scan)
    assert_equal(got, evaluate(case, run_reference), TOLERANCE[case.dtype], case)
    if dense and case.batch:
        assert_equal(got, evaluate(case, run_dense), TOLERANCE[case.dtype], case)


def random_scan_case(rng: random.Random) -> ScanCase:
    cell, nonlinearity, field = rng.choice(CELLS)
    shapes: list[tuple[int, int]] = []
    if rng.random() < 0.4:
        shapes = [(2, 2)] * rng.randint(1, 6)
    else:
        while not shapes or (rng.random() < 0.6 and prod(p for p, _ in shapes) < 12):
            size = rng.randint(1, 6)
            shapes.append((size, size))
        if len(shapes) > 1 and rng.random() < 0.5:  # other row counts in another order: rectangular factors
            rows = [p for p, _ in shapes]
            rng.shuffle(rows)
            shapes = [(p, q) for p, (_, q) in zip(rows, shapes, strict=True)]
    inputs = rng.choice(list(INPUTS))
    size = rng.choice([1, 2, 7, 15, 16, 17, 20]) if inputs != "part" else None
    return ScanCase(
        cell=cell,
        nonlinearity=nonlinearity,
        field=field,
        inputs=inputs,
        shapes=tuple(shapes),
        steps=rng.randint(0, 5),
        batch=rng.randint(0, 6),
        lengths=rng.choice([None, "equal", "unsorted", "unsorted"]),
        reverse=rng.random() < 0.5,
        initial=rng.random() < 0.5,
        bias=rng.random() < 0.7,
        dtype=rng.choice([torch.float32, torch.float64]),
        loss=rng.choice(["all", "all", "states", "last"]),
        size=size,
        rank=rng.choice([None, None, 1, 2, 3]),
        threads=rng.choice([1, 1, 2, 3]),
        reset=rng.random() < 0.3,
        seed=rng.randrange(10**6),
    )
