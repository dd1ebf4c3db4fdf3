"""The ordinary models of recipes are those of torch: the same outputs with copied weights."""

import pytest
import torch
from torch import Tensor, nn

from kru.nn.kinds import model_settings
from kru.nn.model import Sizes, build_model

INPUTS, HIDDEN = 3, 5
THEIRS = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def copied(kind: str, theirs: dict[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    """The weights of torch's layer that one of ours stands for. The GRU's last recurrent bias stays apart."""
    if name == "weight_ih_l0":
        return theirs["weight_ih_l0"]
    if name == "recurrent_l0.factor_0":
        return theirs["weight_hh_l0"].reshape(shape)
    if name == "recurrent_bias_l0":
        return theirs["bias_hh_l0"][2 * HIDDEN :]
    kept = theirs["bias_hh_l0"].clone()
    if kind == "gru":
        kept[2 * HIDDEN :] = 0
    return theirs["bias_ih_l0"] + kept


@pytest.mark.parametrize("kind", list(THEIRS))
def test_ordinary_models_compute_what_torch_does(kind: str) -> None:
    torch.manual_seed(0)
    model = build_model(model_settings(kind, HIDDEN), Sizes(INPUTS, 2, last_only=False))
    theirs = THEIRS[kind](INPUTS, HIDDEN)
    weights = theirs.state_dict()
    model.layer.load_state_dict(
        {name: copied(kind, weights, name, t.shape) for name, t in model.layer.state_dict().items()}
    )
    x = torch.randn(30, 4, INPUTS)
    torch.testing.assert_close(model(x)[0], model.output(theirs(x)[0]))
    assert model.layer.matrix().constraint == "none"
