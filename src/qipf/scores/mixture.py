"""A posterior over classes that is in part the softmax of the network, averaged over views of the input."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from qipf._common.errors import Problem, check_whole
from qipf.arrays import Array, namespace
from qipf.scores.base import Fitted, Scorer
from qipf.scores.coordinates import class_logits, contrast, softmax
from qipf.tasks.outputs import Outputs
from qipf.tasks.views import View

LEAST = math.exp(-80)
"""The least probability of a class, so that the score stays finite in single precision."""

SEEN_COPIES = 2
"""Perturbed copies of each held-out input that count when a share is chosen."""


class Mixture(Scorer):
    r"""The contrast of the network's class under a posterior that is in part the network's own.

    With :math:`h` for the softmax of `_head`, :math:`p` for that of the network at temperature :math:`T` and :math:`s`
    for `share`, the posterior over classes and the score of the predicted class :math:`c^*` are

    .. math:: q = (1 - s)\, h + s\, p, \qquad u = \log(1 - q_{c^*}) - \log q_{c^*}.

    With `views` above 1, :math:`q` is the mean over the input and views of it. No probability is below :math:`e^{-80}`.
    """

    share: float
    temperature: float
    views: int
    likelihood: float = -math.inf
    """the mean log-likelihood of held-out labels, if the share was chosen by it in this process"""

    def with_views(self, views: int) -> Self:
        """Return this scorer with another number of views, without its attachments."""
        check_whole("views", views, 1)
        if views == self.views:
            return self
        other = copy.copy(self)
        other.views, other._attachments = views, {}
        other._view_names()
        return other

    def posterior(self, outputs: Outputs | Array) -> Array:
        """Return the probability of every class, (N, C): often a better prediction than the network's.

        Args:
            outputs: From `qipf.collect(model, data, layers=scorer.layers)`.
        """
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        return self.class_probabilities(checked, self._placed(fitted, checked.logits))

    def class_probabilities(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        """Return the posterior without any check, from the given tensors, as a compiled or exported graph traces it."""
        names = self._view_names()
        chance = self._mixed(outputs.logits, self._rows(outputs) if self.share < 1 else None, tensors)
        for name in names:
            logits, *rows = (outputs.layers[str(View(name, layer))] for layer in (None, *self._own_layers()))
            chance = chance + self._mixed(logits, rows[0] if rows else None, tensors)
        return namespace(chance).clip(chance / (1 + len(names)) if names else chance, LEAST, None)

    def _mixed(self, logits: Array, rows: Array | None, tensors: Mapping[str, Array]) -> Array:
        own = softmax(class_logits(logits) / self.temperature)
        if rows is None:
            return own
        head = softmax(self._head(rows, tensors))
        head = head if head.dtype == own.dtype else namespace(head).astype(head, own.dtype)
        return (1 - self.share) * head + self.share * own

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        return self.contrast(self.class_probabilities(outputs, tensors), outputs.logits, asked=outputs.task == "tokens")

    def contrast(self, chance: Array, logits: Array, asked: bool = False) -> Array:
        """Return the score of the class that the network predicts, (N,), from the posterior (N, C); without any check.

        A probe of tokens is `asked` if the predicted token is right, so there it is always the score of class 1.
        """
        xp = namespace(chance)
        predicted = xp.argmax(class_logits(logits), axis=1)
        return contrast(chance, xp.ones_like(predicted) if asked else predicted)

    @abstractmethod
    def _head(self, rows: Array, tensors: Mapping[str, Array]) -> Array:
        """Return logits of the classes, (N, C)."""

    @abstractmethod
    def _rows(self, outputs: Outputs) -> Array:
        """Return the input of `_head`."""

    @abstractmethod
    def _own_layers(self) -> tuple[Any, ...]:
        """Return the layer that `_head` reads, if it is not the features."""

    @property
    def layers(self) -> tuple[Any, ...]:
        """The layers that it reads, of the inputs and of their views."""
        own = self._own_layers()
        return (*own, *(View(name, layer) for name in self._view_names() for layer in (None, *own)))

    def _view_names(self) -> tuple[str, ...]:
        if self.views == 1:
            return ()
        known = self._require_fitted().facts.get("views", ())
        most = 1 if self.reads_features else 1 + len(known)
        if self.views > most:
            raise Problem(
                "views", f"{self.views}", expected=f"at most {most}, the views on which the model was accurate"
            )
        return tuple(known[: self.views - 1])

    def _needed(self, fitted: Fitted | None) -> tuple[Any, ...]:
        return self.layers if fitted else self._own_layers()


def best_share(
    head: np.ndarray, own: np.ndarray, perturbed: np.ndarray | None = None, doubt: float = 0.0
) -> tuple[float, float]:
    r"""Return the share that makes the labels of held-out rows most likely, and their mean log-likelihood.

    It maximises :math:`\overline{\log((1 - s) h + s p)} + d \log s`; clean and perturbed rows count equally. The
    network was trained on these inputs, so they hardly show its errors: :math:`d` makes a head prove itself.

    Args:
        head: (N,) the probability :math:`h` that the head gives to the label of each row.
        own: (N,) the probability :math:`p` of the network's softmax.
        perturbed: (N,) True for perturbed copies of inputs; None if there are none.
        doubt: Inputs on which the head is assumed to be wrong and the network right, per input that was held out.
    """
    perturbed = np.zeros(len(head), bool) if perturbed is None else perturbed
    kinds = [kind for kind in (perturbed, ~perturbed) if kind.any()]
    shares = np.arange(101) / 100

    def likelihood(share: float) -> float:
        mixed = np.maximum((1 - share) * head + share * own, LEAST)
        return float(np.mean([np.log(mixed[kind]).mean() for kind in kinds]) + doubt * np.log(max(share, LEAST)))

    best = max(shares, key=likelihood)
    return float(best), likelihood(best)
