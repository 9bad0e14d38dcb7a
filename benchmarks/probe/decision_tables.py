"""Tables of promises and estimated accuracies under shift, from results/probe/*-decisions.json.gz."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evidence.marks import table, value
from evidence.results import NOTHING, Missing, Results, markdown, number
from probe.reading import GROUPS, PAIRS, heads
from qipf.decisions.monitor import Monitor

SHIFTED = ("shift", "unseen", "resembling")
LEVEL = 0.01
"""The false-alarm rate of the checks."""
CHOSEN = "probability, probe"
"""The estimate that the protocol chose in advance."""
DEFAULT = {"atc": "atc, probe", "posterior": "posterior"}[Monitor().method]
"""The estimate of `Monitor` with the probe as its scorer, which was chosen after the results were known."""
CONFIDENCE, ATC = "confidence", ("atc, max softmax", "atc, entropy")
LARGEST = 0.05
"""The maximum error of the estimated accuracy that the protocol allows."""
LEAST = 3
"""The number of pairs on which the protocol requires an estimate to be better than both rivals."""
NAMES = {
    "probability, probe": "probability of error, from the probe's score",
    "probability of perturbed, probe": "probability of error, from the probe's score, learned from perturbed copies",
    "atc, probe": "ATC with the probe's score",
    "posterior": "the probe's posterior",
    "posterior, difference": "the probe's posterior, corrected by its error on held-out data",
    "agreement": "agreement of the network with the probe's posterior",
    "probability, entropy": "probability of error, from the entropy",
    "probability of perturbed, entropy": "probability of error, from the entropy, learned from perturbed copies",
    "atc, entropy": "ATC with the negative entropy",
    "atc, max softmax": "ATC with the largest probability",
    "confidence": "average confidence",
    "difference": "difference of confidences",
}
SCORES = {"probe": "the probe", "entropy": "entropy"}
CHECKS = {
    "probe": "the probe's scores, 8,000 predictions",
    "entropy": "entropies, 8,000 predictions",
    "probe, 500 rows": "the probe's scores, 500 predictions",
    "entropy, 500 rows": "entropies, 500 predictions",
    "probe and features, 500 rows": "the probe's scores and features, 500 predictions",
}


class Record:
    """Measurements on the networks of one pair."""

    def __init__(self, path: Path) -> None:
        about = json.loads(gzip.decompress(path.read_bytes()))
        self.listed: list[dict[str, Any]] = about["conditions"]
        self.networks: list[dict[str, Any]] = list(about["networks"].values())

    def places(self, *groups: str, family: str = "") -> list[int]:
        """Return the indices of conditions by group and family."""
        return [n for n, c in enumerate(self.listed) if c["group"] in groups and family in ("", c["family"])]

    def error(self, estimator: str, *groups: str) -> float:
        """Return the mean absolute error of an estimated accuracy."""
        places = self.places(*groups)
        errors = [
            [abs(rows[n]["estimates"][estimator] - rows[n]["accuracy"]) for n in places]
            for rows in (network["conditions"] for network in self.networks)
        ]
        return float(np.mean(errors))

    @property
    def limit(self) -> float | None:
        """The promise to quote: 1% or the smallest that all networks support."""
        shares = [network["held_out"]["accepted"][score] for network in self.networks for score in SCORES]
        supported = sorted(float(limit) for limit in set.intersection(*(set(share) for share in shares)))
        return 0.01 if 0.01 in supported else next(iter(supported), None)

    def accepted(self, score: str, places: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the accepted fraction and its error rate by condition; NaN if nothing is accepted."""
        found = np.array(
            [[self.promise(network, n, score) for n in places] for network in self.networks], dtype=np.float64
        )
        share, wrong = found[..., 0], found[..., 1]
        known = np.isfinite(wrong)
        total = np.where(known, wrong, 0.0).sum(axis=0)
        return share.mean(axis=0), np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)

    def promise(self, network: dict[str, Any], place: int, score: str) -> list[float]:
        """Return one network's accepted fraction and its error rate."""
        share, wrong = network["conditions"][place]["promises"][score][f"{self.limit:g}"]
        return [share, np.nan if wrong is None else wrong]

    def error_rates(self, score: str, family: str) -> tuple[float, float, float, float]:
        """Return the error rates of accepted, flagged and all predictions of a family, and the accepted fraction.

        Means over intensities and networks leave out empty groups.
        """
        places = [n for n, c in enumerate(self.listed) if c["family"] == family and c["group"] in ("clean", *SHIFTED)]
        rows = []
        for network in self.networks:
            for n in places:
                share, wrong = self.promise(network, n, score)
                every = 1 - network["conditions"][n]["accuracy"]
                rest = every - (share * wrong if share else 0.0)
                rows.append((wrong, rest / (1 - share) if share < 1 else np.nan, every, share))
        accepted, flagged, every, share = np.nanmean(np.array(rows, dtype=np.float64), axis=0)
        return float(accepted), float(flagged), float(every), float(share)

    def raised(self, check: str, places: list[int]) -> np.ndarray:
        """Return the alarms (networks, conditions) of a check."""
        rows = [network["conditions"] for network in self.networks]
        return np.array([[found[n]["checks"][check] <= LEVEL for n in places] for found in rows])

    def sets(self, source: str, *groups: str) -> tuple[float, float]:
        """Return the mean coverage and size of prediction sets."""
        rows = [network["conditions"][n]["sets"][source] for network in self.networks for n in self.places(*groups)]
        coverage, size = np.mean(rows, axis=0)
        return float(coverage), float(size)


