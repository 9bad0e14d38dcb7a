"""Flipped bits: every damaged file of a store is found, named and set aside, and no table is ever wrong."""

import random
import shutil

import pytest
from own_plans import measure

from qipf.cli import main
from qipf.study import datasets
from qipf.study.plan.plan import parse
from qipf.study.report.source import open_source
from qipf.study.run.read import open_store
from qipf.study.run.run import run, run_plan
from qipf.study.run.store import Store, StoreError
from qipf.study.run.verify import damages, repair

PLAN = {
    "name": "flips",
    "shifts": ["rotation"],
    "severities": [5],
    "test_size": 40,
    "reference_size": 40,
    "calibration_size": 40,
    "pairs": [{"dataset": "digits", "net": "small-cnn", "train": {"epochs": 1}}],
    "methods": {"entropy": {}, "mc-dropout": {"passes": 2}},
}
KINDS = (
    "cells/train/*.json", "cells/train/*.safetensors", "cells/fit/*.json", "cells/fit/*.qipf",
    "cells/fit/*.safetensors", "cells/base/*.json",
    "cells/base/*.safetensors", "cells/score/*.json", "cells/score/*.safetensors", "cells/measure/*.json",
    "cells/time/*.json", "plan.json", "index.json", "environment.json", "table.csv", "table.parquet", "times.csv",
    "checksums.json", "records.json", "seconds/*.json", "sources/*.json", "store.json",
)  # fmt: skip
"""Every kind of file that a finished store has, apart from the lock."""


@pytest.fixture(scope="module")
def plan():
    return parse(PLAN)


@pytest.fixture(scope="module")
def whole(plan, tmp_path_factory):
    store = tmp_path_factory.mktemp("whole") / "store"
    measure(plan, store, times=True)
    return store


@pytest.fixture
def path(whole, tmp_path):
    """A copy of the store."""
    return shutil.copytree(whole, tmp_path / "s")


def everything(path):
    """All that a reader gets from a store, as text: NaN is not equal to itself."""
    bench = open_store(path)
    found = [bench.plan, bench.index, bench.rows(), bench.times(), bench.networks(), bench.notes(), bench.failures()]
    for condition in bench.conditions():
        p = bench.predictions(condition)
        scores = {name: values.tobytes() for name, values in p.scores.items()}
        found += [condition, p.labels.tobytes(), p.predicted.tobytes(), scores]
    scorer = bench.scorer("digits", "small-cnn", 0, "entropy")
    return str([*found, scorer])


def or_error(read):
    try:
        return read()
    except StoreError as error:
        return str(error)


