"""The recurrent matrix of the oRNN: a product of Householder reflections."""

import torch
from torch import Tensor, nn

from kru.matrices.base import RecurrentMatrix
from kru.matrices.triangle import lower_triangle
from kru.ops.precision import computing_dtype, without_autocast


class HouseholderMatrix(RecurrentMatrix):
    """W = H_1 H_2 ... H_K with H_k = I - 2 u_k u_k^T / |u_k|^2, orthogonal for any vectors.

    The first k - 1 entries of u_k are zero; the others, N - k + 1 for each k, are the parameter `vectors`, row
    by row of the matrix U whose columns the u_k are. K = N reaches every orthogonal matrix; there H_N, of a
    vector with one entry, is that entry's sign on the diagonal, as in the paper. Fewer reflections reach a
    smaller set with NK - K(K - 1)/2 parameters.

    The reflections aren't multiplied one by one: W = I - U S^-1 U^T, where S has |u_k|^2 / 2 on its diagonal,
    u_j^T u_k above it and zeros below. The vectors start with length one, uniformly
    distributed over all directions.

    Source: Mhammedi, Hellicar, Rahman, Bailey, "Efficient Orthogonal Parametrisation of Recurrent Neural
    Networks Using Householder Reflections", 2017, arXiv:1612.00188.

    >>> import torch
    >>> matrix = HouseholderMatrix(6, 4, dtype=torch.float64)
    >>> w = matrix.dense_factors()[0]
    >>> torch.allclose(w.T @ w, torch.eye(6, dtype=w.dtype)), len(matrix.vectors)
    (True, 18)
    """

    def __init__(
        self,
        size: int,
        reflections: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(((size, size),), field="real", gates=1, constraint="exact")
        if reflections is None:
            reflections = size
        if not isinstance(reflections, int) or not 1 <= reflections <= size:
            raise ValueError(f"reflections: expected 1 to hidden_size={size}, got {reflections!r}")
        self.size = size
        self.reflections = reflections
        free = size * reflections - reflections * (reflections - 1) // 2
        self.vectors = nn.Parameter(torch.empty(free, device=device, dtype=dtype))
        self.reset_parameters()

    def factors(self) -> list[Tensor]:
        dtype = computing_dtype(self.vectors.dtype)
        with without_autocast(self.vectors.device.type):
            u = lower_triangle(self.vectors.to(dtype), self.size, self.reflections)
            signs = torch.ones(self.size, dtype=dtype, device=u.device)
            if self.reflections == self.size:
                u, last = u[:, :-1], u[-1, -1:]
                signs = torch.cat([signs[:-1], last.sign()])
            gram = u.mT @ u
            s = gram.triu(1) + torch.diag(gram.diagonal() / 2)
            return [torch.diag(signs) - u @ torch.linalg.solve_triangular(s, u.mT * signs, upper=True)]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        if self.is_meta:
            return
        u = torch.randn(self.size, self.reflections, dtype=torch.float64, device="cpu").tril()
        rows, columns = torch.tril_indices(self.size, self.reflections)
        self.vectors.copy_((u / u.norm(dim=0))[rows, columns])

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, reflections={self.reflections}"
