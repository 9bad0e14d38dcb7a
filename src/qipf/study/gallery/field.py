"""The field of a fitted scorer: weights, psi, modes, and predictions."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from qipf.scores import WeightQIPF
from qipf.scores.field_figure import FieldView, draw, view
from qipf.study.gallery.plate import Plate, Table, write_caption
from qipf.tasks.collect import collect


def demo(seed: int = 0) -> FieldView:
    """The view of a small network, trained on the bundled digits in a few seconds."""
    from qipf.study import datasets, nets
    from qipf.study.recipes import recipe
    from qipf.training import train

    digits, net = datasets.load("digits"), nets.build("small-cnn", seed=seed)
    train(net, digits.train, **asdict(recipe("small-cnn", "digits")), seed=seed, progress=False)
    outputs = collect(net, digits.test, features=False, progress=False)
    return view(WeightQIPF(factor=80.0).fit(net, outputs), outputs)


def plate(shown: FieldView | None = None, what: str = "") -> Plate:
    """The figure of a view; by default of a small network on the bundled digits, with the paper's factor."""
    if shown is None:
        shown, what = demo(), "a small convolutional network on the test set of the bundled digits"
    columns = ["y", "psi", *(f"mode_{order}" for order in shown.orders), "uncertainty"]
    values = np.column_stack([shown.y, shown.psi, shown.modes, shown.modes.mean(axis=1)])
    return Plate(
        "field",
        lambda _: draw(shown),
        {"": Table(columns, values.tolist())},
        caption(shown, what or "a fitted scorer"),
    )


def caption(view: FieldView, what: str) -> str:
    """Describe the figure with the numbers of this scorer."""
    lowest = float(view.y[np.argmin(view.modes.mean(axis=1))])
    beyond = ""
    if view.predictions is not None:
        beyond = f" This is the case for {np.mean(view.predictions > lowest):.0%} of the predictions drawn."
    return write_caption("field", what=what, facts=view.facts, lowest=lowest, beyond=beyond)
