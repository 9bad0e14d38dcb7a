"""The scorer we recommend, fitted in one call: class fields of perturbed references, pooled with the network's head."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import TYPE_CHECKING, Any

from qipf._common.optional import require
from qipf.arrays import to_numpy
from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.scores.class_field import FEATURES, PosteriorContrast

if TYPE_CHECKING:
    import torch
    from torch import nn

REFERENCES = 20_000
FEATURE_BANDWIDTH = 0.4
"""For features after an activation: sharper fields rank worse there than the head alone; see the research page."""
_MOST_SPACES = 3


def default(
    model: nn.Module,
    data: Any,
    *,
    size: int = REFERENCES,
    perturb: bool = True,
    landmarks: int | None = None,
    device: torch.device | str | None = None,
    batch_size: int = 500,
    progress: bool = True,
) -> PosteriorContrast:
    """The recommended scorer for a trained classifier, fitted and ready: `u = qipf.default(model, train)(outputs)`.

    It needs labelled inputs, best those the network was trained on, and one pass over some of them. To score other
    inputs, collect what it reads, `qipf.collect(model, x, layers=scorer.layers)`, or use `qipf.wrap(model, scorer)`.

    Args:
        model: a trained torch classifier.
        data: labelled inputs, images as floating-point numbers: (inputs, labels) as tensors, a data set,
            a DataLoader or any iterable of (inputs, labels) batches; see `reference_outputs`. Or `Outputs`
            that were collected before, best by `reference_outputs`, which are taken as they are.
        size: how many inputs to take.
        perturb: perturb every second image; see `reference_outputs`.
        landmarks: keep about so many weighted centres instead of all references; scoring costs in proportion.
        device: where the inputs go; None is the device of the model.
        batch_size: inputs per pass.
        progress: show a progress bar.
    """
    if not isinstance(data, Outputs):
        data = reference_outputs(
            model, data, size=size, perturb=perturb, device=device, batch_size=batch_size, progress=progress
        )
    spaces = tuple(name for name in spaces_of(model) if name != FEATURES and name in data.layers)
    if not spaces:
        return PosteriorContrast(bandwidth=FEATURE_BANDWIDTH, landmarks=landmarks).fit(model, data)
    return PosteriorContrast(spaces=spaces, landmarks=landmarks).fit(model, data)


def reference_outputs(
    model: nn.Module,
    data: Any,
    *,
    size: int = REFERENCES,
    perturb: bool = True,
    seed: int = 0,
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int = 500,
    progress: bool = True,
) -> Outputs:
    """What class fields are best fitted to: labelled inputs, every second image with a reference perturbation.

    Perturbed inputs with their true labels show the fields where a class goes, and which other classes lie there,
    when inputs are not what the network was trained on. The perturbations are noise, blur, contrast, pixelate and
    cut-out at all intensities (`qipf.models.perturbations`), none of the shifts that the study evaluates. Images are
    perturbed within the range of values that the data has; inputs that are no images, (N, c, h, w), stay as they are.

    Loaders and iterables are read batch by batch, no further than needed, and the first `size` inputs are taken: give a
    loader that shuffles, as for training, since the first inputs of a sorted one are of a few classes. Which ones a
    shuffling loader gives is up to its generator (`torch.manual_seed`). The range of their images is that of the
    batches so far. Arrays and data sets with more than `size` inputs are sampled at random, by `seed`.

    Args:
        model: a trained torch classifier.
        data: labelled inputs: (inputs, labels) as tensors, a data set, a DataLoader, or any
            iterable of (inputs, labels) batches, as in `qipf.collect`.
        size: how many inputs to take.
        perturb: False leaves all inputs as they are.
        seed: which inputs are sampled, and what is random in the perturbations.
        device: where the inputs go; None is the device of the model.
        store: where the outputs go.
        batch_size: inputs per pass.
        progress: show a progress bar.

    Raises:
        ValueError: no data, or no labels.
        TypeError: `size` is no whole number.
    """
    torch = require("torch", extra="torch")
    from qipf.models.references import References, check_perturbable, random_rows
    from qipf.models.state import original

    if isinstance(size, bool) or not isinstance(size, Integral):
        raise TypeError(f"size: expected a whole number of inputs, got {size!r}")
    if size < 1:
        raise ValueError(f"size: expected at least 1, got {size}")
    model = original(model)
    layers = tuple(name for name in spaces_of(model) if name != FEATURES)
    collected = {"layers": layers, "device": device, "store": store, "batch_size": batch_size, "progress": progress}
    if not isinstance(data, tuple | list) or len(data) != 2 or not all(_is_array(part) for part in data):
        references = References(data, size=size, perturbs=perturb, seed=seed, batch_size=batch_size)
        found = collect(model, references, **collected)
        if references.cut:
            _warn_of_missing_classes(found)
        return found
    inputs, labels = (torch.as_tensor(part) for part in data)
    if len(inputs) != len(labels) or len(inputs) == 0:
        raise ValueError(f"data: {len(inputs)} inputs and {len(labels)} labels; expected as many, and some")
    if labels.ndim != 1:
        raise ValueError(f"data: expected labels of shape (N,), one class an input, got {tuple(labels.shape)}")
    if perturb and inputs.ndim == 4:
        check_perturbable(inputs)
    if size < len(inputs):
        order = random_rows(len(inputs), size, seed)
        inputs, labels = inputs[order.to(inputs.device)], labels[order.to(labels.device)]
    if perturb and inputs.ndim == 4:
        inputs = perturbed(inputs, seed)
    return collect(model, (inputs, labels), **collected)


def _warn_of_missing_classes(references: Outputs) -> None:
    """The first inputs of a loader that is sorted by class are of a few classes only."""
    there = set(to_numpy(references.labels).tolist())
    missing = [label for label in range(references.logits.shape[1]) if label not in there]
    if missing and references.logits.shape[1] > 1:
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        warnings.warn(
            f"no reference is of class {shown} ({len(missing)} of {references.logits.shape[1]} classes): the first "
            f"{len(references)} inputs of the data were taken; shuffle it, or take more (size=...)",
            stacklevel=3,
        )


def perturbed(images: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """The images, every second one perturbed: kinds and intensities in turn, each as often as any other."""
    from qipf.models import references as _references

    return _references.perturbed(images, seed)


def spaces_of(model: nn.Module) -> tuple[str, ...]:
    """Names of the spaces for class fields: what the linear layers at the network's end make, before activation.

    These are the outputs of the linear layers before the last one, and of a flattening layer before them, three at
    most; where the last linear layer stands alone, as after global pooling or a norm, its input: the features. A layer
    whose outputs are not as many as the next one's inputs does not lead there (another head, say) and ends the search.
    """
    from torch import nn

    from qipf.models.state import named_modules, original

    passing = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Dropout, nn.Identity)
    leaves = [(name, module) for name, module in named_modules(original(model)).items() if not any(module.children())]
    while leaves and not isinstance(leaves[-1][1], nn.Linear):
        leaves.pop()
    linear, flat = [], []
    wanted = leaves[-1][1].in_features if leaves else 0
    for name, module in reversed(leaves[:-1]):
        if isinstance(module, nn.Linear):
            if module.out_features != wanted:
                break
            linear.append(name)
            wanted = module.in_features
        elif isinstance(module, nn.Flatten):
            flat = [name]
        elif not isinstance(module, (*passing, nn.BatchNorm1d)):
            break
    chosen = [*linear, *flat][:_MOST_SPACES] if linear else []
    return tuple(chosen) or (FEATURES,)


def _is_array(part: Any) -> bool:
    """Whether this holds a value an input: an array, or labels as a list of numbers; no batch, which is a tuple."""
    if isinstance(part, list):
        return bool(part) and all(isinstance(value, int | float) for value in part)
    return len(getattr(part, "shape", ())) > 0
