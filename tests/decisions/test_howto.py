"""The whole path from a trained network to a watched one stays short; tests/test_docs.py runs it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "decide.md"


def test_the_whole_path_takes_at_most_forty_lines() -> None:
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
    lines = [line for line in code.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) <= 40
    steps = ("qipf.default(", "qipf.Decision(", ".save(", "qipf.wrap(", "export_onnx(", "onnxruntime", '"watch"')
    places = [next(number for number, line in enumerate(lines) if step in line) for step in steps if step in code]
    assert len(places) == len(steps)
