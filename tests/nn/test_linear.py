import copy

import pytest
import torch

import kru


@pytest.mark.parametrize("factors", [None, [(2, 3), (5, 4)], [(10, 12)], [(1, 2), (10, 2), (1, 3)]])
@pytest.mark.parametrize("bias", [True, False])
def test_equal_to_the_dense_layer(factors: list[tuple[int, int]] | None, bias: bool) -> None:
    layer = kru.KroneckerLinear(12, 10, factors, bias, dtype=torch.float64)
    x = torch.randn(2, 3, 12, dtype=torch.float64, requires_grad=True)
    dense = torch.nn.functional.linear(x, kru.kron_dense(layer.factors), layer.bias)
    torch.testing.assert_close(layer(x), dense)
    variables = [x, *layer.parameters()]
    weight = torch.randn_like(dense)
    gradients = [torch.autograd.grad((y * weight).sum(), variables) for y in (layer(x), dense)]
    torch.testing.assert_close(*gradients)


def test_square_factors_by_size() -> None:
    assert kru.KroneckerLinear(12, 12, [3, 4]).shapes == ((3, 3), (4, 4))


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (32, 512), (512, 32)])
def test_starts_with_outputs_as_large_as_inputs(inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    layer = kru.KroneckerLinear(inputs, outputs, bias=False)
    assert layer(torch.randn(4000, inputs)).std().item() == pytest.approx(1, rel=0.1)


def test_state_dict_copy_half_and_autocast() -> None:
    layer, other = kru.KroneckerLinear(12, 10), kru.KroneckerLinear(12, 10)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(5, 12)
    assert torch.equal(layer(x), other(x))
    assert torch.equal(layer(x), copy.deepcopy(layer)(x))
    assert other.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(layer(x), layer(x.clone()), rtol=0, atol=0)
        assert layer(x).dtype == torch.float32
    assert repr(layer) == "KroneckerLinear(12, 10, 2x3 ⊗ 5x4, bias=True)"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((0, 4), ValueError, "in_features: expected a number greater than zero, got 0"),
        ((4, 2.0), TypeError, "out_features: expected an integer, got float"),
        ((4, 6, [(2, 2), (2, 2)]), ValueError, r"factors: .*rows.*out_features=6, got 2 \* 2 = 4"),
        ((4, 6, [(2, 2), (3, 3)]), ValueError, r"factors: .*columns.*in_features=4, got 2 \* 3 = 6"),
    ],
)
def test_construction_errors(arguments: tuple[object, ...], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        kru.KroneckerLinear(*arguments)


def test_call_errors() -> None:
    layer = kru.KroneckerLinear(12, 10)
    with pytest.raises(RuntimeError, match="in_features=12"):
        layer(torch.zeros(3, 11))
    with pytest.raises(ValueError, match="dtype"):
        layer(torch.zeros(3, 12, dtype=torch.float64))
