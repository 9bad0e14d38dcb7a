"""One battery through which every scorer runs. A new scorer is one line in CASES of scorer_cases.py."""

from __future__ import annotations

import copy
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scorer_cases import CASES, in_torch, network, planted
from sklearn.metrics import roc_auc_score

import qipf.scores as scores
from qipf.scores import SCORERS, Scorer
from qipf.scores.saving import load
from qipf.tasks.outputs import Outputs


def test_every_scorer_is_in_the_battery() -> None:
    ours = {name for name, kind in SCORERS.items() if kind.__module__.startswith("qipf.")}
    ours -= {"residual-scale"}  # it reads numbers, not classes; tests/scores/test_residual_scale.py checks the same
    ours -= {"twin"}  # it learns from inputs; tests/scores/test_twin.py checks the same
    assert ours == {scorer.name for scorer in CASES.values()}


def test_score_before_fit_fails_clearly(fresh: Scorer) -> None:
    outputs, _ = planted(1)
    if fresh.fitted is not None:  # nothing to fit: it scores right away, and fitting changes nothing
        np.testing.assert_array_equal(fresh(outputs), copy.deepcopy(fresh).fit(network(), outputs)(outputs))
        return
    with pytest.raises(RuntimeError, match="fitted"):
        fresh(outputs)
    with pytest.raises(RuntimeError, match="fitted"):
        fresh.save("never-written.qipf")


def test_it_can_be_fitted_again_to_something_else(fresh: Scorer) -> None:
    outputs, _ = planted(0)
    halved = Outputs(logits=outputs.logits[:, :3], features=outputs.features[:, :5], labels=outputs.labels % 3)
    again = copy.deepcopy(fresh).fit(network(), outputs).fit(network(), halved)
    np.testing.assert_array_equal(again(halved), fresh.fit(network(), halved)(halved))


def test_a_failed_fit_leaves_the_scorer_as_it_was(scorer: Scorer) -> None:
    outputs, _ = planted(1)
    before = scorer(outputs)
    with pytest.raises(ValueError, match="row"):
        scorer.fit(network(), outputs[:0])
    np.testing.assert_array_equal(scorer(outputs), before)


def test_higher_is_less_sure(scorer: Scorer) -> None:
    outputs, vague = planted(2)
    # Vague predictions lie between two classes, inside the space that ViM looks away from.
    assert roc_auc_score(vague, scorer(outputs)) > (0.85 if scorer.name == "vim" else 0.95)


def test_invariant_to_batch_splits(scorer: Scorer) -> None:
    outputs, _ = planted(3)
    parts = [scorer(outputs[start : start + 37]) for start in range(0, len(outputs), 37)]
    np.testing.assert_allclose(np.concatenate(parts), scorer(outputs), rtol=1e-7, atol=1e-12)


def test_invariant_to_order(scorer: Scorer, rng: np.random.Generator) -> None:
    outputs, _ = planted(3)
    order = rng.permutation(len(outputs))
    np.testing.assert_allclose(scorer(outputs[order]), scorer(outputs)[order], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_rows_are_named(scorer: Scorer, bad: float) -> None:
    outputs, _ = planted(3)
    logits = outputs.logits.copy()
    logits[17, 2] = bad
    logits[101, 0] = bad
    broken = Outputs(logits=logits, features=outputs.features)
    with pytest.raises(ValueError, match="logits"):
        scorer(broken)
    with pytest.raises(ValueError, match="logits"):
        copy.deepcopy(scorer).fit(network(), broken)


def test_empty_in_empty_out(scorer: Scorer) -> None:
    nothing = planted(3)[0][:0]
    assert scorer(nothing).shape == (0,)
    assert tuple(scorer(in_torch(nothing, torch.float32)).shape) == (0,)


def test_other_numbers_of_classes_are_refused(scorer: Scorer) -> None:
    outputs, _ = planted(3)
    if "columns" not in scorer.fitted.facts:
        assert isinstance(scorer, scores.confidence.Confidence)
        return
    with pytest.raises(ValueError, match="4 columns"):
        scorer(Outputs(logits=outputs.logits[:, :3], features=outputs.features))


def test_bare_logits_are_enough_where_nothing_else_is_read(scorer: Scorer) -> None:
    outputs, _ = planted(3)
    if scorer.reads_features:
        with pytest.raises(ValueError, match="features"):
            scorer(outputs.logits)
    else:
        np.testing.assert_array_equal(scorer(outputs.logits), scorer(outputs))


@pytest.mark.parametrize(
    ("logits", "error"),
    [(np.zeros(4), ValueError), (np.zeros((2, 0)), ValueError), (np.zeros((2, 4), int), TypeError), ("x", TypeError)],
)
def test_bad_logits_are_refused(scorer: Scorer, logits, error: type[Exception]) -> None:
    with pytest.raises(error, match="logits"):
        scorer(logits)


def test_saved_and_loaded_scores_are_bit_identical(scorer: Scorer, tmp_path) -> None:
    outputs, _ = planted(4)
    scorer.save(tmp_path / "file.qipf")
    loaded = load(tmp_path / "file.qipf")
    assert type(loaded) is type(scorer)
    np.testing.assert_array_equal(loaded(outputs), scorer(outputs))
    assert torch.equal(loaded(in_torch(outputs)), scorer(in_torch(outputs)))
    loaded.save(tmp_path / "again.qipf")
    assert (tmp_path / "again.qipf").read_bytes() == (tmp_path / "file.qipf").read_bytes()


def test_no_global_random_state_is_touched(fresh: Scorer) -> None:
    net = network()
    outputs, _ = planted(5)

    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002

    before = states()
    fitted = fresh.fit(net, outputs)
    fitted(in_torch(outputs))
    assert states() == before
    assert fitted is fresh


def test_inputs_are_not_changed(scorer: Scorer) -> None:
    outputs, _ = planted(5)
    logits, features = outputs.logits.copy(), outputs.features.copy()
    scorer(outputs)
    np.testing.assert_array_equal(outputs.logits, logits)
    np.testing.assert_array_equal(outputs.features, features)


def test_safe_in_several_threads(scorer: Scorer) -> None:
    outputs = [planted(seed, clear=60, vague=20)[0] for seed in range(6)]
    mixed = [part if number % 2 else in_torch(part) for number, part in enumerate(outputs)] * 4
    serial = [np.asarray(scorer(part)) for part in mixed]
    newly_loaded = copy.deepcopy(scorer)  # nothing moved to torch yet: the threads race for it
    newly_loaded._use(scorer.fitted)
    with ThreadPoolExecutor(6) as pool:
        for got, expected in zip(pool.map(newly_loaded, mixed), serial, strict=True):
            np.testing.assert_array_equal(np.asarray(got), expected)
