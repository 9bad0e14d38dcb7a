"""Every Python block of the README and of the documentation runs as written, in order, page by page."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    scope: dict[str, object] = {"__name__": "__main__"}
    for match in BLOCK.finditer(text):
        line = text[: match.start(1)].count("\n")
        exec(compile("\n" * line + match[1], str(page), "exec"), scope)


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
