"""Which code made a store's cells: the digest, and what is said where versions mix."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy_cells import diamond

import qipf
from qipf.study.plan import plan as plans
from qipf.study.report.source import open_source
from qipf.study.run import executors, verify
from qipf.study.run import run as runs
from qipf.study.run.executors import Serial
from qipf.study.run.graph import needed
from qipf.study.run.read import open_store
from qipf.study.run.run import run
from qipf.study.run.store import RefusedError, Store

PLAN = {
    "name": "two-cells",
    "test_size": 60,
    "reference_size": 60,
    "calibration_size": 60,
    "pairs": [{"dataset": "digits", "net": "small-cnn", "train": {"epochs": 1}}],
    "methods": {"entropy": {}},
}


@pytest.fixture
def package(tmp_path):
    """A copy of the package's source."""
    copy = tmp_path / "qipf"
    shutil.copytree(Path(qipf.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_the_digest_is_of_the_code_and_of_nothing_else(package):
    original = verify.digest_of(package)
    assert original == verify.source_digest() == verify.digest_of(Path(qipf.__file__).parent)
    (package / "study" / "plan" / "plans" / "mine.toml").write_text("name = 'mine'")
    (package / "study" / "plan" / "plans" / "__init__.py").write_text("# plans are not code that makes results")
    (package / "notes.txt").write_text("nor is this")
    field = package / "fields" / "field.py"
    field.write_bytes(field.read_bytes().replace(b"\n", b"\r\n"))
    assert verify.digest_of(package) == original
    field.write_bytes(field.read_bytes() + b"# changed\r\n")
    changed = verify.digest_of(package)
    assert changed != original
    field.rename(package / "fields" / "renamed.py")
    assert verify.digest_of(package) not in (original, changed)


STUDY = """
import json, sys
from pathlib import Path
import qipf
from qipf.study.plan.plan import parse
from qipf.study.run import executors
from qipf.study.run.run import run_plan

folder = Path(sys.argv[1])
package = Path(qipf.__file__).parent
assert package.parent == folder, package
write = executors.Store.write
changed = []

def replaced_after_the_first_cell(self, *given, **named):
    write(self, *given, **named)
    if not changed:
        changed.append(True)
        for file in package.rglob("*.py"):
            file.write_text(file.read_text() + "\\nraise RuntimeError('code of another version')\\n")

executors.Store.write = replaced_after_the_first_cell
methods = {"entropy": {}, "knn": {}, "default": {}, "mc-dropout": {"passes": 2}, "qipf": {"factor": 80}}
plan = parse({**json.loads(sys.argv[2]), "methods": methods})
report, _ = run_plan(plan, folder / "store", engine="serial", device="cpu", quiet=True)
print(report.complete, report.done, [failure["error"] for failure in report.failed])
"""


def test_code_that_is_replaced_while_a_run_goes_on_changes_nothing(package, tmp_path):
    """Every cell runs the code whose digest it is given: all of it is imported before the first cell."""
    command = [sys.executable, "-c", STUDY, str(tmp_path), json.dumps(PLAN)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("True"), done.stdout + done.stderr


def test_a_cell_that_imported_replaced_code_is_not_kept(tmp_path, store, monkeypatch):
    one = diamond()
    executors.code()
    monkeypatch.setattr(executors, "_imported", executors._imported - {"qipf.metrics"})
    run([one], store, Serial())
    assert store.finished()  # imported late, but the files are those of the digest
    monkeypatch.setattr(executors, "digest_of", lambda _: "0123")
    with pytest.raises(RefusedError, match="replaced"):
        run([one], Store(tmp_path / "t", create=True), Serial())
    assert Store(tmp_path / "t").finished() == set()


def test_every_cell_says_who_made_it(tmp_path, store):
    last = diamond()
    run([last], store, Serial())
    assert {store.note("sources", cell.key) for cell in needed([last])} == {verify.source_digest()}
    index = [{"key": cell.key} for cell in needed([last])]
    assert verify.other_sources(store, index) == {}
    store.write_note("sources", index[0]["key"], "0123456789abcdef")
    (tmp_path / "s" / "sources" / f"{index[1]['key']}.json").write_text("0123")  # damaged
    (tmp_path / "s" / "sources" / f"{index[2]['key']}.json").unlink()
    assert verify.other_sources(store, [*index, index[0], {"key": "not there"}]) == {
        "0123456789abcdef": 1,
        "unknown": 2,
    }


def test_resuming_with_other_code_is_said_once_and_in_the_report(tmp_path, monkeypatch, capfd):
    store = tmp_path / "store"
    plan = plans.parse(PLAN)
    runs.run_plan(plan, store, engine="serial", device="cpu", quiet=True)
    assert "source" not in capfd.readouterr().err
    ours = verify.source_digest()
    environment = json.loads((store / "environment.json").read_text())
    assert (environment["source"], environment["other_sources"]) == (ours, {})
    before = (store / "table.csv").read_bytes()
    cells = len(open_store(store).index)

    monkeypatch.setattr(verify, "source_digest", lambda: "feedfeedfeedfeed")
    wider = plans.parse({**PLAN, "methods": {"entropy": {}, "margin": {}}})
    report, _ = runs.run_plan(wider, store, engine="serial", device="cpu", quiet=True)
    assert report.complete
    errors = capfd.readouterr().err
    words = f"(source feedfeedfeedfeed): {cells} by source {ours}"
    assert errors.count("\n") == 1
    assert errors.startswith(f"note: {cells} cells ")
    assert f"{words}; " in errors
    assert "empty store" in errors
    assert before.splitlines()[1] in (store / "table.csv").read_bytes().splitlines()
    assert [note for note in open_source(store).notes if words in note]
    tables = tmp_path / "tables"
    tables.mkdir()
    for name in ("table.csv", "environment.json"):
        shutil.copy(store / name, tables / name)
    assert [note for note in open_source(tables).notes if words in note]


def test_cells_without_a_source_are_of_an_unknown_version(tmp_path, capfd):
    store, plan = tmp_path / "store", plans.parse(PLAN)
    runs.run_plan(plan, store, engine="serial", device="cpu", quiet=True)
    assert capfd.readouterr().err == ""
    shutil.rmtree(store / "sources")
    environment = json.loads((store / "environment.json").read_text())
    del environment["source"], environment["other_sources"]
    Store(store).documents.write("environment.json", json.dumps(environment))
    assert not [note for note in open_source(store).notes if "different code" in note]  # nothing is known to be mixed
    runs.run_plan(plan, store, engine="serial", device="cpu", quiet=True)
    assert "by an unknown version; " in capfd.readouterr().err


@pytest.mark.parametrize("others", [None, [], 3, "all", {}])
def test_a_strange_environment_says_nothing(others):
    assert verify.note_of({"source": "a", "other_sources": others}) == ""
