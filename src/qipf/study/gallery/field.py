"""The field of a fitted scorer: the weights, psi, the modes, and where the predictions lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf.arrays import to_numpy
from qipf.fields import published
from qipf.fields.potential import uncertainty_modes
from qipf.scores import WeightQIPF
from qipf.scores.coordinates import coordinate
from qipf.scores.weight_qipf import standardised_weights
from qipf.study.gallery.plate import Palette, Plate, Table, new_figure, write_caption
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REACH = 4.0  # standard deviations to either side, at least
FEW = 50  # fewer predictions than this are drawn one by one


@dataclass(frozen=True)
class View:
    """Everything that the figure shows, along y in standardised units.

    Attributes:
        weights: The standardised weights, or None if the model was not given.
        predictions: The standardised predictions, or None if there are none.
        correct: Which of the predictions are right, or None if that is not known.
    """

    y: np.ndarray
    psi: np.ndarray
    modes: np.ndarray
    orders: tuple[int, ...]
    facts: dict[str, Any]
    weights: np.ndarray | None = None
    predictions: np.ndarray | None = None
    correct: np.ndarray | None = None


def compute(scorer: WeightQIPF, model: Any = None, outputs: Outputs | None = None, points: int = 801) -> View:
    """The field and the modes of `scorer`, and what is known of weights and predictions."""
    if not isinstance(scorer, WeightQIPF) or scorer.fitted is None:
        kind = getattr(scorer, "name", type(scorer).__name__)
        raise ValueError(f"field: expected a fitted weight-qipf scorer, whose field lies in one dimension; got {kind}")
    facts = dict(scorer.fitted.facts)
    samples = predictions = correct = None
    if model is not None:
        samples = standardised_weights(model, scorer.pool)
    if outputs is not None:
        values = to_numpy(coordinate(outputs.logits, scorer.coordinate, facts["output"])).astype(np.float64)
        predictions = (values - facts["mean"]) / facts["std"]
        if outputs.labels is not None and facts["output"] != "regression":
            correct = to_numpy(outputs.correct)
    reach = REACH if predictions is None else max(REACH, float(np.quantile(np.abs(predictions), 0.999)))
    y = np.linspace(-reach, reach, points)
    return View(
        y,
        to_numpy(scorer.field(y)),
        _modes(scorer, y),
        tuple(scorer.orders),
        facts,
        samples,
        predictions,
        correct,
    )


def _modes(scorer: WeightQIPF, y: np.ndarray) -> np.ndarray:
    field, orders = scorer.field, scorer.orders
    if scorer.operator == "published":
        samples = to_numpy(field.samples)[:, 0]  # pyright: ignore[reportAttributeAccessIssue]
        return published.uncertainty_modes(samples, y, field.bandwidth, max_order=max(orders) + 4, radius=scorer.radius)
    reference = scorer.fitted.tensors.get("reference") if scorer.fitted else None
    return to_numpy(uncertainty_modes(field, y, orders, scorer.root, scorer.lower_bound, scorer.radius, reference))


def demo(seed: int = 0) -> View:
    """The view of a small network, trained on the bundled digits in a few seconds."""
    from qipf.study import datasets, nets
    from qipf.study.recipes import recipe
    from qipf.training import train

    digits, found = datasets.load("digits"), recipe("small-cnn", "digits")
    net = nets.build("small-cnn", seed=seed)
    train(net, digits.train, epochs=found.epochs, batch_size=found.batch_size, learning_rate=found.learning_rate,
          seed=seed, progress=False)  # fmt: skip
    outputs = collect(net, digits.test, features=False, progress=False)
    return compute(WeightQIPF(factor=80.0).fit(net, outputs), net, outputs)


def plate(view: View | None = None, what: str = "") -> Plate:
    """The figure of a view; by default of a small network on the bundled digits, with the paper's factor."""
    if view is None:
        view, what = demo(), "a small convolutional network on the test set of the bundled digits"
    shown = view
    columns = ["y", "psi", *(f"mode_{order}" for order in shown.orders), "uncertainty"]
    values = np.column_stack([shown.y, shown.psi, shown.modes, shown.modes.mean(axis=1)])
    return Plate(
        "field",
        lambda palette: draw(shown, palette),
        {"": Table(columns, values.tolist())},
        caption(shown, what or "a fitted scorer"),
    )


