"""What people do with `torch.nn.LSTM` beside calling it."""

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor

import kru
from kru.nn.recurrent import Recurrent

INPUT, HIDDEN, STEPS, BATCH = 3, 6, 5, 4

BUILDERS = {
    "kru": lambda **options: kru.KRU(INPUT, HIDDEN, **options),
    "kru exact": lambda **options: kru.KRU(INPUT, HIDDEN, constraint="exact", **options),
    "kru frozen": lambda **options: kru.KRU(INPUT, HIDDEN, train_recurrent=False, **options),
    "lstm": lambda **options: kru.KRULSTM(INPUT, HIDDEN, **options),
    "gru": lambda **options: kru.KRUGRU(INPUT, HIDDEN, **options),
    "rc urnn": lambda **options: kru.baselines.RCURNN(INPUT, HIDDEN, **options),
    "fc urnn": lambda **options: kru.baselines.FCURNN(INPUT, HIDDEN, **options),
    "ornn": lambda **options: kru.baselines.ORNN(INPUT, HIDDEN, **options),
    "eurnn": lambda **options: kru.baselines.EURNN(INPUT, HIDDEN, **options),
    "exprnn": lambda **options: kru.baselines.ExpRNN(INPUT, HIDDEN, **options),
    "antisymmetric": lambda **options: kru.baselines.AntisymmetricRNN(INPUT, HIDDEN, **options),
    "antisymmetric gated": lambda **options: kru.baselines.AntisymmetricRNN(
        INPUT, HIDDEN, gated=True, **options
    ),
    "lru": lambda **options: kru.baselines.LRU(INPUT, HIDDEN, **options),
    "lrd gru": lambda **options: kru.baselines.LRDGRU(INPUT, HIDDEN, low_rank=2, **options),
    "rhn": lambda **options: kru.baselines.RHN(INPUT, HIDDEN, depth=2, **options),
    "rhn of factors": lambda **options: kru.baselines.RHN(INPUT, HIDDEN, factors=[2, 3], **options),
    "hyper lstm": lambda **options: kru.baselines.HyperLSTM(INPUT, HIDDEN, hyper_size=4, **options),
}
every_layer = pytest.mark.parametrize("build", list(BUILDERS.values()), ids=list(BUILDERS))


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(STEPS, BATCH, INPUT)


@every_layer
def test_state_dict_round_trip(build, x: Tensor) -> None:
    layer, other = build(num_layers=2, bidirectional=True), build(num_layers=2, bidirectional=True)
    assert not torch.equal(layer(x)[0], other(x)[0])
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(layer(x)[0], other(x)[0])


@every_layer
def test_copies_and_pickles_compute_the_same(build, x: Tensor) -> None:
    layer = build(num_layers=2)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(layer(x)[0], other(x)[0])
        assert repr(other) == repr(layer)
        with torch.no_grad():
            other.weight_ih_l0.zero_()
        assert not torch.equal(layer(x)[0], other(x)[0])


def test_parameter_names() -> None:
    names = [name for name, _ in kru.KRUGRU(INPUT, HIDDEN, 2, bidirectional=True).named_parameters()]
    assert [name for name in names if "_l1_reverse" in name] == [
        "weight_ih_l1_reverse",
        "bias_l1_reverse",
        "recurrent_bias_l1_reverse",
        "recurrent_l1_reverse.factor_0",
        "recurrent_l1_reverse.factor_1",
    ]


def test_all_weights_lists_each_parameter_once() -> None:
    layer = kru.KRULSTM(INPUT, HIDDEN, 2, bidirectional=True)
    listed = [id(p) for weights in layer.all_weights for p in weights]
    assert len(layer.all_weights) == 4
    assert sorted(listed) == sorted(id(p) for p in layer.parameters())
    layer.flatten_parameters()


@every_layer
def test_double_computes_in_double(build, x: Tensor) -> None:
    layer = build().double()
    output, _ = layer(x.double())
    assert output.dtype == torch.float64
    torch.testing.assert_close(output.float(), layer.float()(x)[0])


@every_layer
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stores_and_float32_computes(build, dtype: torch.dtype, x: Tensor) -> None:
    layer = build(num_layers=2).to(dtype)
    output, state = layer(x.to(dtype))
    states = state if isinstance(state, tuple) else (state,)
    assert {output.dtype, *(s.dtype for s in states)} == {dtype}
    reference, _ = layer.float()(x.to(dtype).float())
    if "exact" not in repr(layer):
        assert torch.equal(output, reference.to(dtype))
    output.float().sum().backward()
    assert layer.weight_ih_l0.grad is not None


def test_exact_factors_stay_unitary_in_half_precision() -> None:
    layer = kru.KRU(INPUT, 12, constraint="exact").bfloat16()
    assert kru.spectrum(layer).distance_from_unitary < 1e-6


