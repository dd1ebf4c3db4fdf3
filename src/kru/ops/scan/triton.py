"""The recurrence on the Triton kernels, in float32, forward and backward.

Elman cells with factors of 2x2 keep their state in registers (`triton_butterfly`), all others in memory, where merged
factors of any size pass by (`triton_stream`, `triton_gated`). The kernels' loops contain what a step has to wait for:
input parts, pre-activations W h_{t-1} + a_t of the backward pass, and the gradients of factors and input map are
products over all steps at once, before or after the loop. Nothing here waits for the GPU.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from kru.ops import gpu
from kru.ops.bindings import dense
from kru.ops.kron.merged import factor_gradients, merge, stages
from kru.ops.kron.reference import terms_of
from kru.ops.kron.triton import is_butterfly, multiply, planar_rows, planes_of, tile_of, warps_of
from kru.ops.scan import triton_butterfly, triton_gated, triton_stream
from kru.ops.scan.arguments import DIFFERENTIABLE, ScanArguments
from kru.ops.scan.cells import NONLINEARITIES
from kru.ops.scan.checks import check_scan_values
from kru.ops.scan.contract import Gradients, Kept, keeps_part, kept_shapes, map_gradients
from kru.ops.scan.reference import input_part
from kru.ops.time_steps import restarts

BLOCK = 256
"""How many numbers a program of the streaming kernels takes at a time in elementwise operations."""


class _Scan:
    """What both directions need: plain factors, masks, the flags of the kernels."""

    def __init__(self, arguments: ScanArguments) -> None:
        self.arguments = arguments
        self.like = arguments.factors[0]
        self.device = arguments.x.device
        self.factors = _matrices(arguments)
        self.lengths = None
        if arguments.lengths is not None:
            self.lengths = arguments.lengths.to(self.device, non_blocking=True)
        anew = restarts(arguments.reset, self.lengths, reverse=arguments.reverse)
        self.anew = None if anew is None else dense(anew).view(torch.uint8)
        terms = [list(terms_of(gate)) for gate in self.factors]
        self.butterfly = not arguments.has_gates and len(terms[0]) == 1 and is_butterfly(terms[0][0])
        self.terms = terms
        self.flags: dict[str, Any] = {
            "N": arguments.units,
            "REVERSE": arguments.reverse,
            "LENGTHS": self.lengths is not None,
            "RESET": self.anew is not None,
        }
        if not arguments.has_gates:
            self.flags["COMPLEX"] = arguments.is_complex
            self.flags["SIGMA"] = NONLINEARITIES[arguments.nonlinearity].code
            self.flags["BIAS"] = self.inner_bias is not None
            self.flags["LEAK"] = arguments.leak is not None

    @property
    def inner_bias(self) -> Tensor | None:
        """The bias inside modReLU."""
        return self.arguments.bias if self.arguments.has_inner_bias else None

    @property
    def outer_bias(self) -> Tensor | None:
        """The bias that is a part of a_t."""
        return None if self.arguments.has_inner_bias else self.arguments.bias

    def new(self, *shape: int, zeros: bool = False) -> Tensor:
        create = torch.zeros if zeros else torch.empty
        return create(shape, dtype=self.like.dtype, device=self.device)

    def over_time(self, width: int) -> Tensor:
        """(T, B, width), with zeros where a sequence may have ended."""
        return self.new(self.arguments.steps, self.arguments.batch, width, zeros=self.lengths is not None)

    def initial_state(self, given: Tensor | None, width: int) -> Tensor:
        """A copy for a kernel to work on."""
        if given is None:
            return self.new(self.arguments.batch, width, zeros=True)
        return given.clone(memory_format=torch.contiguous_format)

    def before(self, history: Tensor, first: Tensor | None, initial: Tensor | None) -> Tensor:
        """What each step starts from (T, B, ...): h_{t-1} or c_{t-1}."""
        arguments = self.arguments
        start = torch.zeros_like(history[:1]) if first is None else first.unsqueeze(0)
        if not arguments.steps:
            return history
        if arguments.reverse:
            out = torch.cat([history[1:], start])
            if self.lengths is not None:
                times = torch.arange(arguments.steps, device=self.device).unsqueeze(1)
                out = torch.where((times == self.lengths - 1).unsqueeze(-1), start, out)
        else:
            out = torch.cat([start, history[:-1]])
        if self.anew is not None:
            replaced = torch.zeros_like(history[0, 0]) if initial is None else initial
            out = torch.where(self.anew.bool(), replaced, out)
        return out

    def run(self, kernel: Any, *tensors: Tensor | None, **flags: Any) -> None:
        """Start a kernel; it gets tensors and memory addresses of absent ones, which it does not use."""
        arguments = self.arguments
        if not arguments.batch:
            return
        given = [self.like if t is None else dense(t) for t in tensors]
        with gpu.on_device(self.like):
            if self.butterfly:
                count, units = len(self.terms[0][0]), arguments.units
                warps = warps_of(units, arguments.batch, gpu.processors(self.like))
                entries = torch.stack(planes_of(self.terms[0][0]))
                kernel[(arguments.batch,)](
                    entries, *given, arguments.steps, COUNT=count, num_warps=warps, num_stages=1,
                    **self.flags, **flags,
                )  # fmt: skip
                return
            adjoint = kernel in (triton_stream.elman_backward, triton_gated.gated_backward)
            plan = Plan(self.terms, arguments.batch, gpu.processors(self.like), adjoint=adjoint)
            width = arguments.gates * arguments.state + 2 * plan.width * arguments.planes
            programs = -(-arguments.batch // plan.rows)
            scratch = self.new(programs * plan.rows * width)
            kernel[(programs,)](
                plan.weights, *given, scratch, arguments.steps, arguments.batch, STAGES=plan.stages,
                TERMS=len(self.terms[0]), W=plan.width, BB=plan.rows, BLOCK=min(BLOCK, plan.block),
                num_warps=plan.warps, num_stages=1, **self.flags, **flags,
            )  # fmt: skip


class Plan:
    """How a streaming kernel goes through the factors.

    Attributes:
        weights: the merged factors, one after the other; of each the terms, gates, planes, rows and columns.
        stages: of each merged factor, in the order of the products: (offset in the weights, L, P, Q, R) and the tile.
        width: how many numbers an intermediate result has at most, in a row and plane.
        rows: how many sequences a program takes: one, unless there are more than the GPU runs at the same time and
            products would have fewer than 16 columns.
    """

    def __init__(
        self, terms: Sequence[Sequence[Sequence[Tensor]]], batch: int, processors: int, *, adjoint: bool
    ) -> None:
        merged = [[merge(term) for term in gate] for gate in terms]
        first = merged[0][0]
        shapes = [(int(matrix.shape[0]), int(matrix.shape[1])) for matrix in first]
        order = stages(shapes, adjoint=adjoint)
        parts = [
            torch.stack(planes_of([gate[r][f] for r in range(len(terms[0])) for gate in merged]))
            for f in range(len(shapes))
        ]
        self.weights = torch.cat([part.flatten() for part in parts])
        units = prod(p for p, _ in shapes)
        columns = max((p * q, left * right) for _, left, p, q, right in order)[1]
        self.rows = 1
        while self.rows * columns < 16 and batch > 2 * self.rows * processors:
            self.rows *= 2
        offsets = [sum(part.numel() for part in parts[:f]) for f in range(len(shapes))]
        self.stages = tuple(
            (offsets[f], left, p, q, right, *tile_of(p, q, min(16, self.rows * left * right)).values())
            for f, left, p, q, right in order
        )
        self.width = max([units, *(left * p * right for f, left, p, _, right in order if f)])
        self.block = 1 << max(4, (self.rows * units - 1).bit_length())
        self.warps = 8 if units >= 256 else 4


def _matrices(arguments: ScanArguments) -> list[list[Tensor]]:
    """For each gate its factors (P, Q) or (R, P, Q), complex ones as complex tensors."""
    factors = [factor.detach() for factor in arguments.factors]
    if arguments.is_complex:
        return [[torch.complex(*factor.unbind(-3)) for factor in factors]]
    if not arguments.has_gates:
        return [factors]
    return [[factor.select(-3, gate) for factor in factors] for gate in range(arguments.gates)]


def check_values(arguments: ScanArguments) -> None:
    """Lengths beyond the number of steps, and unknown symbols, without waiting for the GPU.

    On a GPU such lengths stop the program with an assertion, as torch's own indices do. torch looks the symbols up, and
    checks them in the same way.
    """
    x, lengths = arguments.x, arguments.lengths
    if lengths is not None and lengths.is_cuda:
        fits = ((lengths >= 0) & (lengths <= arguments.steps)).all()
        torch._assert_async(fits, f"lengths: expected values from 0 to the {arguments.steps} steps of x")
        lengths = None
    check_scan_values(x, None if x.is_cuda else arguments.weight, lengths)


def forward(arguments: ScanArguments, keep: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """states, h, c and, if `keep`, what `Kept` names."""
    scan, shapes = _Scan(arguments), kept_shapes(arguments)
    state, initial = arguments.state, arguments.initial
    part = dense(input_part(arguments.x, arguments.weight, scan.outer_bias))
    states = scan.over_time(state)
    c, reserve, cells = scan.new(0), scan.new(0), scan.new(0)
    if arguments.has_gates:
        h, lstm = scan.initial_state(arguments.h0, state), arguments.has_memory
        if lstm:
            c = scan.initial_state(arguments.c0, state)
        if keep:
            # The gates take the place of the input part where that is ours.
            own = part.untyped_storage().data_ptr() != arguments.x.untyped_storage().data_ptr()
            reserve = part if own else scan.new(*shapes["reserve"])
            cells = scan.new(*shapes["cells"])
        scan.run(
            triton_gated.gated_forward, part, arguments.recurrent_bias, scan.lengths, scan.anew, initial, states,
            reserve, cells, h, c, LSTM=lstm, BIAS=arguments.recurrent_bias is not None,
            INITIAL=initial is not None, KEEP=keep,
        )  # fmt: skip
        return states, h, c, reserve, cells
    common = (scan.lengths, scan.anew, initial)
    if scan.butterfly:
        h = scan.new(arguments.batch, state)
        scan.run(
            triton_butterfly.elman_forward, part, scan.inner_bias, arguments.leak, arguments.h0, *common, states, h,
            H0=arguments.h0 is not None, INITIAL=initial is not None,
        )  # fmt: skip
    else:
        h = scan.initial_state(arguments.h0, state)
        scan.run(
            triton_stream.elman_forward, part, scan.inner_bias, arguments.leak, *common, states, h,
            INITIAL=initial is not None,
        )  # fmt: skip
    if keep and keeps_part(arguments):
        reserve = part
    return states, h, c, reserve, cells


def backward(
    arguments: ScanArguments, incoming: Gradients, kept: Kept, wants: Sequence[bool]
) -> list[Tensor]:
    """Gradients of what is `DIFFERENTIABLE` and of each factor; those not wanted are empty."""
    scan, inputs = _Scan(arguments), arguments.differentiable
    out = [
        scan.new(*t.shape) if want and t is not None else scan.new(0)
        for t, want in zip(inputs, wants, strict=True)
    ]
    named = {name: out[i] for i, name in enumerate(DIFFERENTIABLE) if wants[i]}
    before = scan.before(dense(kept.states), arguments.h0, arguments.initial)
    run = _gated if arguments.has_gates else _elman
    dpart, dproducts = run(scan, incoming, kept, before, named)
    map_gradients(arguments, dpart, named)
    _factor_gradients(scan, before, dproducts, wants[len(DIFFERENTIABLE) :], out[len(DIFFERENTIABLE) :])
    return out


def _elman(
    scan: _Scan, incoming: Gradients, kept: Kept, before: Tensor, named: dict[str, Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """dz over time; the gradients at the start of the sequences go to those named."""
    arguments = scan.arguments
    batch, units, state = arguments.batch, arguments.units, arguments.state
    z = dense(kept.states)
    if arguments.has_inner_bias or arguments.leak is not None:
        z = _pre_activations(scan, kept, before)
    in_place = z is not kept.states and scan.lengths is None
    dz = z if in_place else scan.over_time(state)
    sums = {
        name: scan.new(batch, width, zeros=not scan.butterfly) if wanted else None
        for name, width, wanted in (
            ("bias", units, arguments.has_inner_bias and "bias" in named),
            ("leak", units, "leak" in named),
            ("initial", state, "initial" in named),
        )
    }
    flags = {f"D{name.upper()}": sum_ is not None for name, sum_ in sums.items()}
    if scan.butterfly:
        scan.run(
            triton_butterfly.elman_backward, z, before, scan.inner_bias, arguments.leak, incoming.dstates,
            incoming.dh, scan.lengths, scan.anew, dz, named.get("h0"), *sums.values(),
            DSTATES=incoming.dstates is not None, DH=incoming.dh is not None, DH0="h0" in named, **flags,
        )  # fmt: skip
    else:
        g = scan.initial_state(incoming.dh, state)
        scan.run(
            triton_stream.elman_backward, z, before, scan.inner_bias, arguments.leak, incoming.dstates,
            scan.lengths, scan.anew, dz, g, *sums.values(), DSTATES=incoming.dstates is not None, **flags,
        )  # fmt: skip
        if "h0" in named:
            named["h0"].copy_(g)
    for name, sum_ in sums.items():
        if sum_ is not None:
            torch.sum(sum_, 0, out=named[name])
    return dz, [dz]


def _pre_activations(scan: _Scan, kept: Kept, before: Tensor) -> Tensor:
    """z_t = W h_{t-1} + a_t of all steps at once."""
    arguments = scan.arguments
    part = kept.reserve
    if not keeps_part(arguments):
        part = input_part(arguments.x, arguments.weight, scan.outer_bias)
    z = torch.empty_like(before)
    rows = (arguments.units, arguments.planes)
    multiply(planar_rows(before, *rows), planar_rows(z, *rows), scan.factors[0], adjoint=False)
    return z.add_(part)


def _gated(
    scan: _Scan, incoming: Gradients, kept: Kept, before: Tensor, named: dict[str, Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """The gradients at the sums of the gates, and those at each gate's recurrent product."""
    arguments = scan.arguments
    units, lstm = arguments.units, arguments.has_memory
    dpart = scan.over_time(arguments.gates * units)
    dkept = None if lstm else scan.over_time(units)
    g = scan.initial_state(incoming.dh, units)
    gc = scan.initial_state(incoming.dc, units) if lstm else None
    dinitial = scan.new(arguments.batch, units, zeros=True) if "initial" in named else None
    past = scan.before(dense(kept.cells), arguments.c0, None) if lstm else before
    scan.run(
        triton_gated.gated_backward, kept.reserve, kept.cells, past, incoming.dstates, scan.lengths, scan.anew,
        dpart, dkept, g, gc, dinitial, LSTM=lstm, DSTATES=incoming.dstates is not None,
        DINITIAL=dinitial is not None,
    )  # fmt: skip
    if "h0" in named:
        named["h0"].copy_(g)
    if "c0" in named and gc is not None:
        named["c0"].copy_(gc)
    if dinitial is not None:
        torch.sum(dinitial, 0, out=named["initial"])
    dproducts = list(dpart.split(units, dim=-1))  # type: ignore[no-untyped-call]
    if dkept is not None:
        dproducts[2] = dkept
        if "recurrent_bias" in named:
            torch.sum(dkept, (0, 1), out=named["recurrent_bias"])
    return dpart, dproducts


def _factor_gradients(
    scan: _Scan, before: Tensor, dproducts: list[Tensor], wants: Sequence[bool], out: Sequence[Tensor]
) -> None:
    """Each factor's gradient, gate by gate, written to `out`."""
    arguments = scan.arguments
    x = before.flatten(0, 1)
    places = [f for f, want in enumerate(wants) if want]
    for gate, dproduct in enumerate(dproducts if places else []):
        dy = dproduct.flatten(0, 1)
        if arguments.is_complex:
            x, dy = (torch.complex(*rows.chunk(2, dim=-1)) for rows in (x, dy))
        for f, gradient in zip(places, factor_gradients(x, dy, scan.factors[gate], wants), strict=True):
            if arguments.is_complex:
                out[f].copy_(torch.view_as_real(gradient).movedim(-1, -3))
            elif arguments.has_gates:
                out[f].select(-3, gate).copy_(gradient)
            else:
                out[f].copy_(gradient)
