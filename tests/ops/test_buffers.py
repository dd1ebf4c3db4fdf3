"""Memory that is lent out again must not be held by anybody."""

from collections.abc import Iterator

import pytest
import torch

from kru.ops import buffers

SHAPE = (9, 1 << 20)  # 36 MiB in float32

pytestmark = pytest.mark.skipif(
    buffers.large(SHAPE, torch.float32) is None, reason="buffers are kept on Linux only"
)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    buffers.clear()
    yield
    buffers.clear()


def test_small_tensors_are_left_to_torch() -> None:
    assert buffers.large((1000, 1000), torch.float32) is None


@pytest.mark.parametrize(
    "hold", [lambda t: t, lambda t: t[3:], lambda t: t.untyped_storage(), lambda t: t.numpy()]
)
def test_memory_comes_back_only_when_nothing_shares_it(hold) -> None:
    first = buffers.large(SHAPE, torch.float32)
    address = first.data_ptr()
    held = hold(first)
    del first
    other = buffers.large(SHAPE, torch.float32)
    assert other.data_ptr() != address
    del held
    again = buffers.large(SHAPE, torch.float32)
    assert again.data_ptr() == address


def test_a_graph_keeps_its_states() -> None:
    leaf = torch.ones(SHAPE[1], requires_grad=True)
    states = buffers.large(SHAPE, torch.float32).fill_(2.0)
    product = leaf * states  # saves the states for its backward pass
    del states
    buffers.large(SHAPE, torch.float32).fill_(7.0)
    product.sum().backward()
    assert torch.equal(leaf.grad, torch.full_like(leaf, 18.0))


def test_other_sizes_empty_the_store() -> None:
    buffers.large(SHAPE, torch.float32)
    assert len(buffers._free) == 1
    kept = buffers.large((20, 1 << 20), torch.float32)
    assert buffers._free == []
    del kept
    assert len(buffers._free) == 1
