import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

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


def test_input_weights_have_a_rate_of_their_own_when_asked() -> None:
    network = model()
    groups = kru.optimizer(network, lr=0.5, recurrent_lr=0.25, input_lr=1.0).param_groups
    assert [(group["name"], group["lr"]) for group in groups] == [
        ("other", 0.5),
        ("recurrent", 0.25),
        ("input", 1.0),
    ]
    weights = {id(p) for name, p in network.named_parameters() if "weight_ih" in name}
    assert {id(p) for p in groups[2]["params"]} == weights
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))


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


KINDS = (
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
)


class Signs(torch.optim.Optimizer):
    """An optimiser that is not torch's: steps of one length."""

    def __init__(self, params: object, lr: float, least: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "least": least})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad.sign(), alpha=max(group["lr"], group["least"]))


@pytest.mark.parametrize("kind", [*(getattr(torch.optim, name) for name in KINDS), Signs])
def test_every_optimiser_trains_with_its_groups(kind: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 2, 3)
    for network, groups in ((model(), ["other", "recurrent"]), (unitary_model(), ["other", "unitary"])):
        optimizer = kru.optimizer(network, kind, lr=0.01)
        assert isinstance(optimizer, kind)
        assert [(group["name"], group["lr"]) for group in optimizer.param_groups] == list(
            zip(groups, (0.01, 0.001), strict=True)
        )
        before = copy.deepcopy(network.state_dict())
        loss = network["head"](network["rnn"](x)[0]).square().sum()
        loss.backward()
        optimizer.step()
        for name, tensor in network.state_dict().items():
            assert not torch.equal(tensor, before[name]), name
    assert defect(network["rnn"]) < 1e-5


def test_names_are_those_of_torch() -> None:
    for name, kind in (("sgd", torch.optim.SGD), ("AdamW", torch.optim.AdamW), ("nadam", torch.optim.NAdam)):
        assert type(kru.optimizer(model(), name)) is kind
    sgd = kru.optimizer(model(), torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)
    assert [(group["momentum"], group["nesterov"]) for group in sgd.param_groups] == [(0.9, True)] * 2
    assert kru.optimizer(model(), Signs, lr=0.1, least=0.05).param_groups[1]["least"] == 0.05


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
def test_the_cayley_update_of_any_optimiser_can_be_copied(copied) -> None:
    torch.manual_seed(0)
    network = full()
    optimizer = kru.optimizer(network, "sgd", lr=0.1, momentum=0.9)
    other, steps = copied((network, optimizer))
    assert type(steps) is type(optimizer)
    for _ in range(3):
        x = torch.randn(5, 2, 3)
        for layer, each in ((network, optimizer), (other, steps)):
            each.zero_grad()
            layer(x)[0].square().sum().backward()
            each.step()
    assert defect(other) < 1e-5
    assert torch.equal(other.matrix().unitary, network.matrix().unitary)
    assert not torch.equal(other.matrix().unitary, full().matrix().unitary)


def rates_of(optimizer: torch.optim.Optimizer, scheduler, steps: int, *measure: float) -> list[list[float]]:
    """The learning rates of the groups at each step."""
    rates = []
    for _ in range(steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step(*measure)
    return rates


SCHEDULERS = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, [group["lr"] for group in o.param_groups], 10),
    "cyclic": lambda o: lr_scheduler.CyclicLR(
        o, [g["lr"] / 5 for g in o.param_groups], [g["lr"] for g in o.param_groups], 3, cycle_momentum=False
    ),
    "warm-up": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_keep_the_ratio(name: str) -> None:
    optimizer = kru.optimizer(model(), "adam", lr=0.01, recurrent_lr=0.002, input_lr=0.03)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = rates_of(optimizer, SCHEDULERS[name](optimizer), 10)
    assert len({other for other, _, _ in rates}) > 3
    for other, recurrent, inputs in rates:
        assert (recurrent, inputs) == pytest.approx((0.2 * other, 3 * other))


def test_plateau_keeps_the_ratio_down_to_a_common_minimum() -> None:
    optimizer = kru.optimizer(model(), "adam", lr=0.01, recurrent_lr=0.002)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, min_lr=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = rates_of(optimizer, scheduler, 12, 1.0)
    assert rates[4] == pytest.approx([0.01 / 8, 0.002 / 8])
    assert rates[-1] == [1e-4, 1e-4]


