"""`qipf fit --calibrate`: a probability of error from held-out data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from small_model import as_inputs, run

from qipf.decisions.probability import ErrorProbability
from qipf.scores import Entropy
from qipf.tasks.collect import collect


@pytest.mark.parametrize(("count", "method"), [(60, "logistic"), (900, "isotonic")])
def test_calibrated_on_held_out_data_there_is_a_probability(place, net, rng, count, method, capsys) -> None:
    import pyarrow.parquet

    images, labels = rng.integers(0, 256, (count, 1, 6, 6), dtype=np.uint8), rng.integers(0, 3, count)
    save_file(net.state_dict(), "net.safetensors")
    np.savez("train.npz", inputs=images[50::-1], labels=labels[50::-1])
    np.savez("held-out.npz", inputs=images, labels=labels)
    common = ("--weights", "net.safetensors")
    call = "builder_for_tests:build"
    words = ("fit", call, "train.npz", "--scorer", "entropy", "--calibrate", "held-out.npz", "-o", "e.qipf", *common)
    assert run(*words) == 0
    outputs = collect(net, (as_inputs(images), torch.asarray(labels)), progress=False).numpy()
    errors = int((~outputs.correct).sum())
    said = f"error probability: {method}, from {count} examples of held-out.npz, {errors} of them wrong"
    assert said in capsys.readouterr().err
    assert run("score", "e.qipf", "held-out.npz", "--model", call, "-o", "e.parquet", *common, "--quiet") == 0
    result = pyarrow.parquet.read_table("e.parquet").to_pydict()
    assert list(result) == ["row", "predicted", "uncertainty", "probability", "label", "correct", "scorer"]
    u = Entropy()(outputs)
    np.testing.assert_allclose(result["probability"], ErrorProbability(method).fit(u, outputs.correct)(u), atol=1e-6)
    assert run("evaluate", "e.parquet", "-o", "m.json", "--bootstrap", "0") == 0
    assert json.loads(Path("m.json").read_text())["uncertainty"]["brier_proper"] is not None


def test_calibration_data_is_checked_before_anything_runs(place, images, labels, capsys) -> None:
    np.save("x.npy", images)
    np.savez("train.npz", inputs=images, labels=labels)
    (place / "link.npz").symlink_to(place / "train.npz")
    np.savez("renamed.npz", x=images[:40], y=labels[:40])
    for group in ("train", "held-out"):
        for name in "abc"[: 3 if group == "train" else 2]:
            (place / group / name).mkdir(parents=True)
            Image.fromarray(images[0, 0]).save(place / group / name / "0.png")
    for data, held_out, words in (
        ("train.npz", "x.npy", "--calibrate: x.npy has no labels; write inputs and labels to an .npz"),
        ("train", "held-out", "expected the class subfolders a, b, c, as in DATA, got a, b"),
        ("train.npz", "nothing.npz", "--calibrate: there is no file or folder nothing.npz"),
        ("train.npz", "train.npz", "--calibrate: train.npz is DATA itself"),
        ("train.npz", "link.npz", "--calibrate: link.npz is DATA itself"),
        ("train.npz", "renamed.npz", "--calibrate: renamed.npz begins with the same examples as DATA"),
        ("train", "train/../train", "is DATA itself"),
    ):
        words_given = ("fit", "no_such_module:build", data, "--calibrate", held_out, "-o", "a.qipf")
        assert run(*words_given) == 1
        assert words in capsys.readouterr().err
    assert not (place / "a.qipf").exists()


@pytest.mark.parametrize("scorer", ["entropy", "default"])
def test_calibration_data_of_another_model_is_refused(place, images, labels, rng, capsys, scorer) -> None:
    np.savez("train.npz", inputs=images, labels=labels)
    np.savez("seven.npz", logits=rng.standard_normal((20, 7)), labels=rng.integers(0, 3, 20))
    np.savez("classes.npz", inputs=images[::-1], labels=labels + 5)
    np.savez("from-1.npz", inputs=images[::-1], labels=labels + 1)
    for held_out, words in (
        ("seven.npz", "--calibrate: seven.npz cannot be used: logits: expected 3 columns, as in DATA, got 7"),
        ("classes.npz", "--calibrate: classes.npz cannot be used: labels: expected classes from 0 to 2"),
        ("from-1.npz", "or --labels-from 1"),
    ):
        given = ("train.npz", "--scorer", scorer, "--calibrate", held_out, "-o", "a.qipf", "--quiet")
        assert run("fit", "builder_for_tests:build", *given) == 1
        assert words in capsys.readouterr().err
    assert not (place / "a.qipf").exists()
