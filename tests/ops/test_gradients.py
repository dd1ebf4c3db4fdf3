"""Derivatives against finite differences, the first and the second, and transforms of functions."""

import itertools

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import kru
from kru.ops.kron.reference import kron_matmul_reference

from .kron_cases import dense_matrix
from .scan_cases import CELLS, ScanCase, run_reference, run_scan

CELL_IDS = ["-".join(cell) for cell in CELLS]


def kron_inputs(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    columns = 1
    for *_, q in shapes:
        columns *= q
    x = torch.randn(2, columns, dtype=dtype, requires_grad=True)
    return [x, *(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize(
    "shapes",
    [[(2, 3), (3, 1)], [(4, 4)], [(2, 2)] * 3, [(2, 2)] * 4, [(3, 2, 3), (3, 3, 1)], [(2, 2, 2)] * 4],
    ids=str,
)
def test_product_against_finite_differences(shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    inputs = kron_inputs(shapes, dtype)
    assert gradcheck(lambda x, *factors: kru.kron_matmul(x, factors), inputs, fast_mode=len(shapes) > 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_second_derivatives_of_the_product(dtype: torch.dtype) -> None:
    inputs = kron_inputs([(2, 2, 2), (2, 1, 2)], dtype)
    assert gradgradcheck(lambda x, *factors: kru.kron_matmul(x, factors), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_second_derivatives_of_the_product_equal_the_references(dtype: torch.dtype) -> None:
    inputs = kron_inputs([(2, 2)] * 5, dtype)

    def penalty_gradients(product) -> tuple[torch.Tensor, ...]:
        y = product(inputs[0], inputs[1:])
        first = torch.autograd.grad(y.abs().square().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.abs().square().sum() for g in first), inputs)

    got, expected = penalty_gradients(kru.kron_matmul), penalty_gradients(kron_matmul_reference)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * float(b.abs().max()))


def small_case(cell: tuple[str, str, str], **changes) -> ScanCase:
    standard = {"shapes": ((2, 2), (2, 2)), "steps": 3, "batch": 2, "dtype": torch.float64, "seed": 3}
    return ScanCase(*cell, **{**standard, **changes})


def as_function(case: ScanCase, run=run_scan):
    """A function of all real tensors of a case, and those tensors."""
    tensors = case.tensors()
    names = [name for name, t in tensors.items() if t is not None and t.is_floating_point()]

    def function(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = run(case, {**tensors, **dict(zip(names, values, strict=True))})
        return tuple(result for result in results if result is not None)

    return function, [tensors[name].requires_grad_() for name in names]


@pytest.mark.parametrize("inputs", ["small", "large", "symbols", "part"])
@pytest.mark.parametrize("cell", CELLS, ids=CELL_IDS)
def test_scan_against_finite_differences(cell: tuple[str, str, str], inputs: str) -> None:
    for rank in (None, 2):
        case = small_case(cell, inputs=inputs, lengths="unsorted", batch=3, rank=rank, reset=rank == 2)
        assert gradcheck(*as_function(case), fast_mode=True)


@pytest.mark.parametrize("inputs", ["small", "large", "part"])
@pytest.mark.parametrize("cell", CELLS[:-2], ids=CELL_IDS[:-2])
def test_leaky_scan_against_finite_differences(cell: tuple[str, str, str], inputs: str) -> None:
    case = small_case(cell, inputs=inputs, lengths="unsorted", batch=3, leak=True)
    assert gradcheck(*as_function(case), fast_mode=True)
    if inputs == "small" and cell[1] in ("tanh", "identity"):
        assert gradgradcheck(*as_function(case), fast_mode=True)


@pytest.mark.parametrize("cell", [CELLS[0], CELLS[1], *CELLS[-2:]], ids=str)
def test_every_entry_of_the_jacobian(cell: tuple[str, str, str]) -> None:
    case = small_case(cell, steps=2, batch=1, shapes=((2, 1), (1, 2)), reverse=True)
    assert gradcheck(*as_function(case))


@pytest.mark.parametrize("cell", CELLS, ids=CELL_IDS)
def test_second_derivatives_against_finite_differences(cell: tuple[str, str, str]) -> None:
    case = small_case(cell, steps=2, batch=1, shapes=((2, 2),), lengths="equal", rank=2)
    assert gradgradcheck(*as_function(case), fast_mode=True)


@pytest.mark.parametrize("inputs", ["small", "large", "symbols"])
@pytest.mark.parametrize("cell", [CELLS[0], CELLS[1], CELLS[3], *CELLS[-2:]], ids=str)
def test_second_derivatives_equal_the_references(cell: tuple[str, str, str], inputs: str) -> None:
    case = small_case(cell, inputs=inputs, lengths="unsorted", batch=3, reverse=True)

    def penalty_gradients(run) -> list[torch.Tensor | None]:
        function, values = as_function(case, run)
        loss = sum(result.square().sum() for result in function(*values))
        first = torch.autograd.grad(loss, values, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), values)

    for a, b in zip(penalty_gradients(run_scan), penalty_gradients(run_reference), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_forward_mode() -> None:
    """The kernels know nothing of tangents, so PyTorch's own operations must be taken."""
    x, *factors = (t.detach() for t in kron_inputs([(2, 2)] * 4, torch.float64))
    dx = torch.randn_like(x)
    with forward_ad.dual_level():
        y = kru.kron_matmul(forward_ad.make_dual(x, dx), factors)
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, dx @ dense_matrix(factors).mT)
        only_factor = kru.kron_matmul(x, [forward_ad.make_dual(factors[0], factors[0]), *factors[1:]])
        torch.testing.assert_close(forward_ad.unpack_dual(only_factor).tangent, kru.kron_matmul(x, factors))
    assert gradcheck(
        lambda x, *factors: kru.kron_matmul(x, factors), kron_inputs([(2, 3), (3, 1)], torch.float64),
        check_forward_ad=True, check_backward_ad=False,
    )  # fmt: skip
    for cell in (CELLS[1], CELLS[-1]):
        function, values = as_function(small_case(cell, steps=2, shapes=((2, 2),)))
        assert gradcheck(function, values, check_forward_ad=True, check_backward_ad=False)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_transforms_of_functions() -> None:
    x, *factors = (t.detach() for t in kron_inputs([(2, 2)] * 4, torch.float64))
    matrix = dense_matrix(factors)
    torch.testing.assert_close(torch.vmap(lambda row: kru.kron_matmul(row, factors))(x), x @ matrix.mT)
    jacobian = torch.func.jacrev(lambda row: kru.kron_matmul(row, factors))(x[0])
    torch.testing.assert_close(jacobian, matrix)
    torch.testing.assert_close(torch.func.jacfwd(lambda row: kru.kron_matmul(row, factors))(x[0]), matrix)
    for cell in (CELLS[1], *CELLS[-2:]):
        function, values = as_function(small_case(cell))
        gradients = torch.func.grad(lambda *v, f=function: f(*v)[1].square().sum(), tuple(range(len(values))))
        expected = torch.autograd.grad(function(*values)[1].square().sum(), values)
        for a, b in zip(gradients(*(v.detach() for v in values)), expected, strict=True):
            torch.testing.assert_close(a, b)


def test_a_gradient_within_a_transform_of_another_tensor() -> None:
    """Factors without gradient under torch.func.grad must not go the direct way either."""
    x, *factors = (t.detach() for t in kron_inputs([(2, 2)] * 4, torch.float64))
    gradient = torch.func.grad(lambda s: kru.kron_matmul(x * s, factors).sum())(
        torch.ones((), dtype=torch.float64)
    )
    torch.testing.assert_close(gradient, kru.kron_matmul(x, factors).sum())


def test_backward_twice_and_retained() -> None:
    for cell in (CELLS[1], CELLS[-2]):
        function, values = as_function(small_case(cell, inputs="large"))
        loss = function(*values)[0].sum()
        first = torch.autograd.grad(loss, values, retain_graph=True)
        second = torch.autograd.grad(loss, values)
        assert all(map(torch.equal, first, second))
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            torch.autograd.grad(loss, values)


def test_changed_in_place_between_the_passes() -> None:
    """An input or a result that backward needs and that was overwritten is an error, not a wrong gradient."""
    for name in ("x", "factors.0", "states"):
        case = small_case(CELLS[1])
        tensors = case.tensors()
        tensors["weight"].requires_grad_()
        states, h, _ = run_scan(case, tensors)
        with torch.no_grad():
            (states if name == "states" else tensors[name]).mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            h.sum().backward()


def test_results_that_nothing_depends_on() -> None:
    """A loss on one result only, for each of them."""
    case = small_case(CELLS[-2], lengths="unsorted", batch=3)
    for chosen in range(3):
        gradients = []
        for run in (run_scan, run_reference):
            function, values = as_function(case, run)
            gradients.append(torch.autograd.grad(function(*values)[chosen].sum(), values))
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("cell", CELLS, ids=CELL_IDS)
def test_expanded_and_transposed_gradients_arrive(cell: tuple[str, str, str]) -> None:
    """The gradient that autograd hands over need not be contiguous."""
    for transposed, inputs in itertools.product((False, True), ("small", "large")):
        gradients = []
        for run in (run_scan, run_reference):
            function, values = as_function(small_case(cell, inputs=inputs), run)
            states = function(*values)[0]
            weights = torch.linspace(-1, 1, states[0].numel(), dtype=states.dtype).reshape(states[0].shape)
            loss = (states.permute(2, 1, 0) * weights.mT.unsqueeze(-1)).sum() if transposed else states.sum()
            gradients.append(torch.autograd.grad(loss, values, allow_unused=True))
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b)
