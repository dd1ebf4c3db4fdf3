"""What every layer bears of torch: the meta device, fake tensors, values drawn later, and torch.func."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import kru

LAYERS = {
    "KRU": lambda **given: kru.KRU(3, 6, **given),
    "real": lambda **given: kru.KRU(3, 6, 2, field="real", bidirectional=True, **given),
    "exact": lambda **given: kru.KRU(3, 6, constraint="exact", **given),
    "sum": lambda **given: kru.KRU(3, 6, rank=2, **given),
    "LSTM": lambda **given: kru.KRULSTM(3, 6, **given),
    "GRU": lambda **given: kru.KRUGRU(3, 6, rank=2, **given),
    "RC uRNN": lambda **given: kru.baselines.RCURNN(3, 6, **given),
    "FC uRNN": lambda **given: kru.baselines.FCURNN(3, 6, **given),
    "oRNN": lambda **given: kru.baselines.ORNN(3, 6, **given),
    "EURNN": lambda **given: kru.baselines.EURNN(3, 6, **given),
    "expRNN": lambda **given: kru.baselines.ExpRNN(3, 6, **given),
    "AntisymmetricRNN": lambda **given: kru.baselines.AntisymmetricRNN(3, 6, gated=True, **given),
    "LRU": lambda **given: kru.baselines.LRU(3, 6, **given),
    "LRD-GRU": lambda **given: kru.baselines.LRDGRU(3, 6, low_rank=2, **given),
    "RHN": lambda **given: kru.baselines.RHN(3, 6, factors=[2, 3], **given),
    "HyperLSTM": lambda **given: kru.baselines.HyperLSTM(3, 6, **given),
}
every_layer = pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)


def expect_shapes(layer: nn.Module, x: torch.Tensor) -> None:
    """The outputs, the last state and the gradients have their shapes and x's device."""
    output, state = layer(x)
    steps, batch = x.shape[:2]
    assert output.shape == (steps, batch, layer.output_size)
    assert output.device == x.device
    h = state[0] if isinstance(state, tuple) else state
    assert h.shape[1:] == (batch, layer.state_size)
    penalty = kru.unitary_penalty(layer)
    assert penalty.shape == ()
    layer.zero_grad()
    (output.square().sum() + penalty).backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.shape == parameter.shape, name
        assert parameter.grad.device == parameter.device, name


@every_layer
@pytest.mark.parametrize("symbols", [False, True])
def test_forward_and_backward_on_the_meta_device(build, symbols: bool) -> None:
    layer = build(device="meta")
    shape, dtype = ((5, 2), torch.int64) if symbols else ((5, 2, 3), torch.float32)
    expect_shapes(layer, torch.empty(shape, dtype=dtype, device="meta"))


@every_layer
def test_meta_as_default_device_and_steps(build) -> None:
    with torch.device("meta"):
        layer = build()
        expect_shapes(layer, torch.empty(5, 2, 3))
        if not layer.bidirectional:
            output, state = layer.step(torch.empty(2, 3))
            output, _ = layer.step(torch.empty(2, 3), state)
            assert (output.shape, output.is_meta) == ((2, layer.output_size), True)


@every_layer
def test_fake_tensors(build) -> None:
    with FakeTensorMode():
        expect_shapes(build(), torch.empty(5, 2, 3))


@every_layer
def test_values_are_drawn_after_to_empty(build) -> None:
    layer = build(device="meta").to_empty(device="cpu")
    drawn = []
    for each in (layer, build()):
        torch.manual_seed(0)
        each.reset_parameters()
        drawn.append(each.state_dict())
    for name, tensor in drawn[1].items():
        assert torch.equal(drawn[0][name], tensor), name
    x = torch.randn(5, 2, 3)
    assert torch.equal(layer(x)[0], each(x)[0])


@every_layer
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # jvp itself calls it
def test_transforms_of_torch_func(build) -> None:
    """Gradients of each sequence by vmap over grad, and a derivative along a direction, against autograd's."""
    torch.manual_seed(0)
    layer = build(dtype=torch.float64)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    x = torch.randn(4, 5, 3, dtype=torch.float64)

    def loss(parameters: dict[str, torch.Tensor], sequence: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, parameters, (sequence,))[0].square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    direction = {name: torch.randn_like(p) for name, p in parameters.items()}
    _, slope = torch.func.jvp(lambda given: loss(given, x[0]), (parameters,), (direction,))
    expected_slope = 0.0
    for b, sequence in enumerate(x):
        layer.zero_grad()
        layer(sequence)[0].square().sum().backward()
        for name, parameter in layer.named_parameters():
            torch.testing.assert_close(each[name][b], parameter.grad)
            if b == 0:
                expected_slope += (parameter.grad * direction[name]).sum()
    torch.testing.assert_close(slope, expected_slope)
