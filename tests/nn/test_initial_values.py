"""The arguments that say where weights start: the same random numbers, scaled."""

import copy

import pytest
import torch

import kru

LAYERS = [kru.KRU, kru.KRULSTM, kru.KRUGRU, kru.baselines.ORNN, kru.baselines.AntisymmetricRNN]


def drawn(kind, **options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return kind(3, 12, 2, bidirectional=True, **options)


@pytest.mark.parametrize("kind", LAYERS)
def test_input_scale_multiplies_the_input_weights_alone(kind) -> None:
    plain, scaled = drawn(kind).state_dict(), drawn(kind, input_scale=0.5).state_dict()
    for name, value in plain.items():
        assert torch.equal(scaled[name], value / 2 if "weight_ih" in name else value), name


@pytest.mark.parametrize("kind", [kru.KRU, kru.KRULSTM, kru.KRUGRU])
@pytest.mark.parametrize("rank", [1, 2])
def test_recurrent_gain_multiplies_the_matrix_evenly_over_its_factors(kind, rank: int) -> None:
    plain, scaled = drawn(kind, rank=rank), drawn(kind, rank=rank, recurrent_gain=8.0)
    for name, value in plain.state_dict().items():
        expected = 2 * value if "factor" in name else value  # three factors: 2 * 2 * 3 = 12 units
        torch.testing.assert_close(scaled.state_dict()[name], expected)
    for layer, norm in ((plain, 1), (scaled, 8)):
        dense = kru.kron_dense(layer.matrix(1, reverse=True).dense_factors(gate=0))
        assert torch.linalg.matrix_norm(dense, 2).item() == pytest.approx(norm, rel=1e-5)


def test_initial_bias_is_where_the_bias_of_modrelu_starts() -> None:
    layer = drawn(kru.KRU, initial_bias=-0.25)
    biases = [p for name, p in layer.named_parameters() if "bias" in name]
    assert len(biases) == 4
    assert all(bias.eq(-0.25).all() for bias in biases)
    assert drawn(kru.baselines.RCURNN, initial_bias=0.1).bias_l0.eq(0.1).all()


def test_a_reset_layer_starts_so_again() -> None:
    layer = drawn(kru.KRU, recurrent_gain=2.0, input_scale=3.0, initial_bias=1.0)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    for one in (layer, other):
        torch.manual_seed(1)
        one.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), other.parameters(), strict=True))
    assert kru.spectrum(other).spectral_norm == pytest.approx(2)
    assert other.bias_l1.eq(1).all()


ERRORS = [
    (
        {"initial_bias": 1.0, "nonlinearity": "tanh"},
        "initial_bias: expected 0 with nonlinearity='tanh', got 1.0",
    ),
    ({"initial_bias": 1.0, "bias": False}, "initial_bias: expected 0 with bias=False, got 1.0"),
    (
        {"recurrent_gain": 2.0, "constraint": "exact"},
        'recurrent_gain: expected 1 with constraint="exact", got 2',
    ),
    ({"recurrent_gain": -1.0}, "recurrent_gain: expected a finite number above 0, got -1"),
    ({"input_scale": float("nan")}, "input_scale: expected a finite number, got nan"),
]


@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kru.KRU(3, 6, **options)
