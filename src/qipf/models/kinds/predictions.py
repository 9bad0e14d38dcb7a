"""The predictions of a model that makes several per input, as rows that are scored and judged one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from qipf.arrays import to_numpy
from qipf.models.kinds.excerpts import Excerpt
from qipf.models.labels import are_one_hot
from qipf.models.outputs import Outputs

if TYPE_CHECKING:
    from qipf.models.kinds.tokens import Tokens

MOST = 10_000
"""Predictions of one set of data that scores are judged on: of pixels and tokens, a random sample."""
BATCHES = {"pixels": 4, "tokens": 8, "labels": 500}
"""The most examples per batch."""


@dataclass(frozen=True, eq=False)
class PredictionRows:
    """M predictions of one set of data.

    Attributes:
        outputs: One row per prediction; of tokens, the question whether each is right.
        groups: (M,) the example that each prediction belongs to; None where each has one of its own.
        tokens: The tokens, if that is what was predicted.
    """

    outputs: Outputs
    groups: np.ndarray | None = None
    tokens: Tokens | None = None

    @property
    def correct(self) -> np.ndarray:
        """Which predictions are right, (M,)."""
        return to_numpy(self.outputs.correct) if self.tokens is None else to_numpy(self.tokens.correct)

    def scored(self, scorer: Any) -> np.ndarray:
        """The uncertainty that a fitted scorer gives each prediction, (M,)."""
        from qipf.models.kinds.tokens import SCORES

        if self.tokens is not None and scorer.name in SCORES:
            return to_numpy(self.tokens.score(scorer.name))
        return to_numpy(scorer(self.outputs))


def read_predictions(
    kind: str, model: Any, data: Any, count: int, *,
    features: str | Literal[False] | None = None, shift: bool | None = None, seed: int = 0, device: Any = None,
    progress: bool = False,
) -> PredictionRows:  # fmt: skip
    """Run a model on labelled data, and keep at most `MOST` of its pixels or tokens, or all of its labels.

    The same data gives the same sample, so that predictions for two versions of the inputs belong together.

    Args:
        kind: What the model predicts: "pixels", "tokens" or "labels".
        model: As for `qipf.models.collect_pixels`, `collect_tokens` or `collect_labels`.
        data: Inputs and labels. Whether those of an `Excerpt` are one-hot is for its maker to judge.
        count: How many examples there are.
        features: The module whose output to keep; None for what enters the layer that makes the logits; False for
            none, which does for scores that do not read them.
        shift: Of tokens, as for `collect_tokens`.
        seed: Of the sample.
        device: Where the inputs go; None is the device of the model.
        progress: Show a progress bar.

    Raises:
        ValueError: There is nothing to judge, or the labels do not fit the model.
    """
    run: dict[str, Any] = {"device": device, "batch_size": BATCHES[kind], "progress": progress}
    places = True if features is None else features  # of pixels and tokens
    if kind == "pixels":
        from qipf.models.kinds.pixels import sample_pixels

        outputs, images = sample_pixels(model, data, per_image=max(1, MOST // count), features=places, seed=seed, **run)
        return PredictionRows(outputs, images.numpy())
    if kind == "tokens":
        from qipf.models.kinds.tokens import NO_TOKENS, collect_tokens

        tokens = collect_tokens(model, data, features=places, shift=shift, **run)
        if not len(tokens):
            raise ValueError(NO_TOKENS)
        tokens.check_finite(data)
        if len(tokens) > MOST:
            tokens = tokens.take(np.sort(np.random.default_rng(seed).choice(len(tokens), MOST, replace=False)))
        question = tokens.question() if places else Outputs(-tokens.log_rest[:, None], None, tokens.correct.long())
        return PredictionRows(question, tokens.sequence.numpy(), tokens)
    from qipf.models.kinds.several_labels import ONE_HOT, collect_labels

    found = collect_labels(model, data, features=features, **run)
    labels = found.outputs.labels
    if labels is not None and not isinstance(data, Excerpt) and are_one_hot(found.table(labels)):
        raise ValueError(ONE_HOT)
    return PredictionRows(found.outputs, np.repeat(np.arange(len(found)), found.names))
