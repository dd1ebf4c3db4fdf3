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
    assert buffers.large(((1 << 20) - 1,), torch.float32) is None
    assert buffers.large((1 << 20,), torch.float32) is not None


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


def test_steps_of_the_same_sizes_find_their_memory_again() -> None:
    shapes = [(9, 1 << 20), (2, 1 << 20), (2, 1 << 20), (20, 1 << 20)]
    first = [buffers.large(shape, torch.float32) for shape in shapes]
    addresses = {tensor.data_ptr() for tensor in first}
    del first
    second = [buffers.large(shape, torch.float32) for shape in shapes]
    assert {tensor.data_ptr() for tensor in second} == addresses


def test_what_was_used_longest_ago_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "KEPT", 100 << 20)
    for rows in (9, 15, 2):  # 36, 60 and 8 MiB, each gone at once
        buffers.large((rows, 1 << 20), torch.float32)
    assert [len(block) >> 20 for block in buffers._free] == [60, 8]
    used = buffers.large((21, 1 << 20), torch.float32)  # 84 MiB: no more than 16 are kept beside it
    assert [len(block) >> 20 for block in buffers._free] == [8]
    del used
    assert [len(block) >> 20 for block in buffers._free] == [8, 84]


def test_one_buffer_is_kept_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "KEPT", 20 << 20)
    buffers.large((2, 1 << 20), torch.float32)
    address = buffers.large(SHAPE, torch.float32).data_ptr()
    assert [len(block) >> 20 for block in buffers._free] == [36]
    assert buffers.large(SHAPE, torch.float32).data_ptr() == address