@pytest.mark.parametrize("build", [model, lambda: unitary_model()])
def test_a_scheduler_that_overwrites_the_rates_is_warned_of_once(build) -> None:
    optimizer = kru.optimizer(build(), "adam", lr=0.01)
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=20)
    group = optimizer.param_groups[1]["name"]
    with pytest.warns(UserWarning, match=f'"{group}" was built with .* 0.001, .*max_lr=') as caught:
        rates_of(optimizer, scheduler, 18)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_equal_rates_that_were_asked_for_are_not_warned_of() -> None:
    optimizer = kru.optimizer(model(), "adam", lr=0.01, recurrent_lr=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates_of(optimizer, lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=20), 18)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"name: expected a class of .* or one of .*adamw.*sgd.*, got 'gsd'"):
        kru.optimizer(model(), "gsd")
    with pytest.raises(ValueError, match=r"name: expected a class of optimisers .*, got <class 'torch.nn"):
        kru.optimizer(model(), nn.Linear)
    with pytest.raises(
        ValueError, match="name: expected an optimiser that takes parameter groups, got LBFGS"
    ):
        kru.optimizer(model(), torch.optim.LBFGS)
    with pytest.raises(ValueError, match="recurrent_lr: expected a rate of at least 0, got -1"):
        kru.optimizer(model(), recurrent_lr=-1)
    with pytest.raises(ValueError, match="input_lr: expected a rate of at least 0, got -1"):
        kru.optimizer(model(), input_lr=-1)
    with pytest.raises(ValueError, match="model: expected one with parameters to train, got ReLU"):
        kru.optimizer(nn.ReLU())


def full(units: int = 8, **options: object) -> kru.baselines.FCURNN:
    torch.manual_seed(0)
    return kru.baselines.FCURNN(3, units, **options)


def unitary_model() -> nn.Module:
    return nn.ModuleDict({"rnn": full(), "head": nn.Linear(16, 2)})


def defect(layer: kru.baselines.FCURNN) -> float:
    w = torch.complex(*layer.matrix().unitary.detach())
    return (w.mH @ w - torch.eye(len(w))).abs().max().item()


def test_unitary_matrices_are_a_group_of_their_own() -> None:
    optimizer = kru.optimizer(full(), "adam", lr=0.01, recurrent_lr=0.5, weight_decay=0.1)
    assert isinstance(optimizer, torch.optim.Adam)
    assert [(g["name"], g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [
        ("other", 0.01, 0.1),
        ("unitary", 0.5, 0.0),
    ]
    assert type(kru.optimizer(full(train_recurrent=False), "adam")) is torch.optim.Adam


def test_cayley_update_is_the_papers() -> None:
    """With RMSprop's mean square held at one, its step is -lr G."""
    layer = full(dtype=torch.float64)
    parameter = layer.matrix().unitary
    optimizer = kru.optimizer(layer, "rmsprop", recurrent_lr=0.1, alpha=1.0, eps=1.0)
    parameter.grad = torch.randn_like(parameter)
    w, g = torch.complex(*parameter.detach().clone()), torch.complex(*parameter.grad)
    a = g @ w.mH - w @ g.mH
    eye = torch.eye(len(w), dtype=w.dtype)
    expected = torch.linalg.inv(eye + 0.05 * a) @ (eye - 0.05 * a) @ w
    optimizer.step()
    torch.testing.assert_close(torch.complex(*parameter.detach()), expected)


def test_unitary_over_ten_thousand_updates_in_single_precision() -> None:
    layer = full(16)
    before = layer.matrix().unitary.detach().clone()
    parameter = layer.matrix().unitary
    optimizer = kru.optimizer(nn.ModuleList([layer.matrix()]), recurrent_lr=0.01)
    worst = 0.0
    for step in range(10_000):
        parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        if step % 500 == 499:
            worst = max(worst, defect(layer))
    assert worst < 1e-5
    assert (parameter - before).abs().max() > 0.1


def test_unitary_training_lowers_the_loss_and_goes_on_from_a_state_dict() -> None:
    x, target = torch.randn(6, 4, 3), torch.randn(6, 4, 16)

    def train(layer: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (layer(x)[0] - target).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    whole, cut = full(), full()
    steps = [kru.optimizer(layer, lr=0.01) for layer in (whole, cut)]
    losses = train(whole, steps[0], 40)
    assert losses[-1] < losses[0]
    assert defect(whole) < 2e-6
    train(cut, steps[1], 25)
    other = full()
    other.load_state_dict(cut.state_dict())
    again = kru.optimizer(other, lr=0.01)
    again.load_state_dict(steps[1].state_dict())
    assert train(other, again, 15) == losses[25:]


def test_closures_see_the_weights_and_untouched_matrices_stay() -> None:
    layer = full()
    before = layer.matrix().unitary.detach().clone()
    optimizer = kru.optimizer(layer)
    optimizer.step()
    assert torch.equal(layer.matrix().unitary, before)

    def closure() -> torch.Tensor:
        assert torch.equal(layer.matrix().unitary, before)
        loss = layer(torch.randn(5, 2, 3))[0].sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).requires_grad
    assert not torch.equal(layer.matrix().unitary, before)


def test_unitary_matrices_in_half_precision() -> None:
    layer = full().bfloat16()
    optimizer = kru.optimizer(layer, lr=0.01)
    layer(torch.randn(5, 2, 3).bfloat16())[0].float().sum().backward()
    optimizer.step()
    assert layer.matrix().unitary.dtype == torch.bfloat16
    assert kru.spectrum(layer).distance_from_unitary < 1e-5