def draw(view: View, palette: Palette) -> Figure:
    """Above: weights, field and predictions. Below: the modes and their mean, the uncertainty."""
    figure = new_figure(8.0, 6.0)
    top, below = figure.subplots(2, 1, sharex=True)
    upper = _draw_distributions(top, view, palette)
    for number, order in enumerate(view.orders):
        below.plot(view.y, view.modes[:, number], color=palette.series[number % len(palette.series)], lw=1,
                   label=f"mode of order {order}")  # fmt: skip
    below.plot(view.y, view.modes.mean(axis=1), color=palette.ink, lw=2.2, label="their mean: the uncertainty")
    below.set_xlabel("y, in standard deviations of the weights and of the reference predictions")
    below.set_ylabel("mode")
    below.set_xlim(view.y[0], view.y[-1])
    high = float(np.quantile(view.modes, 0.99))
    below.set_ylim(0, 1.15 * high if high > 0 else 1)
    handles, names = (above + under for above, under in zip(upper, below.get_legend_handles_labels(), strict=True))
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure


def _draw_distributions(axes: Any, view: View, palette: Palette) -> tuple[list[Any], list[str]]:
    """Draw histograms of weights and predictions, and psi over them; return what the legend needs."""
    bins = np.linspace(view.y[0], view.y[-1], 81)
    if view.weights is not None:
        axes.hist(view.weights, bins=bins, density=True, color=palette.muted, alpha=0.5, label="weights")
    for name, values, colour in _groups(view, palette):
        name = f"{name} ({len(values)})"
        if len(values) >= FEW:
            axes.hist(values, bins=bins, density=True, histtype="step", color=colour, lw=1.4, label=name)
        else:
            axes.plot(values, np.full(len(values), 0.04), "|", transform=axes.get_xaxis_transform(), ms=12, mew=1.6,
                      color=colour, label=name)  # fmt: skip
    if view.predictions is None:
        axes.axvspan(-1, 1, color=palette.series[2], alpha=0.2, lw=0, label="reference predictions, mean ± std")
    axes.set_ylabel("density")
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    right.set_ylim(0, 1.05 * float(view.psi.max()))
    right.set_ylabel("field ψ")
    right.plot(view.y, view.psi, color=palette.series[0], label="ψ, the field of the weights (right)")
    lines, names = right.get_legend_handles_labels()
    more, others = axes.get_legend_handles_labels()
    return [*lines, *more], [*names, *others]


def _groups(view: View, palette: Palette) -> list[tuple[str, np.ndarray, str]]:
    if view.predictions is None:
        return []
    if view.correct is None:
        return [("predictions", view.predictions, palette.series[2])]
    parts = [
        ("right predictions", view.predictions[view.correct], palette.series[2]),
        ("wrong predictions", view.predictions[~view.correct], palette.series[1]),
    ]
    return [part for part in parts if len(part[1])]


def caption(view: View, what: str) -> str:
    """What the figure shows, with the numbers of this scorer."""
    mean = view.modes.mean(axis=1)
    lowest = float(view.y[np.argmin(mean)])
    beyond = ""
    if view.predictions is not None:
        beyond = f" This is the case for {np.mean(view.predictions > lowest):.0%} of the predictions drawn."
    return write_caption(
        rf"""**The field of {what}.** Above: the standardised weights and their field $\psi$ at bandwidth
        {view.facts["bandwidth"]:.3g}, which is {view.facts["factor"]:g} times Silverman's, and the predictions,
        standardised by their mean {view.facts["mean"]:.3g} and standard deviation {view.facts["std"]:.3g}. Below: the
        modes, and their mean, which is the uncertainty.""",
        f"""The uncertainty is a function of this one coordinate and is lowest at y = {lowest:.2f}. Where it rises to
        the right of that place, a larger coordinate counts as less certain.{beyond}""",
        differs=[],
    )
