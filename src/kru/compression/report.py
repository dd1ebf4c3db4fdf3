"""What a compression did, matrix by matrix."""

from dataclasses import dataclass

from kru.linalg.factors import Shapes, product_text


@dataclass(frozen=True)
class CompressedMatrix:
    """One matrix that was replaced by a sum of Kronecker products.

    Attributes:
        name: of the layer, the matrix within it, and the gate.
        shape: rows and columns.
        factors, rank: shapes of the factors, and the number of terms.
        error: ||W - V|| / ||W||, with sample data on the inputs that occur there.
        is_complex: whether each entry is two numbers.
    """

    name: str
    shape: tuple[int, int]
    factors: Shapes
    rank: int
    error: float
    is_complex: bool = False

    @property
    def entries(self) -> int:
        """Numbers of the matrix; a complex one has two in each place."""
        return (1 + self.is_complex) * self.shape[0] * self.shape[1]

    @property
    def parameters(self) -> int:
        return (1 + self.is_complex) * self.rank * sum(rows * columns for rows, columns in self.factors)

    def __str__(self) -> str:
        product = product_text(self.factors, self.rank)
        return f"{self.name}: {self.shape[0]}x{self.shape[1]} -> {product}, error {self.error:.3f}"


@dataclass(frozen=True)
class CompressionReport:
    """What was replaced, and what was kept and why.

    Attributes:
        matrices: those that were replaced.
        kept: layers that stayed as they were, by name, with the reason.
        parameters_before, parameters: of the whole module.
    """

    matrices: tuple[CompressedMatrix, ...]
    kept: dict[str, str]
    parameters_before: int
    parameters: int

    @property
    def entries(self) -> int:
        """Of all matrices that were replaced."""
        return sum(matrix.entries for matrix in self.matrices)

    @property
    def compressed(self) -> int:
        """The parameters in their place."""
        return sum(matrix.parameters for matrix in self.matrices)

    def __str__(self) -> str:
        lines = [str(matrix) for matrix in self.matrices]
        lines.append(
            f"{self.entries:,} entries in {self.compressed:,} parameters, {self.entries / self.compressed:.1f} times "
            f"fewer; of the whole module {self.parameters_before:,} -> {self.parameters:,}"
        )
        lines += [f"{name or 'the module'} kept: {reason}" for name, reason in self.kept.items()]
        return "\n".join(lines)
