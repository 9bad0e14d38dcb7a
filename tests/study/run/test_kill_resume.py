"""kill -9 at random moments, other engines, a second run: the table is the same, byte for byte."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

import tiny
from qipf.cli.bench import bench
from qipf.study.run.store import BusyError

MAIN = """
import sys
from pathlib import Path
from qipf.cli.bench import bench
sys.exit(bench(sys.argv[1], output=Path(sys.argv[2]), engine=sys.argv[3], workers=2))
"""


def start(plan, store, engine):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MAIN, plan, store, engine]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    file = tmp_path_factory.mktemp("plan") / "tiny.toml"
    file.write_text(tiny.PLAN)
    return file


@pytest.fixture(scope="module")
def whole(plan, tmp_path_factory):
    """An uninterrupted run in this process."""
    store = tmp_path_factory.mktemp("whole") / "store"
    assert bench(str(plan), output=store, engine="serial") == 0
    return store


def same_tables(one, other):
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in ("table.csv", "table.parquet"))


def finished(store):
    return len(list((store / "cells").rglob("*.json")))


@pytest.mark.slow
@pytest.mark.thorough
def test_killed_again_and_again_and_run_twice_at_once_the_table_is_the_same(plan, whole, tmp_path):
    """A second run on the store is refused and names the first one. Kills come when some cells are there, and a little
    later, so that they may hit any part of a cell."""
    store, rng = tmp_path / "killed", random.Random(1)
    for share, engine in ((0.25, "serial"), (0.5, "local")):
        process = start(plan, store, engine)
        while finished(store) < share * finished(whole):
            assert process.poll() in (None, 0)
            time.sleep(0.02)
        if engine == "serial":
            process.send_signal(signal.SIGSTOP)  # so that it cannot end before the second run has asked
            with pytest.raises(BusyError, match=f"process {process.pid}"):
                bench(str(plan), output=store, engine="serial")
            process.send_signal(signal.SIGCONT)
        time.sleep(rng.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)  # returns when the workers, who share its standard error, have ended as well
    assert bench(str(plan), output=store, engine="serial") == 0
    assert same_tables(whole, store)
    assert not list(store.rglob("*.part"))
    assert not list((store / "scratch").iterdir())


def str_row(row):
    return tuple(map(str, row))


def test_the_table_is_what_the_cells_say(whole, tmp_path):
    """An independent way to one of its numbers: ROC-AUC from the stored predictions by scikit-learn."""
    from sklearn.metrics import roc_auc_score

    from qipf.study.run.read import open_store
    from qipf.study.tables.frame import read_table

    study = open_store(whole)
    rows = study.rows()
    # NaN is not equal to itself: compare the written form
    assert [str_row(row) for row in read_table(whole / "table.csv")] == [str_row(row) for row in rows]
    lines = (whole / "table.csv").read_text().splitlines()
    old = tmp_path / "old.csv"  # from before there was a subset
    old.write_text("".join(line.rpartition(",")[0] + "\n" for line in lines))
    assert [row[:-1] for row in map(str_row, read_table(old))] == [row[:-1] for row in map(str_row, rows)]
    assert {row.subset for row in read_table(old)} == {"all"}
    checked = 0
    for condition in study.conditions():
        found = study.predictions(condition)
        scored = np.flatnonzero(np.isfinite(found.scores["ensemble", "std"]))
        assert len(scored) == 100
        assert scored.tolist() != list(range(100))  # not the first ones
        every = {(*name, "all", 150): range(150) for name in found.scores if name[1] == "score"}
        every |= {(*name, "common", 100): scored for name in found.scores}
        for (method, score, subset, n), places in every.items():
            values, wrong = found.scores[method, score][places], ~found.correct[places]
            (row,) = (
                row
                for row in rows
                if (row.shift, row.intensity, row.method, row.score, row.errors, row.metric, row.subset)
                == (condition.shift, condition.intensity, method, score, "base", "roc_auc", subset)
            )
            assert row.n == n
            assert row.accuracy == pytest.approx(1 - wrong.mean())
            if wrong.any() and not wrong.all():
                assert row.value == pytest.approx(roc_auc_score(wrong, values.astype(float)), abs=1e-12)
                assert row.low <= row.high
                checked += 1
    assert checked >= 40
    assert {row.severity for row in rows} == {0, 2, 7}


def test_predictions_are_those_of_the_stored_network(whole):
    """The ensemble's own predictions and the base's, computed again from the stored weights and the shifted images."""
    import torch
    from safetensors.torch import load_file

    from qipf.study import nets
    from qipf.study.run.read import open_store

    study = open_store(whole)
    members = []
    for entry in study.index:
        if entry["kind"] == "train":
            net = nets.build("small-cnn")
            net.load_state_dict(load_file(study.store.file("train", entry["key"], ".safetensors")))
            members.append(net.eval())
    assert len(members) == 2
    condition = next(c for c in study.conditions() if (c.shift, c.severity) == ("rotation", 7))
    found = study.predictions(condition)
    images = torch.from_numpy(study.images(condition, np.arange(150)))
    with torch.no_grad():
        chances = torch.stack([net(images).softmax(1) for net in members]).double()
    base = chances[0].argmax(1)
    assert (base.numpy() == found.predicted).mean() == 1
    scored = np.isfinite(found.scores["ensemble", "std"])  # the others are not for methods of many passes
    assert scored.sum() == 100
    mean = chances.mean(0)
    entropy = -(mean * mean.log()).sum(1)
    assert np.allclose(found.scores["ensemble", "entropy"][scored], entropy.numpy()[scored], atol=1e-5)
    std = chances.std(0, correction=0).gather(1, base[:, None])[:, 0]
    assert np.allclose(found.scores["ensemble", "std"][scored], std.numpy()[scored], atol=1e-5)
    assert (found.own_predicted["ensemble"] == np.where(scored, mean.argmax(1).numpy(), -1)).all()
    common = found.common()
    assert (common.labels == found.labels[scored]).all()
    assert (common.scores["entropy", "score"] == found.scores["entropy", "score"][scored]).all()


@pytest.mark.slow
@pytest.mark.thorough
def test_a_dask_cluster_gives_the_same_table(plan, whole, tmp_path):
    pytest.importorskip("distributed")
    from dask_processes import open_dask

    with contextmanager(open_dask)(tmp_path / "cluster") as dask:
        dask.worker()
        dask.worker()
        assert bench(str(plan), output=tmp_path / "dask", engine=dask.address) == 0
    assert same_tables(whole, tmp_path / "dask")
