"""Random invalid calls: an exception or a result that the reference gives as well, never a crash."""

from functools import lru_cache
from random import Random
from typing import Any

import torch
from torch import Tensor

import kru
from kru.ops import scan
from kru.ops.chain import chain_scan
from kru.ops.chain.reference import chain_scan_reference
from kru.ops.chain.stages import from_program, to_program
from kru.ops.kron.reference import kron_matmul_reference
from kru.ops.scan.arguments import DIFFERENTIABLE, TENSORS, ScanArguments
from kru.ops.scan.reference import scan_reference
from tests.ops.kron_cases import random_kron_case
from tests.ops.odd_tensors import KINDS, all_calls
from tests.ops.scan_cases import random_scan_case, split

from .calls import chain_arguments, scan_arguments
from .pool import FoundError

NUMBERS = (0, 1, -1, 2, 7, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63))
Arguments = list[Any]


def spoil(rng: Random, value: Any) -> Any:
    """Something like `value` but not quite."""
    if isinstance(value, Tensor):
        return _spoil_tensor(rng, value.detach())
    if isinstance(value, list):
        changed = list(value)
        way = rng.randrange(5)
        if way == 0 or not changed:
            return [] if way else None
        place = rng.randrange(len(changed))
        if way == 1:
            del changed[place]
        elif way == 2:
            changed.insert(place, changed[place])
        elif way == 3:
            rng.shuffle(changed)
        else:
            changed[place] = spoil(rng, changed[place])
        return changed
    if isinstance(value, bool):
        return rng.choice([not value, None, 2])
    if isinstance(value, int):
        return rng.choice([*NUMBERS, value + 1, value - 1])
    if isinstance(value, str):
        return rng.choice(["elman", "lstm", "gru", "tanh", "relu", "modrelu", "", "x", None])
    return rng.choice([torch.ones(3), torch.ones(4, 6), torch.zeros(2, 2, 2), torch.ones(4).long(), 1.0])


