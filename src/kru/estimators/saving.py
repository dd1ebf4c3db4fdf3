"""Estimators as files: one safetensors file with the weights and, as JSON, everything else.

Loading runs no code from the file. The JSON names one of this package's estimators; its settings say the shapes of all
weights, which are compared with the file's before memory is taken for them, and a SHA-256 of settings and tensors is
verified before anything is used.
"""

import hashlib
import json
from dataclasses import asdict, fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

import kru
from kru.estimators.columns import Columns, read_columns
from kru.estimators.network import FACTORED, NetworkSettings
from kru.estimators.scaling import Scaling
from kru.estimators.vocabulary import Vocabulary
from kru.linalg.factors import prime_factors
from kru.training.files import write_atomically
from kru.training.plain_json import Shape, mismatches, parse_json

FORMAT = 1
KEY = "kru.estimator"
LARGEST = 2**24
"""Units, layers, inputs or outputs of a network in a file."""

LINEAR = ("rc-urnn", "eurnn")
"""Kinds whose recurrent matrix has few weights for each unit."""

_MALFORMED = (
    ValueError,
    SafetensorError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RuntimeError,
)

Tensors = dict[str, NDArray[Any]]


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator."""
    tensors: Tensors = {
        f"network.{name}": tensor.detach().cpu().contiguous().numpy()
        for name, tensor in estimator.network_.state_dict().items()
    }
    for name, scaling in estimator._scalings().items():
        parts = {"mean": scaling.mean, "scale": scaling.scale, "step": scaling.step}
        tensors |= {f"{name}.{part}": np.ascontiguousarray(v) for part, v in parts.items() if v is not None}
    vocabulary = estimator.vocabulary_
    settings = {
        "format": FORMAT,
        "version": kru.__version__,
        **describe(estimator),
        "network": asdict(estimator.network_settings_),
        "masks": [name for name, scaling in estimator._scalings().items() if scaling.mask],
        "vocabulary": None if vocabulary is None else list(vocabulary.symbols),
        "fitted": estimator._fitted(),
    }
    text = json.dumps(settings, ensure_ascii=False)
    metadata = {KEY: text, "sha256": checksum(text, tensors), "format": "pt"}
    write_atomically(Path(path), to_bytes(tensors, metadata=metadata))


def describe(estimator: Any) -> dict[str, Any]:
    """Class, constructor arguments and columns of an estimator, for JSON."""
    # Where a fit keeps its checkpoints is a matter of one machine.
    parameters = {**estimator.get_params(deep=False), "folder": None}
    return {
        "class": type(estimator).__name__,
        "parameters": {name: plain(value, name) for name, value in parameters.items()},
        "columns": asdict(getattr(estimator, "columns_", Columns())),
    }


def described(stored: dict[str, Any]) -> Any:
    """The estimator of `describe`, not fitted."""
    from kru.estimators import ESTIMATORS

    wrong = mismatches(stored, {"class": str, "parameters": dict})
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: missing or of another type")
    if stored["class"] not in ESTIMATORS:
        raise ValueError(f"expected one of {', '.join(ESTIMATORS)}, got {stored['class']!r}")
    estimator = ESTIMATORS[stored["class"]]()
    unknown = set(stored["parameters"]) - set(estimator.get_params(deep=False))
    if unknown:
        raise ValueError(f"parameters: expected those of {stored['class']}, got {', '.join(sorted(unknown))}")
    estimator.set_params(**{name: unplain(value) for name, value in stored["parameters"].items()})
    estimator.set_params(folder=None)
    estimator.columns_ = read_columns(stored.get("columns"))
    return estimator


def load(path: str | Path, device: str = "cpu") -> Any:
    """The estimator that `save` wrote: a `KRUClassifier`, `KRURegressor`, `KRUForecaster` or `KRULanguageModel`.

    Raises:
        ValueError: the file is another one, damaged, or from a newer version; the message says which.
    """
    path = Path(path)
    try:
        with safe_open(path, "np") as file:
            return _read(file, device)
    except _MALFORMED as error:
        raise ValueError(f"{path}: expected an estimator saved by this package ({error})") from error


def _read(file: Any, device: str) -> Any:
    metadata = file.metadata() or {}
    text = metadata.get(KEY)
    if text is None:
        raise ValueError("it has no settings of an estimator")
    settings = parse_json(text)
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise ValueError(f"expected format {FORMAT}, got another, perhaps from a newer version")
    shape: dict[str, Shape] = {
        "network": dict,
        "masks": [str],
        "fitted": dict,
    }
    wrong = mismatches(settings, shape)
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: missing or of another type")
    estimator = described(settings)
    network = _network_settings(settings["network"])
    shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    _expect_sizes(network, sum(prod(shape) for shape in shapes.values()))
    wanted = {f"network.{name}": shape for name, shape in network.shapes().items()}
    found = {name: shape for name, shape in shapes.items() if name.startswith("network.")}
    if found != wanted:
        differing = sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))
        raise ValueError(
            f"{differing[0]}: expected shape {wanted.get(differing[0])}, got {found.get(differing[0])}"
        )
    tensors: Tensors = {name: file.get_tensor(name) for name in shapes}
    if checksum(text, tensors) != metadata.get("sha256"):
        raise ValueError("the checksum differs: the file is damaged or was changed")
    estimator.set_params(device=device)
    estimator.network_settings_ = network
    with torch.random.fork_rng(devices=[]):
        model = network.build()
    weights = {
        name.removeprefix("network."): torch.from_numpy(t) for name, t in tensors.items() if name in wanted
    }
    model.load_state_dict(weights)
    estimator.network_ = model.to(device).eval()
    vocabulary = settings.get("vocabulary")
    estimator.vocabulary_ = None if vocabulary is None else _vocabulary(vocabulary)
    estimator._restore(settings["fitted"], _scalings(tensors, settings["masks"]))
    return estimator


def checksum(text: str, tensors: Tensors) -> str:
    """SHA-256 of the settings and of the names, types, shapes and bytes of all tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def plain(value: Any, name: str) -> Any:
    """A constructor argument as JSON; a random generator has no place in a file and is None there."""
    if isinstance(value, dict):
        return {"pairs": [[plain(k, name), plain(v, name)] for k, v in value.items()]}
    if isinstance(value, np.generic):
        return plain(value.item(), name)
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(entry, name) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if name == "random_state":
        return None
    raise ValueError(f"{name}: expected a value that a file can hold, got a {type(value).__name__}")


