"""`SequenceModel` on a padded batch computes what it does on each sequence alone, read out by a plain loop."""

import pytest
import torch
from torch import Tensor

from kru.nn.kinds import model_settings
from kru.nn.model import READOUTS, SequenceModel, Sizes, build_model

INPUTS, OUTPUTS = 3, 2
LENGTHS = (9, 1, 4, 9)


def read_out(model: SequenceModel, sequence: Tensor) -> Tensor:
    """The outputs for one sequence (T, D), layer by layer and step by step."""
    states, _ = model.layer(sequence[:, None])
    size = model.layer.state_size
    if model.readout == "all":
        return torch.stack([model.output(state[0]) for state in states])
    if model.readout == "mean":
        total = torch.zeros(model.layer.output_size, dtype=sequence.dtype)
        for state in states:
            total = total + state[0]
        return model.output(total / len(states))
    # The direction that reads backwards ends at the first step.
    return model.output(torch.cat([states[-1, 0, :size], states[0, 0, size:]]))


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("kind", "layers"), [("kru", 1), ("kru", 3), ("lstm", 2), ("ornn", 2)])
def test_padding_changes_nothing(kind: str, layers: int, bidirectional: bool, readout: str) -> None:
    torch.manual_seed(0)
    config = model_settings(kind, 6, num_layers=layers, bidirectional=bidirectional, readout=readout)
    model = build_model(config, Sizes(INPUTS, OUTPUTS, last_only=readout != "all")).double()
    assert (model.layer.num_layers, model.layer.bidirectional) == (layers, bidirectional)
    inputs = torch.randn(max(LENGTHS), len(LENGTHS), INPUTS, dtype=torch.float64)
    for column, length in enumerate(LENGTHS):
        inputs[length:, column] = 100.0
    outputs, _ = model(inputs, lengths=torch.tensor(LENGTHS))
    alone = [read_out(model, inputs[:length, column]) for column, length in enumerate(LENGTHS)]
    if readout == "all":
        together = [outputs[:length, column] for column, length in enumerate(LENGTHS)]
    else:
        together = list(outputs)
    for ours, reference in zip(together, alone, strict=True):
        torch.testing.assert_close(ours, reference)
    weights = list(model.parameters())
    grads = [
        torch.autograd.grad(sum(part.square().sum() for part in parts), weights)
        for parts in (together, alone)
    ]
    torch.testing.assert_close(*grads)


def test_layers_are_stacked() -> None:
    torch.manual_seed(0)
    model = build_model(model_settings("kru", 4, num_layers=2), Sizes(INPUTS, OUTPUTS, last_only=False))
    single = build_model(model_settings("kru", 4), Sizes(INPUTS, OUTPUTS, last_only=False)).layer
    second = build_model(model_settings("kru", 4), Sizes(8, OUTPUTS, last_only=False)).layer
    weights = model.layer.state_dict()
    single.load_state_dict({name: weights[name] for name in single.state_dict()})
    second.load_state_dict({name: weights[name.replace("_l0", "_l1")] for name in second.state_dict()})
    x = torch.randn(7, 2, INPUTS)
    torch.testing.assert_close(model(x)[0], model.output(second(single(x)[0])[0]))


def test_nothing_beyond_the_end_reaches_a_mean() -> None:
    model = build_model(model_settings("kru", 4, readout="mean"), Sizes(INPUTS, OUTPUTS, last_only=True))
    x = torch.randn(5, 1, INPUTS)
    x[3:] = torch.nan
    torch.testing.assert_close(model(x, lengths=torch.tensor([3]))[0], model(x[:3])[0])


def test_what_does_not_fit_is_named() -> None:
    one = Sizes(INPUTS, OUTPUTS, last_only=True)
    with pytest.raises(ValueError, match=r"model\.readout: expected last or mean.*got all"):
        build_model(model_settings("kru", 4, readout="all"), one)
    with pytest.raises(ValueError, match=r"model\.layer-dropout: expected 0 with one layer"):
        model_settings("kru", 4, layer_dropout=0.5)
    model = build_model(model_settings("kru", 4, bidirectional=True), one)
    _, state = model(torch.randn(3, 1, INPUTS))
    with pytest.raises(ValueError, match="state: expected none for a model of two directions"):
        model(torch.randn(3, 1, INPUTS), state)
