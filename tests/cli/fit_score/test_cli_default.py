"""`qipf fit` without a name of a scorer: the recommended one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_model import as_inputs, run, table

from qipf.cli.score import UNITS
from qipf.scores.default import default
from qipf.scores.mixture import Mixture
from qipf.scores.saving import load
from qipf.tasks.collect import collect
from qipf.tasks.outputs import Outputs


@pytest.mark.filterwarnings("ignore:data. [0-9]+ images for [0-9]+ classes are few")
def test_the_recommended_scorer_takes_options(place, net, images, labels, capsys) -> None:
    save_file(net.state_dict(), "net.safetensors")
    np.savez("train.npz", inputs=images, labels=labels)
    given = ("--option", "effort=quick", "--option", "seed=4", "--weights", "net.safetensors")
    assert run("fit", "builder_for_tests:build", "train.npz", "-o", "a.qipf", *given) == 0
    assert "fitted to 60 examples" in capsys.readouterr().err
    split = (as_inputs(images), torch.asarray(labels))
    expected = default(net, split, effort="quick", seed=4, progress=False)
    outputs = collect(net, split, layers=expected.layers, progress=False)
    np.testing.assert_allclose(load("a.qipf")(outputs), expected(outputs), rtol=1e-4, atol=1e-5)
    assert load("a.qipf").settings()["epochs"] == 4
    assert run("fit", "builder_for_tests:build", "train.npz", "-o", "a.qipf", *given, "--option", "size=30") == 0
    assert "fitted to 30 examples" in capsys.readouterr().err


def test_the_recommended_scorer_takes_logits_and_features_of_any_model(place, rng, capsys) -> None:
    truth = rng.integers(0, 3, 90)
    features = np.eye(3)[truth] + 0.3 * rng.standard_normal((90, 3))
    np.savez("train.npz", logits=3 * features, features=features, labels=truth)
    np.savez("new.npz", logits=3 * features[::-1], features=features[::-1])
    save_file({"layer.weight": torch.asarray(rng.standard_normal((9, 9)))}, "weights.safetensors")
    assert run("fit", "weights.safetensors", "train.npz", "-o", "a.qipf", "--option", "size=80") == 0
    assert "a.qipf: probe, fitted to 80 examples" in capsys.readouterr().err
    assert run("fit", "weights.safetensors", "train.npz", "-o", "a.qipf", "--quiet") == 0
    assert run("score", "a.qipf", "new.npz", "-o", "a.csv", "--quiet") == 0
    scorer = default(None, Outputs(3 * features, features, truth), progress=False)
    expected = scorer(Outputs(3 * features, features))[::-1]
    np.testing.assert_allclose(np.array(table(place / "a.csv")["uncertainty"], float), expected, rtol=1e-5)


def test_the_unit_of_every_mixture_is_told() -> None:
    assert {one.name for one in Mixture.__subclasses__()} <= set(UNITS)
