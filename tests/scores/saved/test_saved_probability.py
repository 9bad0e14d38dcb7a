"""A probability that is saved with its scorer: kept bit for bit, and refused where it was made up."""

from __future__ import annotations

import numpy as np
import pytest
from rewriting import forge

from qipf.decisions.probability import ErrorProbability
from qipf.scores.saving import load, read
from qipf.tasks.outputs import Outputs


@pytest.fixture(params=["isotonic", "logistic"])
def calibrator(request, rng) -> ErrorProbability:
    u = rng.standard_normal(400)
    return ErrorProbability(request.param).fit(u, rng.random(400) > 1 / (1 + np.exp(-2 * u)))


def test_a_scorer_keeps_its_probability(file, scorer, calibrator, rng) -> None:
    logits = rng.standard_normal((50, 4))
    assert load(file).probability is None
    scorer.probability = calibrator
    scorer.save(file)
    loaded = load(file)
    np.testing.assert_array_equal(loaded(logits), scorer(logits))
    np.testing.assert_array_equal(loaded.probability(loaded(logits)), calibrator(scorer(logits)))
    u = np.concatenate([3 * rng.standard_normal(1000), [np.inf, -np.inf]])
    np.testing.assert_array_equal(loaded.probability(u), calibrator(u))
    assert loaded.probability.method == calibrator.method
    assert loaded.fitted.tensors.keys() == scorer.fitted.tensors.keys()
    assert read(file)[0]["attachments"] == {"probability": {"method": calibrator.method}}
    again = file.with_name("again.qipf")
    loaded.save(again)
    assert again.read_bytes() == file.read_bytes()
    assert loaded.fit([rng.standard_normal((10, 10))], Outputs(logits)).probability is None


@pytest.mark.parametrize(
    ("attached", "message"),
    [
        ({"probability": {}}, "method"),
        ({"probability": {"method": "tea"}}, "method"),
        ({"probability": []}, "attachments"),
        ([1], "attachments"),
        ({"horoscope": {}}, "horoscope"),
    ],
)
def test_forged_attachments_are_refused(attached, message, file, scorer, calibrator) -> None:
    scorer.probability = calibrator
    scorer.save(file)
    forge(file, lambda header, tensors: header.update(attachments=attached))
    with pytest.raises(ValueError, match=message):
        load(file)
