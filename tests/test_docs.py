"""Every Python block of the README and of the documentation runs as written, in order, page by page."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import qipf
import qipf.predictive
from qipf.scores import SCORERS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("docs/index.md", "docs/start.md", "docs/howto/")
"""How the paths of pages begin whose code is one long program, of calls that other tests make as well."""
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def _own_scorers():
    """Forgets the scorers that a page defines, so that the tests after it do not find them."""
    known = dict(SCORERS)
    yield
    SCORERS.clear()
    SCORERS.update(known)


def with_marks(page: Path) -> object:
    name = page.relative_to(ROOT).as_posix()
    return pytest.param(page, id=name, marks=[pytest.mark.thorough] if name.startswith(PROGRAMS) else [])


@pytest.mark.usefixtures("_own_scorers")
@pytest.mark.parametrize("page", [with_marks(page) for page in PAGES])
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    scope: dict[str, object] = {"__name__": "__main__"}
    for match in BLOCK.finditer(text):
        line = text[: match.start(1)].count("\n")
        exec(compile("\n" * line + match[1], str(page), "exec"), scope)


def used_names(code: str) -> set[str]:
    """The dotted names that some code reads, with `from a import b` resolved."""
    tree = ast.parse(code)
    known = {"qipf": "qipf"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def dotted(node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return known.get(node.id)
        inside = dotted(node.value) if isinstance(node, ast.Attribute) else None
        return f"{inside}.{node.attr}" if inside and isinstance(node, ast.Attribute) else None

    return {name for node in ast.walk(tree) if (name := dotted(node)) is not None}


def find(name: str) -> object:
    """What a dotted name stands for; None for what only an object at run time has."""
    thing: object = qipf
    for part in name.split(".")[1:]:
        thing = getattr(thing, part, None)
    return thing


@pytest.mark.parametrize("module", ["qipf", "qipf.scores", "qipf.fields", "qipf.predictive", "qipf.metrics"])
def test_every_public_name_has_an_example_in_the_reference(module):
    """The examples themselves run in `test_code_blocks_run`."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    used = set().union(*(used_names("".join(BLOCK.findall(page.read_text()))) for page in pages))
    shown = [thing for name in used if (thing := find(name)) is not None]
    public = import_module(module)
    missing = [name for name in public.__all__ if not any(getattr(public, name) is thing for thing in shown)]
    assert not missing, f"docs/reference shows no example of {', '.join(missing)}"


def test_names_are_found_in_code():
    code = "import qipf\nfrom qipf import metrics\nfrom qipf.fields import Field as F\nmetrics.ece(qipf.KNN(), F)\n"
    assert {"qipf.metrics.ece", "qipf.KNN", "qipf.fields.Field"} <= used_names(code)
    assert "qipf.fields.Field" not in used_names("from qipf.fields import Field\n")


def test_the_architecture_page_names_modules_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    flows = [re.findall(r"^\d+\. \[`(qipf[\w.]*)`\]\((.*?)\)", part, re.MULTILINE) for part in text.split("\n## ")[1:]]
    assert len(flows) == 2
    for flow in flows:
        assert 5 < len(flow) <= 12
        for module, link in flow:
            assert find_spec(module), module
            assert (ROOT / "docs" / link).is_file(), link


def test_one_name_for_the_recommended_scorer():
    for name in ("README.md", "docs/index.md", "docs/start.md", "docs/howto/own-model.md", "docs/howto/onnx.md"):
        code = "".join(BLOCK.findall((ROOT / name).read_text()))
        assert "uq = qipf.default(model, " in code, name


def test_versions_and_the_workflow_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {re.escape(project['version'])}$", citation, re.MULTILINE)
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert "run: .ci/run" in workflow
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert re.findall(r'"(3\.\d+)"', workflow.split("matrix:")[1].split("steps:")[0]) == supported
