"""The twin study: pieces of a network make the network, and its page quotes the record."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("pandas")

from evidence.results import ROOT, Results
from qipf.study import nets
from twin import networks, program, tables
from twin.measures import Record
from twin.setting import Condition


@pytest.mark.parametrize("name", networks.MIDDLE)
def test_pieces_of_a_network_give_its_logits(name):
    net = nets.build(name, seed=0).eval()
    channels, size = (1, 28) if name == "lenet" else (3, 32)
    networks.check_pieces(name, net, torch.rand(3, channels, size, size, generator=torch.Generator().manual_seed(0)))


def test_images_without_bending_are_clean_in_one_of_four_cases():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(400, 1, 8, 8, generator=generator)
    same = (networks.draw_without_bending(images, generator) == images).flatten(1).all(1).float().mean()
    assert 0.18 < float(same) < 0.34


def test_a_published_number_by_hand():
    """The probe without elastic distortion under the five shifts, from the files alone."""
    shown = []
    for pair in ("vgg3", "resnet18"):
        values = []
        for path in sorted((ROOT / "results" / "twin").glob(f"{pair}-*.json")):
            facts = json.loads(path.read_text())
            found = [n for n, row in enumerate(facts["rows"]) if row["score"] == "probe without elastic"]
            shifted = [n for n, condition in enumerate(facts["conditions"]) if condition["group"] == "shift"]
            with np.load(path.with_suffix(".npz")) as file:
                values += [file["metrics"][row, 0, shifted].mean() for row in found]  # ten intensities in every family
        shown.append(f"{np.mean(values):.3f}"[1:])
    assert tables.one(Results(), "probe without elastic", "shift", "vgg3", "resnet18") == " and ".join(shown)


def test_every_part_is_kept_when_it_is_done_and_a_later_call_continues(tmp_path, monkeypatch):
    listed = [Condition("clean", "clean", 0.0), Condition("shift", "zoom", 0.5)]
    scores = torch.rand(2, 20, generator=torch.Generator().manual_seed(0))
    wrong, calls, lost = scores > 0.5, [], ""

    def part(name, rows):
        def do(unit, record, facts):
            calls.append(name)
            facts["accuracy"][name] = 0.5
            for row in rows:
                record.add(1005, row, scores, wrong)
            if calls.count(name) == 1 and name == "ensemble":
                raise RuntimeError("the machine is gone")

        return do

    parts = {"network": [], "fit": [], "scores": ["entropy", "twin"], "ensemble": ["ensemble of 10"]}
    monkeypatch.setattr(program, "PARTS", {name: part(name, rows) for name, rows in parts.items()})
    unit = SimpleNamespace(
        name="mnist-1005", base=1005, setting=SimpleNamespace(pair="mnist", device="cpu"), now=time.perf_counter,
        record=lambda: Record(listed, 20, "cpu"), lost=lambda done: lost,
    )  # fmt: skip
    clock = program.Clock(100.0)
    program.run(unit, ("ensemble",), tmp_path, clock)  # makes no sense before the scores
    assert calls == []
    for expected in (3, 4, 4):
        program.run(unit, tuple(parts), tmp_path, clock)
        record = json.loads((tmp_path / "mnist-1005.json").read_text())
        assert len(record["parts"]) == len(record["accuracy"]) == expected
    assert calls == [*parts, "ensemble"]
    with np.load(tmp_path / "mnist-1005.npz") as file:
        assert [row["score"] for row in record["rows"]] == ["entropy", "twin", "ensemble of 10"]
        assert {len(file[name]) for name in file.files} == {3}
        np.testing.assert_array_equal(file["metrics"][0], file["metrics"][2])  # the same scores were given
    (tmp_path / "mnist-1005.json").write_text(json.dumps({**record, "parts": {}}))
    lost = "mnist-1005.pt"
    program.run(unit, ("network",), tmp_path, clock)
    assert calls == [*parts, "ensemble"]
