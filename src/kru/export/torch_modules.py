"""A network in plain PyTorch operations: for torch.export, and as the reference of the other formats."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from kru.export.network import Affine, Array, Network, Recurrence, Sound, merge_small_factors
from kru.ops.scan.arguments import ScanArguments
from kru.ops.scan.reference import input_part, scan_reference


class Direction(nn.Module):
    """One layer in one direction, by the definition in `kru.ops.scan.reference`."""

    weight: Tensor
    bias: Tensor | None
    recurrent_bias: Tensor | None
    initial: Tensor | None
    leak: Tensor | None

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.cell = recurrence.cell
        self.nonlinearity = recurrence.nonlinearity
        self.is_complex = recurrence.is_complex
        self.reverse = recurrence.reverse
        self.states = recurrence.states
        self.state_size = recurrence.state_size
        arrays = {name: getattr(recurrence, name) for name in ("weight", "bias", "recurrent_bias", "initial")}
        arrays["leak"] = None if recurrence.leak is None else recurrence.leak[: recurrence.units]
        for name, array in arrays.items():
            self.register_buffer(name, None if array is None else torch.tensor(array))
        merged = [[merge_small_factors(term) for term in gate] for gate in recurrence.terms]
        self.count = len(merged[0][0])
        for f in range(self.count):
            # (R, G, P, Q), then as scan has it: R and G only where there are several, two planes if complex.
            factor = torch.tensor(np.array([[term[f] for term in gate] for gate in merged])).transpose(0, 1)
            if recurrence.gates == 1:
                factor = factor.squeeze(1)
            if factor.is_complex():
                factor = torch.stack([factor.real, factor.imag], dim=1)
            self.register_buffer(f"factor_{f}", factor if len(factor) > 1 else factor[0])

    def inputs(self, x: Tensor) -> Tensor:
        """U x, (..., G * S), of features (..., D) or symbols (...)."""
        return input_part(x, self.weight, None)

    def advance(self, a: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The states (B, S) after one step with input part a (B, G * S)."""
        arguments = ScanArguments(
            a.unsqueeze(0),
            None,
            [self.get_buffer(f"factor_{f}") for f in range(self.count)],
            bias=self.bias,
            recurrent_bias=self.recurrent_bias,
            leak=self.leak,
            h0=states[0],
            c0=states[1] if len(states) > 1 else None,
            cell=self.cell,
            nonlinearity=self.nonlinearity,
            is_complex=self.is_complex,
        )
        _, h, c = scan_reference(arguments)
        return (h,) if c is None else (h, c)

    def run(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All states (T, B, S) and the last: traced as torch's scan operator, else a loop."""
        a = self.inputs(x)
        start = tuple(a.new_zeros(a.shape[1], self.state_size) for _ in self.states)
        if self.initial is not None:
            start = (start[0] + self.initial, *start[1:])

        def step(states: tuple[Tensor, ...], a: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            states = self.advance(a, states)
            # scan wants tensors of its own in each place.
            return states, states[0].clone()

        if torch.compiler.is_compiling():
            last, outputs = scan(step, start, a, reverse=self.reverse)
            return outputs, last
        last, steps = start, []
        for part in reversed(a) if self.reverse else a:
            last, output = step(last, part)
            steps.append(output)
        return torch.stack(steps[::-1] if self.reverse else steps), last


class SoundMaps(nn.Module):
    """The features of samples, by the formulas of `kru.sound.SoundFeatures`, in float32."""

    taper: Tensor
    filters: Tensor
    cepstra: Tensor

    def __init__(self, sound: Sound) -> None:
        super().__init__()
        self.features = sound.features
        for name, table in (
            ("taper", sound.features.taper),
            ("filters", sound.features.mel_filters.T),
            ("cepstra", sound.features.cepstra.T),
        ):
            self.register_buffer(name, torch.tensor(np.ascontiguousarray(table, dtype=np.float32)))

    def frames(self, x: Tensor) -> Tensor:
        """The windows (frames, B, C, W) of samples (n, B, C)."""
        features = self.features
        count = (x.shape[0] - features.window) // features.hop + 1
        starts = features.hop * torch.arange(count, device=x.device)
        return x[starts[:, None] + torch.arange(features.window, device=x.device)].permute(0, 2, 3, 1)

    def forward(self, windows: Tensor) -> Tensor:
        """The features (..., C * D) of windows (..., C, W), those of each channel in turn."""
        features = self.features
        before = torch.cat([windows[..., :1], windows[..., :-1]], dim=-1)
        z = torch.fft.rfft((windows - features.preemphasis * before) * self.taper, features.fft)
        mel: Tensor = ((z.real**2 + z.imag**2) @ self.filters).clamp(min=features.floor).log()
        if features.kind == "mfcc":
            energy = (windows**2).sum(-1, keepdim=True).clamp(min=features.floor).log()
            mel = torch.cat([mel @ self.cepstra, energy], dim=-1)
        return mel.flatten(-2)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": nn.functional.gelu,
    "softmax": lambda y: torch.softmax(y, dim=-1),
    "log_softmax": lambda y: torch.log_softmax(y, dim=-1),
}


class _Maps(nn.Module):
    """The layers of a network, and what is around them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.layers = [[Direction(direction) for direction in layer] for layer in network.layers]
        self.directions = nn.ModuleList(direction for layer in self.layers for direction in layer)
        self.pooling, self.batch_first = network.pooling, network.batch_first
        self.all_layers, self.reads_input = network.all_layers, network.reads_input
        self.has_labels, self.threshold = bool(network.labels), network.threshold
        self.single = network.output_size == 1
        scaling = network.scaling
        self.sound = None if network.sound is None else SoundMaps(network.sound)
        self._keep("embedding", network.embedding)
        self._keep("mean", None if scaling is None else scaling.mean)
        self._keep("scale", None if scaling is None else scaling.scale)
        self._keep("change", None if scaling is None else scaling.change)
        self.mask = scaling is not None and scaling.mask
        self.carried = tuple(network.carried)
        self.head: list[str] = []
        for index, step in enumerate(network.head):
            if isinstance(step, Affine):
                self._keep(f"weight_{index}", step.weight)
                self._keep(f"bias_{index}", step.bias)
            self.head.append("affine" if isinstance(step, Affine) else step)

    def _keep(self, name: str, array: Array | None) -> None:
        self.register_buffer(name, None if array is None else torch.tensor(array))

    def embed(self, x: Tensor, before: Tensor) -> Tensor:
        """What the first layer reads of inputs x, `before` being those of the step before, or x at the first."""
        if isinstance(self.embedding, Tensor):
            return nn.functional.embedding(x, self.embedding)
        if not (isinstance(self.mean, Tensor) and isinstance(self.scale, Tensor)):
            return x
        parts = [(x - self.mean) / self.scale]
        if isinstance(self.change, Tensor):
            parts.append((x - before) / self.change)
        if self.mask:
            parts = [torch.where(part.isnan(), 0.0, part) for part in parts]
            parts.append(x.isnan().to(x.dtype))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def features(self, x: Tensor, outputs: list[Tensor]) -> Tensor:
        """What is pooled and read, of the input of the first layer and the states of all layers."""
        parts = outputs if self.all_layers else outputs[-1:]
        parts = [*parts, x] if self.reads_input else parts
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def read(self, y: Tensor) -> Tensor:
        for index, step in enumerate(self.head):
            if step == "affine":
                y = nn.functional.linear(y, getattr(self, f"weight_{index}"), getattr(self, f"bias_{index}"))
            else:
                y = _ACTIVATIONS[step](y)
        return y

    def label(self, y: Tensor) -> tuple[Tensor, ...]:
        """The number of the label, where there are labels."""
        if not self.has_labels:
            return ()
        return ((y[..., 0] > self.threshold).to(torch.int64) if self.single else y.argmax(-1),)


class Step(_Maps):
    """One time step: input (B, D) or symbols (B,), and states (layers, B, S), to output and new states.

    For a network with features of sounds the input is one window of samples, (B, W, C).

    There are more states where `Network.carried` has them, in its order: `mean` (B, F), the mean of what is read so
    far, `squares` (B, F), the sum of its squares around the mean, `before` (B, D), the input of the step before, and
    `count` (B, 1), the steps so far.
    """

    def forward(self, input: Tensor, h: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        before = (h, *others)[: 1 + len(others) - len(self.carried)]
        carried = dict(zip(self.carried, others[len(before) - 1 :], strict=True))
        x = input if self.sound is None else self.sound(input.transpose(-1, -2))
        earlier = x
        if "before" in carried:
            earlier = torch.where(carried["count"] > 0, carried["before"], x)
            carried["before"] = x.clone()
        x = first = self.embed(x, earlier)
        after = []
        for index, [direction] in enumerate(self.layers):
            after.append(direction.advance(direction.inputs(x), tuple(state[index] for state in before)))
            x = after[-1][0]
        x = self.features(first, [states[0] for states in after])
        states = [torch.stack(states) for states in zip(*after, strict=True)]
        if carried:
            carried["count"] = carried["count"] + 1
        if "mean" in carried:
            change = x - carried["mean"]
            mean = carried["mean"] + change / carried["count"]
            # Tensors of their own: a program's outputs may not be each other.
            carried["mean"] = mean.clone()
            if "squares" in carried:
                carried["squares"] = carried["squares"] + change * (x - mean)
                mean = torch.cat([mean, (carried["squares"] / carried["count"]).sqrt()], dim=-1)
            x = mean
        y = self.read(x)
        return y, *states, *carried.values(), *self.label(y)


class Sequence(_Maps):
    """Whole sequences from their first step: input (T, B, D) or symbols (T, B) to outputs and the last states.

    For a network with features of sounds the input is samples, (n, B, C).
    """

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:
        x = input.transpose(0, 1) if self.batch_first else input
        if self.sound is not None:
            x = self.sound(self.sound.frames(x))
        before = x
        if isinstance(self.change, Tensor):
            # By index: slices would not be traced for every number of steps.
            before = x.index_select(0, (torch.arange(x.shape[0], device=x.device) - 1).clamp(min=0))
        x = first = self.embed(x, before)
        last: list[tuple[Tensor, ...]] = []
        states_of: list[Tensor] = []
        for layer in self.layers:
            outputs, states = zip(*(direction.run(x) for direction in layer), strict=True)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
            states_of.append(x)
            last.extend(states)
        x = self.features(first, states_of)
        if self.pooling == "last":
            x = x[-1]
        elif self.pooling == "mean":
            x = x.mean(0)
        elif self.pooling == "moments":
            mean = x.mean(0)
            x = torch.cat([mean, (x - mean).square().mean(0).sqrt()], dim=-1)
        y = self.read(x)
        if self.batch_first and self.pooling == "all":
            y = y.transpose(0, 1)
        return y, *(torch.stack(states) for states in zip(*last, strict=True)), *self.label(y)
