"""A finished store of version 0.1.0 resumes without computing a cell again."""

import shutil
from pathlib import Path

from qipf.study.plan.plan import parse
from qipf.study.report.source import open_source
from qipf.study.run.read import open_store
from qipf.study.run.run import run_plan
from qipf.study.run.store import Store
from qipf.study.run.verify import damages

OLD = Path(__file__).parents[2] / "golden" / "store"
PLAN = {
    "name": "moons", "bootstrap": 10, "calibration_size": 50, "shifts": [],
    "pairs": [{"dataset": "two-moons", "net": "mlp-moons", "train": {"epochs": 2}}],
    "methods": {"entropy": {}, "max-logit": {}},
}  # fmt: skip


def test_no_cell_of_the_last_version_is_computed_again(tmp_path):
    shutil.copytree(OLD, tmp_path / "s")
    table = (OLD / "table.csv").read_bytes()
    report, _ = run_plan(parse(PLAN), tmp_path / "s", engine="serial", device="cpu", quiet=True)
    assert (report.done, report.reused, report.complete) == (0, 13, True)
    assert (tmp_path / "s" / "table.csv").read_bytes() == table
    assert list(damages(Store(tmp_path / "s"))) == []


def test_a_store_of_the_last_version_is_read_as_it_is():
    bench = open_store(OLD)
    assert bench.plan == parse(PLAN)
    assert len(bench.rows()) == len((OLD / "table.csv").read_text().splitlines()) - 1
    assert bench.scorer("two-moons", "mlp-moons", 0, "entropy") is not None
    assert len(open_source(OLD).rows) == len(bench.rows())