@every_layer
def test_autocast_leaves_the_recurrence_in_float32(build, x: Tensor) -> None:
    layer = build()
    expected, _ = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = layer(x)
        lowered, _ = layer(torch.nn.functional.linear(x, torch.eye(INPUT)))
    assert torch.equal(output, expected)
    assert lowered.dtype == torch.float32
    torch.testing.assert_close(lowered, expected, rtol=0.1, atol=0.1)


def test_device_and_dtype_arguments() -> None:
    assert {p.dtype for p in kru.KRU(INPUT, HIDDEN, dtype=torch.float64).parameters()} == {torch.float64}
    meta = kru.KRU(INPUT, HIDDEN, device="meta", constraint="exact")
    assert {t.device.type for t in meta.state_dict().values()} == {"meta"}
    real = meta.to_empty(device="cpu")
    real.reset_parameters()
    assert kru.spectrum(real).distance_from_unitary < 1e-6
    with pytest.raises(TypeError, match="dtype: expected a real"):
        kru.KRU(INPUT, HIDDEN, dtype=torch.complex64)


@every_layer
@pytest.mark.parametrize("given", ["batch", "unbatched", "symbols", "one symbol"])
def test_steps_are_the_sequence(build, given: str, x: Tensor) -> None:
    layer = build(num_layers=2)
    symbols = torch.randint(INPUT, (STEPS, BATCH))
    sequence = {"batch": x, "unbatched": x[:, 0], "symbols": symbols, "one symbol": symbols[:, 0]}[given]
    expected, expected_state = layer(sequence)
    state = None
    for t, x_t in enumerate(sequence):
        output, state = layer.step(x_t, state)
        torch.testing.assert_close(output, expected[t])
    torch.testing.assert_close(state, expected_state)


def test_steps_need_one_direction() -> None:
    with pytest.raises(RuntimeError, match="bidirectional"):
        kru.KRU(INPUT, HIDDEN, bidirectional=True).step(torch.zeros(BATCH, INPUT))
    with pytest.raises(ValueError, match="input: expected one time step"):
        kru.KRU(INPUT, HIDDEN).step(torch.zeros(STEPS, BATCH, INPUT))


@every_layer
def test_dropout_acts_between_layers_in_training_only(build, x: Tensor) -> None:
    layer = build(num_layers=2, dropout=0.5)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    layer.train()
    dropped = build(num_layers=2, dropout=1.0)
    dropped.load_state_dict(layer.state_dict())
    assert torch.equal(dropped(x)[0], dropped(torch.zeros_like(x))[0])
    first = [state[0][0] if isinstance(state, tuple) else state[0] for state in (dropped(x)[1], layer(x)[1])]
    torch.testing.assert_close(*first)


@every_layer
def test_reset_parameters_draws_new_values(build) -> None:
    layer = build(num_layers=2)
    before = {name: t.clone() for name, t in layer.state_dict().items()}
    layer.reset_parameters()
    drawn = [
        name for name in before if "weight" in name or "factor" in name or "base" in name or "initial" in name
    ]
    assert all(not torch.equal(before[name], layer.state_dict()[name]) for name in drawn)
    again = build(num_layers=2)
    for one in (layer, again):
        torch.manual_seed(1)
        one.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), again.parameters(), strict=True))


def test_initial_values() -> None:
    layer = kru.KRULSTM(INPUT, HIDDEN, bidirectional=True)
    for suffix in ("_l0", "_l0_reverse"):
        i, f, g, o = getattr(layer, f"bias{suffix}").chunk(4)
        assert f.eq(1).all()
        assert torch.cat([i, g, o]).eq(0).all()
    layer = kru.KRU(INPUT, HIDDEN, 2)
    assert layer.bias_l1.eq(0).all()
    assert layer.bias_l1.shape == (HIDDEN,)
    assert kru.KRU(INPUT, HIDDEN, nonlinearity="tanh").bias_l0.shape == (2 * HIDDEN,)


def test_frozen_recurrent_matrices_stay_as_they_were_drawn(x: Tensor) -> None:
    layer = kru.KRU(INPUT, HIDDEN, train_recurrent=False)
    before = [factor.clone() for factor in layer.matrix().factors()]
    optimizer = kru.optimizer(layer, "adam", lr=0.1)
    assert [group["name"] for group in optimizer.param_groups] == ["other"]
    layer(x)[0].square().sum().backward()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, layer.matrix().factors(), strict=True))
    assert "recurrent_l0.factor_0" in layer.state_dict()
    assert kru.parameter_count(layer) == kru.parameter_count(kru.KRU(INPUT, HIDDEN))


def test_repr_says_what_the_layer_is() -> None:
    layer = kru.KRU(INPUT, HIDDEN, 2, batch_first=True, train_recurrent=False)
    text = repr(layer)
    for part in ("KRU(", "3, 6, num_layers=2, batch_first=True", "modrelu", "2x2 ⊗ 3x3", "field=complex"):
        assert part in text
    assert "train_recurrent=False" in text


