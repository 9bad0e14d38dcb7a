"""What was run, in a few words each."""

from __future__ import annotations

from collections.abc import Mapping

from qipf.study.report.columns import Column, pair_id
from qipf.study.report.source import Source


def _predictions(sizes: list[int], compared: list[int]) -> str:
    if not sizes:
        return "none"
    common = f", methods compared on {compared[-1]:,} of them" if compared else ""
    return f"{sizes[-1]:,} for each condition{common}"


def facts(source: Source, columns: list[Column], pairs: Mapping[str, str]) -> list[tuple[str, str]]:
    """What was run, in a few words each."""
    shifts = list(dict.fromkeys(r.shift for r in source.rows if r.shift != "clean" and not r.shift.startswith("ood:")))
    seeds = {(pair_id(row), row.seed) for row in source.rows}
    base = [row for row in source.rows if row.errors == "base"]
    clean = {(pair_id(r), r.seed): r for r in sorted(base, key=lambda row: row.n) if r.shift == "clean"}
    sizes = sorted({row.n for row in base})
    compared = sorted({row.n for row in base if row.subset == "common"})
    result = [
        ("Models", ", ".join(pairs.values())),
        ("Networks", f"{len(seeds)}, {'different seeds' if len(seeds) > len(pairs) else 'one seed each'}"),
        ("Methods", f"{len({column.method for column in columns})} with {len(columns)} scores"),
        ("Shifts", ", ".join(shifts) or "none"),
        ("Predictions", _predictions(sizes, compared)),
    ]
    if clean:
        accuracies = [row.accuracy for row in clean.values()]
        shown = list(dict.fromkeys(f"{100 * value:.1f}" for value in (min(accuracies), max(accuracies))))
        result.append(("Accuracy on clean inputs", f"{' to '.join(shown)} %"))
    started = str(source.environment.get("started", ""))
    if started:
        result.append(("Run", started.replace("T", " ").replace("+00:00", " UTC")))
    device = source.environment.get("gpu") or source.environment.get("processor")
    if device:
        result.append(("Machine", str(device)))
    return result
