"""The LSTM whose weights are scaled at every step by a smaller LSTM."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from kru.matrices import kronecker_matrix
from kru.nn.baselines.looped import Looped, States, Step, products, real_matrix


class HyperLSTM(Looped):
    """An LSTM of N units and a smaller one of M units that scales the rows of its weights at every step.

    The small LSTM has the input (h_{t-1}, x_t) and the states k, e, of which its own gates are functions like those of
    any LSTM. From its new state k_t come, for each gate y of i, f, g, o, three vectors of K values, and from them one
    scale for every row of the weights, and the bias::

        z_h = A_h k_t + a_h    z_x = A_x k_t + a_x    z_b = A_b k_t
        y = LN( (P_h z_h) (W h_{t-1}) + (P_x z_x) (U x_t) + P_b z_b + b )
        c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
        h_t = sigmoid(o) tanh(LN(c_t))

    LN is layer normalisation, in both LSTMs; `layer_norm=False` leaves it out. At the start the scales do not depend
    on k: 0.1 with normalisation, which sets the size anyway, and else 1. The four matrices W are dense, or Kronecker
    products: `factors`.

    Source: Ha, Dai, Le, "HyperNetworks", 2016, arXiv:1609.09106.

    Args:
        input_size: features D of the input, or the number of symbols.
        hidden_size: units N.
        num_layers, bias, batch_first, dropout, bidirectional: as in `torch.nn.LSTM`. One bias for each gate.
        hyper_size: units M of the small LSTM.
        embedding: K.
        layer_norm: whether gates and cells are normalised.
        factors: sizes of the Kronecker factors of W; None for dense matrices.
        constraint, rank, recurrent_gain, train_recurrent, input_scale: see `kru.KRU`.

    Shapes:
        input (T, B, D), or symbols (T, B); output (T, B, N * directions); a state is a pair, each (layers *
        directions, B, N + M): h then k, and c then e. `weight_ih_l0` (4(N + M), D) and `bias_l0` have the gates of
        the large LSTM, then those of the small one.

    >>> import torch, kru
    >>> rnn = kru.baselines.HyperLSTM(50, 64, hyper_size=16, embedding=4, factors=[8, 8])
    >>> output, (h, c) = rnn(torch.randint(50, (20, 4)))
    >>> output.shape, h.shape
    (torch.Size([20, 4, 64]), torch.Size([1, 4, 80]))
    """

    cell = "hyper lstm"
    gates = ("i", "f", "g", "o")
    states = ("h", "c")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        hyper_size: int = 16,
        embedding: int = 4,
        layer_norm: bool = True,
        factors: Sequence[int | tuple[int, int]] | None = None,
        constraint: str = "none",
        rank: int = 1,
        recurrent_gain: float = 1.0,
        train_recurrent: bool = True,
        input_scale: float = 1.0,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, value in (("hyper_size", hyper_size), ("embedding", embedding)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected a whole number of at least 1, got {value!r}")
        if not isinstance(layer_norm, bool):
            raise TypeError(f"layer_norm: expected a bool, got {type(layer_norm).__name__}")
        self.hyper_size, self.embedding, self.layer_norm = hyper_size, embedding, layer_norm
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            matrix=real_matrix(hidden_size, factors, 4, constraint, rank, recurrent_gain, device, dtype),
            field="real",
            nonlinearity="tanh",
            train_recurrent=train_recurrent,
            input_scale=input_scale,
            proj_size=proj_size,
            device=device,
            dtype=dtype,
        )
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                small = kronecker_matrix(
                    hyper_size,
                    [hyper_size],
                    field="real",
                    gates=4,
                    constraint="none",
                    device=device,
                    dtype=dtype,
                )
                self.register_module(f"hyper{suffix}", small.requires_grad_(train_recurrent))

    @property
    def state_size(self) -> int:
        return self.hidden_size + self.hyper_size

    @property
    def output_size(self) -> int:
        return self.hidden_size * (2 if self.bidirectional else 1)

    def _own_shapes(self, features: int) -> dict[str, tuple[int, ...]]:
        size, small, embedding = self.hidden_size, self.hyper_size, self.embedding
        shapes: dict[str, tuple[int, ...]] = {
            "weight_hyper": (4 * small, size),
            "embed": (12 * embedding, small),
            "embed_shift": (8 * embedding,),
            "weight_scale": (12, size, embedding),
        }
        if self.layer_norm:
            shapes |= {"norm_gates": (2, 4, size), "norm_cell": (2, size)}
            shapes |= {"norm_hyper_gates": (2, 4, small), "norm_hyper_cell": (2, small)}
        return shapes

    def _reset_own(self, suffix: str) -> None:
        own = {name: getattr(self, f"{name}{suffix}") for name in self._own_shapes(self.input_size)}
        nn.init.xavier_uniform_(own["weight_hyper"])
        nn.init.zeros_(own["embed"])
        nn.init.ones_(own["embed_shift"])
        # P_h and P_x give the same scale to all rows; P_b gives nothing yet.
        nn.init.constant_(own["weight_scale"], (0.1 if self.layer_norm else 1.0) / self.embedding)
        nn.init.normal_(own["weight_scale"][8:], std=0.01)
        for name in own:
            if name.startswith("norm"):
                nn.init.ones_(own[name][0])
                nn.init.zeros_(own[name][1])

    def _reset(self) -> None:
        for layer in range(self.num_layers):
            for suffix in self._suffixes(layer):
                getattr(self, f"hyper{suffix}").reset_parameters()
        super()._reset()

    def _reset_bias(self, bias: Tensor) -> None:
        bias.zero_()
        large = 4 * self.hidden_size
        for part in (bias[:large], bias[large:]):
            part.view(4, -1)[1] = 1

    def _input_bias(self, suffix: str, dtype: torch.dtype) -> Tensor | None:
        # The bias of the large LSTM is not scaled with U x_t.
        return None

    def _visible(self, h: Tensor) -> Tensor:
        return h[..., : self.hidden_size]

    def _step(self, suffix: str, dtype: torch.dtype) -> Step:
        size, small = self.hidden_size, self.hyper_size
        own = {name: self._tensor(name, suffix, dtype) for name in self._own_shapes(self.input_size)}
        weights = products(getattr(self, f"recurrent{suffix}"), range(4))
        [hyper] = getattr(self, f"hyper{suffix}").factors()
        hyper = torch.cat([hyper.flatten(0, 1), own["weight_hyper"]], dim=1)
        bias: list[Tensor | None] = [None, None]
        if self.bias:
            both = self._tensor("bias", suffix, dtype)
            bias = [both[: 4 * size], both[4 * size :]]
        embed_bias = torch.cat([own["embed_shift"], own["embed_shift"].new_zeros(4 * self.embedding)])

        def norm(x: Tensor, name: str) -> Tensor:
            """Layer normalisation over the last dimension."""
            if not self.layer_norm:
                return x
            gain, shift = own[name]
            normalised: Tensor = functional.layer_norm(x, x.shape[-1:]) * gain + shift
            return normalised

        def lstm(gates: Tensor, c: Tensor, prefix: str) -> tuple[Tensor, Tensor]:
            """h and c from the sums (B, 4, N) of each gate and c before."""
            i, f, g, o = norm(gates, f"{prefix}gates").unbind(1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(norm(c, f"{prefix}cell")), c

        def step(part: Tensor, states: States) -> States:
            (h, k), (c, e) = ((state[:, :size], state[:, size:]) for state in states)
            large, little = part[:, : 4 * size], part[:, 4 * size :]
            little = little + functional.linear(torch.cat([k, h], dim=-1), hyper, bias[1])
            k, e = lstm(little.reshape(-1, 4, small), e, "norm_hyper_")
            z = functional.linear(k, own["embed"], embed_bias).view(-1, 12, self.embedding)
            of_h, of_x, of_b = torch.einsum("bye,yne->byn", z, own["weight_scale"]).chunk(3, dim=1)
            past = torch.stack([weight(h) for weight in weights], dim=1)
            sums = of_h * past + of_x * large.reshape(-1, 4, size) + of_b
            if bias[0] is not None:
                sums = sums + bias[0].view(4, size)
            h, c = lstm(sums, c, "norm_")
            return torch.cat([h, k], dim=-1), torch.cat([c, e], dim=-1)

        return step

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, hyper_size={self.hyper_size}, embedding={self.embedding}"
