"""Field, potential and modes of a sine wave (Fig. 2 of the paper), computed exactly and as in the authors' script.

The script (`sine_test.py`) takes 1,000 samples over ten periods and does not standardise them. Unlike the authors' main
code, it divides sums over the samples by the number of evaluation points (600), divides the Hermite polynomials by the
factorials of their orders, and takes minima within two standard deviations of each point.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf.fields.field import Field
from qipf.fields.potential import potentials, uncertainty_modes
from qipf.study.gallery.plate import Palette, Plate, Table, new_figure, write_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORDERS = (2, 4, 6, 8)
BANDWIDTH = 0.5
SAMPLES = 1000
PERIODS = 10
PLACES = 600  # number of the script's evaluation points, which lie between -3 and 3
HIGHEST = 14  # highest order of the script's polynomials
RADIUS = 0.2  # radius of the neighbourhood over which minima are taken in the exact modes


@dataclass(frozen=True)
class Sine:
    """The data of Fig. 2 of the paper, at the points `y`.

    Attributes:
        ipf: Information potential field psi.
        qipf: Undecomposed potential V_0 minus its minimum.
        raw: Raw potentials V_k, one column per order.
        exact: Exact modes, one column per order.
        script: Modes of the authors' script, one column per order.
        zeros: Points at which H_k(phi(y)) = 0, with phi = sqrt(psi), for each order.
        script_zeros: The same for the script's field, which is `SAMPLES / PLACES` times as large.
    """

    y: np.ndarray
    ipf: np.ndarray
    qipf: np.ndarray
    raw: np.ndarray
    exact: np.ndarray
    script: np.ndarray
    zeros: tuple[np.ndarray, ...]
    script_zeros: tuple[np.ndarray, ...]

    @property
    def peaks(self) -> np.ndarray:
        """Points at which the field has a local maximum."""
        inside = (self.ipf[1:-1] > self.ipf[:-2]) & (self.ipf[1:-1] >= self.ipf[2:])
        return self.y[1:-1][inside]


def compute(points: int = 1201) -> Sine:
    """Compute the data for a sine wave between -1 and 1, with kernel width 0.5."""
    samples = np.sin(2 * np.pi * PERIODS * np.arange(SAMPLES) / SAMPLES)
    field = Field(samples, BANDWIDTH)
    y = np.linspace(-3.0, 3.0, points)
    psi = field(y)
    zero_order = potentials(field, y, (0,))[:, 0]
    scale = SAMPLES / PLACES
    return Sine(
        y,
        psi,
        zero_order - zero_order.min(),
        potentials(field, y, ORDERS),
        uncertainty_modes(field, y, ORDERS, radius=RADIUS),
        _script_modes(field, y, scale, 2 * samples.std()),
        tuple(_crossings(y, np.sqrt(psi), order) for order in ORDERS),
        tuple(_crossings(y, np.sqrt(scale * psi), order) for order in ORDERS),
    )


def _script_modes(field: Field, y: np.ndarray, scale: float, radius: float) -> np.ndarray:
    """Return the modes of the authors' script: second differences of |H_k / k!| along k, divided by |H_k / k!|."""
    phi = np.sqrt(scale * np.stack([field(y - radius), field(y), field(y + radius)]))
    hermite = [
        np.polynomial.hermite.hermval(phi, [0.0] * order + [1.0]) / factorial(order) for order in range(1, HIGHEST + 1)
    ]
    size = np.abs(np.stack(hermite, axis=-1))
    second = np.gradient(np.gradient(size, axis=-1), axis=-1)
    values = BANDWIDTH**2 / 2 * second / np.maximum(size, np.finfo(float).tiny)
    values = values[..., [order - 1 for order in ORDERS]]
    return values[1] - values.min(axis=0)


def plate() -> Plate:
    """Draw the figure and tabulate its numbers."""
    wave = compute()
    columns = ["y", "ipf", "qipf", *(f"exact_{k}" for k in ORDERS), *(f"script_{k}" for k in ORDERS)]
    values = np.column_stack([wave.y, wave.ipf, wave.qipf, wave.exact, wave.script])
    return Plate("sine", lambda palette: draw(wave, palette), {"": Table(columns, values.tolist())}, caption(wave))


