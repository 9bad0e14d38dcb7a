"""`qipf fit`, `qipf score` and `qipf inspect`, from files to files."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import qipf.cli
from qipf.cli.inspect import plot
from qipf.decisions.probability import ErrorProbability
from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.scores import KNN, Entropy, WeightQIPF
from qipf.scores.default import default
from qipf.scores.persistence import load

BUILDER = """
import torch
def build():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 20), torch.nn.Tanh(), torch.nn.Linear(20, 3))
def conv():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 3, 6), torch.nn.Flatten())
def fixed():
    torch.manual_seed(3)
    return build()
def unset():
    return {}["config"]
def leave():
    raise SystemExit(0)
number = 7
def broken():
    return 3
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    (tmp_path / "builder_for_tests.py").write_text(BUILDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "builder_for_tests", raising=False)
    return tmp_path


@pytest.fixture
def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 20), nn.Tanh(), nn.Linear(20, 3))


@pytest.fixture
def images(rng) -> np.ndarray:
    return rng.integers(0, 256, (60, 1, 6, 6), dtype=np.uint8)


@pytest.fixture
def labels(rng) -> np.ndarray:
    return rng.integers(0, 3, 60)


def as_inputs(images: np.ndarray) -> torch.Tensor:
    return torch.asarray(images.astype(np.float32) / np.float32(255))


def run(*words: object) -> int:
    return qipf.cli.main([str(word) for word in words])


def table(path: Path) -> dict[str, list[str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: [row[key] for row in rows] for key in rows[0]}


def test_exported_program_to_scores(place, net, images, labels, capsys) -> None:
    batch = torch.export.Dim("batch", min=1, max=4096)
    torch.export.save(torch.export.export(net, (as_inputs(images[:5]),), dynamic_shapes=({0: batch},)), "net.pt2")
    np.savez("train.npz", inputs=images, labels=labels)
    words = ("--scorer", "weight-qipf", "--option", "factor=40")
    assert run("fit", "net.pt2", "train.npz", "-o", "net.qipf", *words) == 0
    assert "fitted to 60 examples" in capsys.readouterr().err
    outputs = collect(net, (as_inputs(images), torch.asarray(labels)), progress=False)
    expected = WeightQIPF(factor=40).fit(net, outputs)

    np.save("new.npy", images[::-1])
    assert run("score", "net.qipf", "new.npy", "--model", "net.pt2", "-o", "scores.csv", "--modes") == 0
    columns = table(place / "scores.csv")
    turned = outputs[::-1]
    assert list(columns) == ["row", "predicted", "uncertainty", "mode_2", "mode_4", "mode_6", "mode_8"]
    assert columns["row"] == [str(row) for row in range(60)]
    assert columns["predicted"] == [str(int(value)) for value in turned.predicted]
    np.testing.assert_allclose(np.array(columns["uncertainty"], float), expected(turned).numpy(), rtol=1e-3)
    np.testing.assert_allclose(np.array(columns["mode_6"], float), expected.modes(turned)[:, 2].numpy(), rtol=1e-3)


def test_the_recommended_scorer_reads_inside_an_exported_program(place, net, images, labels) -> None:
    batch = torch.export.Dim("batch", min=1, max=4096)
    torch.export.save(torch.export.export(net, (as_inputs(images[:5]),), dynamic_shapes=({0: batch},)), "net.pt2")
    np.savez("train.npz", inputs=images, labels=labels)
    assert run("fit", "net.pt2", "train.npz", "-o", "net.qipf", "--quiet") == 0
    assert run("score", "net.qipf", "train.npz", "--model", "net.pt2", "-o", "scores.csv", "--quiet") == 0
    split = (as_inputs(images), torch.asarray(labels))
    scorer = default(net, split, progress=False)
    assert load("net.qipf").layers == scorer.layers
    expected = scorer(collect(net, split, layers=scorer.layers, progress=False))
    found = np.array(table(place / "scores.csv")["uncertainty"], float)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_callable_with_checkpoint_on_a_folder_of_images(place, net, images, labels) -> None:
    import pyarrow.parquet

    save_file(net.state_dict(), "net.safetensors")
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = place / "pictures" / "abc"[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0]).save(folder / f"{row:03d}.png")
    common = ("--weights", "net.safetensors", "--quiet")
    call = "builder_for_tests:build"
    assert run("fit", call, "pictures", "--scorer", "knn", "--option", "k=5", "-o", "knn.qipf", *common) == 0
    assert run("score", "knn.qipf", "pictures", "--model", call, "-o", "scores.parquet", *common) == 0
    result = pyarrow.parquet.read_table("scores.parquet").to_pydict()
    assert list(result) == ["row", "file", "predicted", "uncertainty", "label", "correct"]
    order = np.argsort(labels, kind="stable")  # by class folder, then by name
    outputs = collect(net, (as_inputs(images[order]), torch.asarray(labels[order])), progress=False)
    np.testing.assert_allclose(result["uncertainty"], KNN(k=5).fit(outputs=outputs)(outputs), rtol=1e-5)
    assert result["label"] == labels[order].tolist()
    assert result["correct"] == outputs.correct.tolist()
    assert result["file"][0].endswith(f"{order[0]:03d}.png")


