"""Reservoirs: what they compute, their exact radius, composition and bad arguments."""

import numpy as np
import pytest
import torch

import kru
from kru.reservoir import Deep, Parallel, Reservoir, Stepper, sweep

FIELDS = ("real", "complex")


def dense(reservoir: Reservoir) -> torch.Tensor:
    return kru.kron_dense(reservoir.matrix().dense_factors())


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("init", ["haar", "gaussian"])
@pytest.mark.parametrize("factors", [None, [6, 10], [60]])
def test_the_spectral_radius_is_exact(field: str, init: str, factors: list[int] | None) -> None:
    reservoir = Reservoir(
        2,
        60,
        spectral_radius=0.7,
        field=field,
        recurrent_init=init,
        factors=factors,
        dtype=torch.float64,
        seed=1,
    )
    radius = torch.linalg.eigvals(dense(reservoir)).abs().max().item()
    assert radius == pytest.approx(0.7, rel=1e-9)
    assert reservoir.spectral_radius == pytest.approx(0.7, rel=1e-9)


def test_real_factors_of_even_size_are_rotations() -> None:
    eigenvalues = torch.linalg.eigvals(
        dense(Reservoir(1, 64, spectral_radius=1.0, seed=0, dtype=torch.float64))
    )
    angles = eigenvalues.angle().sort().values
    assert (angles.diff() > 1e-6).all()


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("nonlinearity", ["tanh", "modrelu", "identity"])
@pytest.mark.parametrize("leak", [1.0, 0.3, "each"])
def test_states_are_those_of_a_dense_recurrence(field: str, nonlinearity: str, leak: float | str) -> None:
    rates = np.linspace(0.1, 1, 12) if leak == "each" else np.full(12, leak)
    reservoir = Reservoir(
        3,
        12,
        leak=rates.tolist() if leak == "each" else leak,
        bias_scaling=0.3,
        field=field,
        nonlinearity=nonlinearity,
        seed=2,
        dtype=torch.float64,
    )
    x = torch.randn(9, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    states, last = reservoir(x)
    w, u, b = dense(reservoir), reservoir.weight_ih_l0, reservoir.bias_l0
    if field == "complex":
        u = torch.complex(*u.chunk(2))
        b = b if nonlinearity == "modrelu" else torch.complex(*b.chunk(2))
    h = torch.zeros(2, 12, dtype=w.dtype)
    for t in range(9):
        z = h @ w.T + x[t].to(w.dtype) @ u.T + (0 if nonlinearity == "modrelu" else b)
        if nonlinearity == "tanh":
            z = torch.complex(z.real.tanh(), z.imag.tanh()) if field == "complex" else z.tanh()
        elif nonlinearity == "modrelu":
            z = z / z.abs() * (z.abs() + b).clamp(min=0)
        h = (1 - torch.from_numpy(rates)) * h + torch.from_numpy(rates) * z
        flat = torch.cat([h.real, h.imag], 1) if field == "complex" else h
        torch.testing.assert_close(states[t], flat)
    torch.testing.assert_close(last[0], states[-1])


def test_a_seed_draws_the_same_reservoir_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second, other = (Reservoir(2, 8, seed=seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["weight_ih_l0"], other["weight_ih_l0"])


def test_connectivity_and_scaling_of_the_input() -> None:
    reservoir = Reservoir(
        10, 64, input_connectivity=0.3, input_scaling=[0.0, *[2.0] * 9], field="complex", seed=0
    )
    re, im = reservoir.weight_ih_l0.chunk(2)
    assert torch.equal(re != 0, im != 0)
    assert (re[:, 0] == 0).all()
    assert ((re != 0).sum(1) <= 3).all()
    assert ((re != 0).sum(1) == 3).any()
    assert 1 < re.abs().max() <= 2


def test_nothing_is_trainable_until_it_is_asked_for() -> None:
    reservoir = Reservoir(2, 8, leak=0.5, seed=0)
    assert not any(parameter.requires_grad for parameter in reservoir.parameters())
    reservoir.requires_grad_(True)
    reservoir(torch.randn(5, 1, 2))[0].square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in reservoir.parameters())


@pytest.mark.parametrize("kind", ["single", "deep", "parallel"])
def test_chunks_and_steps_equal_one_run(kind: str) -> None:
    if kind == "single":
        reservoir: torch.nn.Module = Reservoir(2, 12, leak=0.4, seed=0)
    elif kind == "deep":
        reservoir = Deep([Reservoir(2, 12, seed=0), Reservoir(12, 8, seed=1)])
    else:
        reservoir = Parallel([Reservoir(2, 12, seed=0), Reservoir(2, 8, seed=1)])
    x = torch.randn(11, 3, 2)
    states, _ = reservoir(x)
    assert states.shape == (11, 3, reservoir.output_size)
    torch.testing.assert_close(torch.cat([part for _, part in sweep(reservoir, x, steps=4)]), states)
    state = None
    for t in range(11):
        output, state = reservoir.step(x[t], state)
        torch.testing.assert_close(output, states[t])


@pytest.mark.parametrize("nonlinearity", ["tanh", "modrelu", "identity"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("leak", [1.0, 0.3, np.linspace(0.1, 1, 12).tolist()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_prepared_step_equals_one_run(
    nonlinearity: str, field: str, leak: object, dtype: torch.dtype
) -> None:
    reservoir = Reservoir(
        2, 12, leak=leak, bias_scaling=0.4, nonlinearity=nonlinearity, field=field, seed=0, dtype=dtype
    )
    x = torch.randn(7, 3, 2, dtype=dtype)
    states, _ = reservoir(x)
    stepper = Stepper(reservoir, batch=3)
    for t in range(7):
        torch.testing.assert_close(stepper.step(x[t]), states[t])
    _, middle = reservoir(x[:4])
    stepper, kept = Stepper(reservoir, middle, batch=3), middle.clone()
    torch.testing.assert_close(stepper.step(x[4]), states[4])
    assert torch.equal(middle, kept)


def test_memory_of_a_linear_reservoir_is_almost_its_size() -> None:
    """A linear orthogonal reservoir of N units recalls inputs of almost N steps ago: memory capacity near N."""
    units = 32
    u = torch.rand(4000, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.5
    reservoir = Reservoir(
        1, units, spectral_radius=0.95, nonlinearity="identity", seed=0, dtype=torch.float64
    )
    states = reservoir(u)[0][200:, 0]
    capacity = 0.0
    for delay in range(1, 2 * units):
        target = u[200 - delay : 4000 - delay, 0]
        found = states @ torch.linalg.lstsq(states, target).solution
        capacity += float(np.corrcoef(found[:, 0], target[:, 0])[0, 1] ** 2)
    assert capacity > 0.9 * units


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"spectral_radius": -0.1}, "spectral_radius: expected a finite number of at least zero, got -0.1"),
        ({"spectral_radius": float("nan")}, "spectral_radius: expected a finite number"),
        ({"leak": 0.0}, r"leak: expected numbers in \(0, 1\], got 0.0"),
        ({"leak": 1.5}, r"leak: expected numbers in \(0, 1\], got 1.5"),
        ({"leak": [0.5, 0.5]}, "leak: expected one number or 8, one per unit"),
        ({"input_connectivity": 0.0}, r"input_connectivity: expected a number in \(0, 1\]"),
        ({"input_scaling": [1.0]}, "input_scaling: expected one number or 2"),
        ({"input_scaling": -1.0}, "input_scaling: expected finite numbers"),
        ({"nonlinearity": "relu"}, "nonlinearity: expected one of tanh, modrelu, identity"),
        ({"field": "quaternion"}, "field: expected real or complex"),
        ({"factors": [(2, 4), (4, 2)]}, "factors: expected square factors"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Reservoir(2, 8, **arguments)  # type: ignore[arg-type]


def test_a_radius_of_zero_has_no_memory() -> None:
    reservoir = Reservoir(1, 8, spectral_radius=0.0, seed=0)
    states, _ = reservoir(torch.tensor([[[1.0]], [[0.0]]]))
    assert states[0].abs().max() > 0
    assert states[1].abs().max() == 0


def test_compositions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"reservoirs\[1\]: expected input_size=8"):
        Deep([Reservoir(2, 8), Reservoir(2, 8)])
    with pytest.raises(ValueError, match=r"reservoirs\[1\]: expected input_size=2"):
        Parallel([Reservoir(2, 8), Reservoir(3, 8)])
