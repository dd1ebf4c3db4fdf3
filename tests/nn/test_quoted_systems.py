"""LRD-GRU, recurrent highway network, HyperLSTM and LRU against their papers' equations, written out for one unit
of time and one sequence."""

import math

import pytest
import torch
from torch import Tensor

import kru
from kru.baselines import LRDGRU, LRU, RHN, HyperLSTM
from kru.nn.kinds import build_layer, model_settings

INPUT, UNITS, STEPS = 3, 6, 7


def randomised(layer: torch.nn.Module) -> torch.nn.Module:
    """Every parameter random: initial values hide mistakes where they are zeros or ones."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.4)
    return layer.double()


def sequence() -> Tensor:
    torch.manual_seed(2)
    return torch.randn(STEPS, INPUT, dtype=torch.float64)


def dense(matrix, gate: int) -> Tensor:
    return kru.kron_dense(matrix.dense_factors(gate))


@pytest.mark.parametrize("bias", [True, False])
def test_lrd_gru(bias: bool) -> None:
    layer = randomised(LRDGRU(INPUT, UNITS, low_rank=2, bias=bias))
    matrix = layer.matrix()
    w = [matrix.left[gate] @ matrix.right[gate] + torch.diag(matrix.diagonal[gate]) for gate in range(3)]
    u = layer.weight_ih_l0.chunk(3)
    b = layer.bias_l0.chunk(3) if bias else [0.0] * 3
    h = layer.initial_l0
    x = sequence()
    output, last = layer(x)
    for t in range(STEPS):
        reset = torch.sigmoid(u[0] @ x[t] + w[0] @ h + b[0])
        update = torch.sigmoid(u[1] @ x[t] + w[1] @ h + b[1])
        main = torch.tanh(u[2] @ x[t] + w[2] @ (reset * h) + b[2])
        h = (1 - update) * main + update * h
        torch.testing.assert_close(output[t], h)
    torch.testing.assert_close(last[0], h)


def test_lrd_gru_has_the_parameters_of_its_paper() -> None:
    """128 units of rank 50 and a read-out of ten classes: about 41K."""
    count = kru.parameter_count(LRDGRU(1, 128, low_rank=50))
    assert count.total + 128 * 10 + 10 == 40970
    assert count.recurrent == 3 * 128 * (2 * 50 + 1)
    with pytest.raises(ValueError, match="low_rank: expected a whole number of at least 1, got 0"):
        LRDGRU(1, 4, low_rank=0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("depth", "factors", "rank"), [(1, None, 1), (3, None, 1), (2, [2, 3], 1), (2, [3, 2], 2)]
)
def test_recurrent_highway_network(depth: int, factors: list[int] | None, rank: int, bias: bool) -> None:
    layer = randomised(RHN(INPUT, UNITS, depth=depth, factors=factors, rank=rank, bias=bias))
    matrix = layer.matrix()
    if factors is None:
        assert matrix.shapes == ((UNITS, UNITS),)
    u_n, u_g = layer.weight_ih_l0.chunk(2)
    b = layer.bias_l0.view(depth, 2, UNITS) if bias else torch.zeros(depth, 2, UNITS)
    s = torch.zeros(UNITS, dtype=torch.float64)
    x = sequence()
    output, last = layer(x)
    for t in range(STEPS):
        for place in range(depth):
            first = float(place == 0)
            n = torch.tanh(first * u_n @ x[t] + dense(matrix, 2 * place) @ s + b[place, 0])
            g = torch.sigmoid(first * u_g @ x[t] + dense(matrix, 2 * place + 1) @ s + b[place, 1])
            s = n * g + s * (1 - g)
        torch.testing.assert_close(output[t], s)
    torch.testing.assert_close(last[0], s)


def test_recurrent_highway_network_remembers_at_first() -> None:
    layer = RHN(INPUT, UNITS, depth=2)
    assert layer.bias_l0.view(2, 2, UNITS)[:, 0].eq(0).all()
    assert layer.bias_l0.view(2, 2, UNITS)[:, 1].eq(-2).all()
    size, depth = 50, 4
    total = kru.parameter_count(RHN(INPUT, size, depth=depth)).total
    assert total == size * (2 * depth * size + 2 * INPUT + 2 * depth)
    with pytest.raises(ValueError, match="depth: expected a whole number of at least 1, got 0"):
        RHN(1, 4, depth=0)


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    centred = x - x.mean()
    return gain * centred / (centred.square().mean() + 1e-5).sqrt() + shift


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("factors", [None, [2, 3]])
def test_hyper_lstm(normed: bool, factors: list[int] | None, bias: bool) -> None:
    small, embedding = 4, 2
    layer = randomised(
        HyperLSTM(
            INPUT, UNITS, hyper_size=small, embedding=embedding, layer_norm=normed, factors=factors, bias=bias
        )
    )
    matrix = layer.matrix()
    u, u_small = layer.weight_ih_l0.split([4 * UNITS, 4 * small])
    b, b_small = (
        layer.bias_l0.split([4 * UNITS, 4 * small])
        if bias
        else (torch.zeros(4 * UNITS), torch.zeros(4 * small))
    )
    embed, shift = layer.embed_l0.view(3, 4, embedding, small), layer.embed_shift_l0.view(2, 4, embedding)
    scale = layer.weight_scale_l0.view(3, 4, UNITS, embedding)
    h, c = torch.zeros(2, UNITS, dtype=torch.float64)
    k, e = torch.zeros(2, small, dtype=torch.float64)

    def norm(x: Tensor, name: str, gate: int | None = None) -> Tensor:
        if not normed:
            return x
        gain, offset = getattr(layer, f"{name}_l0")
        return layer_norm(x, gain if gate is None else gain[gate], offset if gate is None else offset[gate])

    x = sequence()
    output, (last, cell) = layer(x)
    for t in range(STEPS):
        sums = []
        for gate in range(4):
            own = slice(gate * small, (gate + 1) * small)
            total = dense(layer.hyper_l0, gate) @ k + layer.weight_hyper_l0[own] @ h
            sums.append(norm(total + u_small[own] @ x[t] + b_small[own], "norm_hyper_gates", gate))
        i, f, g, o = sums
        e = f.sigmoid() * e + i.sigmoid() * g.tanh()
        k = o.sigmoid() * norm(e, "norm_hyper_cell").tanh()
        sums = []
        for gate in range(4):
            own = slice(gate * UNITS, (gate + 1) * UNITS)
            d_h = scale[0, gate] @ (embed[0, gate] @ k + shift[0, gate])
            d_x = scale[1, gate] @ (embed[1, gate] @ k + shift[1, gate])
            added = scale[2, gate] @ (embed[2, gate] @ k)
            total = d_h * (dense(matrix, gate) @ h) + d_x * (u[own] @ x[t]) + added + b[own]
            sums.append(norm(total, "norm_gates", gate))
        i, f, g, o = sums
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * norm(c, "norm_cell").tanh()
        torch.testing.assert_close(output[t], h)
    torch.testing.assert_close(last[0], torch.cat([h, k]))
    torch.testing.assert_close(cell[0], torch.cat([c, e]))


def test_hyper_lstm_starts_as_an_lstm() -> None:
    """Without normalisation, all scales are 1 at first: the outputs are those of the LSTM with the same weights."""
    layer = HyperLSTM(INPUT, UNITS, layer_norm=False).double()
    plain = kru.KRULSTM(INPUT, UNITS, factors=[UNITS]).double()
    with torch.no_grad():
        plain.weight_ih_l0.copy_(layer.weight_ih_l0[: 4 * UNITS])
        plain.bias_l0.copy_(layer.bias_l0[: 4 * UNITS])
        plain.recurrent_l0.factor_0.copy_(layer.recurrent_l0.factor_0)
    x = sequence()
    torch.testing.assert_close(layer(x)[0], plain(x)[0])
    for name in ("hyper_size", "embedding"):
        with pytest.raises(ValueError, match=f"{name}: expected a whole number of at least 1, got 0"):
            HyperLSTM(1, 4, **{name: 0})


@pytest.mark.parametrize("bias", [True, False])
def test_lru(bias: bool) -> None:
    layer = randomised(LRU(INPUT, UNITS, bias=bias))
    matrix = layer.matrix()
    decay = torch.exp(-torch.exp(matrix.nu) + 1j * torch.exp(matrix.theta))
    b = torch.complex(*layer.weight_ih_l0.chunk(2))
    re, im = layer.weight_out_l0.chunk(2, dim=1)
    # Re(C h) with C = re - i im.
    c = torch.complex(re, -im)
    h = torch.zeros(UNITS, dtype=torch.complex128)
    x = sequence()
    output, last = layer(x)
    for t in range(STEPS):
        h = decay * h + layer.log_gamma_l0.exp() * (b @ x[t].to(b.dtype))
        y = (c @ h).real + layer.weight_skip_l0 @ x[t] + (layer.bias_l0 if bias else 0)
        y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
        gate = layer.weight_gate_l0 @ y + (layer.gate_bias_l0 if bias else 0)
        torch.testing.assert_close(output[t], y * gate.sigmoid())
    torch.testing.assert_close(last[0], torch.cat([h.real, h.imag]))


def test_lru_starts_on_its_ring_with_inputs_scaled_down() -> None:
    layer = LRU(INPUT, 500, least=0.8, most=0.95, phase=1.0)
    decay = torch.complex(*layer.matrix().diagonal().chunk(2))
    assert bool((decay.abs() > 0.8 - 1e-5).all() and (decay.abs() < 0.95 + 1e-5).all())
    assert bool((decay.angle() >= 0).all() and (decay.angle() <= 1.0).all())
    torch.testing.assert_close(layer.log_gamma_l0.exp(), (1 - decay.abs() ** 2).sqrt())
    # Uniform on the ring: squares of moduli are uniform.
    assert decay.abs().square().mean().item() == pytest.approx((0.8**2 + 0.95**2) / 2, abs=0.02)
    with pytest.raises(ValueError, match="least, most: expected 0 <= least <= most <= 1"):
        LRU(INPUT, 4, least=0.9, most=0.8)


@pytest.mark.parametrize("kind", ["lru", "lrd-gru", "rhn", "kru-rhn", "hyper-lstm", "kru-hyper-lstm"])
def test_kinds_learn(kind: str) -> None:
    """A few steps of training lower the loss of saying which symbol was just seen."""
    torch.manual_seed(0)
    layer = build_layer(model_settings(kind, 16), 4)
    matrix = layer.matrix()
    assert (len(matrix.shapes) == 4) == kind.startswith("kru-")
    head = torch.nn.Linear(layer.output_size, 4)
    model = torch.nn.ModuleList([layer, head])
    optimizer = kru.optimizer(model, "adam", lr=2e-2)
    x = torch.randint(4, (6, 16))
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(head(layer(x)[0]).flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
