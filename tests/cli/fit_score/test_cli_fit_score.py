"""`qipf fit` and `qipf score`, from files to files."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from small_model import as_inputs, run, table

from qipf.scores import KNN, WeightQIPF
from qipf.scores.saving import load
from qipf.tasks.collect import collect


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
    assert list(columns) == ["row", "predicted", "uncertainty", "mode_2", "mode_4", "mode_6", "mode_8", "scorer"]
    assert columns["row"] == [str(row) for row in range(60)]
    assert columns["predicted"] == [str(int(value)) for value in turned.predicted]
    np.testing.assert_allclose(np.array(columns["uncertainty"], float), expected(turned).numpy(), rtol=1e-3)
    np.testing.assert_allclose(np.array(columns["mode_6"], float), expected.modes(turned)[:, 2].numpy(), rtol=1e-3)


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
    assert list(result) == ["row", "file", "predicted", "uncertainty", "label", "correct", "scorer"]
    order = np.argsort(labels, kind="stable")  # by class folder, then by name
    outputs = collect(net, (as_inputs(images[order]), torch.asarray(labels[order])), progress=False)
    np.testing.assert_allclose(result["uncertainty"], KNN(k=5).fit(None, outputs)(outputs), rtol=1e-5)
    assert result["label"] == labels[order].tolist()
    assert result["correct"] == outputs.correct.tolist()
    assert result["file"][0].endswith(f"{order[0]:03d}.png")


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


def test_the_accuracy_is_printed(place, net, images, labels, capsys) -> None:
    save_file(net.state_dict(), "net.safetensors")
    outputs = collect(net, (as_inputs(images), torch.asarray(labels)), progress=False)
    share = f"{100 * float(outputs.correct.double().mean()):.1f}% of 60 labelled examples"
    np.savez("train.npz", inputs=images, labels=labels)
    model = ("builder_for_tests:build", "--weights", "net.safetensors")
    for scorer in ("entropy", "default"):
        assert run("fit", model[0], "train.npz", "-o", "a.qipf", "--scorer", scorer, *model[1:]) == 0
        assert f"accuracy on train.npz, the data that the scorer was fitted to: {share}" in capsys.readouterr().err
    score = ("score", "a.qipf", "train.npz", "-o", "a.csv", "--batch-size", 25, "--model", *model)
    assert run(*score) == 0
    printed = capsys.readouterr().err
    assert f"accuracy on train.npz: {share}" in printed
    assert "log odds against the prediction; 0 means even" in printed
    assert run(*score, "--quiet") == 0
    assert capsys.readouterr().err == ""


def test_an_untrained_network_draws_a_warning(place, images, labels, capsys) -> None:
    np.savez("train.npz", inputs=images, labels=labels)
    assert run("fit", "builder_for_tests:build", "train.npz", "-o", "a.qipf", "--scorer", "entropy", "--quiet") == 0
    assert "random weights; add --weights" in capsys.readouterr().err
    assert run("fit", "builder_for_tests:fixed", "train.npz", "-o", "a.qipf", "--scorer", "entropy", "--quiet") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("default")
def test_one_logit_without_labels_is_called_a_regression(place, rng, capsys) -> None:
    save_file({"layer.weight": torch.asarray(rng.standard_normal((9, 9)))}, "weights.safetensors")
    for labels, warned in (({}, True), ({"labels": rng.integers(0, 2, 20)}, False)):
        np.savez("one.npz", logits=rng.standard_normal((20, 1)), **labels)
        assert run("fit", "weights.safetensors", "one.npz", "--scorer", "weight-qipf", "-o", "a.qipf") == 0
        assert ("regression" in capsys.readouterr().err) == warned


def test_the_users_own_files_do_not_take_the_place_of_packages(place, images) -> None:
    (place / "rich.py").write_text("raise SystemExit(77)")
    (place / "scipy.py").write_text("raise SystemExit(77)")
    np.save("x.npy", images)
    command = "import sys, qipf.cli; sys.path = [p for p in sys.path if p]; sys.exit(qipf.cli.main(sys.argv[1:]))"
    words = ["fit", "builder_for_tests:build", "x.npy", "-o", "a.qipf", "--scorer", "entropy"]
    done = subprocess.run([sys.executable, "-P", "-c", command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
