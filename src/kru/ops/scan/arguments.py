"""The arguments of the recurrence as one object, from `kru.ops.scan` to the backend that computes it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from kru.ops.scan.cells import CELLS

DIFFERENTIABLE = ("x", "weight", "bias", "recurrent_bias", "h0", "c0", "leak", "initial")
"""What can have a gradient besides the factors."""


class ScanArguments(NamedTuple):
    """The tensors and settings of a recurrence, see `kru.ops.scan`, and the sizes that follow from them.

    A tuple in the order of the operator's arguments: ``torch.ops.kru.scan(*arguments, keep)``. The sizes hold for
    arguments that `check_scan_arguments` accepts.
    """

    x: Tensor
    weight: Tensor | None
    factors: Sequence[Tensor]
    bias: Tensor | None = None
    recurrent_bias: Tensor | None = None
    h0: Tensor | None = None
    c0: Tensor | None = None
    lengths: Tensor | None = None
    leak: Tensor | None = None
    reset: Tensor | None = None
    initial: Tensor | None = None
    cell: str = "elman"
    nonlinearity: str = "modrelu"
    is_complex: bool = True
    reverse: bool = False
    every: int = 0
    """0, or k > 0: only the states before every k-th step are kept for the backward pass."""
    need_states: bool = True
    """False: the states are not wanted as a result. With `every`, they are then never all in memory."""

    @property
    def tensors(self) -> dict[str, Tensor | Sequence[Tensor] | None]:
        """All tensors by the names of the arguments."""
        return dict(zip(self._fields[:11], self[:11], strict=True))

    @property
    def settings(self) -> dict[str, Any]:
        """What is no tensor, by the names of the arguments."""
        return dict(zip(self._fields[11:], self[11:], strict=True))

    @property
    def differentiable(self) -> list[Tensor | None]:
        """What can have a gradient, in the order in which the backward operator returns the gradients."""
        return [*[getattr(self, name) for name in DIFFERENTIABLE], *self.factors]

    @property
    def steps(self) -> int:
        """T."""
        return self.x.shape[0]

    @property
    def batch(self) -> int:
        """B."""
        return self.x.shape[1]

    @property
    def units(self) -> int:
        """N."""
        units = 1  # in a loop: torch.compile does not trace math.prod of a generator
        for factor in self.factors:
            units *= factor.shape[-2]
        return units

    @property
    def planes(self) -> int:
        """How many real numbers a unit has: two in the complex field, else one."""
        return 2 if self.is_complex else 1

    @property
    def state(self) -> int:
        """S."""
        return self.planes * self.units

    @property
    def gates(self) -> int:
        """G."""
        return len(CELLS[self.cell].gates)

    @property
    def has_gates(self) -> bool:
        """Whether the cell is more than its state: LSTM and GRU."""
        return self.gates > 1

    @property
    def has_memory(self) -> bool:
        """Whether a second state c is carried along: LSTM."""
        return "c" in CELLS[self.cell].states

    @property
    def has_inner_bias(self) -> bool:
        """Whether the bias is modReLU's own and no part of a_t."""
        return self.nonlinearity == "modrelu" and not self.has_gates

    @property
    def leading(self) -> tuple[int, ...]:
        """What comes before (P, Q) in a factor of a single product: the planes or the gates, if there are several."""
        count = self.gates * self.planes
        return (count,) if count > 1 else ()

    @property
    def kept(self) -> int:
        """K: how many states of each row are kept instead of all, ceil(T / every)."""
        return -(-self.steps // self.every) if self.every else 0

    @property
    def rank(self) -> int:
        """R: how many Kronecker products the recurrent matrix is the sum of."""
        first = self.factors[0]
        return first.shape[0] if first.dim() > 2 + len(self.leading) else 1


TENSORS = ScanArguments._fields.index("cell")
"""How many of the arguments are tensors or lists of them; they come first."""
