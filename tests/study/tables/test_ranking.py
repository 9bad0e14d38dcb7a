"""The ranking and the answer: planted levels, missing values, and intervals against independent bootstraps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from qipf.study.run.read import Condition, Predictions
from qipf.study.tables import answer
from qipf.study.tables.answer import Answer, Gain, Kept, answers
from qipf.study.tables.paper_tables import rankings
from qipf.study.tables.terminal import answer_text

LEVELS = {"default": 0.8, "entropy": 0.75, "max-logit": 0.7}


def rows(levels=LEVELS, shifts=("rotation", "zoom"), seeds=(0,), clean=True, intensities=(1.0, 2.0, 3.0, 4.0)):
    about = {"dataset": "digits", "net": "mine", "score": "score", "errors": "base", "metric": "roc_auc"}
    places = [("clean", 0.0)] * clean + [(shift, i) for shift in shifts for i in intensities]
    return [
        {**about, "method": method, "shift": shift, "intensity": i, "seed": seed, "value": level - 0.01 * i}
        for method, level in levels.items()
        for shift, i in places
        for seed in seeds
    ]


class Store:
    """A store whose predictions are planted: one score that knows the errors, one that is noise, one constant."""

    def __init__(self, shifts=("clean", "rotation"), size=400):
        rng = np.random.default_rng(0)
        self.found = {}
        for shift in shifts:
            predicted = (rng.random(size) < (0.1 if shift == "clean" else 0.4)).astype(int)  # the truth is 0
            scores = {
                ("default", "score"): predicted + rng.normal(size=size),
                ("entropy", "score"): np.round(0.3 * predicted + rng.normal(size=size), 1),
                ("max-logit", "score"): np.zeros(size),
            }
            condition = Condition("digits", "mine", 0, shift, float(shift != "clean"), int(shift != "clean"))
            self.found[condition] = Predictions(np.zeros(size, int), predicted, scores)

    def conditions(self):
        return list(self.found)

    def predictions(self, condition):
        return self.found[condition]


def test_the_best_comes_first_and_shifts_count_where_there_are_some():
    (ranking,) = rankings(rows())
    assert [s.column for s in ranking.standings] == ["default", "entropy", "max-logit"]
    assert ranking.places == ("rotation", "zoom")
    assert ranking.standings[0].mean == pytest.approx(0.8 - 0.025)
    (clean,) = rankings(rows(shifts=()))
    assert (clean.places, clean.shifted) == (("clean",), False)
    assert clean.standings[0].mean == pytest.approx(0.8)


def test_a_missing_value_stays_in_its_own_column_and_is_ranked_last():
    found = rows({**LEVELS, "knn": 0.95})
    found = [r for r in found if not (r["method"] == "knn" and r["shift"] == "rotation")]
    (ranking,) = rankings(found)
    assert ranking.standings[-1].column == "knn"
    text = answer_text(Answer("digits", ranking))
    heads = next(line for line in text.splitlines() if "rotation" in line)
    line = next(line for line in text.splitlines() if "nearest" in line)
    dash, number = line.index("–"), line.rindex("0.925")
    assert heads.index("rotation") <= dash < heads.index("rotation") + len("rotation")
    assert heads.index("zoom") - 2 <= number <= heads.index("zoom")
    assert "fewer shifts" in text


def test_a_sentence_says_the_score_its_gain_and_what_flagging_brings():
    (ranking,) = rankings(rows())
    kept = Kept(0.9, 0.955)
    text = Answer("digits", ranking, Gain(0.05, 0.02, 0.08, "images"), 1, None, kept, kept).sentence
    assert all(number in text for number in ("0.775", "0.050 higher", "+0.020 to +0.080", "95.5%", "90.0%"))
    assert "chance" in str(Gain(0.001, -0.02, 0.03, "images"))
    assert "0.010 lower than" in str(Gain(-0.01, -0.02, -0.005, "networks"))
    assert "interval" not in str(Gain(0.01, np.nan, np.nan, "intensities"))


def test_the_recommended_score_is_on_top_only_if_it_is_the_best():
    (first,) = answers(rows())
    assert first.recommended == 1
    assert first.about_recommended == ""
    (second,) = answers(rows({"default": 0.7, "entropy": 0.75, "max-logit": 0.5}))
    assert second.recommended == 2
    assert "rank 2 among 3" in second.about_recommended
    assert "no score finds errors better" in second.sentence
    lines = [line for line in answer_text(second).splitlines() if line.strip()[:2] in ("1 ", "2 ")]
    assert "Entropy" in lines[0]
    assert "Recommended" in lines[1]
    (without,) = answers(rows({"entropy": 0.75}))
    assert without.recommended is None


def test_the_names_of_own_shifts_are_shown_as_they_are():
    assert "[/]" in answer_text(answers(rows(shifts=("[/]", "[red]zoom")))[0])


def test_only_some_scores_are_listed_but_always_the_recommended_one():
    levels = {"default": 0.5, "entropy": 0.55} | {f"own-{i}": 0.9 - 0.01 * i for i in range(10)}
    text = answer_text(answers(rows(levels))[0], most=3)
    assert "own-2" in text
    assert "own-3" not in text
    assert "Recommended scorer" in text
    assert "in the report: 7" in text


def test_nothing_to_judge_is_said():
    (nothing,) = answers([{**row, "value": np.nan} for row in rows()])
    assert "no score can be judged" in nothing.sentence


def test_several_networks_give_an_interval_over_networks():
    (answer,) = answers(rows(seeds=(0, 1, 2)))
    assert answer.gain.over == "networks"
    assert (answer.gain.value, answer.gain.low, answer.gain.high) == (pytest.approx(0.05),) * 3
    found = rows(seeds=range(6), shifts=())
    for row in found:
        row["value"] += 0.01 * row["seed"] * (row["method"] == "default")  # the gain depends on the network
    (clean,) = answers(found)
    assert clean.gain.value == pytest.approx(0.075)
    assert 0.05 < clean.gain.low < 0.075 < clean.gain.high < 0.1
    (alone,) = answers(rows())
    assert alone.gain.over == "intensities"


def test_an_interval_over_images_is_that_of_a_plain_bootstrap():
    store = Store(size=300)
    places = answer.conditions(store, "digits", "mine", shifted=True)
    assert [condition.shift for condition in places] == ["rotation"]
    drawn = answer.image_gains(store, places, "default", "entropy")
    predictions = store.found[places[0]]
    ours, theirs = (predictions.scores[name, "score"] for name in ("default", "entropy"))

    def gain(rows):
        """The difference of two areas, each the share of pairs that Mann and Whitney count."""
        wrong = ~predictions.correct[rows]
        pairs = wrong.sum() * (~wrong).sum()
        return (rankdata(ours[rows])[wrong].sum() - rankdata(theirs[rows])[wrong].sum()) / pairs

    wrong = ~predictions.correct
    assert gain(np.arange(300)) == pytest.approx(roc_auc_score(wrong, ours) - roc_auc_score(wrong, theirs))
    rng = np.random.default_rng(1)
    plain = [gain(rng.integers(300, size=300)) for _ in range(400)]
    assert np.quantile(drawn, [0.025, 0.975]) == pytest.approx(np.quantile(plain, [0.025, 0.975]), abs=0.02)
    assert len(answer.image_gains(store, places, "default", "nothing")) == 0


def test_what_is_kept_by_hand():
    store = Store()
    condition = next(c for c in store.conditions() if c.shift == "rotation")
    kept = answer.kept_right(store, [condition], "default", 0.25)
    predictions = store.found[condition]
    order = np.argsort(-predictions.scores["default", "score"])
    assert kept == (pytest.approx(predictions.correct.mean()), pytest.approx(predictions.correct[order[100:]].mean()))
    tied = answer.kept_right(store, [condition], "max-logit", 0.25)
    assert tied.kept == pytest.approx(tied.everything)  # equal scores: nothing is gained by flagging
    assert answer.kept_right(store, [condition], "nothing", 0.25) is None


def test_the_answer_of_one_network_is_about_its_images():
    found = rows(shifts=("rotation",), intensities=(1.0,))
    (answer,) = answers(found, Store())
    assert answer.gain.over == "images"
    assert answer.clean.kept > answer.clean.everything > answer.shifted.everything


def test_a_model_at_chance_gets_no_recommendation():
    store, rng = Store(), np.random.default_rng(1)
    for predictions in store.found.values():
        predictions.labels[:], predictions.predicted[:] = rng.integers(10, size=(2, 400))
    (answer,) = answers(rows(shifts=("rotation",), intensities=(1.0,)), store)
    assert "no score is recommended: the predictions agree with the labels only by chance" in answer.sentence
