"""Mistakes in `qipf fit` and `qipf score` are explained in one line and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from small_model import run

import qipf
from qipf.scores import Entropy

CASES = [
    (1, "narrow.npy --labels y.npy", "8x30"),
    (1, "narrow.npy --scorer weight-qipf", "8x30"),
    (1, "score e.qipf narrow.npy --model builder_for_tests:build -o a.csv", "8x30"),
    (1, "fit nothing.pt2 xy.npz -o a.qipf", "no file nothing.pt2"),
    (1, "fit bad.pt2 xy.npz -o a.qipf", "version of torch"),
    (1, "fit no_such_module:build xy.npz -o a.qipf", "cannot import"),
    (1, "fit builder_for_tests:nothing xy.npz -o a.qipf", "has no attribute 'nothing'"),
    (1, "fit builder_for_tests:number xy.npz -o a.qipf", "name a function"),
    (1, "fit builder_for_tests:unset xy.npz -o a.qipf", "KeyError: 'config', in builder_for_tests.py, line"),
    (1, "fit builder_for_tests:leave xy.npz -o a.qipf", "failed with SystemExit"),
    (1, "fit builder_for_tests:broken xy.npz -o a.qipf", "torch.nn.Module"),
    (1, "xy.npz --weights bad.safetensors", "does not fit"),
    (1, "xy.npz --weights cut.safetensors", "is damaged"),
    (1, "xy.npz --weights junk.safetensors", "is damaged"),
    (1, "cut.npz", "is damaged"),
    (1, "cut.npy", "cut.npy is damaged"),
    (1, "nothing.npz", "no file or folder"),
    (1, "pickled.npy", "Python objects"),
    (1, "pickled.npz", "pickled"),
    (1, "other.npz", "the file holds a, b"),
    (1, "ragged.npz", "equal numbers of rows"),
    (1, "empty", "no images"),
    (1, "sizes", "same size"),
    (1, "fit builder_for_tests:build xy.npz -o no/a.qipf", "create it first"),
    (1, "score nothing.qipf x.npy -o a.csv", "no file nothing.qipf"),
    (1, "score x.npy x.npy -o a.csv", "not a file written by qipf"),
    (1, "score e.qipf x.npy -o no/a.csv --model builder_for_tests:build", "create it first"),
    (1, "table.csv", "pandas.read_csv('table.csv')"),
    (1, "xy.npz --labels x.npy", "already has labels"),
    (1, "fit net.pt xy.npz -o a.qipf", "torch.export.save"),
    (1, "fit net.keras xy.npz -o a.qipf", "model.weights.h5"),
    (1, "fit model.keras xy.npz -o a.qipf", "expected a .pt2"),
    (1, "xy.npz --weights x.pt", "safetensors.torch.save_file"),
    (1, "fit w.safetensors xy.npz -o a.qipf", "cannot be run"),
    (1, "fit w.safetensors x.npy -o a.qipf --scorer weight-qipf", "cannot be run"),
    (1, "score e.qipf x.npy -o a.csv --model w.safetensors", "cannot be run"),
    (1, "fit w.safetensors logits.npz -o a.qipf", "reads features"),
    (1, "fit w.safetensors flat.npz -o a.qipf --scorer entropy", "shape (N, C)"),
    (1, "x.npy --labels nothing.npy", "there is no file nothing.npy"),
    (2, f"x.npy --option factor={'9' * 400}", "--option"),
    (2, f"x.npy --option factor={'[' * 10**5}", "--option"),
    (2, "x.npy --scorer tea", "there is no scorer 'tea'"),
    (2, "x.npy --option factor", "NAME=VALUE"),
    (2, "xy.npz --option seed=1 --option seed=2", "seed is given twice"),
    (2, "x.npy --option f=1", "available settings: effort, size, seed"),
    (2, "x.npy --scorer weight-qipf --option f=1", "available settings: orders"),
    (2, "xy.npz --device tea", "'tea' cannot be used"),
    (2, "xy.npz --device cuda:99", "'cuda:99'"),
    (2, "x.npy", "--labels FILE.npy"),
    (2, "x.npy --scorer default", "requires labels"),
    (2, "fit w.safetensors logits.npz -o a.qipf --features 2", "--features"),
    (2, "score e.qipf x.npy -o a.csv --model builder_for_tests:build --device cuda:99", "'cuda:99' cannot be used"),
    (2, "score e.qipf x.npy -o a.csv", "--model: required"),
    (2, "score e.qipf x.npy -o a.txt --model builder_for_tests:build", ".csv or .parquet"),
    (2, "score e.qipf x.npy -o a.csv --modes", "--modes"),
    (2, "xy.npz --confidence 0.9", "--confidence: requires a promise"),
    (2, "xy.npz --calibrate xy.npz --promise inside>=0.9 --confidence 0.9", "--confidence: requires a promise"),
    (2, "x.npy --scorer weight-qipf --labels-from 1", "--labels-from: DATA has no labels"),
    (2, "x.npy --option factor=40", "does not accept factor"),
    (2, "x.npy --scorer weight-qipf --option factor=-1", "factor"),
    (2, "x.npy --batch-size 0", "--batch-size"),
    (2, "score e.qipf x.npy -o a.csv --batch-size 0", "--batch-size: expected at least 1"),
    (2, "xy.npz --option size=no", "size: expected an integer"),
    (2, "xy.npz --option seed=-1", "seed: expected an integer"),
    (2, "xy.npz --option effort=much", "one of quick, standard"),
    (2, "fit builder_for_tests:conv xy.npz -o a.qipf --scorer knn", "reads features"),
]
"""Exit code, words, and a part of the message. Words that do not name a command are those of `FIT`."""
FIT = "fit builder_for_tests:build {} -o a.qipf"


@pytest.mark.parametrize(("code", "words", "message"), CASES, ids=[message for *_, message in CASES])
def test_errors_are_explained_and_leave_nothing(place, images, labels, code, words, message, capsys) -> None:
    np.save("x.npy", images)
    np.save("y.npy", labels)
    np.save("narrow.npy", images[:, :, :5])
    np.savez("xy.npz", x=images, y=labels)
    np.save("pickled.npy", np.array([{"a": 1}], dtype=object))
    np.savez("pickled.npz", inputs=np.array([{"a": 1}], dtype=object))
    np.savez("logits.npz", logits=np.ones((60, 3)), labels=labels)
    np.savez("flat.npz", logits=np.zeros(6), labels=np.arange(6) % 2)
    np.savez("other.npz", a=np.ones(3), b=np.ones(3))
    np.savez("ragged.npz", inputs=np.ones((3, 2)), labels=np.ones(4))
    Path("bad.pt2").write_bytes(b"no program")
    for file in ("bad.safetensors", "w.safetensors"):
        save_file({"weight": torch.ones(3, 3)}, file)
    for whole in ("w.safetensors", "xy.npz", "x.npy"):
        Path("cut").with_suffix(Path(whole).suffix).write_bytes(Path(whole).read_bytes()[:-20])
    Path("junk.safetensors").write_bytes(b"junk" * 100)
    Path("table.csv").write_text("a,b,label\n1,2,0\n")
    Path("empty").mkdir()
    for side in (6, 7):
        Path(f"sizes/{side}").mkdir(parents=True)
        Image.fromarray(np.zeros((side, side), np.uint8)).save(f"sizes/{side}/0.png")
    Entropy().save("e.qipf")
    before = sorted(path.name for path in place.iterdir() if path.name != "__pycache__")
    words = words if words.split()[0] in ("fit", "score") else FIT.replace("{}", words)
    assert run(*words.split()) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert sorted(path.name for path in place.iterdir() if path.name != "__pycache__") == before


def test_a_model_that_knows_nothing_of_the_labels_is_told(place, images, labels, net, capsys) -> None:
    logits = net(torch.asarray(images / np.float32(255))).detach()
    net[3].bias.data -= logits.mean(0)  # every class is predicted
    known = (logits - logits.mean(0)).argmax(1).numpy()
    save_file(net.state_dict(), "w.safetensors")
    model = ("builder_for_tests:build", "--weights", "w.safetensors", "--batch-size", 60)
    for given, told in ((known, 0), ((known + 1) % 3, 1)):
        np.savez("xy.npz", x=images, y=given)
        assert run("fit", model[0], "xy.npz", *model[1:], "--scorer", "entropy", "-o", "a.qipf") == 0
        assert capsys.readouterr().err.count("by chance") == told
    np.savez("twice.npz", x=np.concatenate([images, images]), y=np.concatenate([(known + 1) % 3, known % 2]))
    assert run("compare", model[0], "twice.npz", *model[1:], "--scorers", "entropy") == 0
    told = capsys.readouterr().out
    assert "by chance" in told
    assert "Use " not in told


def test_another_model_is_the_fault_of_model_and_views_of_views(place, images, labels, net, capsys) -> None:
    np.savez("xy.npz", x=images, y=labels)
    qipf.KNN().fit(net, (torch.asarray(images / np.float32(255)), labels), features="2").save("k.qipf")
    assert run("score", "k.qipf", "xy.npz", "--model", "builder_for_tests:conv", "-o", "a.csv") == 1
    assert "qipf: --model: " in capsys.readouterr().err
    assert not Path("a.csv").exists()
    assert run("score", "k.qipf", "xy.npz", "--model", "builder_for_tests:build", "--views", 2, "-o", "a.csv") == 2
    assert "qipf: --views: " in capsys.readouterr().err


def test_a_scorer_that_reads_no_features_takes_none(place, images, labels, capsys) -> None:
    np.savez("xy.npz", x=images, y=labels)
    assert run("fit", "builder_for_tests:fixed", "xy.npz", "--scorer", "entropy", "--features", 99, "-o", "a.qipf") == 2
    assert "qipf: --features: " in capsys.readouterr().err
    assert not Path("a.qipf").exists()


def test_a_scorer_of_layers_needs_inputs(place, images, labels, net, capsys) -> None:
    qipf.Probe(space="2", hidden=4, epochs=1).fit(net, (torch.asarray(images / np.float32(255)), labels)).save("c.qipf")
    np.savez("logits.npz", logits=np.zeros((60, 3)))
    assert run("score", "c.qipf", "logits.npz", "-o", "a.csv") == 1
    assert "--model" in capsys.readouterr().err


def test_bad_rows_are_named_and_an_old_table_survives(place, rng, capsys) -> None:
    Entropy().save("e.qipf")
    logits = rng.standard_normal((50, 3))
    logits[33, 1] = np.nan
    np.savez("logits.npz", logits=logits)
    Path("scores.csv").write_text("old\n")
    assert run("score", "e.qipf", "logits.npz", "-o", "scores.csv", "--batch-size", 20) == 1
    assert "row 33" in capsys.readouterr().err
    assert (place / "scores.csv").read_text() == "old\n"
    assert not list(place.glob(".*part"))
