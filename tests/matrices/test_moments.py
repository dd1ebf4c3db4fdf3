import pytest
import torch
from torch import nn

from kru.matrices.moments import Replacement, carry_over


def parameters(*sizes: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(size)) for size in sizes]


def stepped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return optimizer


def double_and_quadruple(old: list[nn.Parameter], new: list[nn.Parameter]) -> Replacement:
    return Replacement(
        tuple(old),
        tuple(new),
        lambda known: [2 * torch.cat(list(known))],
        lambda known: [4 * torch.cat(list(known))],
    )


@pytest.mark.parametrize(
    ("kind", "options", "average", "square"),
    [
        (torch.optim.Adam, {}, "exp_avg", "exp_avg_sq"),
        (torch.optim.AdamW, {"amsgrad": True}, "exp_avg", "max_exp_avg_sq"),
        (torch.optim.RMSprop, {"centered": True, "momentum": 0.9}, "grad_avg", "square_avg"),
    ],
)
def test_moments_steps_and_the_rest(kind, options, average: str, square: str) -> None:
    first, a, b, last = parameters(2, 3, 4, 5)
    optimizer = stepped(kind([first, a, b, last], lr=0.1, **options))
    known = {parameter: dict(optimizer.state[parameter]) for parameter in (first, a, b, last)}
    (new,) = parameters(7)
    carry_over(optimizer, double_and_quadruple([a, b], [new]))
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in (first, new, last)]
    state = optimizer.state[new]
    assert torch.equal(state[average], 2 * torch.cat([known[a][average], known[b][average]]))
    assert torch.equal(state[square], 4 * torch.cat([known[a][square], known[b][square]]))
    assert state["step"] == 1
    if "momentum" in options:
        assert torch.equal(state["momentum_buffer"], torch.zeros(7))
    for kept in (first, last):
        assert all(optimizer.state[kept][name] is value for name, value in known[kept].items())
    assert set(optimizer.state) == {first, new, last}
    stepped(optimizer)


def test_without_functions_or_history_it_starts_anew() -> None:
    a, b, new = parameters(3, 4, 7)
    optimizer = stepped(torch.optim.Adam([a, b]))
    carry_over(optimizer, Replacement((a, b), (new,)))
    assert not optimizer.state
    fresh = torch.optim.Adam([a, b])
    carry_over(fresh, double_and_quadruple([a, b], [new]))
    assert not fresh.state
    assert stepped(fresh).state[new]["step"] == 1


def test_parameters_in_two_groups_and_names() -> None:
    a, b, c, new = parameters(3, 4, 5, 7)
    optimizer = torch.optim.SGD(
        [{"params": [("c", c), ("a", a)], "lr": 0.1}, {"params": [("b", b)], "lr": 0.2}], lr=1.0
    )
    carry_over(optimizer, Replacement((a, b), (new,)))
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 0]
    assert optimizer.param_groups[0]["params"][1] is new
    assert optimizer.param_groups[0]["param_names"] == ["c", "a"]


def test_what_is_not_trained_is_left_out() -> None:
    a, b, c, new = parameters(3, 4, 5, 7)
    optimizer = torch.optim.SGD([c], lr=0.1)
    carry_over(optimizer, Replacement((a, b), (new,)))
    assert optimizer.param_groups[0]["params"] == [c]