@pytest.mark.filterwarnings("default")
def test_scoring_with_other_weights_is_said(place, net, images, labels, capsys) -> None:
    save_file(net.state_dict(), "net.safetensors")
    np.savez("train.npz", inputs=images, labels=labels)
    call = "builder_for_tests:build"
    assert run("fit", call, "train.npz", "--weights", "net.safetensors", "--scorer", "entropy", "-o", "net.qipf") == 0
    program = torch.export.export(net, (as_inputs(images[:5]),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, "net.pt2")
    capsys.readouterr()
    common = ("-o", "scores.csv", "--quiet")
    assert run("score", "net.qipf", "train.npz", "--model", call, "--weights", "net.safetensors", *common) == 0
    assert run("score", "net.qipf", "train.npz", "--model", "net.pt2", *common) == 0  # the same weights, exported
    assert capsys.readouterr().err == ""
    assert run("score", "net.qipf", "train.npz", "--model", call, *common) == 0  # forgot --weights
    assert "weights are not those that this scorer was fitted to" in capsys.readouterr().err


def test_without_a_name_the_recommended_scorer_finds_its_layers(place, net, images, labels, capsys) -> None:
    save_file(net.state_dict(), "net.safetensors")
    np.savez("train.npz", inputs=images, labels=labels)
    common = ("--weights", "net.safetensors")
    call = "builder_for_tests:build"
    assert run("fit", call, "train.npz", "-o", "d.qipf", *common) == 0
    assert "d.qipf: probe, fitted to 60 examples" in capsys.readouterr().err
    assert run("fit", call, "train.npz", "--scorer", "default", "-o", "named.qipf", *common, "--quiet") == 0
    assert Path("named.qipf").read_bytes() == Path("d.qipf").read_bytes()
    assert run("score", "d.qipf", "train.npz", "--model", call, "-o", "d.csv", *common, "--quiet") == 0
    split = (as_inputs(images), torch.asarray(labels))
    scorer = default(net, split, progress=False)
    assert scorer.layers  # a hidden layer, which `qipf score` has to collect
    expected = scorer(collect(net, split, layers=scorer.layers, progress=False))
    np.testing.assert_allclose(np.array(table(place / "d.csv")["uncertainty"], float), expected, rtol=1e-4, atol=1e-5)


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


def test_the_recommended_scorer_reads_the_module_that_is_named(place, net, images, labels) -> None:
    save_file(net.state_dict(), "net.safetensors")
    np.savez("train.npz", inputs=images, labels=labels)
    given = ("builder_for_tests:build", "--weights", "net.safetensors", "--quiet")
    assert run("fit", given[0], "train.npz", "--features", "2", "-o", "a.qipf", *given[1:]) == 0
    assert load("a.qipf").layers == ("2",)
    assert run("score", "a.qipf", "train.npz", "-o", "a.csv", "--model", *given) == 0
    split = (as_inputs(images), torch.asarray(labels))
    scorer = default(net, split, features="2", progress=False)
    expected = scorer(collect(net, split, layers=("2",), progress=False))
    np.testing.assert_allclose(np.array(table(place / "a.csv")["uncertainty"], float), expected, rtol=1e-4, atol=1e-5)


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


def test_the_recommended_scorer_without_labels_is_one_line_with_the_way_out(place, images, capsys) -> None:
    np.save("x.npy", images)
    assert run("fit", "no_such_module:build", "x.npy", "-o", "a.qipf") == 2  # before any code is run
    (line,) = capsys.readouterr().err.splitlines()
    for words in ("labels", "--labels", "--scorer weight-qipf"):
        assert words in line
    assert not (place / "a.qipf").exists()


@pytest.mark.parametrize(("count", "method"), [(60, "logistic"), (900, "isotonic")])
def test_calibrated_on_held_out_data_there_is_a_probability(place, net, rng, count, method, capsys) -> None:
    import pyarrow.parquet

    images, labels = rng.integers(0, 256, (count, 1, 6, 6), dtype=np.uint8), rng.integers(0, 3, count)
    save_file(net.state_dict(), "net.safetensors")
    np.savez("train.npz", inputs=images[:50], labels=labels[:50])
    np.savez("held-out.npz", inputs=images, labels=labels)
    common = ("--weights", "net.safetensors")
    call = "builder_for_tests:build"
    words = ("fit", call, "train.npz", "--scorer", "entropy", "--calibrate", "held-out.npz", "-o", "e.qipf", *common)
    assert run(*words) == 0
    outputs = collect(net, (as_inputs(images), torch.asarray(labels)), progress=False).numpy()
    errors = int((~outputs.correct).sum())
    said = f"probability of error: {method}, from {count} examples, {errors} of them wrong"
    assert said in capsys.readouterr().err
    assert run("score", "e.qipf", "held-out.npz", "--model", call, "-o", "e.parquet", *common, "--quiet") == 0
    result = pyarrow.parquet.read_table("e.parquet").to_pydict()
    assert list(result) == ["row", "predicted", "uncertainty", "probability", "label", "correct"]
    u = Entropy()(outputs)
    np.testing.assert_allclose(result["probability"], ErrorProbability(method).fit(u, outputs.correct)(u), atol=1e-6)
    assert run("evaluate", "e.parquet", "-o", "m.json", "--bootstrap", "0") == 0
    assert json.loads(Path("m.json").read_text())["uncertainty"]["brier_proper"] is not None


def test_calibration_data_is_checked_before_anything_runs(place, images, labels, capsys) -> None:
    np.save("x.npy", images)
    np.savez("train.npz", inputs=images, labels=labels)
    (place / "link.npz").symlink_to(place / "train.npz")
    for group in ("train", "held-out"):
        for name in "abc"[: 3 if group == "train" else 2]:
            (place / group / name).mkdir(parents=True)
            Image.fromarray(images[0, 0]).save(place / group / name / "0.png")
    for data, held_out, words in (
        ("train.npz", "x.npy", "--calibrate: x.npy has no labels"),
        ("train", "held-out", "has the class subfolders a, b, and DATA has a, b, c"),
        ("train.npz", "nothing.npz", "--calibrate: there is no file or folder nothing.npz"),
        ("train.npz", "train.npz", "--calibrate: train.npz is DATA itself"),
        ("train.npz", "link.npz", "--calibrate: link.npz is DATA itself"),
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
    np.savez("classes.npz", inputs=images, labels=labels + 5)
    for held_out, words in (
        (
            "seven.npz",
            "--calibrate: seven.npz does not fit: logits: expected 3 columns, as the model gives for DATA, got 7",
        ),
        ("classes.npz", "--calibrate: classes.npz does not fit: labels: expected classes from 0 to 2"),
    ):
        given = ("train.npz", "--scorer", scorer, "--calibrate", held_out, "-o", "a.qipf", "--quiet")
        assert run("fit", "builder_for_tests:build", *given) == 1
        assert words in capsys.readouterr().err
    assert not (place / "a.qipf").exists()


def test_labels_of_a_one_logit_model_are_checked_in_scoring(place, rng, capsys) -> None:
    Entropy().save("e.qipf")
    truth = np.array([0, 1, 1, 0, 2, 1])
    np.savez("two.npz", logits=rng.standard_normal((6, 1)), labels=truth)
    assert run("score", "e.qipf", "two.npz", "-o", "a.csv", "--batch-size", 2) == 1
    assert "got 2 in row 4" in capsys.readouterr().err
    assert not (place / "a.csv").exists()
    np.savez("two.npz", logits=(logits := rng.standard_normal((6, 1))), labels=truth % 2)
    assert run("score", "e.qipf", "two.npz", "-o", "a.csv") == 0
    assert table(place / "a.csv")["correct"] == [str(v) for v in (logits[:, 0] > 0) == (truth % 2)]


def test_data_that_does_not_fit_the_model_is_one_line(place, images, labels, capsys) -> None:
    np.save("narrow.npy", images[:, :, :5])
    Entropy().save("e.qipf")
    np.save("y.npy", labels)
    for words in (
        ("fit", "builder_for_tests:build", "narrow.npy", "--labels", "y.npy", "-o", "a.qipf"),
        ("fit", "builder_for_tests:build", "narrow.npy", "--scorer", "weight-qipf", "-o", "a.qipf"),
        ("score", "e.qipf", "narrow.npy", "--model", "builder_for_tests:build", "-o", "a.csv"),
    ):
        assert run(*words, "--quiet") == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("qipf: ")
        assert "30" in lines[0]  # the width that came, of 36
        assert not (place / words[-1]).exists()


def test_small_archives_may_compress_well(place) -> None:
    from qipf.cli._data import open_data

    np.savez_compressed("sorted.npz", x=np.zeros((50_000, 4)), y=np.repeat(np.arange(10), 5_000))
    assert Path("sorted.npz").stat().st_size * 100 < 50_000 * 5 * 8
    np.testing.assert_array_equal(open_data(Path("sorted.npz")).arrays["labels"][[0, -1]], [0, 9])


def test_logits_need_no_model(place, rng) -> None:
    logits, truth = rng.standard_normal((30, 4)), rng.integers(0, 4, 30)
    np.savez("logits.npz", logits=logits, labels=truth)
    save_file({"layer.weight": torch.asarray(rng.standard_normal((12, 12)))}, "weights.safetensors")
    option = ("--option", "factor=50", "--option", "orders=[2,4]", "--option", "coordinate=log_odds")
    assert run("fit", "weights.safetensors", "logits.npz", "--scorer", "weight-qipf", "-o", "a.qipf", *option) == 0
    scorer = load("a.qipf")
    assert scorer.settings() | {"orders": (2, 4), "coordinate": "log_odds", "factor": 50} == scorer.settings()
    assert run("score", "a.qipf", "logits.npz", "-o", "scores.csv") == 0
    columns = table(place / "scores.csv")
    np.testing.assert_array_equal(np.array(columns["uncertainty"], float), scorer(logits))  # CSV loses no digit
    assert columns["correct"] == [str(value) for value in (logits.argmax(axis=1) == truth)]


def test_regression_gets_predictions_not_classes(place, rng) -> None:
    outputs = rng.standard_normal((20, 1))
    np.savez("reg.npz", logits=outputs, labels=rng.standard_normal(20))
    save_file({"layer.weight": torch.asarray(rng.standard_normal((9, 9)))}, "weights.safetensors")
    assert run("fit", "weights.safetensors", "reg.npz", "--scorer", "weight-qipf", "-o", "reg.qipf") == 0
    assert run("score", "reg.qipf", "reg.npz", "-o", "reg.csv") == 0
    columns = table(place / "reg.csv")
    assert list(columns) == ["row", "prediction", "uncertainty", "label"]
    np.testing.assert_array_equal(np.array(columns["prediction"], float), outputs[:, 0])


def test_the_accuracy_is_printed(place, net, images, labels, capsys) -> None:
    save_file(net.state_dict(), "net.safetensors")
    outputs = collect(net, (as_inputs(images), torch.asarray(labels)), progress=False)
    expected = f"accuracy of the model: {100 * float(outputs.correct.double().mean()):.1f} % of 60 labelled examples"
    np.savez("train.npz", inputs=images, labels=labels)
    model = ("builder_for_tests:build", "--weights", "net.safetensors")
    for scorer in ("entropy", "default"):
        assert run("fit", model[0], "train.npz", "-o", "a.qipf", "--scorer", scorer, *model[1:]) == 0
        assert expected in capsys.readouterr().err
    score = ("score", "a.qipf", "train.npz", "-o", "a.csv", "--batch-size", 25, "--model", *model)
    assert run(*score) == 0
    assert expected in capsys.readouterr().err
    assert run(*score, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_an_untrained_network_draws_a_warning(place, images, labels, capsys) -> None:
    np.savez("train.npz", inputs=images, labels=labels)
    assert run("fit", "builder_for_tests:build", "train.npz", "-o", "a.qipf", "--scorer", "entropy", "--quiet") == 0
    assert "not trained; give --weights" in capsys.readouterr().err
    assert run("fit", "builder_for_tests:fixed", "train.npz", "-o", "a.qipf", "--scorer", "entropy", "--quiet") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("default")
def test_probabilities_in_place_of_logits_draw_a_warning(place, rng, capsys) -> None:
    Entropy().save("e.qipf")
    logits = rng.standard_normal((30, 4))
    for values, warned in ((logits, False), (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), True)):
        np.savez("data.npz", logits=values)
        assert run("score", "e.qipf", "data.npz", "-o", "a.csv") == 0
        assert capsys.readouterr().err.count("look like probabilities") == warned


@pytest.mark.filterwarnings("default")
def test_one_logit_without_labels_is_called_a_regression(place, rng, capsys) -> None:
    save_file({"layer.weight": torch.asarray(rng.standard_normal((9, 9)))}, "weights.safetensors")
    for labels, warned in (({}, True), ({"labels": rng.integers(0, 2, 20)}, False)):
        np.savez("one.npz", logits=rng.standard_normal((20, 1)), **labels)
        assert run("fit", "weights.safetensors", "one.npz", "--scorer", "weight-qipf", "-o", "a.qipf") == 0
        assert ("taken as a regression" in capsys.readouterr().err) == warned


def test_the_users_own_files_do_not_take_the_place_of_packages(place, images) -> None:
    (place / "rich.py").write_text("raise SystemExit(77)")
    (place / "scipy.py").write_text("raise SystemExit(77)")
    np.save("x.npy", images)
    command = "import sys, qipf.cli; sys.path = [p for p in sys.path if p]; sys.exit(qipf.cli.main(sys.argv[1:]))"
    words = ["fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--scorer", "entropy"]
    done = subprocess.run([sys.executable, "-P", "-c", command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_note_is_shown_where_no_labels_are_given(net, images, capsys) -> None:
    np.save("x.npy", images)
    assert run("fit", "builder_for_tests:build", "x.npy", "--scorer", "weight-qipf", "-o", "a.qipf") == 0
    assert "note: factor 160" in capsys.readouterr().err


def test_the_table_does_not_depend_on_the_batch_size_and_arrays_stay_on_disk(place, images, labels) -> None:
    from qipf.cli._data import open_data

    np.save("x.npy", images)
    np.save("y.npy", labels)
    opened = open_data(Path("x.npy"), Path("y.npy"))
    assert isinstance(opened.arrays["inputs"], np.memmap)
    assert [len(batch) for batch in opened.batches(25)] == [25, 25, 10]
    np.savez("logits.npz", logits=images.reshape(60, -1)[:, :5].astype(float), labels=labels)
    assert run("fit", "builder_for_tests:build", "logits.npz", "--scorer", "entropy", "-o", "e.qipf") == 0
    for size in (7, 500):
        for ending in ("csv", "parquet"):
            assert run("score", "e.qipf", "logits.npz", "-o", f"{size}.{ending}", "--batch-size", size) == 0
    assert (place / "7.csv").read_bytes() == (place / "500.csv").read_bytes()


def test_inspect_shows_everything_and_a_plot(rng, capsys) -> None:
    outputs = Outputs(logits=rng.standard_normal((20, 4)))
    WeightQIPF(factor=40).fit([rng.standard_normal((10, 10))], outputs).save("a.qipf")
    assert run("inspect", "a.qipf") == 0
    text = capsys.readouterr().out
    for part in ("weight-qipf", "settings.factor", "facts.bandwidth", "versions.qipf", "field psi(y)", "█"):
        assert part in text
    assert run("inspect", "a.qipf", "--as-json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["facts"]["samples"] == 100
    assert told["tensors"]


def test_plot_draws_the_curve() -> None:
    y = np.array([-1.0, 0.0, 1.0])
    lines = plot(y, {"a peak": np.array([0.0, 4.0, 2.0])}, height=2).splitlines()
    assert lines[0] == "a peak"
    assert lines[1].endswith("| █ ")  # only the peak reaches the upper half
    assert lines[2].endswith("| ██")
    assert "4" in lines[1]


BAD_FILES = [
    (("fit", "nothing.pt2", "xy.npz", "-o", "a.qipf"), "no file nothing.pt2"),
    (("fit", "bad.pt2", "xy.npz", "-o", "a.qipf"), "not an exported program"),
    (("fit", "no_such_module:build", "xy.npz", "-o", "a.qipf"), "cannot import"),
    (("fit", "builder_for_tests:nothing", "xy.npz", "-o", "a.qipf"), "has no 'nothing'"),
    (("fit", "builder_for_tests:number", "xy.npz", "-o", "a.qipf"), "something to call"),
    (
        ("fit", "builder_for_tests:unset", "xy.npz", "-o", "a.qipf"),
        "KeyError: 'config', in builder_for_tests.py, line",
    ),
    (("fit", "builder_for_tests:leave", "xy.npz", "-o", "a.qipf"), "failed with SystemExit"),
    (("fit", "builder_for_tests:broken", "xy.npz", "-o", "a.qipf"), "torch.nn.Module"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--weights", "bad.safetensors"), "does not fit"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--weights", "cut.safetensors"), "is damaged"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--weights", "junk.safetensors"), "is damaged"),
    (("fit", "builder_for_tests:build", "cut.npz", "-o", "a.qipf"), "DATA: cut.npz is damaged"),
    (("fit", "builder_for_tests:build", "cut.npy", "-o", "a.qipf"), "cut.npy is damaged"),
    (
        ("fit", "builder_for_tests:conv", "xy.npz", "-o", "a.qipf", "--scorer", "knn"),
        "need none: softmax-response, en",
    ),
    (("fit", "builder_for_tests:build", "nothing.npz", "-o", "a.qipf"), "no file or folder"),
    (("fit", "builder_for_tests:build", "pickled.npy", "-o", "a.qipf"), "without running code"),
    (("fit", "builder_for_tests:build", "pickled.npz", "-o", "a.qipf"), "without running code"),
    (("fit", "builder_for_tests:build", "other.npz", "-o", "a.qipf"), "holds a, b; expected inputs"),
    (("fit", "builder_for_tests:build", "ragged.npz", "-o", "a.qipf"), "differ in length"),
    (("fit", "builder_for_tests:build", "empty", "-o", "a.qipf"), "no images"),
    (("fit", "builder_for_tests:build", "sizes", "-o", "a.qipf"), "one size"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "no/a.qipf"), "create it first"),
    (("score", "nothing.qipf", "x.npy", "-o", "a.csv"), "no file nothing.qipf"),
    (("score", "x.npy", "x.npy", "-o", "a.csv"), "not a file written by qipf"),
    (("score", "e.qipf", "x.npy", "-o", "no/a.csv", "--model", "builder_for_tests:build"), "create it first"),
]
WRONG_USE = [
    (("fit", "net.pt", "xy.npz", "-o", "a.qipf"), "safetensors.torch.save_file(torch.load("),
    (("fit", "net.keras", "xy.npz", "-o", "a.qipf"), "model.weights.h5"),
    (("fit", "builder_for_tests:build", "table.csv", "-o", "a.qipf"), "pandas.read_csv('table.csv')"),
    (("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--option", f"factor={'9' * 400}"), "--option"),
    (("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--option", f"factor={'[' * 10**5}"), "--option"),
    (("fit", "model.keras", "xy.npz", "-o", "a.qipf"), "expected a .pt2"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--weights", "x.pt"), ".safetensors file"),
    (("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--scorer", "tea"), "there is no 'tea'"),
    (("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--option", "factor"), "NAME=VALUE"),
    (
        ("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--option", "f=1"),
        "settings: effort, size, seed",
    ),
    (
        ("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--scorer", "weight-qipf", "--option", "f=1"),
        "its settings: orders",
    ),
    (("fit", "w.safetensors", "xy.npz", "-o", "a.qipf"), "cannot be run; give a program, or DATA with logits and fe"),
    (("fit", "w.safetensors", "x.npy", "-o", "a.qipf", "--scorer", "weight-qipf"), "cannot be run"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--device", "tea"), "device 'tea' cannot be used"),
    (
        ("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--device", "cuda:99"),
        "device 'cuda:99' cannot be used",
    ),
    (("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf"), "--labels, or choose a scorer that needs none"),
    (("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--scorer", "default"), "learns from labels"),
    (("fit", "w.safetensors", "logits.npz", "-o", "a.qipf"), "logits and no features"),
    (("fit", "w.safetensors", "logits.npz", "-o", "a.qipf", "--features", "2"), "--features"),
    (
        ("score", "e.qipf", "x.npy", "-o", "a.csv", "--model", "builder_for_tests:build", "--device", "cuda:99"),
        "device 'cuda:99' cannot be used",
    ),
    (("score", "e.qipf", "x.npy", "-o", "a.csv"), "--model: needed"),
    (("score", "e.qipf", "x.npy", "-o", "a.txt", "--model", "builder_for_tests:build"), ".csv or .parquet"),
    (("score", "e.qipf", "x.npy", "-o", "a.csv", "--model", "w.safetensors"), "cannot be run"),
    (("score", "e.qipf", "x.npy", "-o", "a.csv", "--modes"), "--modes"),
    (("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--option", "factor=40"), "does not take factor"),
    (
        ("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--scorer", "weight-qipf", "--option", "factor=-1"),
        "factor",
    ),
    (
        ("fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--batch-size", "0"),
        "--batch-size: expected at least 1",
    ),
    (("score", "e.qipf", "x.npy", "-o", "a.csv", "--batch-size", "0"), "--batch-size: expected at least 1"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--labels", "x.npy"), "has labels already"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--option", "size=no"), "size: expected a whole"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--option", "seed=-1"), "seed: expected a whole"),
    (("fit", "builder_for_tests:build", "xy.npz", "-o", "a.qipf", "--option", "effort=much"), "one of quick, standard"),
]


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [*((1, *case) for case in BAD_FILES), *((2, *case) for case in WRONG_USE)],
)
def test_errors_are_explained_and_leave_nothing(place, images, labels, code, words, message, capsys) -> None:
    np.save("x.npy", images)
    np.savez("xy.npz", x=images, y=labels)
    np.save("pickled.npy", np.array([{"a": 1}], dtype=object))
    np.savez("pickled.npz", inputs=np.array([{"a": 1}], dtype=object))
    np.savez("logits.npz", logits=np.ones((60, 3)), labels=labels)
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
    assert run(*words) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert sorted(path.name for path in place.iterdir() if path.name != "__pycache__") == before


def test_bad_rows_are_named_and_an_old_table_survives(place, rng, capsys) -> None:
    Entropy().save("e.qipf")
    logits = rng.standard_normal((50, 3))
    logits[33, 1] = np.nan
    np.savez("logits.npz", logits=logits)
    Path("scores.csv").write_text("old\n")
    assert run("score", "e.qipf", "logits.npz", "-o", "scores.csv", "--batch-size", 20) == 1
    assert (
        "logits.npz: logits: NaN or infinite values in 1 of the rows 20 to 39, the first with any: row 33"
        in capsys.readouterr().err
    )
    assert (place / "scores.csv").read_text() == "old\n"
    assert not list(place.glob(".*part"))


def test_bad_labels_are_named_by_their_row_in_the_file(place, images, labels, rng, capsys) -> None:
    Entropy().save("e.qipf")
    labels[33] = 3  # of classes 0 to 2
    np.savez("inputs.npz", inputs=images, labels=labels)
    np.savez("logits.npz", logits=rng.standard_normal((60, 3)), labels=labels)
    for file, model in (("logits.npz", ()), ("inputs.npz", ("--model", "builder_for_tests:build"))):
        assert run("score", "e.qipf", file, *model, "-o", "scores.csv", "--batch-size", 20) == 1
        assert "got 3 in row 33" in capsys.readouterr().err
    assert run("fit", "builder_for_tests:build", "inputs.npz", "-o", "a.qipf", "--batch-size", 20) == 1
    assert "got 3 in row 33" in capsys.readouterr().err
    assert not list(place.glob("scores.csv")) + list(place.glob("a.qipf"))


def test_damaged_scorer_files_are_explained(place, capsys) -> None:
    Path("bad.qipf").write_bytes(b"nothing of ours")
    assert run("inspect", "bad.qipf") == 1
    assert "truncated, or not a file written by qipf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "example", "warning"),
    [
        ("fit", "qipf fit lenet.pt2 train.npz -o lenet.qipf", "both run code"),
        ("score", "qipf score lenet.qipf new.npy --model lenet.pt2 -o scores.csv", "it is run"),
        ("inspect", "qipf inspect lenet.qipf --as-json", "Nothing in the file is executed"),
    ],
)
def test_help_has_examples_and_says_what_runs_code(command, example, warning, capsys) -> None:
    assert run(command, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert example in text
    assert warning in text
