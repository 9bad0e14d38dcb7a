"""What a bare install offers, and what the public surface promises."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import qipf

ROOT = Path(__file__).parents[1]
ALLOWED = {"numpy", "scipy", "array_api_compat", "qipf"}

BARE = f"""
import sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {ALLOWED!r} and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {{top!r}}", name=top)

sys.meta_path.insert(0, Bare())
import numpy as np
import qipf
field = qipf.fields.Field(np.linspace(-1, 1, 50), 0.3)
assert qipf.fields.uncertainty_modes(field, np.zeros(3)).shape == (3, 4)
assert qipf.fields.published.uncertainty_modes(np.linspace(-1, 1, 50), np.zeros(3), 0.3).shape == (3, 4)
assert qipf.fields.silverman(np.linspace(-1, 1, 50)) > 0
try:
    qipf.collect(None, None)
except ImportError as error:
    print(error)
"""


def test_bare_install_imports_and_names_the_extra():
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install torch" in done.stdout
    assert "[torch]" in done.stdout


def test_every_public_name_exists_and_is_documented():
    for name in qipf.__all__:
        item = getattr(qipf, name)
        assert inspect.getdoc(item), name
    assert set(qipf.__all__) <= set(dir(qipf))


def test_unknown_names_fail_as_usual():
    assert not hasattr(qipf, "no_such_name")


def test_install_hints_name_what_installs() -> None:
    """The package is on no index yet: a hint names a checkout, with an extra that exists, or another package."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    pages = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
    hints = [(page, line) for page in pages for line in page.read_text().splitlines() if "pip install" in line]
    assert hints
    for page, line in hints:
        assert not re.search(r"pip install (-e )?'?qipf", line), f"{page}: {line}"
        assert set(re.findall(r"pip install -e '\.\[([a-z]+)\]'", line)) <= extras, f"{page}: {line}"
