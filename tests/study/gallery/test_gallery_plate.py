"""Files, palettes and captions."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from qipf.study import shifts
from qipf.study.gallery import DARK, LIGHT, Plate, corruptions
from qipf.study.gallery.plate import Table, new_figure
from qipf.study.shifts.corruptions import CORRUPTIONS, RESEMBLES


def _plate() -> Plate:
    def draw(palette):
        figure = new_figure(3, 2)
        figure.subplots().plot([0, 1], [0, 1], color=palette.series[0])
        return figure

    return Plate("line", draw, {"": Table(["x", "name"], [[1 / 3, "a,b"]])}, "A line.")


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_write_leaves_figure_numbers_and_caption(tmp_path):
    files = _plate().write(tmp_path, dark=True)
    names = {file.name for file in files}
    assert names == {"line.svg", "line.png", "line-dark.svg", "line-dark.png", "line.csv", "caption.md"}
    assert {file.name for file in (tmp_path / "line").iterdir()} == names
    for name in ("line.svg", "line-dark.svg"):
        assert ElementTree.parse(tmp_path / "line" / name).getroot().tag.endswith("svg")
    assert (tmp_path / "line" / "caption.md").read_text() == "A line.\n"
    rows = list(csv.reader(io.StringIO((tmp_path / "line" / "line.csv").read_text())))
    assert rows == [["x", "name"], ["0.333333", "a,b"]]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=lambda palette: palette.name)
def test_the_paper_is_the_palettes(palette):
    image = Image.open(io.BytesIO(_plate().images(palette)["png"])).convert("RGB")
    wanted = tuple(int(palette.paper[i : i + 2], 16) for i in (1, 3, 5))
    assert image.getpixel((1, 1)) == wanted
    assert image.getpixel((image.width - 2, image.height - 2)) == wanted


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=lambda palette: palette.name)
def test_colours_stand_out_from_the_paper(palette):
    """WCAG 2.1: at least 3 to 1 for graphics, 4.5 to 1 for text."""

    def contrast(colour: str) -> float:
        light, dark = sorted((_luminance(colour), _luminance(palette.paper)), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    assert contrast(palette.ink) > 4.5
    assert contrast(palette.muted) > 4.5
    for colour in palette.series:
        assert contrast(colour) > 3, colour


def test_same_figure_same_bytes():
    first, second = _plate().images(), _plate().images()
    assert first == second


def test_corruptions_of_the_digits():
    plate = corruptions.plate()
    rows = {(row[0], row[2]): row[3:] for row in plate.tables[""].rows}
    assert len(rows) == 5 * 10 + len(CORRUPTIONS) * 5
    from qipf.study import datasets

    images = datasets.load("digits").test.inputs
    brighter = float((images + 0.2).clamp(max=1).sub(images).mean())
    assert rows["brightness", 0.2][0] == pytest.approx(brighter, rel=1e-5)
    turned = float((images.rot90(1, (2, 3)) - images).abs().mean())
    assert rows["rotation", 90][0] == pytest.approx(turned, rel=1e-4)
    striped = float((1 - 2 * images).abs()[..., [0, 1, 6, 7]].sum() / images.numel())
    assert rows["stripes", 5][0] == pytest.approx(striped, rel=1e-5)
    kinds = {row[0]: row[1] for row in plate.tables[""].rows}
    assert sum(kind == "corruption" for kind in kinds.values()) == len(CORRUPTIONS) - len(RESEMBLES)
    assert kinds["contrast"] == "resembles a perturbation"


@pytest.mark.parametrize("count", [4, 3])  # 3: the last row has one family
def test_every_family_is_drawn_at_every_intensity(count, monkeypatch):
    names = CORRUPTIONS[-count:]
    monkeypatch.setattr(corruptions.corruptions, "CORRUPTIONS", names)
    image = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    figure = corruptions.draw(image, LIGHT)
    pictures = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(pictures) == 5 * 11 + 2 + count * 5
    last = names[-1] if count == 4 else names[1]
    monkeypatch.undo()
    expected = shifts.apply(image, last, 5)[0].permute(1, 2, 0).numpy()  # at its worst
    np.testing.assert_allclose(pictures[-1], expected, atol=1e-6)


def test_corruptions_need_images():
    with pytest.raises(ValueError, match="images"):
        corruptions.plate("two-moons")
