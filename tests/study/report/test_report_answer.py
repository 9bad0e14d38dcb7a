"""What the page says first, in which order, and what it leaves out where there is nothing to show."""

from __future__ import annotations

import re
from html import unescape
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from report_pages import PLAN, measure

from qipf.study.plan.registry import REGISTRY
from qipf.study.report import write_report
from qipf.study.report.score_view import SHAPES, columns, severity_of
from qipf.study.report.source import open_source
from qipf.study.run.read import Row
from qipf.study.shifts import SHIFTS
from qipf.study.tables.answer import answers


def place(text: str, *ids: str) -> list[int]:
    return [text.index(f'id="{name}"') for name in ids]


def test_the_answer_comes_first_then_ranking_severity_and_examples(page: Path, store: Path) -> None:
    text = page.read_text(encoding="utf-8")
    order = place(text, "answer", "ranking", "severity", "pictures", "condition", "tables", "setup")
    assert order == sorted(order)
    source = open_source(store)
    (answer,) = answers(source.frame, source.bench)
    said = re.search(r'<p class="answer">(.*?)</p>', text, re.DOTALL)
    assert said
    assert unescape(said[1]) == answer.sentence
    first = answer.ranking.standings[0]
    assert f"ROC-AUC {first.mean:.3f}" in said[1]
    assert answer.clean is not None


@pytest.fixture(scope="module")
def unshifted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a plan without shifts and without a method of the paper."""
    values: dict[str, Any] = {**PLAN, "shifts": [], "methods": {"entropy": {}, "max-logit": {}}, "multi_pass_size": 0}
    values.pop("pool")
    folder = tmp_path_factory.mktemp("unshifted")
    measure(values, folder / "store")
    write_report(folder / "store", folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


def test_without_shifts_nothing_empty_is_shown(unshifted: str) -> None:
    assert 'id="severity"' not in unshifted
    assert 'id="tables"' not in unshifted
    assert "on clean inputs" in unshifted
    ranking = unshifted[unshifted.index('id="ranking"') : unshifted.index("</table>")]
    assert "–" not in ranking.replace('<td class="number"><span>–</span></td></tr>', "")  # the cost may be unknown
    assert len(re.findall(r"0\.\d{3}", ranking)) == 4


def a_row(method: str, score: str = "score") -> Row:
    return Row("d", "n", 0, "zoom", 0.8, 3, method, score, "base", "roc_auc", 0.7, 0.6, 0.8, 100, 0.9, "all")


def test_the_recommended_score_is_first_lit_and_has_one_colour() -> None:
    others = [name for name in REGISTRY if name not in ("default", "weight-qipf")]
    alone = columns([a_row("mine"), a_row("default")])
    among = columns([a_row(name) for name in (*others, "default", "mine")])
    for found in (alone, among):
        first = found[0]
        assert (first.id, first.recommended, first.shown) == ("default", True, True)
        assert (first.colour, first.marker, first.dash) == (0, 0, 0)
        assert sum(column.recommended for column in found) == 1
    drawn = [(column.colour, column.marker, column.dash) for column in among]
    assert len(set(drawn)) == len(drawn)
    shapes = resources.files("qipf.study.report").joinpath("charts.js").read_text(encoding="utf-8")
    assert shapes.count("(x, y, r) =>") == SHAPES
    assert next(c.label for c in columns([a_row("mc-dropout", "std")])) == "MC dropout, standard deviation"


def test_one_score_stands_for_each_method() -> None:
    rows = [a_row("entropy"), *(a_row("ensemble", score) for score in ("std", "entropy", "contrast"))]
    assert [c.id for c in columns(rows) if c.lead] == ["entropy", "ensemble"]
    found = columns(rows, ["ensemble (contrast)"], ["ensemble (contrast)", "entropy", "ensemble"])
    assert [c.id for c in found if c.lead] == [c.id for c in found if c.shown] == ["entropy", "ensemble (contrast)"]


def test_zoom_runs_from_mild_to_severe() -> None:
    order = sorted(SHIFTS["zoom"], key=lambda scale: severity_of("zoom", scale, 0))
    assert order[0] in (0.8, 1.25)
    assert set(order[-2:]) == {0.4, 2.5}
    assert sorted(severity_of("zoom", scale, 0) for scale in SHIFTS["zoom"]) == list(range(1, 11))
    assert severity_of("rotation", 30.0, 2) == 2
    assert severity_of("zoom", 0.33, 7) == 7  # not in the grid: as the plan counts
