"""The demo's table: means over severities, best first, in 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from qipf.cli.demo import summary
from qipf.study.run.consolidate import Row

SHIFTS = ("rotation", "brightness", "shear", "zoom", "shift")


def row(method: str, score: str, shift: str, severity: int, value: float, **changes: object) -> Row:
    values = dict.fromkeys(Row._fields, 0) | {
        "dataset": "digits", "net": "small-cnn", "shift": shift, "severity": severity, "method": method,
        "score": score, "errors": "base", "metric": "roc_auc", "value": value,
    }  # fmt: skip
    return Row(**(values | changes))


def test_means_best_first_in_eighty_columns():
    rows = [row("entropy", "score", shift, severity, 0.6 + 0.1 * severity) for shift in SHIFTS for severity in (1, 2)]
    rows += [row("ensemble", "mutual_information", shift, 1, 0.9) for shift in SHIFTS]
    rows += [
        row("entropy", "score", "rotation", 0, 0.1),  # clean
        row("entropy", "score", "rotation", 1, 0.1, metric="pr_auc"),
        row("entropy", "score", "rotation", 1, 0.1, errors="own"),
        row("entropy", "score", "zoom", 3, float("nan")),  # no errors there
    ]
    text = io.StringIO()
    Console(file=text, width=80).print(summary(rows))
    lines = [line for line in text.getvalue().splitlines() if "0." in line]
    assert "brightness" in text.getvalue()
    assert lines[0].split() == ["ensemble", "(MI)", *["0.900"] * 6]
    assert lines[1].split() == ["entropy", *["0.750"] * 6]


def test_a_missing_value_leaves_its_column_to_itself():
    rows = [row("entropy", "score", shift, 1, 0.7) for shift in SHIFTS]
    rows += [row("[red]", "score", shift, 1, 0.1 * place) for place, shift in enumerate(SHIFTS, 1) if shift != "shear"]
    text = io.StringIO()
    Console(file=text, width=80).print(summary(rows))
    line = next(line for line in text.getvalue().splitlines() if "[red]" in line)
    assert line.split() == ["[red]", "0.100", "0.200", "–", "0.400", "0.500", "0.300"]