def test_learned_initial_state(x: Tensor) -> None:
    layer = kru.baselines.RCURNN(INPUT, HIDDEN, 2, bidirectional=True)
    starts = [layer.initial_l0, layer.initial_l0_reverse, layer.initial_l1, layer.initial_l1_reverse]
    given = torch.stack(starts).unsqueeze(1).expand(-1, BATCH, -1)
    torch.testing.assert_close(layer(x), layer(x, given))
    assert all(g.abs().sum() > 0 for g in torch.autograd.grad(layer(x)[0].square().sum(), starts))
    assert not torch.equal(layer(x)[0], layer(x, torch.zeros_like(given))[0])
    assert "learn_initial=True" in repr(layer)
    zero = kru.baselines.RCURNN(INPUT, HIDDEN, learn_initial=False)
    assert not [name for name, _ in zero.named_parameters() if "initial" in name]


def test_a_layer_can_be_told_apart_by_its_matrices() -> None:
    layer = kru.KRU(INPUT, HIDDEN, 2, bidirectional=True)
    assert layer.matrix(1, reverse=True) is layer.recurrent_l1_reverse
    with pytest.raises(ValueError, match="layer: expected 0 <= layer < 2, got 2"):
        layer.matrix(2)
    with pytest.raises(ValueError, match="reverse"):
        kru.KRU(INPUT, HIDDEN).matrix(reverse=True)


CONSTRUCTION_ERRORS = [
    (kru.KRU, {"field": "quaternion"}, ValueError, "field: expected real or complex, got 'quaternion'"),
    (kru.KRU, {"nonlinearity": "gelu"}, ValueError, "nonlinearity: expected one of"),
    (
        kru.KRU,
        {"constraint": "hard"},
        ValueError,
        "constraint: expected one of soft, exact, none, got 'hard'",
    ),
    (kru.KRU, {"recurrent_init": "ones"}, ValueError, "recurrent_init: expected one of haar"),
    (kru.KRU, {"factors": [2, 2]}, ValueError, r"factors: .* hidden_size=6, got 2 \* 2 = 4"),
    (kru.KRU, {"train_recurrent": 1}, TypeError, "train_recurrent: expected a bool, got int"),
    (kru.KRU, {"proj_size": 2}, ValueError, "proj_size: expected 0, got 2"),
    (
        kru.KRU,
        {"factors": [(2, 3), (3, 2)], "constraint": "exact"},
        ValueError,
        "2 x 3 matrix can't be unitary",
    ),
    (
        kru.KRULSTM,
        {"field": "complex"},
        ValueError,
        "field: expected real, got 'complex': the gates of KRULSTM",
    ),
    (
        kru.KRUGRU,
        {"field": "complex"},
        ValueError,
        "field: expected real, got 'complex': the gates of KRUGRU",
    ),
]


@pytest.mark.parametrize(("layer", "options", "kind", "message"), CONSTRUCTION_ERRORS)
def test_construction_errors(
    layer: type[Recurrent], options: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        layer(INPUT, HIDDEN, **options)


CALL_ERRORS = {
    "a list": (lambda rnn: rnn([1, 2]), TypeError, "input: expected a tensor or a PackedSequence, got list"),
    "3-D symbols": (lambda rnn: rnn(torch.zeros(2, 2, 2).long()), ValueError, "symbols"),
    "bytes": (
        lambda rnn: rnn(torch.zeros(2, 2, 3).byte()),
        ValueError,
        "input: .*int64 or int32, got torch.uint8",
    ),
    "a tensor for a pair": (
        lambda rnn: rnn(torch.zeros(5, 2, 3), torch.zeros(1, 2, 6)),
        TypeError,
        r"hx: expected a pair \(h, c\) of tensors, got a Tensor",
    ),
    "c of another size": (
        lambda rnn: rnn(torch.zeros(5, 2, 3), (torch.zeros(1, 2, 6), torch.zeros(1, 2, 7))),
        RuntimeError,
        r"hx\[1\]: expected shape \(1, 2, 6\) .*, got \(1, 2, 7\)",
    ),
    "state of another dtype": (
        lambda rnn: rnn(torch.zeros(5, 2, 3), (torch.zeros(1, 2, 6), torch.zeros(1, 2, 6).double())),
        ValueError,
        r"hx\[1\]: expected the weights' dtype torch.float32, got torch.float64",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), list(CALL_ERRORS.values()), ids=list(CALL_ERRORS))
def test_call_errors(call, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(kru.KRULSTM(INPUT, HIDDEN))


def test_a_symbol_out_of_range_is_an_error() -> None:
    with pytest.raises(IndexError):
        kru.KRU(INPUT, HIDDEN)(torch.full((STEPS, BATCH), INPUT))
