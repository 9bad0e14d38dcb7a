"""Which kind of predictions a model makes: classes, tokens, pixels or several labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from qipf._common.errors import Problem, UserError
from qipf._common.optional import require
from qipf.cli._onnx import fed, named_arguments
from qipf.cli._tokens import About, is_shifted
from qipf.data.reading import Data
from qipf.models.kinds.ignored import MASKS, look_like_masks
from qipf.models.kinds.predictions import BATCHES
from qipf.models.labels import SUPPORTED, are_one_hot, way_of_pixels, zeros_and_ones
from qipf.models.loading import is_weights
from qipf.models.sessions.model import OnnxModel


def rows_at_once(kind: str, batch_size: int) -> int:
    """How many examples one batch has: what --batch-size says, or fewer for models with large outputs."""
    return batch_size if kind == "labels" else min(batch_size, BATCHES.get(kind, batch_size))


def find_kind(net: Any, data: Data, quiet: bool) -> str:
    """What the model predicts: "classes", "pixels", "tokens" or "labels", by the shapes of labels and logits.

    Args:
        net: The model.
        data: Inputs or logits, and labels.
        quiet: Do not tell which tensor of an ONNX model is read as the logits.

    Raises:
        Problem: The labels fit none of them, or are one-hot classes.
    """
    labels = data.arrays["labels"]
    if labels.ndim == 1:
        return "classes"
    shape = data.arrays["logits"].shape if "logits" in data.arrays else _logits_shape(net, data, quiet)
    found = f"labels: {labels.dtype} of shape {labels.shape}, for logits of shape (N, {', '.join(map(str, shape[1:]))})"
    whole = labels.dtype.kind in "iub"
    kind = ""
    if len(shape) == 4 and labels.ndim == 3 and whole:
        kind = "pixels"
        if look_like_masks(np.asarray(labels), shape[1]):
            raise Problem("data", f"labels: {MASKS}")
    elif len(shape) == 3 and labels.ndim == 2 and whole:
        kind = "tokens"
    elif len(shape) == 2 and labels.shape[1:] == shape[1:] and zeros_and_ones(np.asarray(labels)):
        kind = "labels"
        if are_one_hot(np.asarray(labels)):
            raise Problem(
                "data",
                f"{found}, with exactly one 1 in every row: these are one-hot classes, not several labels per "
                "input; give labels.argmax(1)",
            )
    if not kind:
        raise Problem("data", f"{found}; {_way(labels, shape) or SUPPORTED}")
    if not data.has_inputs:
        raise Problem("data", f"{found}: these are {kind}, which are read from a model; give inputs and no logits")
    return kind


def check_set(data: Data, clean: Data, kind: str, about: About | None) -> None:
    """Raise Problem where the labels of a shifted set mean something else than those of the clean data.

    Args:
        data: The shifted set.
        clean: The clean data.
        kind: As `find_kind` says of the clean data.
        about: What the labels of tokens are about.
    """
    labels = data.arrays["labels"]
    if kind == "tokens" and labels.ndim == 2:
        is_shifted(data, about)
    if kind == "pixels":
        known = clean.arrays["labels"]
        classes = int(np.max(known, where=known != 255, initial=0)) + 1
        if look_like_masks(np.asarray(labels), classes):
            raise Problem("data", f"labels: {MASKS}")
    if kind == "labels" and labels.ndim == 2 and are_one_hot(np.asarray(labels)):
        raise Problem("data", "labels: exactly one 1 in every row: these are one-hot classes, not several labels")


def _way(labels: np.ndarray, shape: tuple[int, ...]) -> str:
    """What to do with labels that fit none of the kinds, where that can be told."""
    if labels.ndim == 2 and labels.shape[1] == 1 and len(shape) == 2:
        return "give labels[:, 0], one label per example"
    if len(shape) == 4:
        return way_of_pixels(labels, shape)
    if labels.ndim == len(shape) == 2 and labels.shape[1:] == shape[1:] and labels.dtype.kind in "iu":
        return "several labels are 0 or 1, and the targets of a regression are floating-point: labels.astype('float64')"
    if labels.ndim == 2 and len(shape) == 3 and labels.dtype.kind == "f":
        return "convert them to whole numbers, one label per token"
    return ""


def _logits_shape(net: Any, data: Data, quiet: bool) -> tuple[int, ...]:
    """The shape of the logits of the first two examples."""
    if is_weights(net):
        raise UserError("MODEL: a file of weights cannot be run; give a program")
    batch = next(data.take(np.arange(min(2, len(data)))).batches(2))
    given = fed(net, batch)
    if isinstance(net, OnnxModel):
        from qipf.models.sessions.collecting import Reader
        from qipf.models.sessions.inputs import FeedBatches

        with named_arguments(net):
            feeds = next(iter(FeedBatches([given], 2, net.inputs))).feeds
            return Reader(net, False, (), feeds, not quiet).raw(feeds)[0].shape
    require("torch", extra="torch")
    from qipf.models.batches import Batches
    from qipf.models.calling import call
    from qipf.models.logits import find_values
    from qipf.models.state import input_device, untouched

    with untouched(net, eager=False):
        (first,) = Batches([(given[0],)], 2, net, input_device(net, None))
        return tuple(find_values(call(net, first.arguments, first.keywords)).shape)
