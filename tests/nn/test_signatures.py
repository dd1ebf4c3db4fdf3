"""Every argument of a layer is in its signature, for readers, editors and `help`."""

import inspect

import pytest
from torch import nn

import kru
from kru import baselines

LAYERS = [kru.KRU, kru.KRULSTM, kru.KRUGRU, *(getattr(baselines, name) for name in baselines.__all__)]
SHARED = ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"]


@pytest.mark.parametrize("layer", LAYERS)
def test_signatures_are_written_out(layer: type[nn.Module]) -> None:
    parameters = list(inspect.signature(layer).parameters.values())
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert by_position == SHARED
    assert len(by_position) + len(by_name) == len(parameters)
    assert all(p.default is not p.empty for p in (*parameters[2:7], *by_name))
    assert all(p.annotation is not p.empty for p in parameters)
    assert {p.name for p in by_name} >= {"train_recurrent", "input_scale", "proj_size", "device", "dtype"}


@pytest.mark.parametrize("layer", LAYERS)
def test_every_argument_is_explained(layer: type[nn.Module]) -> None:
    """`proj_size`, `device` and `dtype` are torch's own."""
    parameters = set(inspect.signature(layer).parameters) - {"proj_size", "device", "dtype"}
    text = inspect.getdoc(layer)
    assert text is not None
    assert not [name for name in parameters if name not in text]


@pytest.mark.parametrize("theirs", [nn.LSTM, nn.GRU])
def test_the_order_by_position_is_that_of_torch(theirs: type[nn.RNNBase]) -> None:
    """torch's own signatures are `*args, **kwargs`; those of their common base are written out."""
    names = list(inspect.signature(nn.RNNBase.__init__).parameters)
    assert names[:2] == ["self", "mode"]
    assert names[2 : 2 + len(SHARED)] == SHARED
    layer = theirs(3, 4, 2, False, True, 0.5, True)
    assert [getattr(layer, name) for name in SHARED] == [3, 4, 2, False, True, 0.5, True]
