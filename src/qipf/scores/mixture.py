"""Score predictions under a mixture of the softmax outputs of a network and of additional heads."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from qipf._common.errors import Problem, check_whole
from qipf.arrays import Array, at_least, namespace
from qipf.scores.base import Fitted, Scorer
from qipf.scores.coordinates import class_logits, contrast, softmax
from qipf.tasks.outputs import Outputs
from qipf.tasks.views import View

LEAST = math.exp(-80)
"""The lower limit on class probabilities, which keeps the score finite in single precision."""

ROUNDS = 500
"""The number of iterations of expectation maximisation in `best_shares`."""

SEEN_COPIES = 2
"""The number of perturbed copies of each held-out input that are used to choose the mixture weights."""

MANY = 2000
"""The minimum number of inputs for which one held-out fold replaces cross-validation; also the approximate maximum
size of that fold."""


class Mixture(Scorer):
    r"""Log odds against the predicted class under a mixture of the softmax outputs of the network and other heads.

    The posterior over classes and the score of the predicted class :math:`c^*` are

    .. math:: q = s\, p + \sum_k w_k h_k, \qquad u = \log(1 - q_{c^*}) - \log q_{c^*},

    where :math:`h_k` is the softmax of a head with weight :math:`w_k`, :math:`p` the softmax of the network at the
    given `temperature`, and :math:`s` the `share`. With `views` above 1, :math:`q` is averaged over the input and
    `views` - 1 mirrored or shifted copies of it.
    """

    share: float
    temperature: float
    views: int

    def with_views(self, views: int) -> Self:
        """Return this scorer or, for another number of views, a copy of it without attachments."""
        check_whole("views", views, 1)
        if views == self.views:
            return self
        other = copy.copy(self)
        other.views, other._attachments = views, {}
        other._view_names()
        return other

    def posterior(self, outputs: Outputs | Array) -> Array:
        """Return the probability of every class, (N, C).

        Args:
            outputs: The result of `qipf.collect(model, data, layers=scorer.layers)`.
        """
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        return self.class_probabilities(checked, self._placed(fitted, checked.logits))

    def class_probabilities(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        """Compute the posterior from the given fitted tensors, as in `graph_score`."""
        names = self._view_names()
        chance = self._mixed(outputs.logits, self._rows(outputs), tensors)
        for name in names:
            logits, *rows = (outputs.layers[str(View(name, layer))] for layer in (None, *self._own_layers()))
            chance = chance + self._mixed(logits, rows, tensors)
        return at_least(chance / (1 + len(names)) if names else chance, LEAST)

    def _mixed(self, logits: Array, rows: Sequence[Array], tensors: Mapping[str, Array]) -> Array:
        facts = {} if self.fitted is None else self.fitted.facts
        own = softmax(class_logits(logits) / facts.get("temperature", self.temperature))
        if self.share == 1:
            return own
        chance = self.share * own
        for weight, found in self._heads(rows, tensors):
            head = softmax(found)
            head = head if head.dtype == own.dtype else namespace(head).astype(head, own.dtype)
            chance = chance + weight * head
        return chance

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        return self._classified(outputs, super()._checked(outputs, fitted))

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        return self.contrast(self.class_probabilities(outputs, tensors), outputs.logits, asked=outputs.task == "tokens")

    def contrast(self, chance: Array, logits: Array, asked: bool = False) -> Array:
        """Return the score of the predicted class, (N,), from the posterior (N, C), without checks.

        If `asked`, as for tokens, return the score of class 1 ("the prediction is correct") instead.
        """
        xp = namespace(chance)
        predicted = xp.argmax(class_logits(logits), axis=1)
        return contrast(chance, xp.ones_like(predicted) if asked else predicted)

    @abstractmethod
    def _heads(self, rows: Sequence[Array], tensors: Mapping[str, Array]) -> Sequence[tuple[float, Array]]:
        """Return the weight and the logits (N, C) of each head."""

    @abstractmethod
    def _own_layers(self) -> tuple[Any, ...]:
        """Return the layers that the heads read; empty if the heads read the features or are not used."""

    def _rows(self, outputs: Outputs) -> Sequence[Array]:
        """Return the inputs of the heads."""
        return [outputs.layers[str(layer)] for layer in self._own_layers()]

    @property
    def layers(self) -> tuple[Any, ...]:
        own = self._own_layers()
        return (*own, *(View(name, layer) for name in self._view_names() for layer in (None, *own)))

    def _view_names(self) -> tuple[str, ...]:
        if self.views == 1:
            return ()
        known = () if self.reads_features else self._require_fitted().facts.get("views", ())
        if self.views > 1 + len(known):
            why = "the fit found no more views on which the model remains accurate"
            if not known:
                why = "the fit did not test mirrored or shifted images, or the model is less accurate on them"
            raise Problem("views", f"{self.views}", expected=f"at most {1 + len(known)}", hint=why)
        return tuple(known[: self.views - 1])

    def _needed(self, fitted: Fitted | None) -> tuple[Any, ...]:
        return self.layers if fitted else self._own_layers()


def cooled(temperature: float, share: float) -> dict[str, float]:
    r"""Return the fact that replaces a temperature T for a share s above one half: :math:`1 + 2 (T - 1) (1 - s)`.

    If the score depends mostly on the softmax, it should rank predictions as the softmax response does.
    """
    return {"temperature": 1 + 2 * (temperature - 1) * (1 - share)} if share > 0.5 else {}


def best_shares(chances: Array, perturbed: np.ndarray, doubt: float = 0.0) -> list[float]:
    r"""Return the mixture weights that maximise a penalised likelihood of held-out labels, rounded to two decimals.

    The weights maximise :math:`\overline{\log \sum_k w_k c_k} + d \log w_0`, where the bar denotes a mean in which
    clean and perturbed rows have the same total weight.

    Args:
        chances: The probability :math:`c_k` that each component assigns to the label of each row, (K, N). The first
            component is the network.
        perturbed: True for perturbed copies, (N,).
        doubt: :math:`d`, the assumed fraction of inputs on which only the network is right.
    """
    chances = np.maximum(np.asarray(chances, np.float64), LEAST)
    groups = [group for group in (perturbed, ~perturbed) if group.any()]
    weights = np.full((len(chances), 1), 1 / len(chances))
    for _ in range(ROUNDS):
        parts = weights * chances
        parts /= parts.sum(0)
        weights = np.mean([parts[:, group].mean(1, keepdims=True) for group in groups], axis=0)
        weights[0] += doubt
        weights /= weights.sum()
    shares = weights[:, 0].round(2)
    shares[-1] = max(0.0, round(1 - shares[:-1].sum(), 2))
    return shares.tolist()


def folds(labels: np.ndarray, seed: int, count: int) -> np.ndarray:
    """Assign inputs to `count` random folds, stratified by class; return the index of each input's fold, (N,)."""
    order = np.lexsort((np.random.default_rng(seed).random(len(labels)), labels))
    parts = np.empty(len(labels), np.int64)
    parts[order] = np.arange(len(labels)) % count
    return parts


def parts_of(count: int) -> int:
    """Return the number of folds for `count` inputs: 10, or more to limit each fold to about `MANY` inputs."""
    return max(10, count // MANY)
