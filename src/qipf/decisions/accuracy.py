"""Estimates of the accuracy of live predictions that need no labels: each is the mean of one number per prediction.

* "probability": one minus the probability of error, from the score.
* "atc": whether the score is below the threshold that as many held-out predictions are below as are correct (average
  thresholded confidence; Garg et al., 2022).
* "confidence": the largest softmax probability (average confidence; Hendrycks and Gimpel, 2017).
* "difference": the accuracy on held-out data plus the change of the average confidence (Guillory et al., 2021).
* "posterior": the probability that the scorer's own posterior gives to the predicted class.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qipf.arrays import to_numpy
from qipf.decisions.sets import posterior
from qipf.scores.base import Scorer
from qipf.tasks.outputs import Outputs, predicted_classes

METHODS = ("probability", "atc", "confidence", "difference", "posterior")


def held_out_facts(outputs: Outputs, scores: np.ndarray) -> dict[str, float]:
    """What the estimates need to know of labelled held-out predictions and their scores (N,)."""
    correct = to_numpy(outputs.correct).astype(bool)
    accuracy = float(correct.mean())
    facts = {"accuracy": accuracy, "atc_threshold": float(np.quantile(scores, accuracy, method="inverted_cdf"))}
    if not correct.any():
        facts["atc_threshold"] = float(np.nextafter(scores.min(), -np.inf))
    return facts | {"confidence": float(confidences(outputs).mean())}


def confidences(outputs: Outputs) -> np.ndarray:
    """The largest softmax probability of each prediction."""
    return posterior(None, outputs).max(axis=1)


def per_prediction(scorer: Scorer, outputs: Outputs, facts: Mapping[str, float]) -> dict[str, np.ndarray]:
    """The estimates that need more than scores."""
    sure = confidences(outputs)
    found = {"confidence": sure, "difference": sure + facts["accuracy"] - facts["confidence"]}
    if hasattr(scorer, "posterior"):
        classes = to_numpy(posterior(scorer, outputs))
        predicted = to_numpy(predicted_classes(outputs.logits))
        found["posterior"] = classes[np.arange(len(classes)), predicted]
    return found
