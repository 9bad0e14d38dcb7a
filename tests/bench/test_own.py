"""The user's own model, data and scores in a benchmark."""

import csv

import numpy as np
import own_net
import pytest
import torch

from qipf import datasets
from qipf.bench import inputs
from qipf.bench.plan import parse
from qipf.bench.read import open_store
from qipf.bench.run import run_plan


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


@pytest.fixture(scope="module")
def trained(digits):
    from qipf.training import train

    return train(own_net.make(), digits.train, epochs=5, learning_rate=1e-2, progress=False)


def plan_for(pair, methods):
    settings = {
        "name": "own",
        "shifts": ["rotation"],
        "severities": [2, 5],
        "calibration_size": 100,
        "reference_size": 200,
    }
    return parse({**settings, "pairs": [{"net": "mine", **pair}], "methods": methods})


def test_own_model_data_and_scores(digits, trained, tmp_path):
    """A module with its weights, an .npz, and a file of scores that repeats what we know to be the entropy."""
    from safetensors.torch import save_file

    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    images = np.concatenate([digits.train.inputs.numpy(), digits.test.inputs.numpy()])
    labels = np.concatenate([digits.train.targets.numpy(), digits.test.targets.numpy()])
    np.savez(tmp_path / "mine.npz", x=(images * 255).round().astype(np.uint8), y=labels)
    pair = {"dataset": str(tmp_path / "mine.npz"), "model": "own_net:make", "weights": str(tmp_path / "w.safetensors")}
    entropy = {"entropy": {}, "mc-dropout": {"passes": 3}}
    report, _ = run_plan(plan_for(pair, entropy), tmp_path / "first", engine="serial", quiet=True)
    assert report.complete
    bench = open_store(tmp_path / "first")
    assert bench.networks()[0]["accuracy"] > 0.8
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["shift", "severity", "index", "score"])
        for condition in bench.conditions():
            if condition.severity != 5:  # not every condition needs scores
                values = bench.predictions(condition).scores["entropy", "score"]
                writer.writerows([condition.shift, condition.severity, i, repr(float(v))] for i, v in enumerate(values))
        held_out = bench.held_out("mine", "mine", 0).scores["entropy", "score"]
        writer.writerows(["held-out", 0, i, repr(float(v))] for i, v in enumerate(held_out))
    both = {"entropy": {}, "theirs": {"kind": "scores", "file": str(tmp_path / "scores.csv")}}
    report, _ = run_plan(plan_for(pair, both), tmp_path / "first", engine="serial", quiet=True)
    assert report.complete
    rows = open_store(tmp_path / "first").rows()
    ours = {row[3:6] + row[9:]: None for row in rows if row.method == "entropy" and row.severity != 5}
    theirs = {row[3:6] + row[9:]: None for row in rows if row.method == "theirs"}
    assert str(list(ours)) == str(list(theirs))  # NaN and all
    assert {row.severity for row in rows if row.method == "theirs"} == {0, 2}


def test_an_exported_program(digits, trained, tmp_path):
    batch = torch.export.Dim("batch")
    program = torch.export.export(trained.eval(), (digits.test.inputs[:8],), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "mine.pt2")
    pair = {"dataset": "digits", "model": str(tmp_path / "mine.pt2")}
    report, _ = run_plan(plan_for(pair, {"max-logit": {}}), tmp_path / "s", engine="serial", quiet=True)
    assert report.complete
    bench = open_store(tmp_path / "s")
    clean = bench.predictions(bench.conditions()[0])
    with torch.no_grad():
        logits = trained(digits.test.inputs)
    assert (clean.predicted == logits.argmax(1).numpy()).all()
    assert np.allclose(clean.scores["max-logit", "score"], -logits.max(1).values.numpy(), atol=1e-5)


