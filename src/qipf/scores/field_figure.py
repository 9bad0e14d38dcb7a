"""Draw the field of a fitted `WeightQIPF` with its weights, potentials, modes and, optionally, predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.optional import require
from qipf.arrays import to_numpy
from qipf.fields.binned import BinnedField
from qipf.fields.field import Field
from qipf.fields.potential import potentials
from qipf.scores.coordinates import coordinate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qipf.scores.weight_qipf import WeightQIPF
    from qipf.tasks.outputs import Outputs

REACH = 4.0  # minimum range on either side, in standard deviations
FEW = 50  # groups with fewer predictions than this are drawn as individual ticks


@dataclass(frozen=True)
class FieldView:
    """The data shown in a figure, in standardised units.

    Attributes:
        y: The positions, (P,).
        psi: The field, (P,).
        potentials: The potentials V_k, (P, K); None for `operator="published"`.
        modes: The modes, (P, K).
        orders: The orders of the potentials and modes.
        weights: The positions of the weights or of their bins, and the number of weights at each position.
        predictions: The coordinates of the predictions, or None.
        correct: True for each correct prediction; None if unknown.
    """

    y: np.ndarray
    psi: np.ndarray
    potentials: np.ndarray | None
    modes: np.ndarray
    orders: tuple[int, ...]
    weights: tuple[np.ndarray, np.ndarray]
    predictions: np.ndarray | None = None
    correct: np.ndarray | None = None


def view(scorer: WeightQIPF, outputs: Outputs | None = None, points: int = 801, reach: float = REACH) -> FieldView:
    """Evaluate the field of a fitted scorer up to `reach` standard deviations, or further to cover most `outputs`."""
    field, fitted = scorer.field, scorer._require_fitted()
    facts = fitted.facts
    predictions = correct = None
    if outputs is not None:
        values = to_numpy(coordinate(outputs.logits, scorer.coordinate, facts["output"])).astype(np.float64)
        predictions = (values - facts["mean"]) / facts["std"]
        if outputs.labels is not None and facts["output"] != "regression":
            correct = to_numpy(outputs.correct)
    if predictions is not None:
        reach = max(reach, float(np.quantile(np.abs(predictions), 0.999)))
    y = np.linspace(-reach, reach, points)
    exact = scorer.operator == "exact"
    return FieldView(
        y,
        to_numpy(field(y)),
        to_numpy(potentials(field, y, scorer.orders, scorer.root)) if exact else None,
        to_numpy(scorer._modes(field, y, fitted.tensors.get("reference"))),
        tuple(scorer.orders),
        _weights(field),
        predictions,
        correct,
    )


def _weights(field: Field | BinnedField) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(field, BinnedField):
        return field.centre + field.bandwidth * field.measure.positions, field.measure.moments[0]
    return to_numpy(field.samples)[:, 0], np.ones(len(field))


def draw(view: FieldView) -> Figure:
    """Draw the figure in the colours of the current matplotlib style, and return it.

    The panels show the field, weights and predictions; the potentials, if available; and the modes.
    """
    matplotlib = require("matplotlib", extra="bench")
    panels = 2 if view.potentials is None else 3
    figure = require("matplotlib.figure", extra="bench").Figure(figsize=(8.0, 3.0 + 1.5 * panels), layout="constrained")
    top, *middle, below = figure.subplots(panels, 1, sharex=True)
    upper = _draw_distributions(top, view)
    if view.potentials is not None:
        for number in range(len(view.orders)):
            middle[0].plot(view.y, view.potentials[:, number], color=f"C{number}", lw=1)
        middle[0].set_ylabel("potential $V_k$")
        low, high = np.quantile(view.potentials, [0.01, 0.99])  # the potentials have poles
        middle[0].set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
    for number, order in enumerate(view.orders):
        below.plot(view.y, view.modes[:, number], color=f"C{number}", lw=1, label=f"order {order}")
    mean = view.modes.mean(axis=1)
    below.plot(view.y, mean, color=matplotlib.rcParams["text.color"], lw=2.2, label="mean of the modes (uncertainty)")
    below.set_xlabel("y, in standard deviations of the weights and of the reference predictions")
    below.set_ylabel("mode $H_0^k$")
    below.set_xlim(view.y[0], view.y[-1])
    high = float(np.quantile(view.modes, 0.99))
    below.set_ylim(0, 1.15 * high if high > 0 else 1)
    handles, names = (above + under for above, under in zip(upper, below.get_legend_handles_labels(), strict=True))
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure


def _draw_distributions(axes: Any, view: FieldView) -> tuple[list[Any], list[str]]:
    """Draw histograms of weights and predictions with psi on top; return the legend handles and labels."""
    bins = np.linspace(view.y[0], view.y[-1], 81)
    positions, counts = view.weights
    axes.hist(positions, weights=counts, bins=bins, density=True, color="0.55", alpha=0.5, label="weights")
    for name, values, colour in _groups(view):
        name = f"{name} ({len(values)})"
        if len(values) >= FEW:
            axes.hist(values, bins=bins, density=True, histtype="step", color=colour, lw=1.4, label=name)
        else:
            axes.plot(values, np.full(len(values), 0.04), "|", transform=axes.get_xaxis_transform(), ms=12, mew=1.6,
                      color=colour, label=name)  # fmt: skip
    if view.predictions is None:
        axes.axvspan(-1, 1, color="C2", alpha=0.2, lw=0, label="reference predictions, mean ± std")
    axes.set_ylabel("density")
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    right.set_ylim(0, 1.05 * float(view.psi.max()))
    right.set_ylabel("field ψ")
    right.plot(view.y, view.psi, color="C0", label="ψ, the field of the weights (right axis)")
    lines, names = right.get_legend_handles_labels()
    more, others = axes.get_legend_handles_labels()
    return [*lines, *more], [*names, *others]


def _groups(view: FieldView) -> list[tuple[str, np.ndarray, str]]:
    if view.predictions is None:
        return []
    if view.correct is None:
        return [("predictions", view.predictions, "C2")]
    parts = [
        ("correct predictions", view.predictions[view.correct], "C2"),
        ("wrong predictions", view.predictions[~view.correct], "C1"),
    ]
    return [part for part in parts if len(part[1])]
