"""The recommended scorer on the command line: its settings, what it needs of the data, and how it is fitted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import InputError, UserError
from qipf._common.optional import require
from qipf.cli._onnx import fed, named_arguments, place
from qipf.data.images import image_mode
from qipf.data.reading import Data
from qipf.models.loading import is_weights
from qipf.models.sessions.model import OnnxModel

if TYPE_CHECKING:
    from qipf.scores.probe import Probe

DEFAULT = "default"
OPTIONS = ("effort", "size", "seed")


def check_options(settings: dict[str, Any]) -> None:
    """Refuse settings that the recommended scorer does not take, before anything is read or run."""
    from qipf.scores.default import EFFORTS

    if unknown := set(settings) - set(OPTIONS):
        raise UserError(
            f"--option: {DEFAULT} does not take {', '.join(sorted(unknown))}; its settings: {', '.join(OPTIONS)}; "
            "name another scorer by --scorer for the settings of that one"
        )
    if settings.get("effort", "standard") not in EFFORTS:
        raise UserError(f"--option: effort: expected one of {', '.join(EFFORTS)}, got {settings['effort']!r}")
    for name, least in (("size", 1), ("seed", 0)):
        value = settings.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
            raise UserError(f"--option: {name}: expected a whole number of at least {least}, got {value!r}")


def check_data(data: Data, features: str | None) -> None:
    """Refuse data from which the recommended scorer cannot learn, before the model is loaded."""
    if not data.files and not data.arrays:
        raise InputError(
            f"DATA: it holds {', '.join(data.named)}; expected inputs (or x) and labels (or y), or arrays with the "
            "names of the inputs of the model and labels"
        )
    if "labels" not in data.arrays:
        raise UserError(
            "--scorer default: the recommended scorer learns from labels; give them in DATA or by --labels, or choose "
            "a scorer that needs none, for instance --scorer weight-qipf"
        )
    if data.has_inputs:
        return
    if features is not None:
        raise UserError("--features: names a module of the model, but DATA brings logits and no inputs; leave it out")
    if "features" not in data.arrays:
        raise UserError(
            "--scorer default: DATA has logits and no features, which the recommended scorer reads; add features, "
            "give inputs and a program as MODEL, or choose --scorer weight-qipf"
        )


def fit_default(
    net: Any, data: Data, settings: dict[str, Any], *,
    features: str | None, device: str | None, batch_size: int, quiet: bool,
) -> Probe:  # fmt: skip
    """What `qipf.default` recommends for the model, fitted to data that `check_data` has passed.

    Inputs that are still on disk (.npy, images) are read batch by batch: in memory are one batch and, at most, the
    2 GiB of features that `qipf.default` keeps. Data that brings logits and features is read as a whole.

    Args:
        net: what `load_model` returned.
        data: inputs and labels, or logits, features and labels.
        settings: those of `OPTIONS` that were given.
        features: the module whose output the scorer reads; None lets it choose.
        device: where to run the model; None leaves it where it is.
        batch_size: examples per pass.
        quiet: no progress bars.
    """
    from qipf.models.outputs import Outputs
    from qipf.scores.default import default

    if not data.has_inputs or (is_weights(net) and {"logits", "features"} <= data.arrays.keys()):
        others = {key: value for key, value in settings.items() if key != "size"}
        data = data.sample(settings.get("size", len(data)))
        outputs = Outputs(data.arrays["logits"], data.arrays["features"], data.arrays["labels"])
        return default(None, outputs, progress=not quiet, **others)
    if is_weights(net):
        raise UserError("MODEL: a file of weights cannot be run; give a program, or DATA with logits and features")
    place(net, device)
    run = {"features": features, "batch_size": batch_size, "progress": not quiet, **settings}
    if isinstance(net, OnnxModel):
        _check_torch()
    with named_arguments(net):
        return default(net, Examples(net, data), **run)


def _check_torch() -> None:
    """Refuse to perturb the inputs of an ONNX model without PyTorch, with advice for the command line."""
    try:
        require("torch", extra="torch")
    except ImportError as error:
        raise UserError(
            f"--scorer {DEFAULT}: perturbs the inputs with PyTorch, and {error}; or choose a scorer that needs only "
            "ONNX Runtime, for instance --scorer class-field, which learns from labels, too, or --scorer entropy"
        ) from None


class Examples:
    """Labelled data as a data set for a model, of which one batch is in memory at a time."""

    def __init__(self, net: Any, data: Data) -> None:
        self.net = net
        self.data = replace(data, mode=data.mode or image_mode(data.files[0])) if data.files else data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> Any:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: list[int]) -> list[Any]:
        """The inputs and labels of some rows; a DataLoader asks for those of a batch."""
        part = self.data.take(np.asarray(rows, dtype=np.int64))
        inputs, labels = fed(self.net, next(part.batches(len(rows))))
        if isinstance(inputs, dict):
            return [
                {**{name: values[row] for name, values in inputs.items()}, "labels": label}
                for row, label in enumerate(labels)
            ]
        return list(zip(inputs, labels, strict=True))
