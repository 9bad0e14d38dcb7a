"""Benchmark studies. Within qipf, only the command line imports this package.

`plan` reads the plan of a study, `run` computes and stores its results, `tables` summarises them, and `report` and
`gallery` present them. `datasets`, `nets`, `recipes` and `shifts` define the data, the networks, their training and the
shifts. Import public names from this package::

    from qipf.study import load_plan, open_store, run_plan, write_report
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qipf.study.plan.plan import load as load_plan
    from qipf.study.plan.plan import parse as parse_plan
    from qipf.study.plan.registry import column_title as column_title
    from qipf.study.report.page import write_report as write_report
    from qipf.study.run.read import open_store as open_store
    from qipf.study.run.run import run_plan as run_plan
    from qipf.study.tables.claims import claims as claims
    from qipf.study.tables.frame import comparable as comparable
    from qipf.study.tables.frame import long_frame as long_frame
    from qipf.study.tables.frame import read_table as read_table
    from qipf.study.tables.paired import Paired as Paired
    from qipf.study.tables.paired import verdict as verdict
    from qipf.study.tables.terminal import results_text as results_text

_HOMES = {
    "load_plan": "plan.plan:load", "parse_plan": "plan.plan:parse", "column_title": "plan.registry:column_title",
    "run_plan": "run.run:run_plan", "open_store": "run.read:open_store", "read_table": "tables.frame:read_table",
    "long_frame": "tables.frame:long_frame", "comparable": "tables.frame:comparable", "claims": "tables.claims:claims",
    "Paired": "tables.paired:Paired", "verdict": "tables.paired:verdict",
    "results_text": "tables.terminal:results_text", "write_report": "report.page:write_report",
}  # fmt: skip
__all__ = ["Paired", "claims", "column_title", "comparable", "load_plan", "long_frame", "open_store", "parse_plan",
           "read_table", "results_text", "run_plan", "verdict", "write_report"]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that reading a table does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'qipf.study' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(f"qipf.study.{module}"), attribute)
