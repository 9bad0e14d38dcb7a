"""Decisions keep their promises: by simulation against populations whose error rates are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from worlds import World

from qipf.decisions.decision import Decision, Promise, round_down
from qipf.decisions.threshold import Unsupported, binomial_p, error_interval, fewest, loss_p
from qipf.scores import KNN, Entropy
from qipf.scores.saving import load
from qipf.tasks.outputs import Outputs


def test_the_proof_counts_every_accepted_prediction() -> None:
    scores, correct = np.arange(20.0), np.ones(20)
    correct[[3, 16]] = 0  # the threshold is the 17th score: rank ceil(0.8 * 21)
    decision = Decision("accept>=0.8").fit(scores, correct)
    proof = decision.proof
    assert decision.threshold == 16
    assert (proof.rows, proof.accepted, proof.errors, proof.share) == (20, 17, 2, 0.85)
    interval = stats.binomtest(1, 16).proportion_ci(0.95, "exact")  # without the one that set the threshold
    assert (proof.low, proof.high) == pytest.approx((interval.low, interval.high))


@pytest.mark.parametrize("limit", [0.01, 0.05])
def test_too_few_examples_are_refused_with_the_number_that_is_enough(limit: float) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(Unsupported, match="labelled") as refused:
        Decision(f"error<={limit}").fit(rng.random(20), np.ones(20))
    needed = int(refused.value.needed)
    exact = math.ceil(math.log(0.05) / math.log(1 - limit))  # accepted predictions without an error
    assert exact <= needed <= 1.25 * exact
    Decision(f"error<={limit}").fit(np.zeros(needed), np.ones(needed))  # all tied and correct: enough
    with pytest.raises(Unsupported):
        Decision(f"error<={limit}").fit(np.zeros(needed - 5), np.ones(needed - 5))


def test_the_number_of_examples_that_is_named_is_enough_in_most_draws() -> None:
    world, rng = World(2, -4), np.random.default_rng(1)
    needed = []
    while len(needed) < 10:
        try:
            Decision("error<=0.01").fit(*world.draw(rng, 1500))
        except Unsupported as refused:
            needed.append(refused.needed)
    count, kept = int(np.median(needed)), 0
    for _ in range(60):
        try:
            Decision("error<=0.01").fit(*world.draw(rng, count))
            kept += 1
        except Unsupported:
            pass
    assert kept >= 40


def test_hopeless_promises_are_refused_as_such() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(Unsupported, match="better") as refused:
        Decision("error<=0.01").fit(rng.random(5000), rng.random(5000) > 0.2)
    assert math.isinf(refused.value.needed)
    with pytest.raises(Unsupported, match="labelled"):
        Decision("error<=0.01").fit([], [])
    with pytest.raises(Unsupported, match="least"):
        Decision("accept>=0.99").fit(np.arange(50.0), np.ones(50))
    with pytest.raises(Unsupported):
        Decision("error<=0.5").fit(np.arange(100.0), np.zeros(100))
    with pytest.raises(Unsupported):  # no number of examples is enough
        Decision("error<=1e-320").fit(rng.random(500), rng.random(500) < 0.9)


def test_p_values_and_intervals_against_scipy() -> None:
    for errors, count, limit in [(0, 100, 0.03), (7, 300, 0.05), (299, 300, 0.5)]:
        assert binomial_p(errors, count, limit) == pytest.approx(stats.binom.cdf(errors, count, limit), rel=1e-9)
        interval = stats.binomtest(errors, count).proportion_ci(0.9, "exact")
        assert error_interval(errors, count, 0.9) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert error_interval(0, 0, 0.9) == (0.0, 1.0)
    assert fewest(0.0, 0.01, 0.05) == 299  # the rule of three
    assert loss_p(np.full(100, 0.05), 0.04, 0.05) == 1.0


def test_the_loss_test_is_valid_for_a_mean_at_the_limit() -> None:
    rng = np.random.default_rng(0)
    p = np.array([loss_p(rng.beta(1, 9, 200), 0.1, 0.05) for _ in range(2000)])
    for level in (0.01, 0.05, 0.2):
        assert np.mean(p <= level) <= level + 3 * math.sqrt(level * (1 - level) / 2000)


def test_the_proof_counts_what_was_accepted() -> None:
    world = World(3, -3)
    u, correct = world.draw(np.random.default_rng(2), 2000)
    decision = Decision("error<=0.05").fit(u, correct)
    proof = decision.proof
    assert proof.rows == 1700
    assert proof.share == proof.accepted / proof.rows
    assert binomial_p(proof.errors, proof.accepted, proof.high) == pytest.approx(0.05, rel=1e-6)
    assert proof.high <= 0.05
    assert proof.share_low < world.risk(decision.threshold)[1] < proof.share_high
    assert "error<=0.05 with 95% confidence" in decision.report()


@pytest.fixture
def labelled(rng) -> Outputs:
    labels = rng.integers(0, 3, 1500)
    features = rng.standard_normal((1500, 4)) + 4 * np.eye(3, 4)[labels]
    return Outputs(features[:, :3] * 2, features, labels)


def test_a_decision_travels_with_its_scorer(labelled: Outputs, tmp_path) -> None:
    scorer = KNN(k=5).fit(data=labelled[:500])
    scorer.decision = decision = Decision("error<=0.05", confidence=0.9).fit_scorer(scorer, labelled[500:])
    assert scorer.decision is decision
    scorer.save(tmp_path / "a.qipf")
    loaded = load(tmp_path / "a.qipf")
    again = loaded.decision
    assert again is not None
    assert again.threshold == decision.threshold
    assert again.proof == decision.proof
    assert again.promise == decision.promise == Promise("error", 0.05, 0.9)
    np.testing.assert_array_equal(again(labelled), decision(labelled))
    assert again.check(labelled[500:]) == decision.check(labelled[500:])
    loaded.save(tmp_path / "b.qipf")
    assert (tmp_path / "a.qipf").read_bytes() == (tmp_path / "b.qipf").read_bytes()
    accepted = decision(labelled)
    scorer.fit(data=labelled[:50])
    assert scorer.decision is None
    np.testing.assert_array_equal(decision(labelled), accepted)  # it knows the scorer that it was learned with


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_rounding_never_accepts_more(dtype: str) -> None:
    for threshold in np.random.default_rng(0).standard_normal(200).tolist():
        down = round_down(threshold, dtype)
        value = torch.tensor(down, dtype=getattr(torch, dtype))
        assert value.item() == down <= threshold
        following = torch.nextafter(value, torch.tensor(math.inf, dtype=value.dtype)) if dtype != "float16" else None
        assert following is None or following.item() > threshold


def test_accept_keeps_the_library_and_shape() -> None:
    decision = Decision("accept>=0.5").fit(np.arange(100.0), np.ones(100))
    given = torch.arange(100.0).reshape(10, 10)
    accepted = decision.accept(given)
    assert accepted.dtype == torch.bool
    assert accepted.shape == (10, 10)
    np.testing.assert_array_equal(accepted.numpy(), decision.accept(given.numpy()))
    assert decision.accept([0.0, 99.0]).tolist() == [True, False]
    assert not decision.accept(np.array([np.nan]))[0]


def test_errors_say_what_to_do() -> None:
    for text in ("error<0.01", "error>=0.01", "accept<=0.9", "luck<=0.1", "", "error<=1e"):
        with pytest.raises(ValueError, match=r"error<=0\.01"):
            Decision(text)
    assert Decision("error <= 1%").promise.limit == 0.01
    for text in ("error<=0", "error<=1", "accept>=2"):
        with pytest.raises(ValueError, match="between"):
            Decision(text)
    with pytest.raises(ValueError, match="confidence"):
        Decision(confidence=10**400)
    with pytest.raises(ValueError, match="loss"):
        Decision("error<=0.1").fit(np.zeros(3), loss=np.zeros(3))
    with pytest.raises(ValueError, match="0 to 1"):
        Decision("loss<=0.1").fit(np.zeros(3), loss=np.full(3, 2.0))
    with pytest.raises(ValueError, match="either"):
        Decision().fit(np.zeros(3))


@pytest.mark.parametrize(
    ("tensors", "facts"),
    [
        ({"threshold": np.zeros(2)}, {}),
        ({}, {"promise": "luck"}),
        ({}, {"limit": 3}),
        ({}, {"proof": {}}),
    ],
)
def test_forged_decisions_are_refused(tensors, facts, labelled: Outputs, tmp_path) -> None:
    from qipf.scores.saving import read, write

    scorer = Entropy().fit()
    scorer.decision = Decision("error<=0.1").fit_scorer(scorer, labelled)
    scorer.save(tmp_path / "a.qipf")
    header, found = read(tmp_path / "a.qipf")
    header["attachments"]["decision"] |= facts
    found |= {f"decision.{name}": value for name, value in tensors.items()}
    write(tmp_path / "b.qipf", {k: v for k, v in header.items() if k not in ("format", "versions")}, found)
    with pytest.raises(ValueError, match=r"b\.qipf"):
        load(tmp_path / "b.qipf")


def test_the_check_notices_shifts_in_scores_and_in_features(labelled: Outputs, rng) -> None:
    scorer = Entropy().fit()
    decision = Decision("error<=0.05").fit_scorer(scorer, labelled)
    same = decision.check(labelled[::3])
    assert same.alike
    assert set(same.tests) == {"scores", "features"}
    blurred = Outputs(labelled.logits * 0.5, labelled.features)[:200]
    found = decision.check(blurred)
    assert not found.alike
    assert found.tests["scores"] < 0.001 < found.tests["features"]
    assert "no longer holds" in str(found)
    moved = Outputs(labelled.logits, np.asarray(labelled.features) + 0.7 * np.array([0, 0, 0, 1]))[:200]
    found = decision.check(moved)
    assert not found.alike
    assert found.tests["features"] < 0.005 < found.tests["scores"]
    bare = Decision("error<=0.05").fit(scorer(labelled), labelled.correct)
    assert set(bare.check(scorer(labelled.logits * 0.5)).tests) == {"scores"}
    with pytest.raises(ValueError, match="0 live"):
        bare.check(np.zeros(0))
    with pytest.raises(ValueError, match="level"):
        bare.check(scorer(labelled), level=0)
