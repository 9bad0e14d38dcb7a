"""Plans of pixels keep maps of a few images, and the report shows them without the network and the data."""

from __future__ import annotations

import base64
import io
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from own_plans import measure
from torch import nn

from qipf.cli import main
from qipf.study.plan.plan import parse
from qipf.study.report import write_report
from qipf.study.run import maps
from qipf.study.run.read import open_store

SIZE = 24


def rendered(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of a disc and a square on a noisy ground, with the class of every pixel; the first row has no label."""
    rng = np.random.default_rng(seed)
    down, across = np.mgrid[:SIZE, :SIZE]
    x = rng.normal(0.2, 0.08, (count, 1, SIZE, SIZE))
    y = np.zeros((count, SIZE, SIZE), dtype=np.int64)
    for image in range(count):
        top, left = rng.integers(0, SIZE - 6, 2)
        y[image, top : top + 6, left : left + 6] = 1
        centre = rng.integers(5, SIZE - 5, 2)
        y[image][(down - centre[0]) ** 2 + (across - centre[1]) ** 2 < 16] = 2
        x[image, 0] += 0.3 * (y[image] == 1) + 0.55 * (y[image] == 2)
    y[:, 0] = 255
    return np.clip(x, 0, 1).astype(np.float32), y


@cache
def segmenter() -> nn.Sequential:
    """A small network that was trained on rendered images."""
    x, y = (torch.from_numpy(part) for part in rendered(40, 0))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
    optimiser = torch.optim.Adam(net.parameters(), 2e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y, ignore_index=255).backward()
        optimiser.step()
    return net


def values() -> dict:
    pair = {
        "dataset": "shapes.npz", "net": "mine", "model": f"{__name__}:segmenter", "predicts": "pixels",
        "shifts": {"gaussian-noise": [1, 3]}, "shifted": {"dark": "dark.npz"},
    }  # fmt: skip
    return {"name": "shapes", "pairs": [pair], "methods": {"entropy": {}, "knn": {}}}


def write(folder: Path) -> dict[str, np.ndarray]:
    found = {
        part: rendered(count, seed) for part, count, seed in (("train", 20, 1), ("held_out", 20, 2), ("test", 9, 3))
    }
    arrays = {f"{name}_{part}": both[place] for part, both in found.items() for place, name in enumerate("xy")}
    dark = {"x": arrays["x_test"] * np.float32(0.6), "y": arrays["y_test"]}
    np.savez(folder / "shapes.npz", **arrays)  # pyright: ignore[reportArgumentType]
    np.savez(folder / "dark.npz", **dark)  # pyright: ignore[reportArgumentType]
    return {**arrays, **dark}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps")
    write(folder)
    measure(parse(values(), folder=folder), folder / "out")
    return folder


def test_kept_maps_are_those_of_the_network(measured: Path) -> None:
    bench, data = open_store(measured / "out"), write(measured)
    for shift, x, y in (("clean", data["x_test"], data["y_test"]), ("dark", data["x"], data["y"])):
        with torch.no_grad():
            logits = segmenter()(torch.from_numpy(x)).movedim(1, 3).double()
        entropy = torch.distributions.Categorical(logits=logits).entropy().numpy()
        wrong = (logits.argmax(3).numpy() != y) & (y != 255)
        found = bench.maps("shapes", "mine", 0, shift, "entropy")
        place, kept = found
        assert place == 0
        order = np.argsort([one[label != 255].mean() for one, label in zip(entropy, y, strict=True)])
        np.testing.assert_array_equal(kept.rows, order[[0, 4, 8]])  # the surest, the middle and the least sure
        np.testing.assert_allclose(kept.uncertainty, entropy[kept.rows], atol=1e-5)
        np.testing.assert_array_equal(kept.wrong, wrong[kept.rows])
        np.testing.assert_array_equal(kept.labelled, y[kept.rows] != 255)
        np.testing.assert_allclose(kept.images, x[kept.rows] * 255, atol=0.51)
        np.testing.assert_allclose(kept.shares, wrong[kept.rows].sum((1, 2)) / (SIZE * (SIZE - 1)))
    noisy = bench.maps("shapes", "mine", 0, "gaussian-noise", "entropy")
    assert noisy[0] == 1
    assert bench.maps("shapes", "mine", 0, "held-out", "entropy") is None


def pictures(page: str) -> list[np.ndarray]:
    from PIL import Image

    found = re.findall(r'<img src="data:image/png;base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))).astype(int) for text in found]


def test_the_report_shows_them_without_the_network_and_the_data(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, None)  # cannot be imported
    for name in ("shapes.npz", "dark.npz"):
        (measured / name).unlink()
    write_report(measured / "out", tmp_path / "page.html")
    write(measured)
    page = (tmp_path / "page.html").read_text()
    section = page[page.index('<section id="maps"') : page.index("</section>", page.index('<section id="maps"'))]
    for title in ("Clean inputs", "Shifted: gaussian-noise, 3", "Shifted: dark, 1"):
        assert f"<h3>{title}</h3>" in section
    assert "No pictures of" not in page
    drawn = pictures(section)
    assert len(drawn) == 3 * 3 * 2
    best = re.search(r"<code>([\w-]+)</code>", section)
    found = open_store(measured / "out").maps("shapes", "mine", 0, "clean", best[1])
    for number, wrong in enumerate(found[1].wrong):
        coloured = drawn[2 * number][..., 0] - drawn[2 * number][..., 2] > 60
        np.testing.assert_array_equal(coloured, wrong)
        assert f"image {found[1].rows[number]}: {found[1].shares[number]:.1%} wrong" in section


def run_clean(folder: Path) -> None:
    pair = {**values()["pairs"][0], "shifts": {}, "shifted": {}}
    plan = parse({**values(), "pairs": [pair], "methods": {"entropy": {}}}, folder=folder)
    measure(plan, folder / "out")


def test_large_images_are_kept_small_with_exact_shares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(maps, "LONGEST", 10)
    write(tmp_path)
    run_clean(tmp_path)
    found = open_store(tmp_path / "out").maps("shapes", "mine", 0, "clean", "entropy")
    kept, data = found[1], write(tmp_path)
    assert kept.images.shape == (3, 1, 8, 8)
    with torch.no_grad():
        predicted = segmenter()(torch.from_numpy(data["x_test"])).argmax(1).numpy()
    wrong = (predicted != data["y_test"]) & (data["y_test"] != 255)
    np.testing.assert_array_equal(kept.wrong, wrong[kept.rows][:, ::3, ::3])
    np.testing.assert_allclose(kept.shares, wrong[kept.rows].sum((1, 2)) / (SIZE * (SIZE - 1)))


def test_a_damaged_file_of_maps_is_found_and_made_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    run_clean(tmp_path)
    file = next((tmp_path / "out" / "cells" / "score").glob("*.maps"))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert main(["bench", "--verify", "-o", str(tmp_path / "out")]) == 1
    assert file.name in capfd.readouterr().out
    run_clean(tmp_path)
    assert file.read_bytes() == content
