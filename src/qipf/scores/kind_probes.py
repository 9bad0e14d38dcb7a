"""A probe for models that make several predictions per input, fitted in one call: tokens, pixels, several labels.

`qipf.default` is for one class per input. These do the same for the other kinds: the model reads labelled inputs and
perturbed copies of them, and a small head learns from both which predictions are right. The inputs should be new to the
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from qipf._common.errors import check_whole
from qipf._common.optional import require
from qipf.models.kinds.ignored import IGNORED
from qipf.models.kinds.pixels import collect_pixels
from qipf.models.kinds.several_labels import collect_labels
from qipf.models.kinds.tokens import NO_TOKENS, collect_tokens
from qipf.scores.base import Fitted, Scorer
from qipf.scores.probe import Probe

S = TypeVar("S", bound=Scorer)

if TYPE_CHECKING:
    import torch

    from qipf.models.draws import Perturb
    from qipf.models.kinds.excerpts import Excerpt
    from qipf.models.kinds.perturbed import Kind


def probe_tokens(
    model: Any,
    data: Any,
    *,
    draws: int = 1,
    perturb: Perturb | bool = True,
    features: str | bool = True,
    shift: bool | None = None,
    ignore: int = -100,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 8,
    progress: bool = True,
) -> Probe:
    """A probe of the tokens of a language model: `probe(tokens.question())` scores them.

    The scores are the log odds that each predicted token is wrong, and `probe.posterior(tokens.question())[:, 0]` is
    the probability. The hidden states of all tokens are kept while the head is fitted: D floats per token of the data
    and of each copy.

    Args:
        model: As for `qipf.models.collect_tokens`.
        data: Token ids and labels, as for `collect_tokens`; preferably text that the model was not trained on.
        draws: Perturbed copies of each batch.
        perturb: True for replaced tokens (`qipf.models.kinds.perturbed`), False for none, or a function of the inputs
            and a generator.
        features: As for `collect_tokens`.
        shift: As for `collect_tokens`.
        ignore: As for `collect_tokens`.
        seed: Of everything that is random here.
        device: Where the inputs go; None is the device of the model.
        batch_size: Texts per batch, for data that does not come in batches.
        progress: Show a progress bar.
    """
    batches = _batches(data, "tokens", draws, perturb, batch_size, seed)
    tokens = collect_tokens(
        model, batches, features=features, shift=shift, ignore=ignore, device=device, progress=progress
    )
    if not len(tokens):
        raise ValueError(NO_TOKENS)
    probe = Probe(hidden=128, epochs=4, temperature=1.0, seed=seed)
    return _fitted(probe, model, tokens.question(), "tokens", progress, shift=shift is not False)


def probe_pixels(
    model: Any,
    data: Any,
    *,
    per_image: int = 200,
    draws: int = 6,
    perturb: Perturb | bool = True,
    features: str | bool = True,
    ignore: int | Sequence[int] = IGNORED,
    tile: int | None = None,
    overlap: int = 64,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 4,
    progress: bool = True,
) -> Probe:
    """A probe of the pixels of a segmentation network: `score_pixels(model, images, probe)` gives its maps.

    Args:
        model: As for `qipf.models.collect_pixels`.
        data: Images and labels, as for `collect_pixels`; preferably images that the network was not trained on.
        per_image: Pixels to take of each image and of each copy.
        draws: Perturbed copies of each batch.
        perturb: True for noise, blur, less contrast, coarser pixels and other tones (`qipf.models.kinds.perturbed`),
            False for none, or a function of the inputs and a generator.
        features: As for `collect_pixels`.
        ignore: As for `collect_pixels`.
        tile: As for `collect_pixels`.
        overlap: As for `collect_pixels`.
        seed: Of everything that is random here.
        device: Where the inputs go; None is the device of the model.
        batch_size: Images per batch, for data that does not come in batches.
        progress: Show a progress bar.
    """
    batches = _batches(data, "pixels", draws, perturb, batch_size, seed)
    sample = collect_pixels(
        model, batches, per_image=per_image, ignore=ignore, features=features, tile=tile, overlap=overlap, seed=seed,
        device=device, progress=progress,
    )  # fmt: skip
    return _fitted(Probe(hidden=64, share=0.7, seed=seed), model, sample, "pixels", progress)


def probe_labels(
    model: Any,
    data: Any,
    *,
    draws: int = 2,
    perturb: Perturb | bool = True,
    features: str | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    batch_size: int = 500,
    progress: bool = True,
) -> Probe:
    """A probe of the labels of a network with one sigmoid per label: `probe(collect_labels(model, data).outputs)`.

    Args:
        model: As for `qipf.models.collect_labels`.
        data: Inputs and labels, as for `collect_labels`; preferably inputs that the network was not trained on.
        draws: Perturbed copies of each batch.
        perturb: True for the perturbations of `qipf.models.draws`, False for none, or a function of the inputs and a
            generator.
        features: As for `collect_labels`.
        seed: Of everything that is random here.
        device: Where the inputs go; None is the device of the model.
        batch_size: Inputs per batch, for data that does not come in batches.
        progress: Show a progress bar.
    """
    batches = _batches(data, "labels", draws, perturb, batch_size, seed)
    found = collect_labels(model, batches, features=features, device=device, progress=progress)
    return _fitted(Probe(hidden=128, epochs=4, temperature=1.0, seed=seed), model, found.outputs, "labels", progress)


def _batches(data: Any, kind: Kind, draws: int, perturb: Perturb | bool, batch_size: int, seed: int) -> Excerpt:
    require("torch", extra="torch")
    from qipf.models.kinds.perturbed import perturbed_batches

    check_whole("draws", draws, 0)
    check_whole("seed", seed, 0)
    if not isinstance(perturb, bool) and not callable(perturb):
        raise TypeError(f"perturb: expected True, False or a function of inputs and a generator, got {perturb!r}")
    return perturbed_batches(data, kind, draws=draws, perturb=perturb, batch_size=batch_size, seed=seed)


def mark(scorer: S, kind: str, **facts: Any) -> S:
    """Note in a fitted scorer what it scores, and how, so that `qipf score` knows, and `qipf.wrap` refuses it."""
    fitted = scorer._require_fitted()
    scorer._use(Fitted(fitted.tensors, {**fitted.facts, "task": {"name": kind, **facts}}))
    return scorer


def _fitted(probe: Probe, model: Any, outputs: Any, kind: str, progress: bool, **facts: Any) -> Probe:
    probe.progress = progress  # of this fit, not of the next one
    try:
        return mark(probe.fit(model, outputs), kind, **facts)
    finally:
        probe.progress = False
