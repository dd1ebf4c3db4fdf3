"""The networks of other authors: a whole training step of each, from the matrix's parameters to the optimiser."""

from collections.abc import Callable

import torch
from sequences import last, train_step
from timing import Case
from torch import Tensor, nn

import kru
from kru.baselines import EURNN, FCURNN, ORNN, RCURNN, AntisymmetricRNN, ExpRNN

STEPS, BATCH = 784, 50


def ordinary(units: int) -> dict[str, nn.Module]:
    """RNN, LSTM and GRU: one dense factor."""
    options = {"factors": [units], "constraint": "none"}
    return {
        f"RNN {units}": kru.KRU(1, units, field="real", nonlinearity="tanh", **options),
        f"LSTM {units}": kru.KRULSTM(1, units, **options),
        f"GRU {units}": kru.KRUGRU(1, units, **options),
    }


def equal_units() -> dict[str, nn.Module]:
    units = 128
    return {
        "kru": kru.KRU(1, units),
        **ordinary(units),
        f"RC uRNN {units}": RCURNN(1, units),
        f"FC uRNN {units}": FCURNN(1, units),
        f"oRNN {units}": ORNN(1, units, reflections=32),
        f"EURNN {units}": EURNN(1, units),
        f"EURNN {units}, FFT": EURNN(1, units, arrangement="fft"),
        f"expRNN {units}": ExpRNN(1, units),
        f"AntisymmetricRNN {units}": AntisymmetricRNN(1, units),
        f"AntisymmetricRNN {units}, gated": AntisymmetricRNN(1, units, gated=True),
    }


def sizes_of_the_papers() -> dict[str, nn.Module]:
    """Those of the recipes for pixel MNIST that aren't among the others."""
    return {
        "kru": kru.KRU(1, 512),
        "LSTM 128": kru.KRULSTM(1, 128, factors=[128], constraint="none"),
        "RC uRNN 512": RCURNN(1, 512),
        "FC uRNN 512": FCURNN(1, 512),
        "FC uRNN 116": FCURNN(1, 116),
        "oRNN 256": ORNN(1, 256, reflections=32),
        "EURNN 1024": EURNN(1, 1024),
        "expRNN 170": ExpRNN(1, 170),
        "AntisymmetricRNN 128": AntisymmetricRNN(1, 128),
        "AntisymmetricRNN 128, gated": AntisymmetricRNN(1, 128, gated=True),
    }


def whole_step(module: nn.Module, x: Tensor) -> Callable[[], object]:
    backward, optimizer = train_step(module, x, last), kru.optimizer(module)

    def step() -> None:
        backward()
        optimizer.step()

    return step


def cases() -> list[Case]:
    x = torch.rand(STEPS, BATCH, 1)
    return [
        Case(
            f"{name}, T={STEPS} B={BATCH}, training",
            {kind: whole_step(m, x) for kind, m in modules.items()},
            again=True,
        )
        for name, modules in (
            ("KRU 128 and baselines of 128 units", equal_units()),
            ("KRU 512 and baselines of their papers' sizes", sizes_of_the_papers()),
        )
    ]
