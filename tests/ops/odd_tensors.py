"""A script: the operators with tensors that have no memory of their own, or not where their shape says.

Every call runs in a forked child, so that a crash ends only the child. Prints one JSON object, call -> outcome: "ok",
the name of an exception, or the signal that ended the child. With `--all` each of some 25000 calls, else a sample.
"""

import json
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import kru
from kru.ops import scan
from kru.ops.chain import chain_scan
from kru.ops.chain.stages import Diagonal, Fourier, Permutation, Reflection, Rotations

K, r = torch.ops.kru, torch.randn


class Wrapper(Tensor):
    """Holds another tensor and computes with that; has no storage."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Wrapper":
        wrapper = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = tree_map_only(Wrapper, lambda t: t.inner, (args, kwargs or {}))
        return tree_map_only(Tensor, Wrapper, func(*inner[0], **inner[1]))


class Named(Tensor):
    """A subclass with memory and without behaviour."""


class ToMeta(TorchFunctionMode):
    """Fresh tensors, and copies, have no memory."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        fresh = getattr(func, "__name__", "") in ("empty", "empty_like", "new_empty", "stack", "contiguous")
        return made.to("meta") if fresh and isinstance(made, Tensor) else made


class ToMetaBelow(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return (
            made.to("meta") if func.overloadpacket in (torch.ops.aten.empty, torch.ops.aten.stack) else made
        )


def resized(
    size: Callable[[int], int], copy: Callable[[Tensor], Tensor] = torch.clone
) -> Callable[[Tensor], Tensor]:
    def resize(t: Tensor) -> Tensor:
        t = copy(t)
        t.untyped_storage().resize_(size(t.untyped_storage().nbytes()))
        return t

    return resize


def freed_view(t: Tensor) -> Tensor:
    whole = torch.cat([t.flatten(), t.flatten()])
    part = whole[t.numel() :].view(t.shape)
    whole.untyped_storage().resize_(t.numel() * t.element_size())
    return part


def leaked(transform: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    """A tensor of a function transform that is over."""

    def leak(t: Tensor) -> Tensor:
        held = []

        def hold(inner: Tensor) -> Tensor:
            held.append(inner)
            return inner.sum()

        transform(hold)(torch.stack([t, t]) if transform is torch.vmap else t)
        return held[0]

    return leak


def distributed(t: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(t, _mesh(), [Replicate()])


def _mesh() -> Any:
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("fake", store=_fake_store(), rank=0, world_size=2)
    return dist.init_device_mesh("cpu", (2,))


def _fake_store() -> Any:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    return FakeStore()


def dual(t: Tensor) -> Tensor:
    """Its tangent is a zero tensor. Without a level of its own, as an argument of a call outside the forward mode."""
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.make_dual(t, torch._efficientzerotensor(t.shape))


fakes = FakeTensorMode(allow_non_fake_inputs=True)
KINDS: dict[str, Callable[[Tensor], Any]] = {
    "fake": fakes.from_tensor,
    "fake alone": lambda t: FakeTensorMode().from_tensor(t),
    "wrapper": Wrapper,
    "DTensor": distributed,
    "subclass": lambda t: t.as_subclass(Named),
    "freed": resized(lambda size: 0),
    "freed parameter": lambda t: torch.nn.Parameter(resized(lambda size: 0)(t)),
    "short": resized(lambda size: max(size // 2, 1)),
    "freed view": freed_view,
    "freed transposed": resized(
        lambda size: 0, lambda t: t.mT.clone(memory_format=torch.contiguous_format).mT
    ),
    "zero": lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype),
    "zero expanded": lambda t: torch._efficientzerotensor((), dtype=t.dtype).expand(t.shape),
    "dual": dual,
    "leaked vmap": leaked(torch.vmap),
    "leaked grad": leaked(torch.func.grad),
    "functional": torch._to_functional_tensor,
    "sparse": lambda t: t.to_sparse(),
    "csr": lambda t: t.to_sparse_csr(),
    "nested": lambda t: torch.nested.nested_tensor([*t]),
    "jagged": lambda t: torch.nested.nested_tensor([*t], layout=torch.jagged),
    "quantized": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    "mkldnn": lambda t: t.to_mkldnn(),
    "meta": lambda t: t.to("meta"),
    "inference": lambda t: _inference(t),
    "copy on write": lambda t: torch._lazy_clone(t),
    "expanded": lambda t: t[:1].expand(t.shape),
    "no memory": lambda t: t[:0],
    "half": lambda t: t.half(),
    "conjugate": lambda t: torch.complex(t, t).conj(),
    "negative": lambda t: torch.complex(t, t).conj().imag,
    "None": lambda t: None,
}


def _inference(t: Tensor) -> Tensor:
    with torch.inference_mode():
        return t.clone()


PLACES: dict[str, Callable[[], Any]] = {
    "default device": lambda: torch.device("meta"),
    "function mode": ToMeta,
    "dispatch mode": ToMetaBelow,
    "fake mode": lambda: FakeTensorMode(allow_non_fake_inputs=True),
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "forward mode": torch.autograd.forward_ad.dual_level,
}

SCAN = [
    "x",
    "weight",
    "bias",
    "recurrent_bias",
    "h0",
    "c0",
    "lengths",
    "leak",
    "reset",
    "initial",
    "f0",
    "f1",
]


def scan_tensors(cell: str, inputs: int) -> dict[str, Tensor | None]:
    gates = {"elman": 1, "lstm": 4, "gru": 3}[cell]
    lead = () if gates == 1 else (gates,)
    tensors: dict[str, Tensor | None] = dict.fromkeys(SCAN)
    tensors |= {
        "x": r(5, 4, inputs) if inputs else torch.ones(5, 4).long(),
        "weight": r(6 * gates, inputs or 3),
        "bias": r(6 * gates),
        "recurrent_bias": r(6) if cell == "gru" else None,
        "h0": r(4, 6),
        "c0": r(4, 6) if cell == "lstm" else None,
        "lengths": torch.tensor([5, 0, 3, 1]),
        "leak": torch.rand(6) if cell == "elman" else None,
        "reset": torch.rand(5, 4) < 0.3,
        "initial": r(6),
        "f0": r(*lead, 2, 2),
        "f1": r(*lead, 3, 3),
    }
    return tensors


def run_scan(cell: str, **t: Any) -> Any:
    f0, f1, x, weight = (t.pop(name) for name in ("f0", "f1", "x", "weight"))
    result = scan(x, weight, [f0, f1], cell=cell, nonlinearity="tanh", field="real", **t)
    return differentiate(result.states, result.h)


def run_chain(x: Any, weight: Any, bias: Any, h0: Any, lengths: Any, *stages: Any) -> Any:
    d, v, order, c, s, p = stages
    chain = [Diagonal((d,)), Fourier(()), Reflection((v,)), Permutation((order,)), Rotations((c, s, p))]
    return differentiate(*chain_scan(x, weight, chain, bias=bias, h0=h0, lengths=lengths))


def differentiate(*results: Any) -> Any:
    wanted = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
    if wanted:
        sum(result.sum() for result in wanted).backward()
    return results


def learnt(tensors: dict[str, Any]) -> dict[str, Any]:
    return {
        k: t.requires_grad_() if t is not None and t.dtype.is_floating_point else t
        for k, t in tensors.items()
    }


def factors(count: int, **more: Tensor) -> dict[str, Tensor]:
    return {"x": r(3, 2**count), **{f"f{i}": r(2, 2) for i in range(count)}, **more}


def chain_tensors(inputs: int) -> dict[str, Any]:
    phases = torch.complex(r(3), r(3)).sgn()
    return {
        "x": r(5, 4, inputs) if inputs else torch.ones(5, 4).long(),
        "weight": r(6, inputs or 3),
        "bias": r(3),
        "h0": r(4, 6),
        "lengths": torch.tensor([5, 0, 3, 1]),
        "d": phases,
        "v": torch.complex(r(3), r(3)),
        "order": torch.tensor([2, 0, 1]),
        "c": torch.ones(1),
        "s": torch.zeros(1),
        "p": phases[:1].clone(),
    }


def product(x: Any, **f: Any) -> Any:
    return differentiate(kru.kron_matmul(x, list(f.values())))


def direct(x: Any, **f: Any) -> Any:
    if any(factor is None for factor in f.values()):
        raise TypeError("as below")
    return K.kron_matmul(x, list(f.values()))


def backward(dy: Any, x: Any, **f: Any) -> Any:
    if any(factor is None for factor in f.values()):
        raise TypeError("torch prints a list that it refuses, and crashes if a tensor in it has no memory")
    return K.kron_matmul_backward(dy, x, list(f.values()), [True] * (1 + len(f)))


def scan_backward(dstates: Any, dh: Any, states: Any, reserve: Any, cells: Any, **t: Any) -> Any:
    f0, f1 = t.pop("f0"), t.pop("f1")
    if f0 is None or f1 is None:
        raise TypeError("as above")
    x, weight, *rest = (t[name] for name in SCAN[:10])
    wants = [True, True, True, False, True, True, False, True, True, True]
    return K.scan_backward(
        dstates,
        dh,
        None,
        x,
        weight,
        [f0, f1],
        *rest,
        states,
        reserve,
        cells,
        "lstm",
        "tanh",
        False,
        False,
        0,
        True,
        wants,
    )


def operators() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    torch.manual_seed(0)
    found: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "product of 2": (product, factors(2)),
        "product of 9": (product, factors(9)),
        "product of unequal": (product, {"x": r(3, 6), "f0": r(5, 2), "f1": r(2, 3)}),
        "product, learnt": (product, learnt(factors(2))),
        "product of 5, learnt": (product, learnt(factors(5))),
        "product, direct": (direct, factors(2)),
        "product, gradient": (backward, {"dy": r(3, 4), **factors(2)}),
        "lstm, gradient": (
            scan_backward,
            {
                **{"dstates": r(5, 4, 6), "dh": r(4, 6), "states": r(5, 4, 6)},
                **{"reserve": r(5, 4, 24), "cells": r(5, 4, 6)},
                **scan_tensors("lstm", 2),
            },
        ),
    }
    for cell in ("elman", "lstm", "gru"):
        for inputs in (0, 2, 20):
            call = partial(run_scan, cell)
            found[f"{cell} {inputs}"] = (call, scan_tensors(cell, inputs))
            found[f"{cell} {inputs}, learnt"] = (call, learnt(scan_tensors(cell, inputs)))
    for inputs in (0, 2, 20):
        found[f"chain {inputs}"] = (lambda **t: run_chain(*t.values()), chain_tensors(inputs))
        found[f"chain {inputs}, learnt"] = (
            lambda **t: run_chain(*t.values()),
            learnt(chain_tensors(inputs)),
        )
    return found


def convert(kind: str, tensor: Tensor | None) -> Any:
    return None if tensor is None else KINDS[kind](tensor.detach())


Calls = Iterator[tuple[str, Callable[[], Any]]]


def all_calls() -> Calls:
    """Each kind as each argument, then as all of them, then mixtures; every operator in every place."""
    rng = random.Random(0)
    found = operators()
    for name, (call, tensors) in found.items():
        there = [key for key, tensor in tensors.items() if tensor is not None]
        choices: list[dict[str, str]] = []
        for kind in KINDS:
            choices += [{key: kind} for key in there]
            choices += [dict.fromkeys(there, kind), {key: kind for key in there if key != "x"}]
        for _ in range(30):
            choices.append(
                {key: rng.choice(list(KINDS)) for key in rng.sample(there, rng.randint(1, len(there)))}
            )
        for chosen in choices:
            for place in ("", rng.choice(list(PLACES))):
                label = f"{name} | {place} | {', '.join(f'{key} {kind}' for key, kind in chosen.items())}"
                yield label, (lambda c, t, o, p: lambda: attempt(c, t, o, p))(call, tensors, chosen, place)
        for place in PLACES:
            yield f"{name} | {place} | ", (lambda c, t, p: lambda: attempt(c, t, {}, p))(call, tensors, place)


def attempt(call: Callable[..., Any], tensors: dict[str, Any], chosen: dict[str, str], place: str) -> None:
    given = {key: convert(chosen[key], t) if key in chosen else t for key, t in tensors.items()}
    with PLACES[place]() if place else nullcontext():
        call(**given)


def run_all(calls: list[tuple[str, Callable[[], Any]]]) -> dict[str, str]:
    """In a child that says which call it is at; after a crash a new one goes on behind it."""
    outcomes: dict[str, str] = {}
    clean = str(torch._C._dispatch_tls_local_exclude_set())
    at = 0
    while at < len(calls):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with os.fdopen(writing, "w", buffering=1) as out:
                for label, call in calls[at:]:
                    try:
                        call()
                        print(label, "ok", sep="\t", file=out)
                    except BaseException as error:
                        print(label, type(error).__name__, sep="\t", file=out)
                    # An error inside DTensor can leave torch's dispatcher in another state: go on in a new child.
                    if str(torch._C._dispatch_tls_local_exclude_set()) != clean:
                        break
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as said:
            lines = said.read().splitlines()
        outcomes |= dict(line.split("\t") for line in lines)
        _, status = os.waitpid(child, 0)
        at += len(lines)
        if os.WIFSIGNALED(status):
            outcomes[calls[at][0]] = signal.Signals(os.WTERMSIG(status)).name
            at += 1
    return outcomes


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    every = list(all_calls())
    print(json.dumps(run_all(every if "--all" in sys.argv else random.Random(1).sample(every, 4000))))
