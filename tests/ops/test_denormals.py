"""Numbers too small for full precision count as zero inside the recurrence, and nowhere else."""

import pytest
import torch

from kru.ops import bindings, kron_matmul, scan

pytestmark = pytest.mark.skipif(bindings.library is None, reason="without native kernels torch decides")
TINY = 1e-40


@pytest.mark.parametrize("count", [1, 2])
def test_states_that_die_out_become_zero(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        factors = [torch.eye(2) / 2**0.5] * 2
        h0 = torch.full((4, 4), 1e-36).requires_grad_()
        x = torch.zeros(40, 4, 4)
        states = scan(x, None, factors, nonlinearity="identity", field="real", h0=h0).states
        expected = 1e-36 * 0.5 ** torch.arange(1, 41, dtype=torch.float64)
        normal = expected > 1.2e-38
        torch.testing.assert_close(states[:, 0, 0].double()[normal], expected[normal], rtol=1e-5, atol=0)
        assert not states[~normal].any()
        # Gradients as well: 1e-36 at the last state is nothing at the first one.
        (states[-1].sum() * 1e-36).backward()
        assert not h0.grad.any()
    finally:
        torch.set_num_threads(before)
    # The caller's own arithmetic is as before.
    assert (torch.full((64,), TINY) * 1).all()


def test_products_keep_them():
    assert kron_matmul(torch.full((3, 4), TINY), [torch.eye(2), torch.eye(2)]).all()
