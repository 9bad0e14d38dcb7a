"""`qipf gallery` from its arguments to its files."""

from __future__ import annotations

from qipf.cli import main


def test_a_chosen_figure_goes_to_a_folder_of_its_own(tmp_path, capsys):
    assert main(["research", "gallery", "sine", "-o", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sine"]
    files = {path.name for path in (tmp_path / "out" / "sine").iterdir()}
    assert files == {"sine.svg", "sine.png", "sine-dark.svg", "sine-dark.png", "sine.csv", "caption.md"}
    assert "sine.svg" in capsys.readouterr().err
