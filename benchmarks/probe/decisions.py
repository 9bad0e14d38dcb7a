"""What becomes of estimated accuracies, promises and prediction sets in every condition of the probe study.

Everything is learned from held-out images, as a user would, and judged on each condition. "perturbed" are the held-out
images with perturbed copies of each; no image of a condition is among them. results/probe/PROTOCOL.md names the
statistic and the bars.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from qipf.arrays import to_numpy
from qipf.decisions.accuracy import held_out_facts, per_prediction
from qipf.decisions.decision import Decision
from qipf.decisions.probability import ENOUGH_ERRORS, ErrorProbability
from qipf.decisions.sets import PredictionSets, posterior
from qipf.decisions.threshold import Unsupported
from qipf.decisions.two_sample import some_rows
from qipf.scores import Entropy, Probe, SoftmaxResponse
from qipf.scores.base import Scorer
from qipf.tasks.outputs import Outputs

LIMITS = (0.005, 0.01, 0.02, 0.05)
"""Error rates that are promised, with 95 % confidence."""
COVERAGE = 0.9
FEW = 500
"""Live predictions of the smaller check."""


class Known(NamedTuple):
    """What is learned about one scorer from held-out data."""

    scorer: Scorer
    facts: dict[str, float]
    clean: ErrorProbability
    perturbed: ErrorProbability
    decisions: dict[float, Decision]
    reference: Decision


class Judge:
    """Judges the outputs of each condition by what was learned from held-out ones.

    Args:
        probe: fitted to the network.
        held_out: outputs of held-out images, with labels.
        perturbed: outputs of the same images and of perturbed copies of them, with labels.
    """

    def __init__(self, probe: Probe, held_out: Outputs, perturbed: Outputs) -> None:
        scorers = {"probe": probe, "entropy": Entropy()}
        self.known = {name: _learn(scorer, held_out, perturbed) for name, scorer in scorers.items()}
        self.softmax = held_out_facts(held_out, _scores(SoftmaxResponse(), held_out))
        own = per_prediction(probe, held_out, self.softmax)["posterior"]
        self.gap = self.softmax["accuracy"] - float(own.mean())
        self.probe = probe
        fitted = {"softmax": posterior(None, held_out), "posterior": to_numpy(probe.posterior(held_out))}
        self.sets = {name: PredictionSets(COVERAGE).fit(p, held_out.labels) for name, p in fitted.items()}

    def facts(self) -> dict[str, Any]:
        """Accuracy on the held-out images, and what each promise was proven to accept of them."""
        shares = {
            name: {f"{limit:g}": _short(decision.proof.share) for limit, decision in known.decisions.items()}
            for name, known in self.known.items()
        }
        return {"accuracy": _short(self.softmax["accuracy"]), "accepted": shares}

    def __call__(self, outputs: Outputs, labels: Any) -> dict[str, Any]:
        """Estimated and true accuracy, shares accepted and their errors, p-values of the checks, and coverages."""
        labels = to_numpy(labels)
        predicted = to_numpy(outputs.predicted)
        correct = predicted == labels
        scores = {name: _scores(known.scorer, outputs) for name, known in self.known.items()}
        own = to_numpy(self.probe.posterior(outputs)).astype(np.float64)
        probabilities = {"softmax": posterior(None, outputs), "posterior": own}
        covered = {}
        for name, sets in self.sets.items():
            inside = sets(probabilities[name])
            covered[name] = [_short(inside[np.arange(len(labels)), labels].mean()), _short(inside.sum(axis=1).mean())]
        return {
            "accuracy": _short(correct.mean()),
            "estimates": self._estimates(outputs, scores, own, predicted),
            "promises": {name: self._promises(name, scores[name], correct) for name in scores},
            "checks": self._checks(outputs, scores),
            "sets": covered,
        }

    def _estimates(
        self, outputs: Outputs, scores: dict[str, np.ndarray], own: np.ndarray, predicted: np.ndarray
    ) -> dict[str, float]:
        usual = per_prediction(self.probe, outputs, self.softmax)
        least = _scores(SoftmaxResponse(), outputs) <= self.softmax["atc_threshold"]
        found = {**usual, "posterior, difference": usual["posterior"] + self.gap}
        found |= {"agreement": own.argmax(axis=1) == predicted, "atc, max softmax": least}
        for name, known in self.known.items():
            found[f"atc, {name}"] = scores[name] <= known.facts["atc_threshold"]
            found[f"probability, {name}"] = 1 - np.asarray(known.clean(scores[name]))
            found[f"probability of perturbed, {name}"] = 1 - np.asarray(known.perturbed(scores[name]))
        return {name: _short(values.mean()) for name, values in sorted(found.items())}

    def _promises(self, name: str, scores: np.ndarray, correct: np.ndarray) -> dict[str, list[float | None]]:
        """For each promise that is proven on held-out data: the share accepted and its error rate."""
        found = {}
        for limit, decision in self.known[name].decisions.items():
            accepted = np.asarray(decision.accept(scores))
            wrong = None if not accepted.any() else _short(1 - correct[accepted].mean())
            found[f"{limit:g}"] = [_short(accepted.mean()), wrong]
        return found

    def _checks(self, outputs: Outputs, scores: dict[str, np.ndarray]) -> dict[str, float]:
        """P-values of `Decision.check`, of the scores alone and, on `FEW` rows, of the probe's features as well."""
        found = {}
        rows = some_rows(np.arange(len(outputs)), FEW, np.random.default_rng(0))
        for name, known in self.known.items():
            found[name] = _p(known.reference.check(scores[name]).p_value)
            found[f"{name}, {FEW} rows"] = _p(known.reference.check(scores[name][rows]).p_value)
        found[f"probe and features, {FEW} rows"] = _p(self.known["probe"].reference.check(outputs[rows]).p_value)
        return found


def _learn(scorer: Scorer, held_out: Outputs, perturbed: Outputs) -> Known:
    scores, correct = _scores(scorer, held_out), to_numpy(held_out.correct)
    method = "isotonic" if (~correct).sum() >= ENOUGH_ERRORS else "logistic"  # as Monitor chooses
    decisions = {}
    for limit in LIMITS:
        try:
            decisions[limit] = Decision(f"error<={limit:g}").fit_scorer(scorer, held_out)
        except Unsupported:
            continue
    return Known(
        scorer,
        held_out_facts(held_out, scores),
        ErrorProbability(method).fit(scores, correct),
        ErrorProbability().fit(_scores(scorer, perturbed), perturbed.correct),
        decisions,
        Decision("accept>=0.5").fit_scorer(scorer, held_out),
    )


def _scores(scorer: Scorer, outputs: Outputs) -> np.ndarray:
    return to_numpy(scorer(outputs)).astype(np.float64)


def _short(value: float) -> float:
    return round(float(value), 5)


def _p(value: float) -> float:
    """Three significant digits; below 1e-300 it is 0."""
    return 0.0 if value < 1e-300 else round(value, 2 - math.floor(math.log10(value)))
