"""One row per prediction of any kind, and the scores that `qipf compare` fits to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from qipf._common.errors import InputError
from qipf.arrays import to_numpy
from qipf.cli._data import Data
from qipf.cli._default import DEFAULT, check_data, fit_default
from qipf.cli._find_kind import MOST, rows_at_once
from qipf.cli._onnx import fed, place
from qipf.cli.fit import make_scorer, observe

if TYPE_CHECKING:
    from qipf.models.kinds.tokens import Tokens
    from qipf.models.outputs import Outputs

ONE = {"classes": "prediction", "pixels": "pixel", "tokens": "token", "labels": "label"}
"""What one prediction of each kind is called."""


@dataclass(frozen=True)
class Predicted:
    """The predictions of one part of the data.

    Attributes:
        outputs: One row per prediction; of tokens, the question whether each is right.
        groups: The example that each prediction belongs to; None where each has one of its own.
        tokens: The tokens, if that is what was predicted.
    """

    outputs: Outputs
    groups: np.ndarray | None = None
    tokens: Tokens | None = None

    @property
    def correct(self) -> np.ndarray:
        """Which predictions are right."""
        return to_numpy(self.outputs.correct) if self.tokens is None else to_numpy(self.tokens.correct)


def predict(kind: str, net: Any, data: Data, run: dict[str, Any], seed: int) -> Predicted:
    """The predictions of the model for labelled data.

    Args:
        kind: As `find_kind` says.
        net: The model.
        data: Inputs and labels.
        run: `features`, `device`, `batch_size` and `quiet` of the command.
        seed: Of the sample of pixels and tokens.
    """
    if kind == "classes":
        return Predicted(observe(net, data, make_scorer("knn", {}), **run))
    place(net, run["device"])
    read = {"features": run["features"] or True, "progress": not run["quiet"]}
    if kind == "pixels":
        from qipf.models.kinds.pixels import sample_pixels

        outputs, images = sample_pixels(
            net, _batches(net, data, kind, run), per_image=max(1, MOST // len(data)), seed=seed, **read
        )
        return Predicted(outputs, images.numpy())
    if kind == "tokens":
        from qipf.models.kinds.tokens import collect_tokens

        tokens = collect_tokens(net, _batches(net, data, kind, run), **read)
        if not len(tokens):
            raise InputError("DATA: expected at least one labelled token, got none: all labels are -100")
        if len(tokens) > MOST:
            tokens = tokens.take(np.sort(np.random.default_rng(seed).choice(len(tokens), MOST, replace=False)))
        return Predicted(tokens.question(), tokens.sequence.numpy(), tokens)
    from qipf.models.kinds.several_labels import collect_labels

    found = collect_labels(net, _batches(net, data, kind, run), features=run["features"], progress=not run["quiet"])
    return Predicted(found.outputs, np.repeat(np.arange(len(found)), found.names))


def _batches(net: Any, data: Data, kind: str, run: dict[str, Any]) -> Any:
    return (fed(net, batch) for batch in data.batches(rows_at_once(kind, run["batch_size"])))


class Score(NamedTuple):
    """One fitted score: what it reads of some data, whose predictions are known already, and how it scores that."""

    read: Callable[[Data, Predicted], Any]
    of: Callable[[Any], Any]

    def __call__(self, data: Data, live: Predicted) -> np.ndarray:
        """The scores of the predictions of some data."""
        return to_numpy(self.of(self.read(data, live)))


def fit_score(name: str, kind: str, net: Any, data: Data, reference: Predicted, run: dict[str, Any]) -> Score:
    """Fit one score to a part of the data, and return how it scores others.

    Raises:
        ValueError: The score is not for this kind of predictions.
    """
    if kind == "tokens":
        return _fit_tokens(name, net, data, run)
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


def _outputs(data: Data, live: Predicted) -> Outputs:
    return live.outputs


def _fit_tokens(name: str, net: Any, data: Data, run: dict[str, Any]) -> Score:
    from qipf.models.kinds.tokens import SCORES
    from qipf.scores.kind_probes import probe_tokens

    if name in SCORES:
        return Score(lambda _, live: live.tokens, lambda tokens: tokens.score(name))
    if name != DEFAULT:
        raise ValueError("it reads all logits or features of a class, and of a token only a few numbers are kept")
    probe = probe_tokens(
        net, _batches(net, data, "tokens", run), features=run["features"] or True, progress=not run["quiet"]
    )
    return Score(_outputs, probe)
