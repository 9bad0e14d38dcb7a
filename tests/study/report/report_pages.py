"""A plan of seconds whose names try to break out of the page, its run, and a reader of pages."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

HOSTILE = "<img src=x onerror=window.attacked=2>"
PLAN: dict[str, Any] = {
    "name": "small & <b>bold<b>",
    "description": 'A "small" plan for </script><script>window.attacked = 1</script> tests.',
    "seeds": [0],
    "pool": 2,
    "shifts": ["rotation", "brightness"],
    "severities": [2, 5, 8],
    "test_size": 200,
    "multi_pass_size": 150,
    "reference_size": 300,
    "calibration_size": 200,
    "bootstrap": 20,
    "pairs": [{"dataset": "digits", "net": "small-cnn", "train": {"epochs": 4}}],
    "methods": {
        "qipf": {"factor": 160},
        "softmax-response": {},
        "entropy": {},
        "max-logit": {},
        "ensemble": {"members": 2},
        HOSTILE: {"kind": "margin"},
    },
}


def measure(values: dict[str, Any], store: Path) -> None:
    """Run a plan completely."""
    from qipf.study.plan import plan
    from qipf.study.run.run import run_plan

    report, _ = run_plan(plan.parse(values), store, engine="serial", device="cpu", quiet=True)
    assert report.complete, report.failed


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="text/plain" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


class Tags(HTMLParser):
    """Every element and attribute that a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
