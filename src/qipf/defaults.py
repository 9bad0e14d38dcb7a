"""The scorer we recommend, fitted in one call: class fields of perturbed references, pooled with the network's head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qipf._optional import require
from qipf.outputs import Outputs, collect
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
        data: labelled inputs, (inputs, labels) as tensors or a `qipf.datasets.Split`, images as floating-point
            numbers; or `Outputs` that were collected before, best by `reference_outputs`, which are taken as they are.
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
    cut-out at all intensities (`qipf.perturbations`), none of the shifts that the benchmark evaluates. Images are
    perturbed within the range of values that the data has; inputs that are no images, (N, c, h, w), stay as they are.

    Args:
        model: a trained torch classifier.
        data: labelled inputs, (inputs, labels) as tensors or a `qipf.datasets.Split`.
        size: how many inputs to take; drawn at random where there are more.
        perturb: False leaves all inputs as they are.
        seed: which inputs are taken, and what is random in the perturbations.
        device: where the inputs go; None is the device of the model.
        store: where the outputs go.
        batch_size: inputs per pass.
        progress: show a progress bar.
    """
    torch = require("torch", extra="torch")
    from qipf._model_state import original

    model = original(model)
    if not isinstance(data, tuple | list) or len(data) != 2 or not all(_is_array(part) for part in data):
        raise TypeError(
            f"data: expected (inputs, labels) as tensors, a Split, or Outputs; got {type(data).__name__}; "
            "from a DataLoader, join some batches with torch.cat"
        )
    inputs, labels = (torch.as_tensor(part) for part in data)
    if len(inputs) != len(labels) or len(inputs) == 0:
        raise ValueError(f"data: {len(inputs)} inputs and {len(labels)} labels; expected as many, and some")
    if labels.ndim != 1:
        raise ValueError(f"data: expected labels of shape (N,), one class an input, got {tuple(labels.shape)}")
    if perturb and inputs.ndim == 4 and not inputs.is_floating_point():
        raise ValueError(
            f"data: images of {inputs.dtype} cannot be perturbed; scale to [0, 1] as floats first, or to what the "
            "network was trained on; perturb=False takes them as they are"
        )
    if size < len(inputs):
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[:size].sort().values
        inputs, labels = inputs[order.to(inputs.device)], labels[order.to(labels.device)]
    if perturb and inputs.ndim == 4:
        inputs = perturbed(inputs, seed)
    layers = tuple(name for name in spaces_of(model) if name != FEATURES)
    return collect(
        model, (inputs, labels), layers=layers, device=device, store=store, batch_size=batch_size, progress=progress
    )


def perturbed(images: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """The images, every second one perturbed: kinds and intensities in turn, each as often as any other."""
    import torch

    from qipf.perturbations import PERTURBATIONS, perturb

    low, high = (float(value) for value in torch.aminmax(images))
    low, high = min(low, 0.0), max(high, 1.0)  # images in [0, 1] stay in their units, whatever a sample spans
    result = images.clone()
    kinds = [(name, level) for name, levels in PERTURBATIONS.items() for level in levels]
    turns = torch.arange(1, len(images), 2)
    for number, (name, level) in enumerate(kinds):
        rows = turns[number :: len(kinds)].to(images.device)
        if len(rows) == 0:
            break
        part = ((result[rows] - low) / (high - low)).clamp_(0, 1)
        result[rows] = perturb(part, name, level, seed=seed + number) * (high - low) + low
    return result


def spaces_of(model: nn.Module) -> tuple[str, ...]:
    """Names of the spaces for class fields: what the linear layers at the network's end make, before activation.

    These are the outputs of the linear layers before the last one, and of a flattening layer before them, three at
    most; where the last linear layer stands alone, as after global pooling or a norm, its input: the features. A layer
    whose outputs are not as many as the next one's inputs does not lead there (another head, say) and ends the search.
    """
    from torch import nn

    from qipf._model_state import named_modules, original

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
