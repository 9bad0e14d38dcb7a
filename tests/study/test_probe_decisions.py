"""What the probe study records about decisions is what counting by hand gives."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy.special import softmax

from probe.decisions import FEW, LIMITS, Judge
from qipf.scores import Probe
from qipf.tasks.outputs import Outputs

CLASSES, TEMPERATURE = 5, 2.0


def drawn(rows: int, strength: float, seed: int) -> Outputs:
    """Logits that are too sure by a factor of two: the true class follows their softmax at `TEMPERATURE`."""
    random = np.random.default_rng(seed)
    logits = strength * random.standard_normal((rows, CLASSES))
    chances = softmax(logits / TEMPERATURE, axis=1)
    labels = (random.random((rows, 1)) > np.cumsum(chances, axis=1)).sum(axis=1).clip(0, CLASSES - 1)
    return Outputs(logits=logits, features=logits[:, :3].copy(), labels=labels)


def unlabelled(outputs: Outputs) -> Outputs:
    return Outputs(logits=outputs.logits, features=outputs.features)


@pytest.fixture(scope="module")
def judge() -> Judge:
    held_out = drawn(3000, 12.0, 0)
    both = drawn(9000, 8.0, 1)
    probe = Probe(share=1.0, temperature=TEMPERATURE).fit(None, held_out)
    return Judge(probe, held_out, both)


@pytest.mark.parametrize("strength", [12.0, 5.0, 2.0])
def test_estimates_are_near_what_was_planted(judge: Judge, strength: float) -> None:
    live = drawn(8000, strength, 2)
    found = judge(unlabelled(live), live.labels)
    correct = live.logits.argmax(axis=1) == live.labels
    assert found["accuracy"] == pytest.approx(correct.mean(), abs=1e-5)
    chance = softmax(live.logits / TEMPERATURE, axis=1).max(axis=1).mean()
    assert found["estimates"]["posterior"] == pytest.approx(chance, abs=1e-5)
    assert found["estimates"]["posterior"] == pytest.approx(correct.mean(), abs=0.02)
    assert found["estimates"]["confidence"] == pytest.approx(softmax(live.logits, axis=1).max(axis=1).mean(), abs=1e-5)
    assert found["estimates"]["confidence"] > correct.mean() + 0.02
    assert found["estimates"]["probability, probe"] == pytest.approx(correct.mean(), abs=0.04)


def test_atc_counts_as_its_paper_does(judge: Judge) -> None:
    """The share whose negative entropy is above the value that the accuracy of held-out data puts there."""
    held_out, live = drawn(3000, 12.0, 0), drawn(8000, 5.0, 2)

    def surest(outputs: Outputs) -> np.ndarray:
        p = softmax(outputs.logits, axis=1)
        return np.sum(p * np.log(np.maximum(p, 1e-300)), axis=1)

    wrong = float((held_out.logits.argmax(axis=1) != held_out.labels).mean())
    level = np.sort(surest(held_out))[round(wrong * 3000)]
    found = judge(unlabelled(live), live.labels)["estimates"]["atc, entropy"]
    assert found == pytest.approx((surest(live) >= level).mean(), abs=1e-3)


@pytest.mark.parametrize("name", ["probe", "entropy"])
def test_promises_are_counted(judge: Judge, name: str) -> None:
    live = drawn(8000, 4.0, 3)
    found = judge(unlabelled(live), live.labels)["promises"][name]
    assert set(found) <= {f"{limit:g}" for limit in LIMITS}
    assert "0.05" in found
    known = judge.known[name]
    scores = np.asarray(known.scorer(unlabelled(live)))
    wrong = live.logits.argmax(axis=1) != live.labels
    for limit, decision in known.decisions.items():
        taken = scores <= decision.threshold
        assert found[f"{limit:g}"] == pytest.approx([taken.mean(), wrong[taken].mean()], abs=1e-5)
    clean = drawn(20_000, 12.0, 4)
    share, error = judge(unlabelled(clean), clean.labels)["promises"][name]["0.05"]
    assert error <= 0.055
    assert share == pytest.approx(judge.facts()["accepted"][name]["0.05"], abs=0.03)


def test_checks_see_a_shift_and_nothing_else(judge: Judge) -> None:
    same, other = drawn(8000, 12.0, 5), drawn(8000, 6.0, 5)
    quiet, loud = (judge(unlabelled(live), live.labels)["checks"] for live in (same, other))
    assert set(quiet) == {"probe", "entropy", *(f"{n}, {FEW} rows" for n in ("probe", "entropy", "probe and features"))}
    assert min(quiet.values()) > 0.01
    assert max(loud.values()) < 0.01


def test_sets_cover_clean_data_and_are_counted(judge: Judge) -> None:
    live = drawn(20_000, 12.0, 6)
    found = judge(unlabelled(live), live.labels)["sets"]
    for name, temperature in (("softmax", 1.0), ("posterior", TEMPERATURE)):
        coverage, size = found[name]
        assert coverage == pytest.approx(0.9, abs=0.015)
        threshold = judge.sets[name].state().tensors["thresholds"][0]
        inside = 1 - softmax(live.logits / temperature, axis=1) <= threshold
        assert size == pytest.approx(inside.sum(axis=1).mean(), abs=1e-3)


def test_the_record_is_small_and_plain(judge: Judge) -> None:
    live = drawn(1000, 3.0, 7)
    text = json.dumps(judge(unlabelled(live), live.labels))
    assert len(text) < 1500
