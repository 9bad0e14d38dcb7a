"""`qipf gallery` from its arguments to its files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import qipf
from qipf._common.errors import UserError
from qipf.cli.gallery import gallery


def test_a_chosen_figure_goes_to_a_folder_of_its_own(tmp_path, capsys):
    gallery("sine", output=tmp_path / "out", dark=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sine"]
    files = {path.name for path in (tmp_path / "out" / "sine").iterdir()}
    assert files == {"sine.svg", "sine.png", "sine-dark.svg", "sine-dark.png", "sine.csv", "caption.md"}
    assert "sine.svg" in capsys.readouterr().err


def test_field_of_a_file(tmp_path, capsys):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    outputs = qipf.collect(model, (torch.randn(200, 8), torch.randint(0, 4, (200,))), progress=False)
    qipf.WeightQIPF(factor=40.0).fit(model, outputs).save(tmp_path / "net.qipf")
    save_file(model.state_dict(), tmp_path / "net.safetensors")
    np.savez(tmp_path / "out.npz", logits=outputs.logits.numpy(), labels=outputs.labels.numpy())
    gallery(
        "field",
        output=tmp_path / "out",
        scorer=tmp_path / "net.qipf",
        weights=tmp_path / "net.safetensors",
        outputs=tmp_path / "out.npz",
        quiet=True,
    )
    assert capsys.readouterr().err == ""
    assert "The field of `net.qipf`" in (tmp_path / "out" / "field" / "caption.md").read_text()
    rows = np.genfromtxt(tmp_path / "out" / "field" / "field.csv", delimiter=",", names=True)
    modes = np.stack([rows[f"mode_{order}"] for order in (2, 4, 6, 8)])
    assert rows["uncertainty"] == pytest.approx(modes.mean(axis=0), rel=1e-4, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["sinus"]}, "no figure 'sinus'; there are views: "),
        ({"names": ["sine"], "seeds": 0}, "--seeds"),
        ({"names": ["field"], "weights": "w.safetensors"}, "belong to a --scorer"),
    ],
)
def test_wrong_use(tmp_path, arguments, message):
    names = arguments.pop("names")
    with pytest.raises(UserError, match=message):
        gallery(*names, output=tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_output_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        gallery("sine", output=tmp_path / "file")


def test_field_needs_weight_qipf(tmp_path):
    outputs = qipf.Outputs(np.random.default_rng(0).normal(size=(50, 3)))
    qipf.Entropy().fit(None, outputs).save(tmp_path / "e.qipf")
    with pytest.raises(UserError, match="holds entropy"):
        gallery("field", output=tmp_path / "out", scorer=tmp_path / "e.qipf")


def test_through_the_command_line(tmp_path, capsys):
    from qipf.cli import main

    assert main(["gallery", "sinus", "-o", str(tmp_path)]) == 2
    assert "no figure 'sinus'" in capsys.readouterr().err
    assert main(["gallery", "sine", "-o", str(tmp_path), "--quiet"]) == 0
    assert (tmp_path / "sine" / "caption.md").is_file()
