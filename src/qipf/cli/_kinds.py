"""One row per prediction of any kind, and the scores that `qipf compare` fits to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qipf._common.errors import InputError
from qipf.arrays import to_numpy
from qipf.cli._default import DEFAULT, check_data, fit_default
from qipf.cli._find_kind import rows_at_once
from qipf.cli._onnx import excerpt, named_arguments, place
from qipf.cli.fit import make_scorer, observe
from qipf.data.reading import Data
from qipf.models.kinds.predictions import MOST, PredictionRows, read_predictions

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs

ONE = {"classes": "prediction", "pixels": "pixel", "tokens": "token", "labels": "label"}
"""What one prediction of each kind is called."""


def predict(kind: str, net: Any, data: Data, run: dict[str, Any], seed: int, shift: bool) -> PredictionRows:
    """The predictions of the model for labelled data, without features where no layer is known to make the logits.

    Args:
        kind: As `find_kind` says.
        net: The model.
        data: Inputs and labels.
        run: `features`, `device`, `batch_size` and `quiet` of the command.
        seed: Of the sample of pixels and tokens.
        shift: Of tokens, whether the label of a place belongs to the logits of the place before.
    """
    if kind == "classes":
        return PredictionRows(observe(net, data, make_scorer("knn", {}), **run))
    place(net, run["device"])
    read = {"shift": shift, "seed": seed, "progress": not run["quiet"]}
    try:
        return _read(kind, net, data, run, features=run["features"], **read)
    except ValueError as error:
        if run["features"] is not None or not str(error).startswith("features: "):
            raise
    return _read(kind, net, data, run, features=False, **read)  # scores that need them say what is missing


def _read(kind: str, net: Any, data: Data, run: dict[str, Any], **read: Any) -> PredictionRows:
    try:
        with named_arguments(net):
            return read_predictions(kind, net, _batches(net, data, kind, run), len(data), **read)
    except ValueError as error:
        if not str(error).startswith("data: "):
            raise
        raise InputError(f"DATA: {str(error).removeprefix('data: ')}") from error


def _batches(net: Any, data: Data, kind: str, run: dict[str, Any]) -> Any:
    return excerpt(net, data, rows_at_once(kind, run["batch_size"]))


class Score(NamedTuple):
    """One fitted score: what it reads of some data, whose predictions are known already, and how it scores that."""

    read: Callable[[Data, PredictionRows], Any]
    of: Callable[[Any], Any]

    def __call__(self, data: Data, live: PredictionRows) -> np.ndarray:
        """The scores of the predictions of some data."""
        return to_numpy(self.of(self.read(data, live)))


def fit_score(
    name: str, kind: str, net: Any, data: Data, reference: PredictionRows, run: dict[str, Any], shift: bool
) -> Score:
    """Fit one score to a part of the data, and return how it scores others.

    Raises:
        ValueError: The score is not for this kind of predictions.
    """
    if kind == "tokens":
        return _fit_tokens(name, net, data, run, shift)
    if name != DEFAULT:
        return Score(_outputs, make_scorer(name, {}).fit(net, reference.outputs))
    if kind == "classes":
        check_data(data, run["features"])
        probe = fit_default(net, data, {}, **run)
        return Score((lambda other, _: observe(net, other, probe, **run)) if probe.layers else _outputs, probe)
    from qipf.scores.kind_probes import probe_labels, probe_pixels

    given, shown = _batches(net, data, kind, run), not run["quiet"]
    if kind == "pixels":
        fitted = probe_pixels(
            net, given, per_image=max(1, MOST // len(data)), features=run["features"] or True, progress=shown
        )
    else:
        fitted = probe_labels(net, given, features=run["features"], progress=shown)
    return Score(_outputs, fitted)


def _outputs(data: Data, live: PredictionRows) -> Outputs:
    return live.outputs


def _fit_tokens(name: str, net: Any, data: Data, run: dict[str, Any], shift: bool) -> Score:
    from qipf.models.kinds.tokens import SCORES
    from qipf.scores.kind_probes import probe_tokens

    if name in SCORES:
        return Score(lambda _, live: live.tokens, lambda tokens: tokens.score(name))
    if name != DEFAULT:
        raise ValueError("it reads all logits or features of a class, and of a token only a few numbers are kept")
    read: dict[str, Any] = {"features": run["features"] or True, "progress": not run["quiet"], "shift": shift}
    probe = probe_tokens(net, _batches(net, data, "tokens", run), **read)
    return Score(_outputs, probe)
