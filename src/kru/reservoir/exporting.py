"""Fitted echo state models as `kru.export` takes them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kru.export import Exportable
from kru.reservoir.compose import Deep
from kru.reservoir.equations import Linear

if TYPE_CHECKING:
    from kru.reservoir.echo_state import EchoState

TOLERANCE = 0.02
"""By so many deviations of the targets the outputs in single precision may differ from those in double precision."""


def exportable(model: EchoState) -> Exportable:
    """Standardisation, reservoirs, pooling and read-out: raw values go in, predictions or labels come out."""
    pooled = hasattr(model, "classes_") or not getattr(model, "per_step_", True)
    reasons = {
        "feedback": bool(getattr(model, "feedback", False)),
        "solver": model.projection_ is not None,
        "washout": pooled and bool(model.washout),
    }
    wrong = [name for name, unfit in reasons.items() if unfit]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)}: can export models without feedback, without random features, and without a washout "
            "where states are pooled"
        )
    linear = _linear(model)
    _expect_single_precision(model, linear)
    stack = list(model.reservoir_.reservoirs) if isinstance(model.reservoir_, Deep) else [model.reservoir_]
    output = nn.Linear(linear.weight.shape[1], linear.weight.shape[0])
    with torch.no_grad():
        output.weight.copy_(linear.weight)
        output.bias.copy_(linear.bias)
    outputs = getattr(model, "outputs_", None)
    classes = getattr(model, "classes_", None)
    pooling: Any = getattr(model, "pooling", "all")
    return Exportable(
        stack[-1],
        origin=type(model).__name__,
        output=output,
        below=stack[:-1],
        reads_input=model.input_to_readout,
        pooling=pooling if pooled else "all",
        scaling=(model.mean_, model.scale_),
        target_scaling=None if outputs is None else (model.mean_[:outputs], model.scale_[:outputs]),
        labels=None if classes is None else classes.tolist(),
        probabilities=classes is not None,
    )


def _linear(model: EchoState) -> Linear:
    """The read-out; of a classifier with its standardisation of the features and its temperature."""
    weight, bias = model.linear_
    if hasattr(model, "classes_"):
        mean, scale = model.feature_mean_.to(weight), model.feature_scale_.to(weight)
        weight = weight / scale
        bias = bias - weight @ mean
        return Linear(weight * model.temperature_, bias * model.temperature_)
    return Linear(weight, bias)


@torch.no_grad()
def _expect_single_precision(model: EchoState, linear: Linear) -> None:
    """Raise if the read-out needs digits of the states that exported programs do not have."""
    size = getattr(model, "target_scale_", None)
    if size is None or hasattr(model, "classes_"):
        return
    inputs = torch.randn(100, 1, model.readout_inputs_, generator=torch.Generator().manual_seed(0))
    found = []
    for dtype in (torch.float64, torch.float32):
        reservoir = copy.deepcopy(model.reservoir_).to(dtype)
        states = reservoir(inputs.to(dtype))[0][:, 0]
        features = torch.cat([states, inputs[:, 0].to(dtype)], -1) if model.input_to_readout else states
        if linear.weight.shape[1] == features.shape[1]:
            found.append((features @ linear.weight.to(dtype).T).double())
    if found and (error := float((found[0] - found[1]).abs().max())) > TOLERANCE * size:
        raise ValueError(
            f"ridge: expected a read-out that single precision can compute, got one whose outputs would be off by "
            f"{error / size:.2g} deviations of the targets; fit with precision='float32' or a larger ridge"
        )
