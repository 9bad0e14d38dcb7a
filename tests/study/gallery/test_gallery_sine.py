"""What the paper says about Fig. 2, checked on the numbers behind it."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest
from scipy.integrate import quad

from qipf.study.gallery import sine


@pytest.fixture(scope="module")
def wave() -> sine.Sine:
    return sine.compute()


def test_field_is_the_smoothed_arcsine_density(wave):
    """psi(y) = E exp(-(y - sin t)^2 / (2 s^2)), t uniform, by quadrature."""
    for y in (-2.5, -1.0, 0.0, 0.7, 3.0):
        value, _ = quad(lambda t, y=y: np.exp(-2.0 * (y - np.sin(t)) ** 2) / np.pi, -np.pi / 2, np.pi / 2)
        assert np.interp(y, wave.y, wave.ipf) == pytest.approx(value, rel=1e-6)


def test_script_modes_are_those_of_a_loop_over_places(wave):
    """The formula of the authors' script, place by place, with explicit sums for the Hermite polynomials."""
    samples = np.sin(2 * np.pi * 10 * np.arange(1000) / 1000)
    for place in (100, 433, 600, 811):
        y = wave.y[place]
        ratios = []
        for u in (y - 2 * samples.std(), y, y + 2 * samples.std()):
            phi = np.sqrt(np.sum(np.exp(-((u - samples) ** 2) / 0.5)) / 600)
            size = [
                abs(sum((-1) ** m * (2 * phi) ** (k - 2 * m) / factorial(m) / factorial(k - 2 * m)
                        for m in range(k // 2 + 1)))
                for k in range(1, 15)
            ]  # fmt: skip
            ratios.append(0.125 * np.gradient(np.gradient(size)) / size)
        mode = ratios[1] - np.min(ratios, axis=0)
        assert wave.script[place] == pytest.approx(mode[[1, 3, 5, 7]], rel=1e-6, abs=1e-9)


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
    top = wave.y[np.argmax(wave.exact[:, column])]
    assert np.abs(zeros - top).min() < 0.2 + 0.01, "the modes take their minimum over a neighbourhood of 0.2"


@pytest.mark.parametrize("column", range(len(sine.ORDERS)))
def test_modes_of_the_script_are_largest_at_the_zeros_of_its_own_field(wave, column):
    top = wave.y[np.argmax(wave.script[:, column])]
    assert np.abs(wave.script_zeros[column] - top).min() < 0.01


def test_caption_says_where_the_paper_is_not_followed(wave):
    text = sine.caption(wave)
    lowest = abs(wave.y[np.argmin(wave.qipf)])
    assert f"lowest at ±{lowest:.2f}" in " ".join(text.split())
    assert lowest > 0.8, "not at the peaks of the field"
