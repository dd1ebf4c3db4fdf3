"""Fitted echo state models as safetensors files: tensors, and settings as JSON."""

import json
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from kru.estimators.columns import Columns, read_columns
from kru.linalg.factors import prime_factors
from kru.reservoir.echo_state import EchoState
from kru.reservoir.equations import Linear
from kru.training.checksum import checksum
from kru.training.files import write_atomically
from kru.training.plain_json import NUMBER, Shape, mismatches, parse_json

FORMAT = "kru echo state 1"
_MALFORMED = (
    ValueError,
    SafetensorError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RuntimeError,
)
REASON = 500
"""Characters of an error that are repeated."""
_PARAMETERS: dict[str, Shape] = {
    "leak": NUMBER | list,
    "input_scaling": NUMBER | list,
    "factors": list | NoneType,
    "ridge": NUMBER | list | NoneType,
    "washout": int | NoneType,
    "input_to_readout": bool,
    "random_state": int | NoneType,
}
"""The settings that are used before anything looks at their type."""
_FITTED: dict[str, dict[str, Shape]] = {
    "EchoStateClassifier": {"strength_": NUMBER, "n_features_in_": int, "temperature_": NUMBER},
    "EchoStateForecaster": {"strength_": NUMBER, "n_features_in_": int, "flat_": bool, "outputs_": int},
    "EchoStateRegressor": {"strength_": NUMBER, "n_features_in_": int, "flat_": bool, "per_step_": bool},
}
PLAIN = ("strength_", "n_features_in_", "per_step_", "flat_", "outputs_", "temperature_", "target_scale_")
"""Fitted attributes that are numbers or truth values."""


def save(model: EchoState, path: str) -> None:
    """Write settings, scaling, reservoir and read-out."""
    if not hasattr(model, "linear_"):
        raise ValueError(f"{type(model).__name__}: expected a fitted model to save")
    tensors = {f"reservoir.{name}": value for name, value in model.reservoir_.state_dict().items()}
    tensors |= {"readout.weight": model.linear_.weight, "readout.bias": model.linear_.bias}
    tensors |= {"mean": torch.from_numpy(model.mean_), "scale": torch.from_numpy(model.scale_)}
    if model.projection_ is not None:
        tensors |= {"projection.signs": model.projection_.signs, "projection.rows": model.projection_.rows}
    for name in ("feature_mean_", "feature_scale_"):
        if hasattr(model, name):
            tensors[name] = getattr(model, name)
    if getattr(model, "_last", None) is not None:
        tensors["last"] = torch.from_numpy(np.asarray(model._last, dtype=np.float64))
        state = model._state if isinstance(model._state, tuple) else (model._state,)
        tensors |= {f"state.{k}": value for k, value in enumerate(state)}
    settings: dict[str, Any] = {
        "class": type(model).__name__,
        "parameters": {name: _plain(value) for name, value in model.get_params().items()},
        "fitted": {name: _plain(getattr(model, name)) for name in PLAIN if hasattr(model, name)},
        "columns": asdict(getattr(model, "columns_", Columns())),
        "inputs": model.readout_inputs_,
        "moments": model.moments_,
    }
    if hasattr(model, "classes_"):
        settings["classes"] = model.classes_.tolist()
    text = json.dumps(settings)
    metadata = {"format": FORMAT, "settings": text, "sha256": checksum(tensors, text)}
    whole = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    write_atomically(Path(path), to_bytes(whole, metadata))


