"""What the layers of the plain recurrence share."""

from kru.nn.recurrent import Recurrent
from kru.ops.scan.cells import CELLS


class Elman(Recurrent):
    """h_t = sigma(W h_{t-1} + U x_t), with modReLU's b as the only bias where sigma is modReLU."""

    cell = "elman"
    gates = CELLS["elman"].gates

    def _bias_sizes(self) -> dict[str, int]:
        return {"bias": self.hidden_size if self.nonlinearity == "modrelu" else self.state_size}
