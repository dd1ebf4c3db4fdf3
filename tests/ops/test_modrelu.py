"""modReLU where it is difficult: at zero, around its floor, with dead units and with b far above |z|."""

import pytest
import torch

from kru.ops import scan
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.cells import MODRELU_FLOOR
from kru.ops.scan.reference import scan_reference

FIELDS = ["real", "complex"]


def gradients(run, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """states, and the gradients of x, bias, h0 and the factors for a loss on all states and the last."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    states, h, _ = run(*leaves)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(states.shape, dtype=torch.float64, generator=generator).to(states.dtype)
    return [states.detach(), *torch.autograd.grad((states * weights).sum() + h.sum(), leaves)]


def native_with_weight(field: str):
    return lambda x, weight, b, h0, *factors: scan(x, weight, factors, field=field, bias=b, h0=h0)


def reference_with_weight(field: str):
    return lambda x, weight, b, h0, *factors: scan_reference(
        ScanArguments(x, weight, factors, bias=b, h0=h0, is_complex=field == "complex")
    )


def native(field: str):
    return lambda x, *rest: native_with_weight(field)(x, None, *rest)


def reference(field: str):
    return lambda x, *rest: reference_with_weight(field)(x, None, *rest)


def setting(
    field: str, dtype: torch.dtype, bias: float, size: float, shapes=((2, 2),) * 4
) -> list[torch.Tensor]:
    """One step of inputs of absolute value `size`, b, h0 = 0 and nearly unitary factors."""
    torch.manual_seed(0)
    planes = 2 if field == "complex" else 1
    units = 1
    for p, _ in shapes:
        units *= p
    x = torch.randn(1, 3, planes, units, dtype=torch.float64)
    x = (size * x / x.norm(dim=2, keepdim=True)).flatten(2).to(dtype)
    factors = [torch.linalg.qr(torch.randn(p, q, dtype=torch.float64))[0].to(dtype) for p, q in shapes]
    if field == "complex":
        factors = [torch.stack([0.8 * factor, 0.6 * factor]) for factor in factors]
    return [x, torch.full((units,), bias, dtype=dtype), torch.zeros(3, planes * units, dtype=dtype), *factors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bias", [1.0, 0.25, 1e-3, 0.0, -1e-7, -0.25])
@pytest.mark.parametrize(
    "size", [0.0, 1e-30, 1e-12, 5e-7, 0.99e-6, 1.01e-6, 3e-6, 1e-5, 1e-3, 0.02, 0.24, 0.26, 3.0]
)
@pytest.mark.parametrize("field", FIELDS)
def test_one_step_of_any_size(field: str, size: float, bias: float, dtype: torch.dtype) -> None:
    for shapes in (((2, 2),) * 4, ((3, 3), (2, 2))):
        tensors = setting(field, dtype, bias, size, shapes)
        got = gradients(native(field), tensors)
        # In double precision, as the reference loses b / |z| times the rounding; except where the square of
        # |z| is zero in single precision only.
        wide = tensors if 0 < size < 1e-18 else [t.double() for t in tensors]
        expected = gradients(reference(field), wide)
        tolerance = 2e-5 if dtype == torch.float32 else 1e-11 + 1e-15 * abs(bias) / max(size, MODRELU_FLOOR)
        for name, a, b in zip(("states", "x", "b", "h0", *["factor"] * 4), got, expected, strict=False):
            assert a.isfinite().all(), name
            scale = max(float(b.abs().max()), 1e-15)
            error = float((a - b).abs().max())
            assert error <= tolerance * scale, f"{name}: off by {error:.1e} of {scale:.1e}"


@pytest.mark.parametrize("bias", [1.0, 0.0, -1.0])
@pytest.mark.parametrize("field", FIELDS)
def test_exactly_zero_for_many_steps(field: str, bias: float) -> None:
    """The slope at zero is 1 or 0, so that the gradient of a state that stays zero does not explode."""
    x, b, h0, *factors = setting(field, torch.float32, bias, 0.0)
    steps = 50
    states, dx, db, dh0, *dfactors = gradients(native(field), [x.repeat(steps, 1, 1), b, h0, *factors])
    assert not states.count_nonzero()
    assert not db.count_nonzero()
    assert not any(d.count_nonzero() for d in dfactors)
    for d in (dx, dh0):
        assert d.isfinite().all()
        assert d.abs().max() < 200
        assert bool(d.count_nonzero()) == (bias >= 0)
    expected = gradients(reference(field), [x.repeat(steps, 1, 1), b, h0, *factors])
    torch.testing.assert_close(dx, expected[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dh0, expected[3], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("bias", [-0.5, 0.5, 2.0])
@pytest.mark.parametrize("field", FIELDS)
def test_recurrence_with_dead_and_lively_units(field: str, bias: float, dtype: torch.dtype) -> None:
    """Units above and below their threshold in the same vector, some of them exactly zero."""
    torch.manual_seed(1)
    x, b, h0, *factors = setting(field, torch.float64, bias, 0.37)
    b = b * torch.linspace(-1, 1, b.numel(), dtype=torch.float64)
    x = x * (torch.rand(6, *x.shape[1:]) > 0.3)
    tensors = [t.to(dtype) for t in (x, b, h0, *factors)]
    got = gradients(native(field), tensors)
    expected = gradients(reference(field), [t.double() for t in tensors])
    for a, e in zip(got, expected, strict=True):
        assert a.isfinite().all()
        assert (a - e).abs().max() <= (2e-4 if dtype == torch.float32 else 1e-10) * e.abs().max()
    states = got[0]
    assert (states == 0).any()
    assert (states != 0).any()


@pytest.mark.parametrize("field", FIELDS)
def test_small_sums_under_a_large_bias(field: str) -> None:
    """|z| far below b cannot be told from h: the backward pass computes z again, from any kind of input."""
    part, b, h0, *factors = setting(field, torch.float32, 1.0, 1.0)
    width = part.shape[-1]
    for inputs in (1e-4 * torch.randn(1, 3, 2), 1e-4 * torch.randn(1, 3, 20), torch.randint(4, (1, 3))):
        symbols = not inputs.is_floating_point()
        weight = 1e-4 * torch.randn(width, 4) if symbols else torch.randn(width, inputs.shape[2])
        tensors = [weight, b, h0, *factors]

        def with_inputs(run, inputs=inputs, symbols=symbols):
            return lambda u, *rest: run(inputs if symbols else inputs.to(u.dtype), u, *rest)

        got = gradients(with_inputs(native_with_weight(field)), tensors)
        expected = gradients(with_inputs(reference_with_weight(field)), [t.double() for t in tensors])
        for a, e in zip(got, expected, strict=True):
            assert (a - e).abs().max() <= 1e-4 * e.abs().max().clamp(min=1e-15)


def test_floor_is_that_of_the_definition() -> None:
    """Below the floor |z| is divided by the floor: h = (|z| + b) z / 1e-6."""
    z = torch.tensor([[[MODRELU_FLOOR / 4, -MODRELU_FLOOR / 2, 2 * MODRELU_FLOOR, 0.0]]], dtype=torch.float64)
    h = scan(
        z,
        None,
        [torch.zeros(4, 4, dtype=torch.float64)],
        field="real",
        bias=torch.ones(4, dtype=torch.float64),
    ).h
    torch.testing.assert_close(
        h[0], torch.tensor([0.25, -0.5, 1.0, 0.0], dtype=torch.float64), rtol=1e-5, atol=0
    )
