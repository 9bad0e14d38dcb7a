"""`qipf gallery` from its arguments to its files."""

from __future__ import annotations

import pytest

from qipf._common.errors import UserError
from qipf.cli.gallery import gallery


def test_a_chosen_figure_goes_to_a_folder_of_its_own(tmp_path, capsys):
    gallery("sine", output=tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sine"]
    files = {path.name for path in (tmp_path / "out" / "sine").iterdir()}
    assert files == {"sine.svg", "sine.png", "sine-dark.svg", "sine-dark.png", "sine.csv", "caption.md"}
    assert "sine.svg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["sinus"]}, "no figure 'sinus'; there are views: "),
        ({"names": ["corruptions"], "dataset": "minst"}, "--dataset"),
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


def test_through_the_command_line(tmp_path, capsys):
    from qipf.cli import main

    assert main(["research", "gallery", "sinus", "-o", str(tmp_path)]) == 2
    assert "no figure 'sinus'" in capsys.readouterr().err
    assert main(["research", "gallery", "sine", "-o", str(tmp_path), "--quiet"]) == 0
    assert (tmp_path / "sine" / "caption.md").is_file()
