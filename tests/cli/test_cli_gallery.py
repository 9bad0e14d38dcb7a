"""`qipf gallery` from its arguments to its files."""

from __future__ import annotations

from qipf.cli.gallery import gallery


def test_a_chosen_figure_goes_to_a_folder_of_its_own(tmp_path, capsys):
    gallery("sine", output=tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sine"]
    files = {path.name for path in (tmp_path / "out" / "sine").iterdir()}
    assert files == {"sine.svg", "sine.png", "sine-dark.svg", "sine-dark.png", "sine.csv", "caption.md"}
    assert "sine.svg" in capsys.readouterr().err


def test_through_the_command_line(tmp_path, capsys):
    from qipf.cli import main

    assert main(["research", "gallery", "sinus", "-o", str(tmp_path)]) == 2
    assert "no figure 'sinus'" in capsys.readouterr().err
    assert main(["research", "gallery", "sine", "-o", str(tmp_path), "--quiet"]) == 0
    assert (tmp_path / "sine" / "caption.md").is_file()
