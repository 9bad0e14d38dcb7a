"""The digest of a user's module covers the helpers that it imports from its folder, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from qipf.study.run.own_model import imported_files, module_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text("import torch\nimport blocks\nfrom parts.deep import Layer\n")
    (tmp_path / "blocks.py").write_text("def later():\n    import lazily\n")
    (tmp_path / "lazily.py").write_text("import nets\n")
    (tmp_path / "unused.py").write_text("VALUE = 1\n")
    (tmp_path / "torch").mkdir()  # not a module, for want of a file
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "deep.py").write_text("from . import near\nfrom ..outside import nothing\nLayer = 1\n")
    (tmp_path / "parts" / "near.py").write_text("X = 1\n")
    return tmp_path


def test_what_is_imported_is_found_by_reading(folder: Path) -> None:
    found = imported_files("nets", folder / "nets.py")
    assert set(found) == {"nets", "blocks", "lazily", "parts", "parts.deep", "parts.near"}
    inside = imported_files("parts.deep", folder / "parts" / "deep.py")
    assert set(inside) == {"parts.deep", "parts", "parts.near"}


def test_a_change_of_any_helper_changes_the_digest_and_one_of_another_file_does_not(folder: Path) -> None:
    before = module_digest("nets", folder / "nets.py")
    for name in ("nets.py", "blocks.py", "lazily.py", "parts/__init__.py", "parts/near.py"):
        file = folder / name
        text = file.read_text()
        file.write_text(text + "# changed\n")
        assert module_digest("nets", folder / "nets.py") != before, name
        file.write_text(text)
    (folder / "unused.py").write_text("VALUE = 2\n")
    assert module_digest("nets", folder / "nets.py") == before


def test_of_an_installed_module_only_its_own_package_counts(folder: Path) -> None:
    place = folder / "site-packages"
    for name in ("mine", "other"):
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text("")
    (place / "mine" / "nets.py").write_text("import other\nfrom mine import parts\n")
    (place / "mine" / "parts.py").write_text("")
    assert set(imported_files("mine.nets", place / "mine" / "nets.py")) == {"mine", "mine.nets", "mine.parts"}
