"""Whole sequences: the layers against nn.RNN, nn.LSTM and a PyTorch loop."""

from collections.abc import Callable

import torch
from peers import LoopKRU
from timing import Case
from torch import Tensor, nn

import kru


def train_step(module: nn.Module, x: Tensor, pick: Callable[[object], Tensor]) -> Callable[[], object]:
    def step() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        pick(module(x)).square().sum().backward()

    return step


def inference(module: nn.Module, x: Tensor) -> Callable[[], object]:
    def step() -> None:
        with torch.no_grad():
            module(x)

    return step


def last(result: object) -> Tensor:
    return result[1][0] if isinstance(result[1], tuple) else result[1]  # type: ignore[index]


def backward_step(module: nn.Module, x: Tensor) -> Callable[[], object]:
    """A training step whose loss gives every output a gradient; the loss itself is left out on both sides."""
    gradient = torch.randn_like(module(x)[0])

    def step() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        module(x)[0].backward(gradient)

    return step


def mnist() -> list[Case]:
    x = torch.rand(784, 50, 1) + 0.1
    ours, lstm, rnn, loop = kru.KRU(1, 512), nn.LSTM(1, 128), nn.RNN(1, 512), LoopKRU(1, 512)
    steps = {
        "kru": train_step(ours, x, last),
        "nn.LSTM 128": train_step(lstm, x, last),
        "nn.RNN 512": train_step(rnn, x, last),
        "PyTorch loop": train_step(loop, x, lambda h: h.abs()),  # type: ignore[attr-defined]
    }
    everywhere = {
        "kru": backward_step(ours, x),
        "nn.LSTM 128": backward_step(lstm, x),
    }
    forward = {"kru": inference(ours, x), "nn.LSTM 128": inference(lstm, x), "nn.RNN 512": inference(rnn, x)}
    name = "KRU 512 (2x2, complex), T=784 B=50"
    return [
        Case(
            f"{name}, training, last state",
            steps,
            [("nn.LSTM 128", "kru", 2.5), ("nn.RNN 512", "kru", 7.0), ("PyTorch loop", "kru", 20.0)],
        ),
        Case(f"{name}, training, gradient at all outputs", everywhere, [("nn.LSTM 128", "kru", 1.5)]),
        Case(f"{name}, inference", forward),
    ]


def copy_memory() -> list[Case]:
    symbols = torch.randint(0, 10, (1020, 20))
    x = nn.functional.one_hot(symbols, 10).float()
    ours, frozen, lstm = kru.KRU(10, 128), kru.KRU(10, 128, train_recurrent=False), nn.LSTM(10, 128)
    steps = {
        "kru": train_step(ours, symbols, last),
        "kru, frozen W": train_step(frozen, symbols, last),
        "nn.LSTM 128": train_step(lstm, x, last),
    }
    return [Case("KRU 128 (2x2, complex), T=1020 B=20, training", steps, [("nn.LSTM 128", "kru", 8.0)])]


def timit() -> list[Case]:
    x = torch.randn(300, 1, 26)
    ours, lstm = kru.KRULSTM(26, 2048, factors=[128, 16]), nn.LSTM(26, 2048)
    name = "KRULSTM 2048 (128, 16), batch 1, T=300"
    forward = {"kru": inference(ours, x), "nn.LSTM 2048": inference(lstm, x)}
    steps = {
        "kru": backward_step(ours, x),
        "nn.LSTM 2048": backward_step(lstm, x),
    }
    return [
        Case(f"{name}, inference", forward, [("nn.LSTM 2048", "kru", 20.0)]),
        Case(f"{name}, training", steps, [("nn.LSTM 2048", "kru", 15.0)]),
    ]


def penn_treebank() -> tuple[Case, float]:
    """The case, and the floating point operations of one call's Kronecker products."""
    symbols = torch.randint(0, 50, (30, 50))
    ours = kru.KRU(50, 411, factors=[3, 137])
    flops = 30 * 50 * 8.0 * (411 * 137 + 411 * 3)
    return Case("KRU 411 (3, 137) complex, T=30 B=50, inference", {"kru": inference(ours, symbols)}), flops


def dense(units: int, steps: int, batch: int) -> list[Case]:
    x = torch.rand(steps, batch, 1)
    ours = kru.KRU(1, units, factors=[units], field="real", nonlinearity="tanh")
    peer = nn.RNN(1, units)
    name = f"one dense factor of {units}, tanh, T={steps} B={batch}"
    forward = {"kru": inference(ours, x), "nn.RNN": inference(peer, x)}
    training = {"kru": train_step(ours, x, last), "nn.RNN": train_step(peer, x, last)}
    return [
        Case(f"{name}, inference", forward, [("nn.RNN", "kru", 1.0)]),
        Case(f"{name}, training", training, [("nn.RNN", "kru", 1.0)]),
    ]


def cases() -> list[Case]:
    return [*mnist(), *copy_memory(), *timit(), *dense(128, 784, 50), *dense(512, 784, 50)]