def draw(wave: Sine, palette: Palette) -> Figure:
    """Draw the field, the potential, the zeros of the Hermite polynomials, and the modes."""
    figure = new_figure(9.0, 6.0)
    panels = figure.subplots(2, 2, sharex=True, gridspec_kw={"height_ratios": [1, 1.2]})
    _draw_field(panels[0, 0], wave, palette)
    _draw_zeros(panels[0, 1], wave, palette)
    for below, values, zeros in (
        (panels[1, 0], wave.exact, wave.zeros),
        (panels[1, 1], wave.script, wave.script_zeros),
    ):
        for number, order in enumerate(ORDERS):
            below.plot(wave.y, values[:, number], color=palette.series[number], label=f"mode of order {order}")
            for place in zeros[number]:
                below.axvline(place, color=palette.series[number], lw=0.8, ls=(0, (2, 2)), zorder=0)
        below.set_yscale("symlog", linthresh=0.1)
        below.set_ylim(0, 1e3)
        below.set_yticks([0, 0.1, 1, 10, 100, 1000], ["0", "0.1", "1", "10", "100", "1000"])
        below.set_xlim(-3, 3)
        below.set_xlabel("y, in amplitudes of the wave")
        below.set_ylabel("mode (linear below 0.1)")
    panels[1, 0].set_title("modes, with the exact Laplacian")
    panels[1, 1].set_title("modes, as in the authors' script")
    figure.legend(
        *panels[1, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=4,
        title_fontsize=8,
        title="Broken lines: where $H_k(\\varphi)=0$",
    )
    return figure


def _draw_field(axes: Any, wave: Sine, palette: Palette) -> None:
    axes.set_title("field and potential")
    (ipf,) = axes.plot(wave.y, wave.ipf, "--", color=palette.series[0], label="IPF ψ (left)")
    axes.set_ylim(0, 0.6)
    axes.set_ylabel("field ψ")
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    (qipf,) = right.plot(wave.y, wave.qipf, ":", color=palette.ink, lw=2, label="QIPF (right)")
    right.set_ylim(0, 1.2 * float(wave.qipf.max()))
    right.set_ylabel("potential V")
    axes.legend(handles=[ipf, qipf], loc="upper center", ncols=2)


def _draw_zeros(axes: Any, wave: Sine, palette: Palette) -> None:
    axes.set_title("where the Hermite polynomials vanish")
    axes.plot(wave.y, np.sqrt(wave.ipf), color=palette.ink)
    axes.set_ylim(0, 0.8)
    axes.set_ylabel("φ = √ψ")
    for number, order in enumerate(ORDERS):
        root = _roots(order)[0]
        axes.axhline(root, color=palette.series[number], lw=0.8, ls=(0, (2, 2)))
        lowest = order == max(ORDERS)  # the lowest label goes below its line, because the next line is close
        axes.text(-2.95, root + (-0.008 if lowest else 0.008), f"$H_{order}=0$", color=palette.series[number],
                  fontsize=7.5, va="top" if lowest else "bottom")  # fmt: skip
        axes.plot(wave.zeros[number], np.full(len(wave.zeros[number]), root), "o", ms=5, color=palette.series[number])


def caption(wave: Sine) -> str:
    """Return the caption, which lists differences from the paper."""
    peak, highest = float(np.abs(wave.peaks).max()), float(wave.ipf.max())
    half = wave.y >= 0
    tops = wave.y[half][np.abs(wave.raw[half]).argmax(axis=0)]
    largest = "; ".join(
        f"order {order}: ±{top:.2f}" + ("" if len(zeros) else " (no zero)")
        for order, top, zeros in zip(ORDERS, tops, wave.zeros, strict=True)
    )
    none = [str(order) for order, zeros in zip(ORDERS, wave.zeros, strict=True) if not len(zeros)]
    return write_caption(
        "sine", samples=SAMPLES, periods=PERIODS, bandwidth=BANDWIDTH, radius=RADIUS, places=PLACES, peak=peak,
        middle=np.interp(0, wave.y, wave.qipf), end=wave.qipf[-1], largest=largest, none=", ".join(none) or "none",
        outside=np.mean(np.abs(np.concatenate(wave.zeros)) > peak), lowest=abs(wave.y[np.argmin(wave.qipf)]),
        bump=highest / np.interp(0, wave.y, wave.ipf) - 1, phi=np.sqrt(highest),
        script_phi=np.sqrt(SAMPLES / PLACES * highest),
    )  # fmt: skip


def _crossings(y: np.ndarray, phi: np.ndarray, order: int) -> np.ndarray:
    """Return the points at which H_order(phi(y)) = 0, by linear interpolation."""
    found: list[float] = []
    for root in _roots(order):
        apart = phi - root
        at = np.flatnonzero(apart[:-1] * apart[1:] < 0)
        found += list(y[at] - apart[at] * (y[at + 1] - y[at]) / (apart[at + 1] - apart[at]))
    return np.sort(found)


def _roots(order: int) -> np.ndarray:
    """Return the positive zeros of H_order in ascending order."""
    roots = np.polynomial.hermite.hermroots([0] * order + [1])
    return np.sort(roots[roots > 0])
