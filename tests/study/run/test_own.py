"""The user's own model, data and scores in a benchmark."""

import csv
import importlib
import sys
from pathlib import Path

import numpy as np
import own_net
import pytest
import torch
from own_plans import measure

from qipf.study import datasets
from qipf.study.plan.plan import parse
from qipf.study.run import study_data
from qipf.study.run.graph import entries
from qipf.study.run.read import open_store


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
    bench = measure(plan_for(pair, entropy), tmp_path / "first", times=True)
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
    measure(plan_for(pair, both), tmp_path / "first", times=True)
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
    bench = measure(plan_for(pair, {"max-logit": {}}), tmp_path / "s", times=True)
    clean = bench.predictions(bench.conditions()[0])
    held_out = bench.held_out("digits", "mine", 0)
    with torch.no_grad():
        logits = trained(digits.test.inputs)
    # a model from elsewhere may have seen all training data: the held-out inputs are test inputs, and not evaluated
    order = np.random.default_rng(0).permutation(len(logits))
    for found, rows in ((held_out, order[:100]), (clean, np.sort(order[100:]))):
        assert (found.labels == digits.test.targets.numpy()[rows]).all()
        assert (found.predicted == logits[rows].argmax(1).numpy()).all()
        assert np.allclose(found.scores["max-logit", "score"], -logits[rows].max(1).values.numpy(), atol=1e-5)
    (note,) = bench.notes()
    assert note.startswith("digits/mine #0: 100 test inputs ")
    pictures = bench.images(bench.conditions()[0], [0, 498])
    assert (pictures == digits.test.inputs.numpy()[np.sort(order[100:])[[0, 498]]]).all()


def test_held_out_inputs_of_ones_own(digits, tmp_path):
    """They are used as they are, and everything else stays where it is."""
    x, y = digits.test.inputs.numpy(), digits.test.targets.numpy()
    train = {"x_train": digits.train.inputs.numpy(), "y_train": digits.train.targets.numpy()}
    held_out = {"x_held_out": x[:150], "y_held_out": y[:150]}
    np.savez(tmp_path / "mine.npz", x_test=x[150:], y_test=y[150:], **train, **held_out)
    pair = {"dataset": str(tmp_path / "mine.npz"), "model": "own_net:make"}
    bench = measure(plan_for(pair, {"entropy": {}}), tmp_path / "s", times=True)
    assert (bench.held_out("mine", "mine", 0).labels == y[:150]).all()
    assert (bench.predictions(bench.conditions()[0]).labels == y[150:]).all()
    assert bench.notes() == []
    cut = study_data.load_data(str(tmp_path / "mine.npz"), 100, None, "cpu")  # for a network that is trained here
    assert [len(split.targets) for split in cut[:3]] == [len(train["y_train"]), 150, len(y) - 150]


def test_another_network_or_source_is_another_cell(monkeypatch, tmp_path):
    def key():
        plan = plan_for({"dataset": "digits", "model": "own_net_copy:make"}, {"entropy": {}})
        return next(entry.cell.key for entry in entries(plan) if entry.cell.kind == "model")

    source = Path(own_net.__file__).read_text()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files of one second and size would look the same
    keys = []
    # as it is; the same again; other weights; the same weights and another forward pass
    for text in (source, source, source.replace("manual_seed(0)", "manual_seed(1)"), source.replace("ReLU", "Tanh")):
        (tmp_path / "own_net_copy.py").write_text(text)
        monkeypatch.delitem(sys.modules, "own_net_copy", raising=False)
        importlib.invalidate_caches()
        keys.append(key())
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_weights_from_elsewhere_make_another_cell(monkeypatch):
    """The same source, whose weights come from a file that it reads by itself, for instance."""
    plan = plan_for({"dataset": "digits", "model": "own_net:make"}, {"entropy": {}})
    keys = [entries(plan)[0].cell.key]
    net = own_net.make()
    with torch.no_grad():
        net.get_parameter("1.bias")[0] += 1e-3
    monkeypatch.setattr(own_net, "make", lambda: net)
    keys.append(entries(plan)[0].cell.key)
    assert keys[0] != keys[1]


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
        "multi_pass_size": 100,
        "methods": {"entropy": {}, "mc-dropout": {"passes": 3}},
    }
    bench = measure(parse(values), tmp_path / "s", times=True)
    predictions = [bench.predictions(condition) for condition in bench.conditions()]
    clean, other = (found.scores["entropy", "score"] for found in predictions)
    assert (len(clean), len(other)) == (len(digits.test.inputs), 60)  # half of an x, y file is for reference
    rows = [row for row in bench.rows() if row.errors == "ood" and row.metric == "roc_auc"]
    many_pass = ("std", "entropy", "mutual_information", "std_mean_class", "contrast")
    assert [(row.method, row.score, row.subset) for row in rows] == [
        ("entropy", "score", "all"), ("entropy", "score", "common"),
        *(("mc-dropout", score, "common") for score in many_pass),
    ]  # fmt: skip
    some = np.isfinite(predictions[0].scores["mc-dropout", "std"])
    assert (some.sum(), np.isfinite(predictions[1].scores["mc-dropout", "std"]).sum()) == (100, 60)
    for row, known in zip(rows, (clean, clean[some]), strict=False):
        truth = np.repeat([0, 1], [len(known), len(other)])
        expected = roc_auc_score(truth, np.concatenate([known, other]).astype(float))
        assert (row.value, row.n) == (pytest.approx(expected, abs=1e-12), len(truth))


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
    bench = measure(parse(values), tmp_path / "s", times=True)
    found = bench.predictions(bench.conditions()[0])
    assert (found.own_predicted["ensemble"] == found.labels).mean() > 0.8


def test_files_of_scores_that_do_not_fit(tmp_path):
    from qipf.study.run.cells import read_scores as read

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
    says("index,score\n0,1\n1,2\n", "expected 3 scores")
    says("index,score\n0,1\n1,2\n3,1\n", "row 2: expected an index from 0 to 2, got 3")
    says("index,score\n0,nan\n", "score.*finite.*row 0")
    says("index,score\n0,word\n", "score.*finite numbers.*word")
    (tmp_path / "s.csv").write_text("index,score,seed\n2,3.5,0\n1,2,0\n0,1,0\n0,9,1\n")
    assert read(params, base)["score/0"].tolist() == [1.0, 2.0, 3.5]