@cache
def read(folder: Path) -> dict[str, Record]:
    """Return the measurements by pair."""
    paths = {name: folder / "probe" / f"{name}-decisions.json.gz" for name in PAIRS}
    found = {name: Record(path) for name, path in paths.items() if path.is_file()}
    if not found:
        raise Missing("probe/*-decisions.json.gz")
    return found


@table("decisions-estimates")
def estimates(results: Results) -> str:
    """Return the mean absolute error of every estimate."""
    found = read(results.folder)
    grid = np.array([[record.error(name, *SHIFTED) for record in found.values()] for name in NAMES])
    means = grid.mean(axis=1)
    rows = []
    for n in np.argsort(means, kind="stable"):
        name = list(NAMES)[n]
        words = f"**{NAMES[name]} (the default)**" if name == DEFAULT else NAMES[name]
        rows.append([words, *(number(float(value)) for value in (*grid[n], means[n]))])
    return markdown(["mean absolute error of the estimated accuracy", *heads(found), "mean"], rows)


@table("decisions-verdict")
def verdict(results: Results) -> str:
    """Return sentences about the chosen and the default estimate."""
    found = read(results.folder)
    confidence = [record.error(CONFIDENCE, *SHIFTED) for record in found.values()]
    atc = [min(record.error(name, *SHIFTED) for name in ATC) for record in found.values()]
    rivals = list(zip(confidence, atc, strict=True))
    return (
        f"Over shifted conditions, the mean absolute error is {number(float(np.mean(confidence)))} for average "
        f"confidence and {number(float(np.mean(atc)))} for ATC with the better of its two published scores on each "
        f"pair. The protocol requires an error of at most {number(LARGEST, 2)}, and a smaller error than both of these "
        f"on at least {LEAST} of {len(PAIRS)} pairs. "
        f"{_judged(found, rivals, CHOSEN, f'The estimate chosen in advance ({NAMES[CHOSEN]})')} "
        f"{_judged(found, rivals, DEFAULT, f'The later default ({NAMES[DEFAULT]})')}"
    )


def _judged(found: dict[str, Record], rivals: list[tuple[float, float]], estimate: str, words: str) -> str:
    ours = [record.error(estimate, *SHIFTED) for record in found.values()]
    ahead = sum(own < min(theirs) for own, theirs in zip(ours, rivals, strict=True))
    mean = float(np.mean(ours))
    text = f"{words} has an error of {number(mean)}, smaller than both of these on {ahead} of {len(found)} pairs"
    if len(found) < len(PAIRS):
        return f"{text}; only {len(found)} of {len(PAIRS)} pairs have been run, so the criteria are undecided."
    met = mean <= LARGEST and ahead >= LEAST
    return f"{text}, and {'meets' if met else 'does not meet'} the criteria."


