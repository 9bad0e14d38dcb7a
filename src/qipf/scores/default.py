"""The scorer that we recommend, fitted in one call: a probe on clean and perturbed training inputs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from qipf._common.errors import check_whole
from qipf._common.optional import require
from qipf.models.outputs import Outputs
from qipf.models.sessions.model import as_onnx, check_no_device
from qipf.scores.probe import Probe

if TYPE_CHECKING:
    import torch

    from qipf.models.draws import Perturb

MEMORY = 2 * 2**30
"""Bytes that the features of the training inputs take at most; inputs that do not fit are left out."""


class Effort(NamedTuple):
    """How much work fitting does: perturbed copies of each input, and passes of the head over all of them."""

    draws: int
    epochs: int


SHARES = {"images": 0.2, "table": 0.5, "tokens": 0.5, "other": 0.5, "": 1.0}
"""The weight of the network's own softmax by the form of the inputs; 1 leaves the head out where none is perturbed."""
CLEAN_SHARE = 0.8
"""The same for a head that knows clean inputs alone, or few inputs per class."""
FEW = 16
"""Images per class below which a head learns too little to outweigh the softmax (results/probe/few-examples.json)."""
EFFORTS = {"quick": Effort(1, 4), "standard": Effort(4, 8), "thorough": Effort(8, 8)}


def default(
    model: Any,
    data: Any,
    *,
    effort: Literal["quick", "standard", "thorough"] = "standard",
    perturb: Perturb | bool = True,
    features: str | None = None,
    size: int | None = None,
    memory: int = MEMORY,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 500,
    progress: bool = True,
) -> Probe:
    """The recommended scorer for a trained classifier, fitted and ready: `uq = qipf.default(model, train)`.

    Each input goes through the network once as it is and once for every perturbed copy; a small head then learns to
    name its true class from what the network makes of it. Data is read once, batch by batch. What is kept of it are
    the features that the head reads, in half precision: at most `memory` bytes, on the device of the model. With fewer
    than 16 images per class the head counts for little, and a warning says so.

    To score other inputs call `uq.score(model, inputs)`, or collect what it reads first:
    `uq(qipf.collect(model, inputs, layers=uq.layers))`. `qipf.wrap(model, uq)` makes a module of both.

    Args:
        model: a trained torch classifier, or an ONNX model as for `qipf.collect`; None where `data` is `Outputs`, of a
            model of any library. Inputs are perturbed with torch, whatever runs the model; `Outputs` need no torch.
        data: labelled inputs, best those that the network was trained on: (inputs, labels) as tensors, a data set, a
            DataLoader or any iterable of (inputs, labels) batches. Or `Outputs` with labels and features, which the
            head is then fitted to as they are; `perturb`, `size`, `memory`, `device` and `batch_size` do not go with
            them.
        effort: "quick" perturbs each input once, "standard" four times, "thorough" eight times.
        perturb: False for no perturbations, or a function `perturb(inputs, generator)` that returns perturbed inputs
            of the same form; the generator is on the device of the model. True perturbs images, tables and tokens as
            `qipf.models.draws` says, and leaves the head out where nothing is known about the inputs.
        features: what the head reads, as a name of `qipf.models.readings`, for instance `layer4@2x2`; None lets
            `qipf.models.spaces.find_space` choose.
        size: how many inputs to take at most; of arrays and data sets a random sample, of loaders the first.
        memory: bytes that the kept features take at most.
        seed: of everything that is random here.
        device: where the inputs go; None is the device of the model.
        batch_size: inputs per pass where the data does not come in batches.
        progress: show a progress bar with the time left.

    Raises:
        TypeError: an argument is of the wrong type, or does not go with `Outputs`.
        ValueError: there is no data, there are no labels, or the model has no layer that a head could read.
    """
    if effort not in EFFORTS:
        raise ValueError(f"effort: expected one of {', '.join(EFFORTS)}, got {effort!r}")
    if not isinstance(perturb, bool) and not callable(perturb):
        raise TypeError(f"perturb: expected True, False or a function of inputs and a generator, got {perturb!r}")
    if features is not None and (not isinstance(features, str) or not features):
        raise TypeError(
            f"features: expected the name of a module, for instance 'layer4@2x2', or None, got {features!r}"
        )
    draws, epochs = EFFORTS[effort]
    check_whole("seed", seed, 0)
    if isinstance(data, Outputs):
        given = {"perturb": perturb is not True, "size": size is not None, "memory": memory != MEMORY,
                 "device": device is not None, "batch_size": batch_size != 500}  # fmt: skip
        if any(given.values()):
            names = ", ".join(name for name, is_given in given.items() if is_given)
            raise TypeError(
                f"{names}: for inputs only, and data are outputs, which are taken as they are; leave it out, or give "
                "the model and its inputs"
            )
        space = features if features in data.layers else None
        if features is not None and space is None:
            found = ", ".join(map(repr, data.layers)) or "none"
            raise ValueError(f"features: expected one of the layers of these outputs, {found}, got {features!r}")
        if space is None and data.features is None and len(data.layers) == 1:
            (space,) = data.layers
        return _fitted(Probe(space=space, share=CLEAN_SHARE, epochs=epochs, seed=seed), model, data, progress)
    if model is None:
        raise TypeError(
            "model: expected a torch module or an ONNX model; without one, give Outputs with logits, features and "
            "labels"
        )
    try:
        require("torch", extra="torch")
    except ImportError as error:
        raise ImportError(
            f"perturbing inputs: {error}; without it, give outputs instead of data, and the head learns from clean "
            "inputs alone: qipf.default(model, qipf.collect(model, data))"
        ) from None
    settings: dict[str, Any] = {
        "draws": draws, "perturb": perturb, "space": features, "size": size, "memory": memory, "seed": seed,
        "batch_size": batch_size, "progress": progress,
    }  # fmt: skip
    onnx = as_onnx(model)
    if onnx is not None:
        from qipf.models.sessions.augmented import collect_augmented_onnx

        check_no_device(device)
        outputs, form = collect_augmented_onnx(onnx, data, **settings)
    else:
        from qipf.models.augmented import collect_augmented

        outputs, form = collect_augmented(model, data, device=device, **settings)
    (space,) = outputs.layers
    share = CLEAN_SHARE if perturb is False else SHARES[form]
    classes, inputs = max(2, outputs.logits.shape[1]), len(outputs) // (1 + draws)
    if form == "images" and inputs < FEW * classes:
        share = CLEAN_SHARE
        warnings.warn(
            f"data: {inputs} images for {classes} classes are few for a head to learn from, so the network's own "
            f"softmax has the greater weight in the score; give {FEW} or more per class",
            stacklevel=2,
        )
    return _fitted(Probe(space=space, share=share, epochs=epochs, seed=seed), onnx or model, outputs, progress)


def _fitted(probe: Probe, model: Any, outputs: Outputs, progress: bool) -> Probe:
    probe.progress = progress  # of this fit, not of the next one
    try:
        return probe.fit(model, outputs)
    finally:
        probe.progress = False
