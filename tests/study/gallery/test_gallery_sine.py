"""What the issue and the paper say of Fig. 2, checked on the numbers behind it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from qipf.study.gallery import sine


@pytest.fixture(scope="module")
def wave() -> sine.Sine:
    return sine.compute()


def test_field_is_the_smoothed_arcsine_density(wave):
    """psi(y) = E exp(-(y - sqrt(2) sin t)^2 / (2 s^2)), t uniform, by quadrature."""
    for y in (-2.5, -1.0, 0.0, 0.7, 3.0):
        value, _ = quad(lambda t, y=y: np.exp(-2.0 * (y - np.sqrt(2) * np.sin(t)) ** 2) / np.pi, -np.pi / 2, np.pi / 2)
        assert np.interp(y, wave.y, wave.ipf) == pytest.approx(value, rel=1e-6)


def test_field_peaks_near_one(wave):
    assert wave.peaks == pytest.approx([-0.96, 0.96], abs=0.05)


def test_field_of_the_unscaled_wave_peaks_elsewhere():
    """Why the standardised wave is drawn: the caption says so with this number."""
    plain = sine.compute(1.0)
    assert np.abs(plain.peaks).max() == pytest.approx(0.425, abs=0.01)
    assert "±0.43" in sine.caption(sine.compute(), plain) or "±0.42" in sine.caption(sine.compute(), plain)


def test_potential_is_low_where_the_field_is_high_and_grows_outside(wave):
    dense = wave.ipf > 0.5 * wave.ipf.max()
    assert wave.qipf[dense].max() < wave.qipf[~dense].max() / 4
    outside = wave.qipf[wave.y > 1.5]
    assert (np.diff(outside) > 0).all()
    assert wave.qipf.min() == 0


@pytest.mark.parametrize(("column", "order"), list(enumerate(sine.ORDERS)))
def test_modes_are_largest_at_zeros_of_the_hermite_polynomials_in_the_tails(wave, column, order):
    zeros = wave.zeros[column]
    if order == 2:  # phi stays below 0.7071, its only positive zero
        assert len(zeros) == 0
        assert np.sqrt(wave.ipf.max()) < 1 / np.sqrt(2)
        return
    phi = np.sqrt(np.interp(zeros, wave.y, wave.ipf))
    coefficients = [0.0] * order + [1.0]
    slope = np.abs(np.polynomial.hermite.hermval(phi, np.polynomial.hermite.hermder(coefficients)))
    assert np.abs(np.polynomial.hermite.hermval(phi, coefficients)) == pytest.approx(0, abs=1e-4 * slope.max())
    assert (np.abs(zeros) > np.abs(wave.peaks).max()).all(), "in the tails, beyond the peaks"
    largest = wave.y[np.argmax(np.abs(wave.raw[:, column]))]
    assert np.abs(zeros - largest).min() < 0.01
    for modes in (wave.exact, wave.program):
        top = wave.y[np.argmax(modes[:, column])]
        assert np.abs(zeros - top).min() < 0.2 + 0.01, "the modes take their minimum over a neighbourhood of 0.2"


def test_caption_says_where_the_paper_is_not_followed(wave):
    text = sine.caption(wave, sine.compute(1.0))
    lowest = abs(wave.y[np.argmin(wave.qipf)])
    assert f"lowest at ±{lowest:.2f}" in " ".join(text.split())
    assert lowest > 1.2  # not at the field's peaks