def unplain(value: Any) -> Any:
    """The opposite of `plain`; sequences come back as lists."""
    if isinstance(value, dict):
        return {unplain(key): unplain(entry) for key, entry in value["pairs"]}
    return [unplain(entry) for entry in value] if isinstance(value, list) else value


def plain_labels(labels: NDArray[Any]) -> dict[str, Any]:
    """Labels as JSON, with their type."""
    values = labels.tolist()
    if not all(isinstance(value, bool | int | float | str) for value in values):
        raise ValueError(f"classes_: expected numbers or strings to save, got {labels.dtype}")
    return {"dtype": labels.dtype.str, "values": values}


def read_labels(stored: Any) -> NDArray[Any]:
    """The opposite of `plain_labels`."""
    if not isinstance(stored, dict) or mismatches(
        stored, {"dtype": str, "values": [bool | int | float | str]}
    ):
        raise ValueError("classes: missing or of another type")
    dtype = np.dtype(stored["dtype"])
    if dtype.kind not in "biufUO":
        raise ValueError(f"classes: expected numbers or strings, got {dtype}")
    # The width of a string type is not taken from the file: it would be memory.
    return np.array(
        stored["values"], dtype=object if dtype.kind == "O" else str if dtype.kind == "U" else dtype
    )


def _network_settings(stored: dict[str, Any]) -> NetworkSettings:
    names = {field.name for field in fields(NetworkSettings)}
    if set(stored) != names:
        raise ValueError(f"network: expected {', '.join(sorted(names))}, got {', '.join(sorted(stored))}")
    shape: dict[str, Shape] = {
        "kind": str,
        "units": int,
        "factors": [int],
        "layers": int,
        "inputs": int,
        "outputs": int,
    }
    wrong = mismatches(stored, {**shape, "readout": str, "bidirectional": bool, "symbols": bool})
    if wrong:
        raise ValueError(f"network: {', '.join(wrong)} of another type")
    for name in ("units", "layers", "inputs", "outputs"):
        most = 64 if name == "layers" else LARGEST
        if not 1 <= stored[name] <= most:
            raise ValueError(f"network: expected {name} from 1 to {most}, got {stored[name]}")
    if ":" in stored["kind"]:
        raise ValueError(f"network: expected a kind that is registered, got {stored['kind']!r}")
    return NetworkSettings(**{**stored, "factors": tuple(stored["factors"])})


def _expect_sizes(network: NetworkSettings, entries: int) -> None:
    """Raise if a network has more weights than a file has entries, before anything is drawn for it.

    Every kind has at least units x inputs weights, and its recurrent matrix some more.
    """
    units = network.units
    if network.kind in FACTORED:
        recurrent = sum(n * n for n in network.factors or prime_factors(units))
    else:
        recurrent = units if network.kind in LINEAR else units * (units - 1) // 2
    if max(units * network.inputs, recurrent, network.outputs) > entries:
        raise ValueError(f"network: expected shapes of {entries} weights, got settings of more, {network}")


def _vocabulary(stored: Any) -> Vocabulary:
    if not isinstance(stored, list) or not all(isinstance(s, int | str) for s in stored):
        raise ValueError("vocabulary: expected integers and strings")
    return Vocabulary(tuple(stored))


def _scalings(tensors: Tensors, masks: list[str]) -> dict[str, Scaling]:
    """The scalings in a file by name."""
    found = {}
    for name in sorted({key.rpartition(".")[0] for key in tensors if not key.startswith("network.")}):
        mean, scale, step = (tensors.get(f"{name}.{part}") for part in ("mean", "scale", "step"))
        parts = [part for part in (mean, scale, step) if part is not None]
        if mean is None or scale is None or any(p.ndim != 1 or p.shape != mean.shape for p in parts):
            raise ValueError(f"{name}: expected mean and scale of one size")
        if any(p.dtype != np.float64 or not np.isfinite(p).all() for p in parts) or (scale <= 0).any():
            raise ValueError(f"{name}: expected finite numbers of double precision, scales above zero")
        found[name] = Scaling(mean, scale, step, name in masks)
    return found
