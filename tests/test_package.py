"""What a bare install offers, and what the public surface promises."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import qipf
from qipf._common.optional import DISTRIBUTIONS

ROOT = Path(__file__).parents[1]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
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
    qipf.wrap(None, None)
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
        assert set(re.findall(r"pip install -e '\.\[([a-z]+)\]'", line)) <= set(EXTRAS), f"{page}: {line}"


def brought(extra: str) -> set[str]:
    """The packages that an extra installs, by the names under which they are imported."""
    names = {re.split(r"[>=\[]", wanted)[0] for wanted in EXTRAS[extra]}
    others = {inner for wanted in EXTRAS[extra] for inner in re.findall(r"qipf\[([a-z,]+)\]", wanted)}
    found = {{value: key for key, value in DISTRIBUTIONS.items()}.get(name, name) for name in names - {"qipf"}}
    needed = {"jinja2": {"markupsafe"}, "sklearn": {"joblib", "threadpoolctl"}}
    found |= {more for name in found for more in needed.get(name, ())}
    return found.union(*(brought(name) for part in others for name in part.split(",")))


def test_every_extra_brings_what_is_said_to_need_it() -> None:
    calls = [
        (path, *call)
        for path in (ROOT / "src").rglob("*.py")
        for call in re.findall(r'require\("([a-zA-Z0-9_]+)[^"]*", extra="([a-z]+)"\)', path.read_text())
    ]
    assert len(calls) > 50
    for path, module, extra in calls:
        assert module in brought(extra), f"{path}: [{extra}] does not bring {module}"


def test_tables_are_read_and_written_without_the_extras_of_the_benchmark() -> None:
    for file in ("data/tables.py", "cli/shown.py", "pages/layout.py"):
        text = (ROOT / "src/qipf" / file).read_text()
        needed = set(re.findall(r'require\("([a-z0-9]+)', text)) - {"torch"}
        assert needed, file
        for extra in ("torch", "onnxruntime"):
            assert needed <= brought(extra), f"{file}: [{extra}]"


def test_public_names_of_the_study_are_found() -> None:
    import qipf.study

    assert all(callable(getattr(qipf.study, name)) for name in qipf.study.__all__)