def _spoil_tensor(rng: Random, t: Tensor) -> Any:
    way = rng.randrange(14)
    if way == 0:
        return None
    if way == 1 and t.dim():
        return t.narrow(rng.randrange(t.dim()), 0, 0)
    if way == 2 and t.dim():
        dim = rng.randrange(t.dim())
        return torch.cat([t, t], dim)
    if way == 3 and t.dim():
        dim = rng.randrange(t.dim())
        return t.narrow(dim, 0, max(0, t.shape[dim] - 1))
    if way == 4:
        return t.unsqueeze(0)
    if way == 5 and t.dim():
        return t[0] if len(t) else t.flatten()
    if way == 6:
        kinds = [
            torch.float64,
            torch.float32,
            torch.int64,
            torch.int32,
            torch.bool,
            torch.complex64,
            torch.half,
        ]
        return t.to(rng.choice(kinds))
    if way == 7 and not t.is_floating_point() and t.dtype is not torch.bool and t.numel():
        t = t.clone()
        t.view(-1)[rng.randrange(t.numel())] = rng.choice([n for n in NUMBERS if abs(n) < 2**30] + [10**9])
        return t
    if way == 8:
        return t.to("meta")
    if way == 9 and t.dim() > 1:
        return t.transpose(rng.randrange(t.dim()), rng.randrange(t.dim()))
    if way == 10 and t.dim() and len(t):
        return t[:1].expand(rng.choice([3, 1000, 2**40]), *t.shape[1:])
    if way == 11:
        t = t.clone()
        t.untyped_storage().resize_(rng.choice([0, t.untyped_storage().nbytes() // 2]))
        return t
    if way == 12:
        try:
            return KINDS[rng.choice([*KINDS])](t)
        except Exception:
            return t
    if t.numel() and t.is_floating_point():
        t = t.clone()
        t.view(-1)[rng.randrange(t.numel())] = rng.choice([float("nan"), float("inf"), 1e38, -1e38, 0.0])
    return t


def _some(rng: Random, arguments: Arguments) -> Arguments:
    changed = list(arguments)
    for place in rng.sample(range(len(changed)), min(len(changed), rng.choice([1, 1, 2, 3]))):
        changed[place] = spoil(rng, changed[place])
    return changed


def _outcome(function: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return function(*arguments, **named)
    except MemoryError:
        raise
    except Exception as error:
        return error


def direct(rng: Random) -> str:
    """The operators, forward and backward, with arguments that do not belong together."""
    which = rng.choice(["scan", "scan backward", "product", "product backward", "chain", "chain backward"])
    operators = torch.ops.kru
    if which.startswith("scan"):
        case = random_scan_case(rng)
        arguments = scan_arguments(case, False)
        arguments[-1] = rng.random() < 0.7
        if which == "scan":
            function: Any = operators.scan
        else:
            states, h, c, reserve, cells = operators.scan(*arguments[:-1], True)
            named = dict(zip(ScanArguments._fields, arguments, strict=False))
            present = [*[named[name] for name in DIFFERENTIABLE], *named["factors"]]
            wants = [t is not None and t.is_floating_point() for t in present]
            given = [
                torch.randn_like(states),
                torch.randn_like(h),
                None if case.cell != "lstm" else c.clone(),
            ]
            arguments = [*given, *arguments[:TENSORS], states, reserve, cells, *arguments[TENSORS:-1], wants]
            function = operators.scan_backward
    elif which.startswith("product"):
        kron = random_kron_case(rng)
        x, factors = kron.tensors([leaf.detach() for leaf in kron.leaves()])
        arguments, function = [x, factors], operators.kron_matmul
        if which != "product":
            dy = torch.randn_like(operators.kron_matmul(x, factors))
            arguments, function = (
                [dy, x, factors, [True] * (1 + len(factors))],
                operators.kron_matmul_backward,
            )
    else:
        a = chain_arguments(rng)
        tensors, program = to_program(a["stages"])
        named_too = [a[name] for name in ("x", "weight", "bias", "h0", "lengths")]
        arguments = [t if t is None else t.detach() for t in named_too]
        arguments += [[t.detach() for t in tensors], program, a["reverse"]]
        function = operators.chain_scan
        if which != "chain":
            states, last = function(*arguments)
            wants = [t is not None and t.is_floating_point() for t in arguments[:4]]
            wants += [t.is_floating_point() or t.is_complex() for t in arguments[5]]
            arguments = [
                torch.randn_like(states),
                torch.randn_like(last),
                *arguments[:5],
                states,
                *arguments[5:],
            ]
            arguments.append(wants)
            function = operators.chain_scan_backward
    found = _outcome(function, *_some(rng, arguments))
    return f"{which}: {type(found).__name__}"


def checked(rng: Random) -> str:
    """The functions of Python: what they accept, the reference computes too, and the same."""
    which = rng.choice(["scan", "product", "chain"])
    if which == "scan":
        case = random_scan_case(rng)
        named, factors = split(case.tensors())
        arguments: dict[str, Any] = {**named, **case.settings, "factors": factors}
        changed = dict(zip(arguments, _some(rng, list(arguments.values())), strict=True))
        found = _outcome(scan, **changed)

        def reference(**given: Any) -> Any:
            is_complex = given.pop("field") == "complex"
            return scan_reference(ScanArguments(**given, is_complex=is_complex))

        expected = found if isinstance(found, Exception) else _outcome(reference, **changed)
    elif which == "product":
        kron = random_kron_case(rng)
        x, factors = kron.tensors([leaf.detach() for leaf in kron.leaves()])
        changed = dict(zip(("x", "factors"), _some(rng, [x, factors]), strict=True))
        found = _outcome(kru.kron_matmul, **changed)
        expected = found if isinstance(found, Exception) else _outcome(kron_matmul_reference, **changed)
    else:
        a = chain_arguments(rng)
        tensors, program = to_program(a.pop("stages"))
        names = [*a, "tensors", "program"]
        values = [t.detach() if isinstance(t, Tensor) else t for t in a.values()]
        changed = dict(zip(names, _some(rng, [*values, [t.detach() for t in tensors], program]), strict=True))
        try:
            changed["stages"] = from_program(changed.pop("tensors"), changed.pop("program"))
        except Exception as error:
            return f"{which}: {type(error).__name__}"
        found = _outcome(chain_scan, **changed)
        expected = found if isinstance(found, Exception) else _outcome(chain_scan_reference, **changed)
    if isinstance(found, Exception):
        if not str(found).strip():
            raise FoundError(f"{which}: {found!r} without a message")
        return f"{which}: {type(found).__name__}"
    if isinstance(expected, Exception):
        raise FoundError(f"{which} accepts what the reference refuses: {expected!r}; {_described(changed)}")
    for got, wanted in zip(_tensors(found), _tensors(expected), strict=True):
        _expect_equal(which, got, wanted, changed)
    return f"{which}: accepted"


def _tensors(result: Any) -> list[Tensor]:
    results = result if isinstance(result, tuple) else (result,)
    return [t for t in results if isinstance(t, Tensor)]


def _expect_equal(which: str, got: Tensor, wanted: Tensor, changed: dict[str, Any]) -> None:
    if got.is_meta or type(got) is not Tensor or type(wanted) is not Tensor or wanted.layout != torch.strided:
        return
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        raise FoundError(
            f"{which}: {got.shape} {got.dtype}, {wanted.shape} {wanted.dtype}; {_described(changed)}"
        )
    single = got.dtype in (torch.float32, torch.complex64)
    # Numbers that overflow do so at other places in another order of the same sums.
    finite = got.isfinite() & wanted.isfinite() & (wanted.abs() < 1e30)
    size = max(1.0, float(wanted[finite].abs().max())) if bool(finite.any()) else 1.0
    if not bool(((got - wanted)[finite].abs() <= (1e-3 if single else 1e-9) * size).all()):
        raise FoundError(f"{which}: another result than the reference; {_described(changed)}")


def _described(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
    return f"[{', '.join(map(_short, value))}]" if isinstance(value, list) else repr(value)


@lru_cache(maxsize=1)
def _odd() -> list[Any]:
    return list(all_calls())


def odd(rng: Random) -> str:
    """Tensors without memory of their own, in modes and transforms."""
    label, call = rng.choice(_odd())
    return f"{label}: {type(_outcome(call)).__name__}"


FUNCTIONS = {"direct": direct, "checked": checked, "odd": odd}
