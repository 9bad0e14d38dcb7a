"""Estimate the accuracy of live predictions without labels, as the mean of one value per prediction.

The method determines this value:

* "probability": one minus the error probability computed from the score.
* "atc": 1 if the score is at most a threshold, and 0 otherwise. The threshold is chosen such that the mean of these
  values equals the accuracy on held-out data (average thresholded confidence; Garg et al., 2022).
* "confidence": the largest softmax probability (average confidence; Hendrycks and Gimpel, 2017).
* "difference": the largest softmax probability, shifted by the difference between accuracy and average confidence on
  held-out data (difference of confidences; Guillory et al., 2021).
* "posterior": the probability of the predicted class under the scorer's posterior.
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
    """Return the accuracy, the ATC threshold and the mean confidence of labelled held-out predictions."""
    correct = to_numpy(outputs.correct).astype(bool)
    accuracy = float(correct.mean())
    facts = {"accuracy": accuracy, "atc_threshold": float(np.quantile(scores, accuracy, method="inverted_cdf"))}
    if not correct.any():
        facts["atc_threshold"] = float(np.nextafter(scores.min(), -np.inf))
    return facts | {"confidence": float(confidences(outputs).mean())}


def confidences(outputs: Outputs) -> np.ndarray:
    """Return the largest softmax probability of each prediction."""
    return posterior(None, outputs).max(axis=1)


def per_prediction(scorer: Scorer, outputs: Outputs, facts: Mapping[str, float]) -> dict[str, np.ndarray]:
    """Return the estimates that need more than the scores, one value per prediction, keyed by method."""
    sure = confidences(outputs)
    found = {"confidence": sure, "difference": sure + facts["accuracy"] - facts["confidence"]}
    if hasattr(scorer, "posterior"):
        classes = to_numpy(posterior(scorer, outputs))
        predicted = to_numpy(predicted_classes(outputs.logits))
        found["posterior"] = classes[np.arange(len(classes)), predicted]
    return found
