"""Comparing scores: measures by hand, intervals, and when a recommendation is made."""

from __future__ import annotations

import numpy as np
import pytest

from qipf.decisions.comparison import (
    BASE,
    PRIMARY,
    Comparison,
    compare,
    compare_intervals,
    doubt_about,
    recommend,
    recommend_scale,
    recommended,
)
from qipf.metrics import aurc, pr_auc, roc_auc
from qipf.tasks.outputs import Outputs


def draw(rng: np.random.Generator, count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    chance = rng.random(count) * 0.4
    correct = rng.random(count) >= chance
    scores = {"softmax-response": chance + 0.2 * rng.random(count), "useless": rng.random(count), "best": chance}
    return scores, correct


def test_rows_are_measured_and_sorted(rng) -> None:
    scores, correct = draw(rng, 3000)
    rows = compare(scores, correct, bootstrap=50)
    assert [row.name for row in rows] == ["best", "softmax-response", "useless"]
    for row in rows:
        assert row.measures["roc_auc"][0] == roc_auc(scores[row.name], correct)
        assert row.measures["aurc"][0] == aurc(scores[row.name], correct)
        assert row.measures["average_precision"][0] == pr_auc(scores[row.name], correct)
        for value, low, high in (
            row.measures["roc_auc"],
            row.measures["average_precision"],
            row.measures["aurc"],
            row.measures["accuracy"],
        ):
            assert low <= value <= high
    assert rows[1].gain == (0.0, 0.0, 0.0)
    assert recommended(rows) == "best"
    assert recommend(rows).startswith("Use best")
    assert compare(scores, correct, bootstrap=50) == rows


def test_chance_is_not_recommended(rng) -> None:
    scores, correct = draw(rng, 200)
    noisy = {"softmax-response": scores["best"], "other": scores["best"] + 0.01 * rng.random(200)}
    rows = compare(noisy, correct, bootstrap=100)
    assert "softmax-response" in recommend(rows)
    assert "Use useless" in recommend(compare({"useless": scores["useless"]}, correct))


def test_nothing_to_find_is_an_error() -> None:
    with pytest.raises(ValueError, match="10 of 10"):
        compare({"a": np.arange(10.0)}, np.ones(10))
    with pytest.raises(ValueError, match="scores: expected"):
        compare({}, np.ones(10))


def test_the_best_of_many_equal_scores_is_rarely_recommended():
    """Twelve scores as good as the softmax response: the best of them looks better, and may be chance."""
    left = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        correct = rng.random(150) < 0.8
        scores = {name: rng.normal(~correct * 1.0) for name in ["softmax-response", *map(str, range(12))]}
        left += not recommend(compare(scores, correct, bootstrap=40, seed=seed)).startswith("Use softmax-response")
    assert left <= 2  # at the level of 2.5%, more than 2 of 8 have a probability below 0.001


def test_the_recommended_score_is_tested_at_full_strength() -> None:
    """Beside twenty useless scores, `default` keeps the interval that it has alone, and others get wider ones."""
    rng = np.random.default_rng(3)
    correct = rng.random(400) < 0.85
    base = rng.normal(~correct * 1.0)
    scores = {BASE: base, PRIMARY: base + 0.9 * ~correct}
    useless = {str(number): rng.normal(size=400) for number in range(20)}
    alone = {row.name: row for row in compare(scores, correct)}
    among = {row.name: row for row in compare({**scores, **useless}, correct)}
    assert among[PRIMARY].gain == alone[PRIMARY].gain
    other = {row.name: row for row in compare({BASE: base, "twin": scores[PRIMARY], **useless}, correct)}["twin"]
    assert other.gain[0] == alone[PRIMARY].gain[0]
    assert other.gain[1] < alone[PRIMARY].gain[1]
    rows = list(among.values())
    assert recommended(rows) == PRIMARY
    errors, before = (100 * (1 - among[name].measures["accuracy"][0]) for name in (PRIMARY, BASE))
    assert f"{errors:.2g}% of the others are wrong with default and {before:.2g}% with" in recommend(rows)
    found = Comparison("", "", rows, {}, {}, {"late": ("", rows), "dark": ("", [among[BASE], among[PRIMARY]])})
    assert "default has a lower AURC than softmax-response on 2 of 2 sets (2 significantly)" in found.verdict()[1]


def test_another_score_replaces_the_recommended_one_only_beyond_chance() -> None:
    rng = np.random.default_rng(4)
    correct = rng.random(1500) < 0.8
    base = rng.normal(~correct * 0.5)
    scores = {BASE: base, PRIMARY: base + 0.5 * ~correct, "equal": base + 0.52 * ~correct}
    assert recommended(compare(scores, correct)) == PRIMARY
    assert recommended(compare({**scores, "better": base + 4.0 * ~correct}, correct)) == "better"


def test_groups_are_resampled_as_a_whole() -> None:
    """Ten copies of every prediction tell nothing new: their intervals are those of the predictions themselves."""
    rng = np.random.default_rng(5)
    right = rng.random(150) < 0.7
    scores = {"a": rng.random(150) - 0.5 * right, "softmax-response": rng.random(150) - 0.2 * right}
    alone = {row.name: row for row in compare(scores, right, bootstrap=400)}
    copies = {name: np.repeat(values, 10) for name, values in scores.items()}
    groups = np.repeat(rng.permutation(150), 10)
    grouped = {row.name: row for row in compare(copies, np.repeat(right, 10), groups=groups, bootstrap=400)}
    ignored = {row.name: row for row in compare(copies, np.repeat(right, 10), bootstrap=400)}
    for name, row in alone.items():
        width, same, narrow = (
            one.measures["roc_auc"][2] - one.measures["roc_auc"][1] for one in (row, grouped[name], ignored[name])
        )
        assert grouped[name].measures["roc_auc"][0] == pytest.approx(row.measures["roc_auc"][0])
        assert same == pytest.approx(width, rel=0.2)
        assert narrow < 0.5 * width
    with pytest.raises(ValueError, match="groups"):
        compare(scores, right, groups=groups)


def test_the_measures_of_intervals_are_those_of_their_formulas() -> None:
    f, y = np.zeros((4, 2)), np.array([[0.5, 0.0], [-3.0, 10.0], [0.0, 0.0], [1.0, -40.0]])
    one = (np.full((4, 2), [-1.0, -20.0]), np.full((4, 2), [1.0, 20.0]))
    other = (one[0] * [[1], [4], [0.5], [1]], one[1] * [[1], [4], [0.5], [1]])
    doubt = {"one-width": np.zeros(4), "own": np.array([1.0, 4.0, 0.5, 2.0])}
    rows = {row.name: row for row in compare_intervals({"one-width": one, "own": other}, doubt, f, y, 0.9, bootstrap=9)}
    assert rows["one-width"].measures["inside"][0] == 6 / 8
    assert rows["own"].measures["inside"][0] == 7 / 8
    assert rows["own"].measures["width"][0] == pytest.approx((2 + 40) * (1 + 4 + 0.5 + 1) / 8)
    base = [(2 + 20 * np.array([0, 2, 0, 0])).mean(), (40 + 20 * np.array([0, 0, 0, 20])).mean()]
    own = [np.mean([2, 8, 1, 2]), np.mean([40, 160, 20, 40 + 400])]
    assert rows["own"].measures["loss"][0] == pytest.approx((own[0] / base[0] + own[1] / base[1]) / 2)
    assert rows["own"].gain[0] == pytest.approx(1 - rows["own"].measures["loss"][0])
    error = (np.abs(y) / np.abs(y).mean(axis=0)).mean(axis=1)
    assert rows["own"].measures["surest"][0] == pytest.approx(error[[0, 2]].mean())  # the mean of all is 1
    with pytest.raises(ValueError, match="width"):
        compare_intervals({"own": other}, doubt, f, y, 0.9)
    with pytest.raises(ValueError, match="exactly"):
        compare_intervals({"one-width": one}, doubt, y, y, 0.9)


def test_a_scale_that_is_no_better_is_not_recommended(rng: np.random.Generator) -> None:
    y = rng.normal(size=500)
    one = (np.full(500, -1.6), np.full(500, 1.6))
    factor = np.exp(0.5 * rng.normal(size=500))  # knows nothing
    ends = {"one-width": one, "own": (one[0] * factor, one[1] * factor)}
    doubt = {"one-width": np.zeros(500), "own": factor}
    rows = compare_intervals(ends, doubt, np.zeros(500), y, 0.9)
    assert recommended(rows) == "one-width"
    good = (-1.6 * np.abs(y) - 0.1, 1.6 * np.abs(y) + 0.1)
    rows = compare_intervals({**ends, "good": good}, {**doubt, "good": np.abs(y)}, np.zeros(500), y, 0.9)
    assert recommended(rows) == "good"
    assert recommend_scale(rows).startswith("Use good")


def test_intervals_that_are_nearly_all_exact_are_equally_good() -> None:
    y = np.zeros((40, 1))
    y[0] = 1.0  # many resamples leave this error out
    none = (np.zeros_like(y), np.zeros_like(y))
    doubt = {name: np.zeros(40) for name in ("one-width", "own")}
    (first, second) = compare_intervals({"one-width": none, "own": none}, doubt, np.zeros_like(y), y, 0.9, bootstrap=50)
    assert first.measures["loss"] == second.measures["loss"] == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("labels", "right", "said"),
    [
        (np.arange(40) % 10, 4, "with 40 predictions, the model cannot be distinguished from chance; provide at least"),
        (np.arange(40) % 10, 30, ""),
        (np.full(200, 3), 8, "all labels are class 3, and the accuracy is 4%; provide data from several classes"),
        (np.full(200, 3), 180, ""),
        (np.arange(200) % 10, 20, "only by chance"),
    ],
)
def test_a_model_that_is_no_better_than_chance_gets_no_recommendation(labels, right: int, said: str) -> None:
    predicted = np.where(np.random.default_rng(0).permutation(len(labels)) < right, labels, (labels + 1) % 10)
    doubt = doubt_about(Outputs(5 * np.eye(10)[predicted], None, labels))
    assert (said in doubt) if said else doubt == ""
    found = Comparison("", "", [], {}, {}, {}, doubt=doubt)
    assert not said or found.verdict() == [f"No score is recommended: {doubt}."]
