"""A scikit-learn estimator is read as any other model: its own probabilities, decisions or numbers, and its inputs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("sklearn")
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import qipf
from qipf.data.batches import Source
from qipf.runners.loading import open_model
from qipf.runners.runner import differ
from qipf.tasks.collect import collect

X = np.random.default_rng(0).standard_normal((90, 4))
CODE = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
NAMES = np.array(["cat", "dog", "owl"])[CODE]


def test_probabilities_become_logits_and_names_become_classes() -> None:
    forest = RandomForestClassifier(30, max_depth=3, random_state=0).fit(X, NAMES)
    for data in ((X, NAMES), (X, NAMES.tolist()), [(X[:40], NAMES[:40]), (X[40:], NAMES[40:])]):
        found = collect(forest, data, progress=False)
        np.testing.assert_allclose(np.exp(found.logits), forest.predict_proba(X), atol=1e-12)
        np.testing.assert_array_equal(found.labels, CODE)
        np.testing.assert_array_equal(found.features, X)
        assert found.correct.mean() == forest.score(X, NAMES)
    assert isinstance(collect(forest, (torch.from_numpy(X), NAMES), progress=False).logits, np.ndarray)


def test_decisions_of_two_classes_are_one_logit() -> None:
    svm = make_pipeline(StandardScaler(), LinearSVC(random_state=0)).fit(X, NAMES == "cat")
    found = collect(svm, (X, NAMES == "cat"), progress=False)
    np.testing.assert_allclose(found.logits[:, 0], svm.decision_function(X))
    assert found.correct.mean() == svm.score(X, NAMES == "cat")


def test_a_table_keeps_the_names_of_its_columns() -> None:
    table = pd.DataFrame(X, columns=list("abcd"))
    model = LogisticRegression().fit(table, CODE)
    found = collect(model, (table, CODE), progress=False)  # a warning about missing names would be an error here
    np.testing.assert_allclose(np.exp(found.logits), model.predict_proba(table), atol=1e-12)


def test_a_probe_reads_the_inputs_and_another_estimator_is_noticed() -> None:
    one, same, other = (LogisticRegression().fit(X[rows:], CODE[rows:]) for rows in (0, 0, 30))
    runner = open_model(one)
    (batch,) = runner.batches(Source(X, 100))
    assert str(runner.best_reading(batch)) == "inputs@rows"
    prints = [open_model(model).fingerprint() for model in (one, same, other)]
    assert not differ(prints[0], prints[1])  # pyright: ignore
    assert differ(prints[0], prints[2])  # pyright: ignore


@pytest.mark.parametrize(
    ("data", "message"),
    [((X[:, :3], CODE), "shape"), ((X, np.full(90, 7)), "classes"), ((X.astype(str), CODE), "numbers")],
)
def test_what_does_not_fit_is_refused(data, message) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        collect(LogisticRegression().fit(X, CODE), data, progress=False)
    assert "\n" not in str(caught.value)


def test_several_outputs_and_devices_are_refused() -> None:
    several = np.stack([CODE == 0, CODE == 1], 1).astype(int)
    for model in (RandomForestClassifier(3), OneVsRestClassifier(LogisticRegression())):
        with pytest.raises(ValueError, match="several"):
            collect(model.fit(X, several), X, progress=False)
    with pytest.raises(ValueError, match="device"):
        open_model(LogisticRegression().fit(X, CODE), device="cpu")


@pytest.mark.filterwarnings("ignore:data")
def test_default_fits_scores_and_saves(tmp_path) -> None:
    forest = RandomForestClassifier(30, max_depth=3, random_state=0).fit(X[:60], NAMES[:60])
    uq = qipf.default(forest, (X, NAMES), effort="quick", progress=False)
    u = uq.score(forest, X, progress=False)
    assert u.shape == (90,)
    wrong = forest.predict(X) != NAMES
    assert np.asarray(u)[wrong].mean() > np.asarray(u)[~wrong].mean()
    uq.save(tmp_path / "forest.qipf")
    np.testing.assert_array_equal(qipf.load(tmp_path / "forest.qipf").score(forest, X, progress=False), u)
    knn = qipf.KNN().fit(forest, (X, NAMES), progress=False)
    assert knn.score(forest, X, progress=False).shape == (90,)


def test_a_regressor_predicts_numbers_even_of_zeros_and_ones() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    forest = RandomForestRegressor(3, random_state=0).fit(x, x[:, 0] > 0)
    assert collect(forest, (x, (x[:, 0] > 0).astype(float)), progress=False).task == "numbers"
    with pytest.raises(ValueError, match="floating"):
        collect(forest, (x, (x[:, 0] > 0).astype(int)), progress=False)
    with pytest.raises(ValueError, match="regression"):
        qipf.Entropy().score(forest, x, progress=False)


def test_pairwise_decisions_are_refused() -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
    with pytest.raises(ValueError, match="ovo"):
        collect(SVC(decision_function_shape="ovo").fit(x, y), (x, y), progress=False)
    own = SVC().fit(x, y)
    assert collect(own, (x, y), progress=False).correct.mean() == own.score(x, y)
