import math

import pytest
import torch
from matplotlib import pyplot

import kru


def sorted_by_place(values: torch.Tensor) -> torch.Tensor:
    """Complex numbers in an order that rounding errors don't change for random ones."""
    return values[values.real.argsort()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_equal_to_the_dense_matrix(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    factors = [torch.randn(n, n, dtype=dtype) for n in (2, 3, 4)]
    dense = kru.kron_dense(factors)
    spectrum = kru.spectrum(factors)
    values = torch.linalg.svdvals(dense)
    eigenvalues = torch.linalg.eigvals(dense)
    torch.testing.assert_close(spectrum.singular_values, values)
    torch.testing.assert_close(
        sorted_by_place(spectrum.eigenvalues).real, sorted_by_place(eigenvalues).real, rtol=1e-8, atol=1e-8
    )
    torch.testing.assert_close(
        spectrum.eigenvalues.imag.sort().values, eigenvalues.imag.sort().values, rtol=1e-8, atol=1e-8
    )
    assert spectrum.spectral_norm == pytest.approx(values[0].item())
    assert spectrum.smallest_singular_value == pytest.approx(values[-1].item())
    assert spectrum.spectral_radius == pytest.approx(eigenvalues.abs().max().item())
    assert spectrum.condition_number == pytest.approx((values[0] / values[-1]).item())
    assert spectrum.log_abs_det == pytest.approx(torch.linalg.slogdet(dense).logabsdet.item())
    assert spectrum.distance_from_unitary == pytest.approx((values - 1).abs().max().item())


@pytest.mark.parametrize("shapes", [[(2, 3), (3, 2)], [(2, 3), (4, 4)], [(4, 2), (3, 3)]])
def test_singular_values_with_rectangular_factors(shapes: list[tuple[int, int]]) -> None:
    torch.manual_seed(0)
    factors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    values = torch.linalg.svdvals(kru.kron_dense(factors))
    spectrum = kru.spectrum(factors)
    torch.testing.assert_close(spectrum.singular_values, values)
    if shapes == [(2, 3), (3, 2)]:
        assert spectrum.smallest_singular_value == 0
        assert spectrum.condition_number == math.inf
    else:
        assert spectrum.condition_number == pytest.approx((values[0] / values[-1]).item())
    for name in ("eigenvalues", "spectral_radius", "log_abs_det", "distance_from_unitary"):
        with pytest.raises(ValueError, match=r"factors\[0\]: expected a square factor, got"):
            getattr(spectrum, name)
    assert "spectral_radius" not in repr(spectrum)


def test_extremes_of_a_million_units_without_the_lists() -> None:
    torch.manual_seed(0)
    spectrum = kru.spectrum(kru.KRU(1, 2**20))
    assert spectrum.condition_number == pytest.approx(1, abs=1e-4)
    assert spectrum.spectral_radius == pytest.approx(1, abs=1e-4)
    assert spectrum.log_abs_det == pytest.approx(0, abs=1)
    assert "singular_values" not in spectrum.__dict__
    assert "eigenvalues" not in spectrum.__dict__
    assert spectrum.singular_values.shape == (2**20,)


def test_singular_matrix() -> None:
    spectrum = kru.spectrum([torch.zeros(2, 2), torch.eye(3)])
    assert spectrum.condition_number == math.inf
    assert spectrum.log_abs_det == -math.inf


def test_of_layers() -> None:
    layer = kru.KRULSTM(3, 6, 2, bidirectional=True)
    with torch.no_grad():
        layer.recurrent_l1_reverse.factor_0[2] *= 2
    assert kru.spectrum(layer, layer=1, reverse=True, gate="g").spectral_norm == pytest.approx(2)
    assert kru.spectrum(layer, layer=1, reverse=True, gate="f").spectral_norm == pytest.approx(1)
    assert kru.spectrum(kru.KroneckerLinear(8, 8)).shape == (8, 8)
    with pytest.raises(ValueError, match="gate: expected one of i, f, g, o for KRULSTM, got None"):
        kru.spectrum(layer)
    with pytest.raises(ValueError, match="gate: expected None for KRU, got 'i'"):
        kru.spectrum(kru.KRU(3, 6), gate="i")


@pytest.mark.parametrize("field", ["real", "complex"])
def test_of_a_sum_needs_the_dense_matrix(field: str) -> None:
    layer = kru.KRU(3, 12, field=field, rank=2)
    torch.nn.init.normal_(layer.matrix().factor_0)
    with pytest.raises(
        ValueError, match=r"source: .* a sum of 2: .* needs the dense .*; dense=True builds it"
    ):
        kru.spectrum(layer)
    spectrum = kru.spectrum(layer, dense=True)
    w = kru.kron_dense(layer.matrix().dense_factors()).detach().to(torch.complex128)
    torch.testing.assert_close(spectrum.singular_values, torch.linalg.svdvals(w), rtol=1e-5, atol=1e-5)
    assert spectrum.spectral_radius == pytest.approx(torch.linalg.eigvals(w).abs().max().item(), rel=1e-5)
    single = [factor[:1] for factor in layer.matrix().dense_factors()]
    assert kru.spectrum(single).shapes == [(2, 2), (2, 2), (3, 3)]
    assert kru.spectrum(kru.KroneckerLinear(6, 4, rank=3), dense=True).shape == (4, 6)
    with pytest.raises(ValueError, match=r"up to a size of 4096; here it has 8192 rows or columns"):
        kru.spectrum(kru.KRU(3, 8192, rank=2), dense=True)


def test_errors() -> None:
    with pytest.raises(TypeError, match=r"source: expected a recurrent layer, .*, got Linear"):
        kru.spectrum(torch.nn.Linear(3, 3))
    with pytest.raises(TypeError, match=r"source\[0\]: expected a tensor, got int"):
        kru.spectrum([3])
    with pytest.raises(ValueError, match="source: expected at least one factor, got none"):
        kru.spectrum([])
    with pytest.raises(ValueError, match=r"source\[1\]: expected a matrix .* got shape \(2, 2, 2\)"):
        kru.spectrum([torch.eye(2), torch.zeros(2, 2, 2)])
    with pytest.raises(ValueError, match="source: expected finite numbers, got some that are not"):
        kru.spectrum([torch.eye(2), torch.full((2, 2), float("inf"))])


def test_plot() -> None:
    pyplot.switch_backend("agg")
    figure = kru.spectrum(kru.KRU(3, 12)).plot()
    assert [axes.get_title() for axes in figure.axes] == ["eigenvalues", "singular values"]
    figure.canvas.draw()
    pyplot.close(figure)
    figure = kru.spectrum([torch.randn(2, 3), torch.randn(3, 2)]).plot()
    assert [axes.get_title() for axes in figure.axes] == ["singular values"]
    pyplot.close(figure)