def flip(file, rng):
    data = bytearray(file.read_bytes())
    place = rng.randrange(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    file.write_bytes(data)


def test_the_list_of_kinds_has_every_file_of_a_store(whole):
    listed = {file for kind in KINDS for file in whole.glob(kind)}
    assert all(list(whole.glob(kind)) for kind in KINDS)
    assert {file for file in whole.rglob("*") if file.is_file()} == listed | {whole / "store.lock"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_found_and_never_read(whole, kind, path):
    """12 flips for each of 21 kinds of files."""
    right = everything(whole)
    rng = random.Random(kind)
    for number in range(12):
        file = rng.choice(sorted(path.glob(kind)))
        original = file.read_bytes()
        flip(file, rng)
        if kind == "store.json":
            with pytest.raises(StoreError):
                Store(path)
        else:
            assert str(next(damages(Store(path)))).startswith(str(file)), f"flip {number} was not found"
        found = or_error(lambda: everything(path))
        assert found == right or file.name in found
        file.write_bytes(original)
    assert list(damages(Store(path))) == []


def test_damaged_files_are_named_set_aside_and_computed_again(whole, plan, path, capfd):
    rng = random.Random(0)
    tables = {name: (whole / name).read_bytes() for name in ("table.csv", "table.parquet")}
    for start in range(5):  # several kinds at once
        files = {kind: rng.choice(sorted(path.glob(kind))) for kind in KINDS[start::5]}
        wrong = {kind: flip(file, rng) or file.read_bytes() for kind, file in files.items()}
        report, _ = run_plan(plan, path, engine="serial", device="cpu", quiet=True)
        assert report.complete
        assert {name: (path / name).read_bytes() for name in tables} == tables, files
        assert list(damages(Store(path))) == []
        errors = capfd.readouterr().err
        aside = [kept.read_bytes() for kept in (path / "damaged").iterdir()]
        cells = [kind for kind in files if kind.startswith("cells")]
        assert all(wrong[kind] in aside for kind in cells)
        assert all(f"note: {files[kind]} is damaged" in errors for kind in cells)
        assert report.done >= len(cells)


def test_files_that_are_damaged_during_a_run_are_computed_again_by_it(plan, path, monkeypatch):
    table = (path / "table.csv").read_bytes()
    outputs = next(path.glob("cells/base/*.safetensors"))
    attempts = []

    def spoiled_run(targets, store, engine, **options):
        if not attempts:  # every score needs the outputs, and nothing has read them so far
            flip(outputs, random.Random(0))
            shutil.rmtree(path / "cells" / "score")
            shutil.rmtree(path / "cells" / "measure")
        attempts.append(run(targets, store, engine, **options))
        return attempts[-1]

    monkeypatch.setattr("qipf.study.run.run.run", spoiled_run)
    report, _ = run_plan(plan, path, engine="serial", device="cpu", quiet=True)
    assert [bool(attempt.failed) for attempt in attempts] == [True, False]
    assert all(failure["damaged"] for failure in attempts[0].failed)
    assert report.complete
    assert (path / "table.csv").read_bytes() == table
    assert list(damages(Store(path))) == []


def test_an_interrupted_run_removes_what_killed_processes_were_writing(plan, path, monkeypatch):
    def interrupted(*_, **__):
        (path / "scratch" / f".{'0' * 32}.safetensors.0a1b2c3d.part").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("qipf.study.run.run.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_plan(plan, path, engine="serial", device="cpu", quiet=True)
    assert not list(path.rglob("*.part"))


@pytest.mark.parametrize("kind", ["measure", "base", "train"])
def test_a_lost_record_is_noticed_refused_and_computed_again(plan, path, kind):
    table = (path / "table.csv").read_bytes()
    record = sorted((path / "cells" / kind).glob("*.json"))[0]
    record.unlink()
    (found,) = damages(Store(path))
    assert (found.file, found.why) == (record, "it is missing")
    if kind == "measure":
        with pytest.raises(StoreError, match="lost"):
            open_source(path)
    else:
        assert "1 record" in open_source(path).notes[0]
    report, _ = run_plan(plan, path, engine="serial", device="cpu", quiet=True)
    assert report.done >= 1
    assert (path / "table.csv").read_bytes() == table
    assert list(damages(Store(path))) == []


@pytest.mark.parametrize("name", ["records.json", "table.csv", "plan.json", "environment.json"])
def test_a_lost_document_is_noticed_and_written_again(plan, path, name):
    (path / name).unlink()
    (found,) = damages(Store(path))
    assert (found.file, found.why) == (path / name, "it is missing")
    measure(plan, path, times=True)
    assert (path / name).is_file()
    assert list(damages(Store(path))) == []


def test_a_report_does_not_use_a_table_that_its_checksum_contradicts(whole, tmp_path):
    path = tmp_path / "s"
    path.mkdir()
    for name in ("table.csv", "times.csv", "checksums.json"):  # without the cells
        shutil.copy(whole / name, path / name)
    assert open_source(path).rows
    text = (path / "table.csv").read_text()
    (path / "table.csv").write_text(text.replace("entropy", "margin"))
    with pytest.raises(StoreError, match="table"):
        open_source(path)
    (path / "table.csv").write_text(text)
    (path / "times.csv").write_text((path / "times.csv").read_text().replace("1", "2"))
    source = open_source(path)
    assert source.times == []
    assert any("times.csv is damaged" in note for note in source.notes)


def test_damaged_checkpoints_are_not_continued_from(store):
    """70 flips in the file of a training that was interrupted."""
    from qipf.study import nets
    from qipf.training import train

    data = datasets.load("digits").train
    file = store.scratch("c" * 32, ".safetensors")
    train(nets.build("small-cnn", seed=0), data, epochs=1, device="cpu", checkpoint=file, progress=False)
    original = file.read_bytes()
    rng = random.Random(0)
    assert list(damages(store)) == []
    for _ in range(70):
        flip(file, rng)
        cells, notes = repair(store)
        assert cells == set()
        assert len(notes) == 1
        assert not file.exists()
        file.write_bytes(original)
    assert len(list((store.path / "damaged").iterdir())) == 70


def test_verify_prints_one_line_for_each_damaged_file(path, tmp_path, capfd):
    assert main(["bench", "--verify", "-o", str(path)]) == 0
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "all files match their checksums" in captured.err
    rng = random.Random(0)
    files = sorted([next(path.glob(kind)) for kind in ("cells/score/*.json", "cells/base/*.safetensors", "table.csv")])
    for file in files:
        flip(file, rng)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert main(["bench", "--verify", "-o", str(path)]) == 1
    captured = capfd.readouterr()
    assert sorted(line.partition(":")[0] for line in captured.out.splitlines()) == [str(file) for file in files]
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before  # nothing was touched
    assert main(["bench", "--verify", "-o", str(tmp_path / "none")]) == 1
    assert "is not a benchmark store" in capfd.readouterr().err
