"""Where a claim of the paper does not hold: small experiments that show why.

python benchmarks/why.py [--data FOLDER] [--out results/paper]     # minutes on two cores, MNIST only

Five LeNets of three epochs, 2,000 test images under every shift at every intensity. Three of the networks are base
networks; all five make an ensemble. Each experiment leaves a JSON file, which docs/reproduction.md quotes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from qipf import Outputs, collect
from qipf.decisions.probability import ErrorProbability
from qipf.metrics import evaluate, point_biserial, roc_auc, spearman
from qipf.scores import WeightQIPF
from qipf.study import shifts
from qipf.study.nets import build
from qipf.study.run.study_data import StudyData, load_data
from qipf.training import train

NETWORKS, BASES, EPOCHS, IMAGES, REFERENCES = 5, 3, 3, 2000, 20_000
SCORERS: dict[str, dict[str, Any]] = {
    "authors' program, factor 80": {"operator": "published", "factor": 80},
    "exact, factor 20": {"factor": 20},
    "exact, factor 40": {"factor": 40},
    "exact, factor 80": {"factor": 80},
    "exact, factor 160": {"factor": 160},
    "exact, factor 320": {"factor": 320},
    "exact, cross-validated factor": {"factor": "cv"},
    "undecomposed potential V_0, factor 80": {"orders": (0,), "factor": 80},
    "exact, factor 80, minimum over the batch": {"factor": 80, "lower_bound": "batch"},
}
POWERS = {"power 1/4": 0.25, "power 1/2": 0.5, "as it is": 1.0, "power 2": 2.0, "power 4": 4.0}


def main() -> None:
    """Train, predict, and write one file an experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the dataset's files; QIPF_DATA if left out")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "paper")
    given = parser.parse_args()
    data = load_data("mnist", 5000, given.data, "cpu")
    networks = [
        train(build("lenet", seed=seed), data.train, epochs=EPOCHS, learning_rate=4e-3, seed=seed)
        for seed in range(NETWORKS)
    ]
    conditions = [_conditions(net, data) for net in networks]
    given.out.mkdir(parents=True, exist_ok=True)
    for name, found in (
        ("one-number", [one_number(net, data, own) for net, own in zip(networks[:BASES], conditions, strict=False)]),
        ("calibration", [calibration(net, data, own) for net, own in zip(networks[:BASES], conditions, strict=False)]),
        ("spread", [spread(conditions, base) for base in range(BASES)]),
    ):
        (given.out / f"why-{name}.json").write_text(json.dumps(_mean(found), indent=1) + "\n")


def one_number(net: Any, data: StudyData, conditions: list[Outputs]) -> dict[str, Any]:
    """QIPF beside the max logit: which pairs of a wrong and a right prediction do the two order differently?

    The difference of their ROC-AUCs is the share of pairs that QIPF alone gets right, less the share that it alone gets
    wrong. "stopped" is QIPF with its coordinate held at the place where the score is lowest, so that it never rises
    for surer predictions. Reliability is that of proper calibration.
    """
    reference = collect(net, data.train.inputs[:REFERENCES], features=False, progress=False).numpy()
    held_out = collect(net, data.held_out, features=False, progress=False).numpy()
    metrics = {"roc_auc": roc_auc, "point_biserial": point_biserial, "spearman": spearman}
    result: dict[str, Any] = {"max logit": {key: _average(conditions, _top, metric) for key, metric in metrics.items()}}
    result["max logit"]["reliability"] = _reliability(_top, held_out, conditions)
    for name, settings in SCORERS.items():
        scorer = WeightQIPF(**settings).fit(net, held_out if settings["factor"] == "cv" else reference)
        lowest = _lowest(scorer, conditions)
        stopped = partial(_score_stopped, scorer, lowest)
        result[name] = {
            "factor": scorer.fitted.facts["factor"],
            **{key: _average(conditions, scorer, metric) for key, metric in metrics.items()},
            "won": _average(conditions, lambda o, s=scorer: (s(o), _top(o)), _ordered_by_first_alone),
            "lost": _average(conditions, lambda o, s=scorer: (_top(o), s(o)), _ordered_by_first_alone),
            "rising side": float(np.mean([(-_top(o) > lowest).mean() for o in conditions])),
            "stopped": _average(conditions, stopped, roc_auc),
            "reliability": _reliability(scorer, held_out, conditions),
            "reliability, stopped": _reliability(stopped, held_out, conditions),
        }
    return result


def calibration(net: Any, data: StudyData, conditions: list[Outputs]) -> dict[str, Any]:
    """One ranking, several scales: what the paper's calibration measures, and what the proper one does.

    The softmax response is raised to powers, which changes no ranking; then one of 2,000 scores is made ten times the
    largest, which hardly does.
    """
    held_out = collect(net, data.held_out, features=False, progress=False).numpy()
    scores: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        name: lambda u, p=power: u**p for name, power in POWERS.items()
    }
    scores["as it is, one score ten times the largest"] = lambda u: np.append(10 * u.max(), u[1:])
    result = {}
    for name, change in scores.items():
        calibrator = ErrorProbability().fit(change(_response(held_out)), held_out.correct)
        found = []
        for outputs in conditions:
            u = change(_response(outputs))
            found.append(evaluate(u, outputs.correct, probability=calibrator(u), bootstrap=0))
        wanted = ("roc_auc", "ece_paper", "brier_paper", "ece_proper", "brier_proper", "point_biserial", "spearman")
        result[name] = {metric: float(np.nanmean([values[metric] for values in found])) for metric in wanted}
    return result


