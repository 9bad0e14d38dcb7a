"""Fig. 2: the field of a sine wave, its potential and its modes, by the exact and by the published operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf.fields import published
from qipf.fields.field import Field
from qipf.fields.potential import modes, potentials
from qipf.study.gallery.plate import Plate, Table, new_figure, write_caption
from qipf.study.gallery.style import Palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORDERS = (2, 4, 6, 8)
BANDWIDTH = 0.5
SAMPLES = 1000


@dataclass(frozen=True)
class Sine:
    """Everything Fig. 2 shows, over the places `y`.

    Attributes:
        ipf: psi, the information potential field.
        qipf: the undecomposed potential V_0 less its minimum over `y`.
        raw: the raw potentials V_k, one column an order.
        exact: the modes, one column an order.
        program: the modes of the authors' program.
        zeros: for each order, where H_k(phi(y)) = 0.
    """

    y: np.ndarray
    ipf: np.ndarray
    qipf: np.ndarray
    raw: np.ndarray
    exact: np.ndarray
    program: np.ndarray
    zeros: tuple[np.ndarray, ...]

    @property
    def peaks(self) -> np.ndarray:
        """Where the field has its maxima."""
        inside = (self.ipf[1:-1] > self.ipf[:-2]) & (self.ipf[1:-1] >= self.ipf[2:])
        return self.y[1:-1][inside]


def compute(amplitude: float = np.sqrt(2.0), points: int = 1201) -> Sine:
    """The field of one period of a sine wave, `SAMPLES` values, at kernel width 0.5.

    Args:
        amplitude: of the wave; the square root of 2 gives it standard deviation 1, as the authors' program does to
            all its samples.
        points: how many places between -3 and 3.
    """
    samples = amplitude * np.sin(2 * np.pi * (np.arange(SAMPLES) + 0.5) / SAMPLES)
    field = Field(samples, BANDWIDTH)
    y = np.linspace(-3.0, 3.0, points)
    psi = field(y)
    zero_order = potentials(field, y, (0,))[:, 0]
    return Sine(
        y,
        psi,
        zero_order - zero_order.min(),
        potentials(field, y, ORDERS),
        modes(field, y, ORDERS),
        published.modes(samples, y, BANDWIDTH, max_order=max(ORDERS) + 4),
        tuple(_crossings(y, np.sqrt(psi), order) for order in ORDERS),
    )


def plate() -> Plate:
    """The figure, with the numbers of the standardised wave and of one between -1 and 1."""
    wave, plain = compute(), compute(1.0)
    columns = ["y", "ipf", "qipf", *(f"exact_{k}" for k in ORDERS), *(f"published_{k}" for k in ORDERS)]
    values = np.column_stack([wave.y, wave.ipf, wave.qipf, wave.exact, wave.program])
    return Plate(
        "sine",
        lambda palette: draw(wave, palette),
        {"": Table(columns, values.tolist())},
        caption(wave, plain),
    )


def draw(wave: Sine, palette: Palette) -> Figure:
    """Above: field and potential, and where the Hermite polynomials vanish. Below: the modes, computed two ways."""
    figure = new_figure(9.0, 6.0)
    axes = figure.subplots(2, 2, sharex=True, gridspec_kw={"height_ratios": [1, 1.2]})
    _draw_field(axes[0, 0], wave, palette)
    _draw_zeros(axes[0, 1], wave, palette)
    for column, values in enumerate((wave.exact, wave.program)):
        below = axes[1, column]
        for number, order in enumerate(ORDERS):
            below.plot(wave.y, values[:, number], color=palette.series[number], label=f"order {order}")
            for place in wave.zeros[number]:
                below.axvline(place, color=palette.series[number], lw=0.8, ls=(0, (2, 2)), zorder=0)
        below.set_yscale("symlog", linthresh=0.1)
        below.set_ylim(0, 1e3)
        below.set_xlim(-3, 3)
        below.set_xlabel("y, in standard deviations of the wave")
    axes[1, 0].set_title("modes, with the exact Laplacian")
    axes[1, 1].set_title("modes, by the authors' program")
    axes[1, 0].set_ylabel("mode (linear below 0.1)")
    handles, names = axes[1, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=4,
        title_fontsize=8,
        title="Broken lines: where $H_k(\\varphi)=0$",
    )
    return figure


def _draw_field(axes: Any, wave: Sine, palette: Palette) -> None:
    axes.set_title("field and potential")
    (ipf,) = axes.plot(wave.y, wave.ipf, "--", color=palette.series[0], label="IPF ψ (left)")
    axes.set_ylim(0, 0.5)
    axes.set_ylabel("ψ")
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    (qipf,) = right.plot(wave.y, wave.qipf, ":", color=palette.ink, lw=2, label="QIPF (right)")
    right.set_ylim(0, 1.6)
    axes.legend(handles=[ipf, qipf], loc="upper center", ncols=2)


def _draw_zeros(axes: Any, wave: Sine, palette: Palette) -> None:
    axes.set_title("where the Hermite polynomials vanish")
    axes.plot(wave.y, np.sqrt(wave.ipf), color=palette.ink)
    axes.set_ylim(0, 0.8)
    axes.set_ylabel("φ = √ψ")
    for number, order in enumerate(ORDERS):
        root = _roots(order)[0]
        axes.axhline(root, color=palette.series[number], lw=0.8, ls=(0, (2, 2)))
        lowest = order == max(ORDERS)  # below its line, where the one above is close
        axes.text(-2.95, root + (-0.008 if lowest else 0.008), f"$H_{order}=0$", color=palette.series[number],
                  fontsize=7.5, va="top" if lowest else "bottom")  # fmt: skip
        axes.plot(wave.zeros[number], np.full(len(wave.zeros[number]), root), "o", ms=5, color=palette.series[number])


def caption(wave: Sine, plain: Sine) -> str:
    """What the figure shows, and what of the paper's description does not hold."""
    lowest = abs(wave.y[np.argmin(wave.qipf)])
    peak = float(np.abs(wave.peaks).max())
    largest = "; ".join(
        f"order {order}: {_largest(wave.y, wave.raw[:, n])}" + ("" if len(wave.zeros[n]) else " (no zero)")
        for n, order in enumerate(ORDERS)
    )
    bump = plain.ipf.max() / np.interp(0, plain.y, plain.ipf) - 1
    none = [str(order) for order, zeros in zip(ORDERS, wave.zeros, strict=True) if not len(zeros)]
    middle = float(np.interp(0, wave.y, wave.qipf))
    return write_caption(
        f"""**A sine wave in its own field** (paper, Fig. 2; {SAMPLES} samples of one period, kernel width
        {BANDWIDTH:g}).""",
        f"""The field (IPF) is largest at ±{peak:.2f}, near the turning points, where a sine wave spends most of
        its time. The potential (QIPF) is low inside and grows outside: {middle:.2f} in the middle,
        {wave.qipf[-1]:.2f} at three standard deviations. Each mode is largest where its Hermite polynomial
        vanishes, H_k(phi) = 0 (broken lines), beyond the peaks, in the tails. Raw potentials are largest in
        size at {largest}. The exact modes repeat each spike 0.2 to its left and right: that is the
        neighbourhood over which a mode's minimum is taken.""",
        differs=[
            f"""The paper says that the signal lies between -1 and 1. At width {BANDWIDTH:g} the field of such a
            signal peaks at ±{float(np.abs(plain.peaks).max()):.2f}, and is {bump:.1%} higher there than in the
            middle. Peaks near ±1 come out for a wave brought to standard deviation 1 first, as the authors'
            program does with all samples, with turning points at ±1.41. That one is drawn.""",
            f"""The potential is not quite the field's mirror image: it is lowest at ±{lowest:.2f}, where the
            root of the field bends down most for its height, not at the field's peaks.""",
            f"""phi = sqrt(psi) reaches {np.sqrt(wave.ipf.max()):.3f} here. Orders whose polynomial has no zero
            below that, and so no place to be located at: {", ".join(none) or "none"}.""",
            """The operator of the authors' program is a second difference along the Hermite order, not along y.
            It is large at the same zeros, because both divide by H_k(phi), and different elsewhere.""",
        ],
    )


def _crossings(y: np.ndarray, phi: np.ndarray, order: int) -> np.ndarray:
    """Where H_order(phi(y)) = 0, by linear interpolation between the places."""
    found: list[float] = []
    for root in _roots(order):
        apart = phi - root
        at = np.flatnonzero(apart[:-1] * apart[1:] < 0)
        found += list(y[at] - apart[at] * (y[at + 1] - y[at]) / (apart[at + 1] - apart[at]))
    return np.sort(found)


def _largest(y: np.ndarray, values: np.ndarray) -> str:
    half = y >= 0
    return f"±{y[half][np.argmax(np.abs(values[half]))]:.2f}"


def _roots(order: int) -> np.ndarray:
    """The positive zeros of H_order, smallest first."""
    roots = np.polynomial.hermite.hermroots([0] * order + [1])
    return np.sort(roots[roots > 0])
