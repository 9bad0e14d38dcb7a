"""Two-sample tests that compare live and held-out predictions without labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qipf._common.errors import check_probability

MOST_SCORES = 2_000
MOST_ROWS = 500
"""The maximum number of held-out feature rows to store, and of live rows to compare."""
PERMUTATIONS = 999


@dataclass(frozen=True)
class Check:
    """The result of `Decision.check`.

    Attributes:
        alike: True if the tests find no significant difference.
        p_value: The combined p-value of the tests, with a Bonferroni correction.
        level: The false-alarm rate.
        tests: The p-value of each test, keyed by "scores" and, if `Outputs` were compared, "features" or "logits".
    """

    alike: bool
    p_value: float
    level: float
    tests: dict[str, float]

    def __str__(self) -> str:
        found = ", ".join(f"{name} p = {p:.3g}" for name, p in self.tests.items())
        if self.alike:
            return f"no sign of a change ({found}; false-alarm rate {self.level:g})"
        return (
            f"the inputs have changed ({found}; false-alarm rate {self.level:g}): the promise no longer holds; "
            "label new examples and fit the decision again"
        )


def compare(reference: dict[str, np.ndarray], live: dict[str, np.ndarray], level: float, seed: int = 0) -> Check:
    """Compare scores with a Kolmogorov-Smirnov test, and matrices with an energy-distance test.

    The Kolmogorov-Smirnov test is conservative if scores are tied.
    """
    check_probability("level", level)
    tests: dict[str, float] = {}
    for name in (name for name in reference if name in live):
        before, now = reference[name], live[name]
        if len(now) == 0 or len(before) == 0:
            raise ValueError(
                f"{name}: expected held-out and live rows, got {len(before)} held-out and {len(now)} live rows"
            )
        tests[name] = _scores_p(before, now) if before.ndim == 1 else energy_p(before, now, seed)
    if not tests:
        raise ValueError(
            f"outputs: expected {' and '.join(reference)} (as in the held-out data), got {', '.join(live)}"
        )
    p_value = min(1.0, len(tests) * min(tests.values()))
    return Check(p_value > level, p_value, level, tests)


def _scores_p(before: np.ndarray, now: np.ndarray) -> float:
    from scipy import stats  # imported here because it takes longer to import than the rest of qipf

    return float(stats.ks_2samp(before, now).pvalue)  # pyright: ignore[reportAttributeAccessIssue]


def energy_p(before: np.ndarray, now: np.ndarray, seed: int = 0) -> float:
    r"""Return the p-value of a permutation test based on the energy distance; columns are scaled to unit variance.

    .. math::  2 E|X - Y| - E|X - X'| - E|Y - Y'|
    """
    random = np.random.default_rng(seed)
    now = some_rows(now, MOST_ROWS, random)
    if before.shape[1] != now.shape[1]:
        raise ValueError(f"outputs: expected {before.shape[1]} columns (as in the held-out data), got {now.shape[1]}")
    both = np.concatenate([before, now]).astype(np.float64)
    spread = both.std(axis=0)
    both = both[:, spread > 0] / spread[spread > 0]
    if both.shape[1] == 0:
        return 1.0
    distances = _distances(both)
    signs = np.concatenate([np.full(len(before), 1 / len(before)), np.full(len(now), -1 / len(now))])
    drawn = np.stack([signs, *(random.permutation(signs) for _ in range(PERMUTATIONS))])
    energies = -np.einsum("pi,pi->p", drawn @ distances, drawn)
    return float(np.mean(energies >= energies[0] * (1 - 1e-12)))


def _distances(rows: np.ndarray) -> np.ndarray:
    """Return the Euclidean distances between all pairs of rows, using a matrix product for speed."""
    rows = rows - rows.mean(axis=0)
    lengths = np.square(rows).sum(axis=1)
    squares = lengths[:, None] + lengths - 2 * rows @ rows.T
    np.fill_diagonal(squares, 0.0)
    return np.sqrt(np.maximum(squares, 0.0))


def some_rows(values: np.ndarray, most: int, random: np.random.Generator) -> np.ndarray:
    """Return at most `most` rows, drawn at random."""
    return values if len(values) <= most else values[np.sort(random.choice(len(values), most, replace=False))]