def test_inputs_of_another_dataset_are_to_be_found(digits, tmp_path):
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", x=rng.random((120, 1, 8, 8)).astype(np.float32), y=np.zeros(120, int))
    values = {
        "name": "ood",
        "calibration_size": 100,
        "reference_size": 200,
        "out_of_distribution": [str(tmp_path / "noise.npz")],
        "pairs": [{"dataset": "digits", "net": "small-cnn", "train": {"epochs": 2}}],
        "methods": {"entropy": {}},
    }
    report, _ = run_plan(parse(values), tmp_path / "s", engine="serial", quiet=True)
    assert report.complete
    bench = open_store(tmp_path / "s")
    clean, other = (bench.predictions(condition).scores["entropy", "score"] for condition in bench.conditions())
    assert (len(clean), len(other)) == (len(digits.test.inputs), 60)  # half of an x, y file is for reference
    (row,) = (row for row in bench.rows() if row.errors == "ood" and row.metric == "roc_auc")
    truth = np.repeat([0, 1], [len(clean), len(other)])
    assert row.value == pytest.approx(roc_auc_score(truth, np.concatenate([clean, other]).astype(float)), abs=1e-12)


def test_a_network_with_batch_norm(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(160) % 2
    x = np.clip(0.4 * labels[:, None, None, None] + 0.6 * rng.random((160, 1, 8, 8)), 0, 1).astype(np.float32)
    np.savez(tmp_path / "two.npz", x_train=x[:100], y_train=labels[:100], x_test=x[100:], y_test=labels[100:])
    values = {
        "name": "norm",
        "calibration_size": 30,
        "pairs": [{"dataset": str(tmp_path / "two.npz"), "net": "vgg3", "train": {"epochs": 15, "batch_size": 20}}],
        "methods": {"ensemble": {"members": 2}, "swag": {"iterates": 2, "rank": 2, "passes": 2}, "mahalanobis": {}},
    }
    report, _ = run_plan(parse(values), tmp_path / "s", engine="serial", quiet=True)
    assert report.failed == []
    assert report.complete
    bench = open_store(tmp_path / "s")
    found = bench.predictions(bench.conditions()[0])
    assert (found.own_predicted["ensemble"] == found.labels).mean() > 0.8


def test_files_of_scores_that_do_not_fit(tmp_path):
    from qipf.bench.own_scores import read

    params = {
        "file": str(tmp_path / "s.csv"),
        "where": {"dataset": "d", "net": "n", "seed": 0},
        "group": {"name": "clean"},
        "severity": [0],
    }
    base = {"labels": np.zeros(3)}

    def says(text, words):
        (tmp_path / "s.csv").write_text(text)
        with pytest.raises(ValueError, match=words):
            read(params, base)

    says("index,scor\n0,1\n", "unknown key 'scor'; did you mean 'score'")
    says("score\n1\n", "expected a column 'index'")
    says("index,score\n0,1\n1,2\n", "1 of 3 scores are missing")
    says("index,score\n0,1\n1,2\n3,1\n", "line 4: index 3 is outside 0 to 2")
    says("index,score\n0,nan\n", "line 2: score 'nan' is no finite number")
    (tmp_path / "s.csv").write_text("index,score,seed\n2,3.5,0\n1,2,0\n0,1,0\n0,9,1\n")
    assert read(params, base)["score/0"].tolist() == [1.0, 2.0, 3.5]


def test_datasets_of_ones_own_that_do_not_fit(tmp_path):
    def says(words, **arrays):
        np.savez(tmp_path / "d.npz", **arrays)
        with pytest.raises(ValueError, match=words):
            inputs.read_npz(tmp_path / "d.npz")

    x, y = np.zeros((6, 1, 4, 4), np.float32), np.arange(6)
    says("expected x and y", images=x)
    says("expected labels as one whole number", x=x, y=y + 0.5)
    says("expected inputs", x=x.astype(np.int64), y=y)
    says("6 inputs and 5 labels", x_train=x, y_train=y[:5], x_test=x, y_test=y)
    np.savez(tmp_path / "d.npz", x=x[:, 0], y=y)
    found = inputs.read_npz(tmp_path / "d.npz")
    assert found.train.inputs.shape == (3, 1, 4, 4)
    assert sorted([*found.train.targets.tolist(), *found.test.targets.tolist()]) == [0, 1, 2, 3, 4, 5]
