"""kill -9 at random moments, other engines, a second run: the table is the same, byte for byte."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tiny

HERE = Path(__file__).parent
MAIN = """
import sys
from pathlib import Path
from qipf.cli.bench import bench
sys.exit(bench(sys.argv[1], output=Path(sys.argv[2]), engine=sys.argv[3], workers=2, quiet=True))
"""


def start(plan, store, engine):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MAIN, plan, store, engine]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    file = tmp_path_factory.mktemp("plan") / "tiny.toml"
    file.write_text(tiny.PLAN)
    return file


@pytest.fixture(scope="module")
def whole(plan, tmp_path_factory):
    """An uninterrupted run in one process, and how long it took."""
    store = tmp_path_factory.mktemp("whole") / "store"
    begin = time.monotonic()
    finish(start(plan, store, "serial"))
    return store, time.monotonic() - begin


def same_tables(one, other):
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in ("table.csv", "table.parquet"))


@pytest.mark.slow
def test_killed_again_and_again_the_table_is_the_same(plan, whole, tmp_path):
    store, seconds = whole
    rng = random.Random(1)
    for share, engine in ((0.5, "serial"), (0.8, "local")):
        process = start(plan, tmp_path / "killed", engine)
        time.sleep(seconds * share * rng.uniform(0.8, 1.2))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)  # returns when the workers, who share its standard error, have ended as well
    finish(start(plan, tmp_path / "killed", "serial"))
    assert same_tables(store, tmp_path / "killed")
    assert not list((tmp_path / "killed").rglob("*.part"))
    assert not list((tmp_path / "killed" / "scratch").iterdir())


@pytest.mark.slow
def test_a_second_run_on_one_store_is_refused_and_named(plan, whole, tmp_path):
    first = start(plan, tmp_path / "shared", "serial")
    while not (tmp_path / "shared" / "index.json").exists():
        assert first.poll() is None
        time.sleep(0.05)
    second = start(plan, tmp_path / "shared", "serial")
    _, errors = second.communicate(timeout=120)
    assert second.returncode != 0
    assert f"in use by process {first.pid} on".encode() in errors
    finish(first)
    assert same_tables(whole[0], tmp_path / "shared")


def str_row(row):
    return tuple(map(str, row))


def test_the_table_is_what_the_cells_say(whole, tmp_path):
    """An independent way to one of its numbers: ROC-AUC from the stored predictions by scikit-learn."""
    from sklearn.metrics import roc_auc_score

    from qipf.study.run.read import open_store
    from qipf.study.tables.long_table import read_table

    bench = open_store(whole[0])
    rows = bench.rows()
    # NaN is not equal to itself: compare the written form
    assert [str_row(row) for row in read_table(whole[0] / "table.csv")] == [str_row(row) for row in rows]
    lines = (whole[0] / "table.csv").read_text().splitlines()
    old = tmp_path / "old.csv"  # from before there was a subset
    old.write_text("".join(line.rpartition(",")[0] + "\n" for line in lines))
    assert [row[:-1] for row in map(str_row, read_table(old))] == [row[:-1] for row in map(str_row, rows)]
    assert {row.subset for row in read_table(old)} == {"all"}
    checked = 0
    for condition in bench.conditions():
        found = bench.predictions(condition)
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

    bench = open_store(whole[0])
    members = []
    for entry in bench.index:
        if entry["kind"] == "train":
            net = nets.build("small-cnn")
            net.load_state_dict(load_file(bench.store.file("train", entry["key"], ".safetensors")))
            members.append(net.eval())
    assert len(members) == 2
    condition = next(c for c in bench.conditions() if (c.shift, c.severity) == ("rotation", 7))
    found = bench.predictions(condition)
    images = torch.from_numpy(bench.images(condition, np.arange(150)))
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
def test_a_dask_cluster_gives_the_same_table(plan, whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    from qipf.study.plan import plan as plans
    from qipf.study.run.run import run_plan

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        report, _ = run_plan(plans.load(plan), tmp_path / "dask", engine=cluster.scheduler_address, quiet=True)
    assert report.complete
    assert same_tables(whole[0], tmp_path / "dask")