@table("decisions-promises")
def promises(results: Results) -> str:
    """Return accepted fractions and error rates by pair and score."""
    found = read(results.folder)
    rows = []
    for name, record in found.items():
        if record.limit is None:
            rows.append([PAIRS[name], "none is supported", *[NOTHING] * 5])
            continue
        clean, shifted = record.places("clean"), record.places(*SHIFTED)
        for score, words in SCORES.items():
            share, wrong = record.accepted(score, clean)
            shares, wrongs = record.accepted(score, shifted)
            broken = wrongs > record.limit
            checked = record.raised(f"{score}, 500 rows", shifted)[:, broken]
            raised = _percent(float(checked.mean()), 0) if checked.size else NOTHING
            cells = [_both(share[0], wrong[0]), _both(float(shares.mean()), _mean(wrongs))]
            cells += [f"{broken.sum()} of {len(shifted)}", raised]
            rows.append([PAIRS[name], f"at most {_percent(record.limit, 0)}", words, *cells])
    titles = ["pair", "promise", "score", "clean: accepted, error rate"]
    titles += ["shifted, mean: accepted, error rate", "conditions with a broken promise"]
    return markdown([*titles, "of these, detected by `check` in 500 predictions"], rows)


@value("decisions-broken")
def broken(results: Results, pair: str) -> str:
    """Return the range of the error rates of accepted clean predictions."""
    record = read(results.folder)[pair]
    clean = record.places("clean")[0]
    wrong = [record.promise(network, clean, "probe")[1] for network in record.networks]
    return f"{100 * min(wrong):.1f} to {_percent(max(wrong))}"


@table("decisions-families")
def families(results: Results) -> str:
    """Return the error rates of accepted predictions by family."""
    found = {name: record for name, record in read(results.folder).items() if record.limit is not None}
    if not found:
        raise Missing("promise that a pair supports")
    rows = []
    listed = dict.fromkeys((c["group"], c["family"]) for c in next(iter(found.values())).listed)
    for group, family in [place for place in listed if place[0] in ("clean", *SHIFTED)]:
        cells = []
        for record in found.values():
            places = record.places(group, family=family)
            cells.append(" / ".join(_percent(_mean(record.accepted(score, places)[1])) for score in SCORES))
        rows.append([f"{GROUPS[group]}: {family.replace('-', ' ')}" if group != "clean" else GROUPS[group], *cells])
    limits = [f"{PAIRS[name]}, at most {_percent(record.limit or 0.0, 0)}" for name, record in found.items()]
    return markdown(["error rate of accepted predictions, probe / entropy", *limits], rows)


@table("decisions-checks")
def checks(results: Results) -> str:
    """Return the alarms of the checks."""
    found = read(results.folder)
    rows = []
    for check, words in CHECKS.items():
        cells = []
        for record in found.values():
            clean, shifted = record.raised(check, record.places("clean")), record.raised(check, record.places(*SHIFTED))
            cells.append(f"{clean.sum()} of {clean.size} / {_percent(float(shifted.mean()), 0)}")
        rows.append([words, *cells])
    return markdown(["alarms: clean images, by network / shifted conditions", *heads(found)], rows)


@table("decisions-sets")
def sets(results: Results) -> str:
    """Return coverage and size of prediction sets with a promised coverage of 90%."""
    found = read(results.folder)
    rows = []
    for group in ("clean", *SHIFTED):
        for source, words in {"softmax": "softmax", "posterior": "the probe's posterior"}.items():
            both = [record.sets(source, group) for record in found.values()]
            cells = [f"{_percent(coverage, 0)}, {size:.2f} classes" for coverage, size in both]
            rows.append([f"{GROUPS[group]}: {words}", *cells])
    return markdown(["coverage and size of sets that promise 90%", *heads(found)], rows)


def _mean(values: np.ndarray) -> float:
    """Return the mean of the values that are not missing."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else np.nan


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}%" if np.isfinite(value) else NOTHING


def _both(share: float, wrong: float) -> str:
    return f"{_percent(share, 0)}, {_percent(wrong)}"
