import pytest
import torch
from torch import nn

import kru


def model() -> nn.Module:
    return nn.ModuleDict({"rnn": kru.KRULSTM(3, 6, 2), "head": nn.Linear(6, 2)})


@pytest.mark.parametrize(("name", "kind"), [("rmsprop", torch.optim.RMSprop), ("adam", torch.optim.Adam)])
def test_groups(name: str, kind: type[torch.optim.Optimizer]) -> None:
    network = model()
    optimizer = kru.optimizer(network, name, lr=0.01, weight_decay=0.1)
    assert type(optimizer) is kind
    other, recurrent = optimizer.param_groups
    assert (other["name"], other["lr"], other["weight_decay"]) == ("other", 0.01, 0.1)
    assert (recurrent["name"], recurrent["lr"], recurrent["weight_decay"]) == ("recurrent", 0.001, 0)
    factors = {id(p) for name, p in network.named_parameters() if "factor" in name}
    assert {id(p) for p in recurrent["params"]} == factors
    assert len(other["params"]) + len(recurrent["params"]) == len(list(network.parameters()))


def test_rates_and_options() -> None:
    optimizer = kru.optimizer(model(), lr=0.5, recurrent_lr=0.25, alpha=0.9)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.25]
    assert [group["alpha"] for group in optimizer.param_groups] == [0.9, 0.9]


def test_a_model_of_other_layers_has_one_group() -> None:
    assert [group["name"] for group in kru.optimizer(nn.LSTM(3, 4), "adam").param_groups] == ["other"]


def test_state_dict_and_scheduler() -> None:
    network = model()
    optimizer = kru.optimizer(network, "adam", lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    network["head"](network["rnn"](torch.randn(4, 2, 3))[0]).sum().backward()
    optimizer.step()
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.005, 0.0005])
    other = kru.optimizer(network, "adam", lr=1.0)
    other.load_state_dict(optimizer.state_dict())
    assert [group["lr"] for group in other.param_groups] == pytest.approx([0.005, 0.0005])


def test_errors() -> None:
    with pytest.raises(ValueError, match="name: expected one of rmsprop, adam, got 'sgd'"):
        kru.optimizer(model(), "sgd")
    with pytest.raises(ValueError, match="recurrent_lr: expected a rate of at least 0, got -1"):
        kru.optimizer(model(), recurrent_lr=-1)
    with pytest.raises(ValueError, match="model: expected one with parameters to train, got ReLU"):
        kru.optimizer(nn.ReLU())