def spread(conditions: list[list[Outputs]], base: int) -> dict[str, Any]:
    """An ensemble's standard deviation of the predicted class, and the entropy of its mean, by what members say."""
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("wrong", "group", "std", "entropy")}
    areas: dict[str, list[float]] = {"std": [], "entropy": []}
    for members in zip(*conditions, strict=True):
        chances = np.stack([softmax(np.asarray(o.logits, np.float64), axis=1) for o in members])
        mean = chances.mean(axis=0)
        predicted = mean.argmax(axis=1)
        own = np.take_along_axis(chances, predicted[None, :, None], axis=2)[..., 0]  # members by images
        scores = {"std": own.std(axis=0), "entropy": -(mean * np.log(np.maximum(mean, 1e-300))).sum(axis=1)}
        correct = np.asarray(members[base].correct)
        agree = (chances.argmax(axis=2) == predicted).all(axis=0)
        doubt = own.mean(axis=0) < 0.8
        rows["wrong"].append(~correct)
        rows["group"].append(np.where(agree, np.where(doubt, 1, 0), 2))
        for name, values in scores.items():
            areas[name].append(roc_auc(values, correct))
            rows[name].append(values.argsort().argsort() / (len(values) - 1))  # 0: the surest of its condition
    joined = {name: np.concatenate(parts) for name, parts in rows.items()}
    groups = ("members agree and are sure", "members agree and doubt", "members disagree")
    return {
        "roc_auc": {name: float(np.nanmean(values)) for name, values in areas.items()},
        **{
            name: {
                "share": float((joined["group"] == number).mean()),
                "error rate": float(joined["wrong"][joined["group"] == number].mean()),
                **{score: float(joined[score][joined["group"] == number].mean()) for score in areas},
            }
            for number, name in enumerate(groups)
        },
    }


def _conditions(net: Any, data: StudyData) -> list[Outputs]:
    images, labels = data.test.inputs[:IMAGES], data.test.targets[:IMAGES]
    return [
        collect(net, (shifts.apply(images, name, t), labels), features=False, progress=False).numpy()
        for name, intensities in shifts.SHIFTS.items()
        for t in intensities
    ]


def _top(outputs: Outputs) -> np.ndarray:
    return -np.asarray(outputs.logits, np.float64).max(axis=1)


def _response(outputs: Outputs) -> np.ndarray:
    return 1 - softmax(np.asarray(outputs.logits, np.float64), axis=1).max(axis=1)


def _average(conditions: list[Outputs], score: Callable[[Outputs], Any], metric: Callable[[Any, Any], float]) -> float:
    return float(np.nanmean([metric(score(outputs), np.asarray(outputs.correct)) for outputs in conditions]))


def _reliability(score: Callable[[Outputs], Any], held_out: Outputs, conditions: list[Outputs]) -> float:
    """How far probabilities of error, fitted on clean data, are from the shares of errors under shift."""
    calibrator = ErrorProbability().fit(score(held_out), held_out.correct)
    found = []
    for outputs in conditions:
        u = score(outputs)
        values = evaluate(u, outputs.correct, probability=calibrator(u), bootstrap=0)
        found.append(values["brier_proper_reliability"])
    return float(np.nanmean(found))


def _ordered_by_first_alone(scores: tuple[np.ndarray, np.ndarray], correct: np.ndarray) -> float:
    """The share of pairs of a wrong and a right prediction that the first score orders and the second does not."""
    above = [(u[~correct][:, None] > u[correct]) + 0.5 * (u[~correct][:, None] == u[correct]) for u in scores]
    return float(np.maximum(above[0] - above[1], 0).mean()) if above[0].size else float("nan")


def _lowest(scorer: WeightQIPF, conditions: list[Outputs]) -> float:
    """The max logit at which the score is lowest, on a grid over all predictions."""
    every = np.concatenate([-_top(outputs) for outputs in conditions])
    grid = np.linspace(every.min(), every.max(), 4001)
    logits = np.full((len(grid), 10), grid.min() - 50)
    logits[:, 0] = grid
    return float(grid[np.argmin(scorer(logits))])


def _score_stopped(scorer: WeightQIPF, at: float, outputs: Outputs) -> Any:
    return scorer(_stopped(outputs, at))


def _stopped(outputs: Outputs, at: float) -> np.ndarray:
    logits = np.full((len(outputs), 10), min(at, _top(outputs).min()) - 50.0)
    logits[:, 0] = np.minimum(-_top(outputs), at)
    return logits


def _mean(found: list[Any]) -> Any:
    """The mean over networks of every number in a nest of dictionaries; numbers that differ little stay readable."""
    if isinstance(found[0], Mapping):
        return {key: _mean([each[key] for each in found]) for key in found[0]}
    return round(float(np.mean(found)), 4)


if __name__ == "__main__":
    main()
