"""Whether tensors from a file are the weights of a model."""

from collections.abc import Mapping

from torch import Tensor


def expect_fitting(weights: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> None:
    """Raise unless `weights` have the names, shapes and dtypes of a model's state, and finite values.

    `load_state_dict` alone would cast integers and booleans, and a model with a NaN still has an accuracy.

    Args:
        model: the state of the model; its values are not read, so it may be on the meta device.

    Raises:
        ValueError: the message names the first tensor that is wrong.
    """
    for name in model:
        if name not in weights:
            raise ValueError(f"{name}: expected a tensor of that name, got none")
    for name, tensor in weights.items():
        if name not in model:
            raise ValueError(f"{name}: expected no tensor of that name, got one")
        wanted = model[name]
        if tensor.shape != wanted.shape:
            raise ValueError(f"{name}: expected shape {tuple(wanted.shape)}, got {tuple(tensor.shape)}")
        if tensor.dtype != wanted.dtype:
            raise ValueError(f"{name}: expected {wanted.dtype}, got {tensor.dtype}")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name}: expected finite values, got some that are not")