def load(path: str, kind: type[EchoState]) -> EchoState:
    """Read what `save` wrote; `kind` is the class that is expected, or a base of it.

    Raises:
        ValueError: the file is another one or damaged; the message says which.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return _read(file, kind)
    except KeyError as error:
        raise ValueError(f"{path}: expected an entry {error}, got none") from error
    except _MALFORMED as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())[:REASON]}") from error


def _read(file: Any, kind: type[EchoState]) -> EchoState:
    metadata = file.metadata() or {}
    if metadata.get("format") != FORMAT:
        raise ValueError(f"expected a file of the format {FORMAT!r}, got {metadata.get('format')!r}")
    text = metadata.get("settings", "")
    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    # Files of earlier versions have none.
    if metadata.get("sha256", "") not in ("", checksum(tensors, text)):
        raise ValueError(
            "expected contents with the SHA-256 in its header, got others: the file was damaged or changed"
        )
    settings = parse_json(text)
    shape: dict[str, Shape] = {
        "class": str,
        "parameters": dict,
        "fitted": dict,
        "inputs": int,
        "moments": bool,
    }
    if not isinstance(settings, dict) or mismatches(settings, shape):
        raise ValueError("expected the settings of an echo state model, got others")
    _expect_sizes(
        settings["parameters"], settings["inputs"], sum(tensor.numel() for tensor in tensors.values())
    )
    _expect_finite(tensors)
    known = {one.__name__: one for one in _subclasses()}
    found = known.get(settings["class"])
    if found is None or not issubclass(found, kind):
        raise ValueError(f"expected a {kind.__name__}, got a {settings['class']}")
    model = found(**settings["parameters"])
    if wrong := mismatches(model.get_params(), _PARAMETERS) + mismatches(
        settings["fitted"], _FITTED[found.__name__]
    ):
        raise ValueError(
            f"expected settings of other types, got {', '.join(wrong)} missing or of another type"
        )
    model._build(int(settings["inputs"]), bool(settings["moments"]))
    _expect_tensors(tensors, _tensors_of(model, settings, tensors))
    part = "reservoir."
    model.reservoir_.load_state_dict(
        {name[len(part) :]: value for name, value in tensors.items() if name.startswith(part)}
    )
    model.linear_ = Linear(tensors["readout.weight"], tensors["readout.bias"])
    model.mean_, model.scale_ = tensors["mean"].numpy(), tensors["scale"].numpy()
    if model.projection_ is not None:
        model.projection_.signs = tensors["projection.signs"]
        model.projection_.rows = tensors["projection.rows"]
    for name in ("feature_mean_", "feature_scale_"):
        if name in tensors:
            setattr(model, name, tensors[name])
    for name, value in settings["fitted"].items():
        if name in PLAIN:
            setattr(model, name, value)
    model.errors_ = {}
    model.columns_ = read_columns(settings.get("columns"))
    if "classes" in settings:
        model.classes_ = np.asarray(settings["classes"])
    if "outputs_" in settings["fitted"]:
        state = tuple(
            tensors[f"state.{k}"] for k in range(sum(name.startswith("state.") for name in tensors))
        )
        model._state = None if not state else state[0] if model.layers == 1 else state
        model._last = tensors["last"].numpy() if "last" in tensors else None
    return model


def _expect_sizes(parameters: dict[str, Any], inputs: int, entries: int) -> None:
    """Raise if settings ask for more weights than the file has, before a reservoir is drawn."""
    sizes = [parameters.get(name) for name in ("units", "layers", "n_features")]
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        raise ValueError(f"expected units, layers and n_features above zero, got {sizes}")
    units, layers, _ = sizes
    if units > entries:  # type: ignore[operator]
        raise ValueError(f"expected settings of at most {entries} weights, got units={units}")
    factors = parameters.get("factors") or prime_factors(units)  # type: ignore[arg-type]
    recurrent = sum(int(size) ** 2 for size in factors)
    weights = units * inputs + (layers - 1) * units**2 + recurrent  # type: ignore[operator]
    if inputs < 1 or weights > entries:
        raise ValueError(
            f"expected settings of at most {entries} weights, got units={units}, layers={layers}"
        )


def _tensors_of(model: EchoState, settings: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the names, shapes and types that a file of a model has that was just built for its settings."""

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float64, device="meta")

    outputs = len(tensors["readout.bias"].reshape(-1))
    classes = settings.get("classes")
    if type(model).__name__ == "EchoStateClassifier" and (
        not isinstance(classes, list)
        or len(classes) != outputs
        or any(isinstance(label, list | dict) for label in classes)
    ):
        raise ValueError(f"classes: expected {outputs} labels, one for each output, got others")
    expected = {f"reservoir.{name}": value for name, value in model.reservoir_.state_dict().items()}
    expected |= {"readout.weight": empty(outputs, model.readout_size_), "readout.bias": empty(outputs)}
    expected |= {"mean": empty(settings["inputs"]), "scale": empty(settings["inputs"])}
    if model.projection_ is not None:
        expected |= {"projection.signs": model.projection_.signs, "projection.rows": model.projection_.rows}
        rows = tensors["projection.rows"].reshape(-1)
        if (
            rows.is_floating_point()
            or len(rows) == 0
            or not 0 <= int(rows.min()) <= int(rows.max()) < model.projection_.padded
        ):
            raise ValueError(
                f"projection.rows: expected numbers below {model.projection_.padded}, got others"
            )
    if classes is not None:
        features = empty(model.readout_size_).to(tensors["feature_mean_"].dtype)
        expected |= {"feature_mean_": features, "feature_scale_": features}
    for name in ("scale", "feature_scale_"):
        if name in tensors and not bool((tensors[name] > 0).all()):
            raise ValueError(f"{name}: expected numbers above zero, got others")
    count = settings["fitted"].get("outputs_")
    if count is not None and (count != outputs or outputs > settings["inputs"]):
        raise ValueError(f"outputs_: expected {outputs}, got {count}")
    if "last" in tensors:
        weights = [value for name, value in expected.items() if name.endswith("weight_ih_l0")]
        expected |= {f"state.{k}": weight.new_empty(1, 1, len(weight)) for k, weight in enumerate(weights)}
        expected["last"] = empty(outputs)
    return expected


def _expect_tensors(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Raise unless these are tensors of the names, shapes and types of `expected`."""
    for name in sorted(tensors.keys() | expected.keys()):
        there, wanted = (
            "none" if t is None else f"{tuple(t.shape)} of {t.dtype}"
            for t in (tensors.get(name), expected.get(name))
        )
        if there != wanted:
            raise ValueError(f"{name}: expected {wanted}, got {there}")


def _expect_finite(tensors: dict[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")


def _subclasses() -> list[type[EchoState]]:
    from kru.reservoir.classifier import EchoStateClassifier
    from kru.reservoir.forecaster import EchoStateForecaster
    from kru.reservoir.regressor import EchoStateRegressor

    return [EchoStateClassifier, EchoStateForecaster, EchoStateRegressor]


def _plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
