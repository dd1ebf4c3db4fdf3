"""What the recurrent layers share: the contract of `torch.nn.LSTM` around `kru.ops.scan`."""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from kru.matrices import RecurrentMatrix
from kru.nn.arguments import (
    check_dropout,
    check_dtype,
    check_initial_values,
    check_memory,
    check_nonlinearity,
    check_sizes,
    check_switches,
)
from kru.nn.reshaping import Reshapable
from kru.nn.sequences import SYMBOL_DTYPES, repack, unpack, unpack_reset, with_lengths
from kru.nn.states import State, repack_state, unpack_state
from kru.ops import scan
from kru.ops.precision import autocasting, computing_dtype, without_autocast
from kru.ops.sharded import draw_whole_parameters


class Recurrent(Reshapable):
    """Layers of a recurrent cell in one or two directions, each with its own recurrent matrix.

    Subclasses name the cell, its gates and its states, and build the recurrent matrix. The parameters of layer k
    are `weight_ih_l{k}` (G * S, D), `bias_l{k}` and the parameters of the module `recurrent_l{k}`; the
    names of the reverse direction end in `_reverse`. G is the number of gates and S the state's size: N, or
    2N in the complex field, real parts then imaginary parts. With `learn_initial`, the initial state is a
    parameter `initial_l{k}` (S,) instead of zeros, unless the caller passes a state.
    """

    weight_ih_l0: nn.Parameter
    cell: ClassVar[str]
    gates: tuple[str, ...]
    """One letter per gate, in the order of the rows of the weights."""
    states: ClassVar[tuple[str, ...]] = ("h",)
    """What is carried from step to step. With more than one, a state is a tuple."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        *,
        matrix: Callable[[], RecurrentMatrix],
        field: str,
        nonlinearity: str,
        train_recurrent: bool,
        learn_initial: bool = False,
        input_scale: float = 1.0,
        initial_bias: float = 0.0,
        proj_size: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        check_sizes(input_size, hidden_size, num_layers, proj_size)
        check_switches(
            bias=bias,
            batch_first=batch_first,
            bidirectional=bidirectional,
            train_recurrent=train_recurrent,
            learn_initial=learn_initial,
        )
        check_nonlinearity(nonlinearity)
        check_initial_values(input_scale, initial_bias, nonlinearity, bias)
        check_dropout(dropout, num_layers)
        check_dtype(dtype)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.field = field
        self.nonlinearity = nonlinearity
        self.train_recurrent = train_recurrent
        self.learn_initial = learn_initial
        self.input_scale = float(input_scale)
        self.initial_bias = float(initial_bias)
        for layer in range(num_layers):
            features = input_size if layer == 0 else self.output_size
            for suffix in self._suffixes(layer):
                weight = torch.empty(len(self.gates) * self.state_size, features, device=device, dtype=dtype)
                self.register_parameter(f"weight_ih{suffix}", nn.Parameter(weight))
                self.register_module(f"recurrent{suffix}", matrix().requires_grad_(train_recurrent))
                for name, size in self._bias_sizes().items():
                    vector = nn.Parameter(torch.empty(size, device=device, dtype=dtype)) if bias else None
                    self.register_parameter(f"{name}{suffix}", vector)
                if learn_initial:
                    start = nn.Parameter(torch.empty(self.state_size, device=device, dtype=dtype))
                    self.register_parameter(f"initial{suffix}", start)
                for name, shape in self._own_shapes(features).items():
                    values = torch.empty(shape, device=device, dtype=dtype)
                    self.register_parameter(f"{name}{suffix}", nn.Parameter(values))
        self._reset_inputs()

    @property
    def state_size(self) -> int:
        """S: the number of real values in a state, N or, in the complex field, 2N."""
        return self.hidden_size * (2 if self.field == "complex" else 1)

    @property
    def output_size(self) -> int:
        """The number of features of the output: S times the number of directions."""
        return self.state_size * (2 if self.bidirectional else 1)

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction."""
        return [
            [p for name, p in self.named_parameters() if name.split(".")[0].endswith(suffix)]
            for layer in range(self.num_layers)
            for suffix in self._suffixes(layer)
        ]

    def matrix(self, layer: int = 0, *, reverse: bool = False) -> RecurrentMatrix:
        """The recurrent matrix of a layer and direction."""
        if not 0 <= layer < self.num_layers:
            raise ValueError(f"layer: expected 0 <= layer < {self.num_layers}, got {layer}")
        if reverse and not self.bidirectional:
            raise ValueError("reverse: expected False for a layer with one direction, got True")
        matrix: RecurrentMatrix = getattr(self, f"recurrent{self._suffixes(layer)[int(reverse)]}")
        return matrix

    def flatten_parameters(self) -> None:
        """Does nothing: here for models written for `torch.nn.LSTM`, which call it."""

    def reset_parameters(self) -> None:
        """Draw new initial values.

        Input weights: uniform within sqrt(6 / (D + S)), per gate, times `input_scale`. Recurrent factors: random
        unitary (see `recurrent_init`), their product times `recurrent_gain`. Biases: zero, but `initial_bias` for
        modReLU's, and one for the LSTM's forget gate, so that it remembers from the start. A learned initial
        state: uniform, with an expected square length of one. Where parameters are sharded over processes, give all of
        them the same seed.
        """
        draw_whole_parameters(self, self._reset)

    def _reset(self) -> None:
        for layer in range(self.num_layers):
            for suffix in self._suffixes(layer):
                getattr(self, f"recurrent{suffix}").reset_parameters()
        self._reset_inputs()

    @torch.no_grad()
    def _reset_inputs(self) -> None:
        for layer in range(self.num_layers):
            for suffix in self._suffixes(layer):
                weight = getattr(self, f"weight_ih{suffix}")
                bound = math.sqrt(6 / (weight.shape[1] + self.state_size))
                weight.uniform_(-bound, bound).mul_(self.input_scale)
                if self.bias:
                    for name in self._bias_sizes():
                        self._reset_bias(getattr(self, f"{name}{suffix}"))
                if self.learn_initial:
                    bound = math.sqrt(3 / self.state_size)
                    getattr(self, f"initial{suffix}").uniform_(-bound, bound)
                self._reset_own(suffix)

    def _reset_bias(self, bias: Tensor) -> None:
        bias.fill_(self.initial_bias)

    def _bias_sizes(self) -> dict[str, int]:
        """Names and lengths of the bias vectors."""
        return {"bias": len(self.gates) * self.state_size}

    def _own_shapes(self, features: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters that only this kind of layer has, for so many input features."""
        return {}

    def _reset_own(self, suffix: str) -> None:
        """Draw the initial values of these parameters."""

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        return (f"_l{layer}", f"_l{layer}_reverse") if self.bidirectional else (f"_l{layer}",)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        lengths: Tensor | None = None,
        reset: Tensor | None = None,
        need_output: bool = True,
        memory: str = "full",
    ) -> tuple[Tensor | PackedSequence | None, State]:
        """Run over whole sequences.

        Args:
            input: (T, B, D), with `batch_first` (B, T, D), unbatched (T, D), or a `PackedSequence`. Or
                integer symbols below D, without the last dimension, each standing for a one-hot vector that
                is never built.
            hx: the initial state, (layers * directions, B, S), unbatched without B; for the LSTM a pair (h,
                c). None for zeros, or for the learned initial state of layers that have one.
            lengths: the steps of each sequence that are real, (B,), for a padded batch that isn't packed. What comes
                after a sequence's end touches nothing, and outputs there are zero.
            reset: a mask of dtype bool, True at the first step of each new sequence (an episode, a document) that
                follows another one in the same row. Its shape is the input's without features: (T, B), with
                `batch_first` (B, T), unbatched (T,); for a `PackedSequence` that of the padded batch. The results are
                those of separate calls with the pieces, of which only the first starts from `hx`; the others start
                from zeros or the learned initial state. In the reverse direction, nothing flows from a piece into the
                piece before it.
            need_output: False if only the last state is wanted. The output is then None.
            memory: "lean" keeps only every k-th state for the backward pass, k about sqrt(T), and computes the steps in
                between again, with the same gradients up to rounding. With one layer and ``need_output=False``, memory
                grows like sqrt(T) instead of T; outputs, and the inputs of further layers, have T steps as before.

        Returns:
            the outputs of the last layer, in the form of the input with directions * S features, and the last
            state.
        """
        check_switches(need_output=need_output)
        check_memory(memory)
        sequences = unpack(input, batch_first=self.batch_first, name=type(self).__name__)
        if sequences.x.shape[0] == 0:
            raise RuntimeError("input: expected at least one time step, got none")
        self._check_input(sequences.x)
        if lengths is not None:
            sequences = with_lengths(sequences, lengths)
        if reset is not None:
            reset = unpack_reset(reset, sequences, batch_first=self.batch_first)
        states = self._unpack_state(hx, sequences.x.shape[1] if sequences.is_batched else None)
        output, states = self._run(sequences.x, states, sequences.lengths, reset, need_output, memory)
        return (
            None if output is None else repack(output, input, sequences, batch_first=self.batch_first),
            repack_state(states, is_batched=sequences.is_batched),
        )

    def step(self, input: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Run over one time step: `forward` on a sequence of length one, for streams.

        Args:
            input: (B, D), unbatched (D,), or symbols (B,) or ().
            state: as `hx` of `forward`, or what the step before returned.

        Returns:
            the output (B, S), unbatched (S,), and the new state.
        """
        if self.bidirectional:
            raise RuntimeError("step: expected a layer with one direction, got bidirectional=True")
        if not isinstance(input, Tensor):
            raise TypeError(f"input: expected a tensor, got {type(input).__name__}")
        dims = 1 if input.dtype in SYMBOL_DTYPES else 2
        if input.dim() not in (dims - 1, dims):
            raise ValueError(
                f"input: expected one time step, {dims - 1}-D (unbatched) or {dims}-D (batched), "
                f"got shape {tuple(input.shape)}"
            )
        is_batched = input.dim() == dims
        x = input.unsqueeze(0) if is_batched else input.unsqueeze(0).unsqueeze(0)
        self._check_input(x)
        states = self._unpack_state(state, x.shape[1] if is_batched else None)
        output, states = self._run(x, states, None, None)
        assert output is not None
        return output[0] if is_batched else output[0, 0], repack_state(states, is_batched=is_batched)

    def _run(
        self,
        x: Tensor,
        states: tuple[Tensor, ...] | None,
        lengths: Tensor | None,
        reset: Tensor | None,
        need_output: bool = True,
        memory: str = "full",
    ) -> tuple[Tensor | None, tuple[Tensor, ...]]:
        """All layers over (T, B, D) or symbols (T, B). States are (layers * directions, B, S)."""
        stored = self.weight_ih_l0.dtype
        dtype = computing_dtype(stored)
        with without_autocast(x.device.type):
            if x.dtype not in SYMBOL_DTYPES:
                x = x.to(dtype)
            last: list[tuple[Tensor, ...]] = []
            for layer in range(self.num_layers):
                if layer > 0 and self.dropout > 0:
                    x = nn.functional.dropout(x, self.dropout, self.training)
                need_states = need_output or layer + 1 < self.num_layers
                outputs = []
                for direction, suffix in enumerate(self._suffixes(layer)):
                    start = None
                    if states is not None:
                        start = tuple(state[len(last)].to(dtype) for state in states)
                    elif self.learn_initial:
                        learnt = getattr(self, f"initial{suffix}").to(dtype)
                        start = (learnt.expand(x.shape[1], -1),)
                    output, final = self._scan(
                        x, suffix, direction == 1, start, lengths, reset, dtype, need_states, memory
                    )
                    if output is not None:
                        outputs.append(output)
                    last.append(final)
                if need_states:
                    x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
            stacked = tuple(torch.stack(state) for state in zip(*last, strict=True))
        return x.to(stored) if need_output else None, tuple(state.to(stored) for state in stacked)

    def _scan(
        self,
        x: Tensor,
        suffix: str,
        reverse: bool,
        start: tuple[Tensor, ...] | None,
        lengths: Tensor | None,
        reset: Tensor | None,
        dtype: torch.dtype,
        need_states: bool,
        memory: str,
    ) -> tuple[Tensor | None, tuple[Tensor, ...]]:
        """One layer in one direction: outputs (T, B, S), if they are needed, and the last states, each (B, S)."""
        biases = {name: getattr(self, f"{name}{suffix}") for name in self._bias_sizes()}
        initial = dict(zip(("h0", "c0"), start, strict=False)) if start is not None else {}
        if reset is not None and self.learn_initial:
            initial["initial"] = getattr(self, f"initial{suffix}").to(dtype)
        result = scan(
            x,
            getattr(self, f"weight_ih{suffix}").to(dtype),
            getattr(self, f"recurrent{suffix}").factors(),
            cell=self.cell,
            nonlinearity=self.nonlinearity,
            field=self.field,
            lengths=lengths,
            reset=reset,
            reverse=reverse,
            need_states=need_states,
            memory=memory,
            **{name: bias.to(dtype) for name, bias in biases.items() if bias is not None},
            **initial,
            **self._scan_options(),
        )
        return result.states, (result.h,) if result.c is None else (result.h, result.c)

    def _scan_options(self) -> dict[str, Tensor]:
        """Further arguments of `kru.ops.scan`, the same in every layer and direction."""
        return {}

    def _check_input(self, x: Tensor) -> None:
        if x.dtype in SYMBOL_DTYPES:
            return
        stored = self.weight_ih_l0.dtype
        castable = x.is_floating_point() and autocasting(x.device.type)
        if x.dtype != stored and not castable:
            raise ValueError(
                f"input: expected the weights' dtype {stored} or symbols of int64 or int32, got {x.dtype}; "
                f"convert the input by input.to({stored}), or the model"
            )
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input: expected a last dimension of input_size={self.input_size}, got {x.shape[-1]}"
            )

    def _unpack_state(self, hx: State | None, batch: int | None) -> tuple[Tensor, ...] | None:
        rows = self.num_layers * (2 if self.bidirectional else 1)
        return unpack_state(hx, self.states, rows, batch, self.state_size, self.weight_ih_l0.dtype)

    def extra_repr(self) -> str:
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        shown = [
            f"{name}={getattr(self, name)}"
            for name, usual in defaults.items()
            if getattr(self, name) != usual
        ]
        if self.cell == "elman":
            shown.append(f"nonlinearity={self.nonlinearity}")
        if self.learn_initial:
            shown.append("learn_initial=True")
        if not self.train_recurrent:
            shown.append("train_recurrent=False")
        return ", ".join([str(self.input_size), str(self.hidden_size), *shown])
