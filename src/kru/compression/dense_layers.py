"""Layers of `torch.nn` as the layers of this library that compute the same, each matrix one dense factor."""

import torch
from torch import Tensor, nn

from kru.nn import KRU, KRUGRU, KRULSTM
from kru.nn.recurrent import Recurrent

TORCH_LAYERS = (nn.RNN, nn.LSTM, nn.GRU)


@torch.no_grad()
def dense_layer(module: nn.RNNBase) -> Recurrent:
    """The same function with the weights of `nn.RNN`, `nn.LSTM` or `nn.GRU`, whose two biases become one.

    >>> import torch
    >>> theirs = torch.nn.GRU(3, 4, num_layers=2, bidirectional=True)
    >>> ours, x = dense_layer(theirs), torch.randn(5, 2, 3)
    >>> torch.allclose(ours(x)[0], theirs(x)[0], atol=1e-6)
    True
    """
    layer = _new_layer(module)
    own = layer.state_dict()
    weights = module.state_dict()
    for name, tensor in own.items():
        kind, _, suffix = name.partition(".")[0].rpartition("_l")
        if kind == "weight_ih":
            tensor.copy_(weights[name])
        elif kind == "recurrent":
            tensor.copy_(weights[f"weight_hh_l{suffix}"].reshape(tensor.shape))
        else:
            tensor.copy_(_bias(weights, kind, suffix, module))
    if not any(parameter.requires_grad for parameter in module.parameters()):
        layer.requires_grad_(False)
    return layer.train(module.training)


def _bias(weights: dict[str, Tensor], kind: str, suffix: str, module: nn.RNNBase) -> Tensor:
    at_input, at_state = weights[f"bias_ih_l{suffix}"], weights[f"bias_hh_l{suffix}"]
    if not isinstance(module, nn.GRU):
        return at_input + at_state
    # The candidate's second bias is inside the product with the reset gate, and stays apart.
    apart = 2 * module.hidden_size
    if kind == "recurrent_bias":
        return at_state[apart:]
    return torch.cat([at_input[:apart] + at_state[:apart], at_input[apart:]])


def _new_layer(module: nn.RNNBase) -> Recurrent:
    arguments = (
        module.input_size,
        module.hidden_size,
        module.num_layers,
        module.bias,
        module.batch_first,
        module.dropout,
        module.bidirectional,
    )
    factors, constraint = [module.hidden_size], "none"
    first = next(module.parameters())
    device, dtype = first.device, first.dtype
    if isinstance(module, nn.LSTM):
        return KRULSTM(*arguments, factors=factors, constraint=constraint, device=device, dtype=dtype)
    if isinstance(module, nn.GRU):
        return KRUGRU(*arguments, factors=factors, constraint=constraint, device=device, dtype=dtype)
    return KRU(
        *arguments,
        factors=factors,
        field="real",
        nonlinearity=str(module.nonlinearity),
        constraint=constraint,
        device=device,
        dtype=dtype,
    )
