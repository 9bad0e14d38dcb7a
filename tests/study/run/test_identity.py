"""The plan, the data and the model of a store are those that its tables are about.

The digest of a user's module covers the helpers that it imports from its folder, and nothing else.
"""

import json
import sys

import numpy as np
import pytest

from qipf.study.plan.plan import parse
from qipf.study.run import graph
from qipf.study.run.executors import Serial
from qipf.study.run.own_model import ChangedError, digests, imported_files, load, module_digest
from qipf.study.run.read import open_store
from qipf.study.run.run import run, run_plan
from qipf.study.run.store import Store, StoreError
from qipf.study.run.study_data import load_data


def save_data(path, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.random((80, 1, 8, 8)).astype(np.float32), np.arange(80) % 10
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)


def plan_of(path, methods=None, **settings):
    pair = {"dataset": str(path), "net": "small-cnn", "train": {"epochs": 1}}
    return parse(
        {"name": "p", "calibration_size": 20, "pairs": [pair], "methods": methods or {"entropy": {}}, **settings}
    )


def run_quietly(plan, store):
    return run_plan(plan, store, engine="serial", device="cpu", times=False, quiet=True)[0]


def test_data_that_is_replaced_after_planning_is_noticed(tmp_path, store):
    save_data(tmp_path / "d.npz", 0)
    entries = graph.entries(plan_of(tmp_path / "d.npz"))
    save_data(tmp_path / "d.npz", 1)
    report = run([entry.cell for entry in entries], store, Serial())
    assert report.done == 0
    assert {failure["error"].partition(":")[0] for failure in report.failed} == {"ChangedError"}
    assert "SHA-256" in report.failed[0]["error"]
    assert store.finished() == set()
    new = graph.entries(plan_of(tmp_path / "d.npz"))
    assert not {entry.cell.key for entry in entries} & {entry.cell.key for entry in new}
    assert run([entry.cell for entry in new if entry.cell.kind != "time"], store, Serial()).complete


def test_data_that_is_replaced_while_it_is_read_is_noticed(tmp_path, monkeypatch):
    from qipf.study.run import study_data
    from qipf.study.run.own_model import file_digest

    path = tmp_path / "d.npz"
    save_data(path, 0)
    expected, real = file_digest(path), study_data.read_npz

    def slow(*given):
        save_data(path, 1)
        return real(*given)

    monkeypatch.setattr(study_data, "read_npz", slow)
    with pytest.raises(ChangedError):
        load_data(str(path), 10, None, "cpu", digest=expected)


def test_a_file_of_scores_that_is_replaced_is_noticed(tmp_path):
    save_data(tmp_path / "d.npz", 0)
    scores = tmp_path / "scores.csv"
    scores.write_text("index,score\n" + "".join(f"{i},{i}\n" for i in range(80)))
    entries = graph.entries(plan_of(tmp_path / "d.npz", {"theirs": {"kind": "scores", "file": str(scores)}}))
    scores.write_text("index,score\n" + "".join(f"{i},{80 - i}\n" for i in range(80)))
    report = run([entry.cell for entry in entries], Store(tmp_path / "s", create=True), Serial())
    assert [failure["kind"] for failure in report.failed] == ["score", "score"]
    assert all("ChangedError" in failure["error"] for failure in report.failed)


def test_a_model_is_the_one_that_this_process_imported(tmp_path, monkeypatch):
    """The same weights and another forward pass, in a file that is edited while a worker lives."""
    source = "import torch\ndef build(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))\n"
    (tmp_path / "edited_net.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    before = digests("edited_net:build", None)
    load("edited_net:build", None, before)
    (tmp_path / "edited_net.py").write_text(source + "# edited\n")
    load("edited_net:build", None, before)  # this process still runs the old source
    monkeypatch.delitem(sys.modules, "edited_net")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with pytest.raises(ChangedError, match="digest"):
        load("edited_net:build", None, before)


def test_weights_that_are_replaced_are_noticed(tmp_path):
    from own_net import make
    from safetensors.torch import save_file

    weights = tmp_path / "w.safetensors"
    save_file(make().state_dict(), weights)
    expected = digests("own_net:make", str(weights))
    load("own_net:make", str(weights), expected)
    save_file({name: tensor + 1 for name, tensor in make().state_dict().items()}, weights)
    with pytest.raises(ChangedError, match=r"w\.safetensors"):
        load("own_net:make", str(weights), expected)


def test_a_store_has_the_results_of_one_plan(tmp_path):
    save_data(tmp_path / "d.npz", 0)
    store = tmp_path / "s"
    assert run_quietly(plan_of(tmp_path / "d.npz"), store).complete
    before = {file: file.read_bytes() for file in store.iterdir() if file.is_file() and file.name != "store.lock"}
    with pytest.raises(StoreError, match="'q'"):
        run_quietly(plan_of(tmp_path / "d.npz", name="q"), store)
    assert {file: file.read_bytes() for file in before} == before


def test_the_table_is_never_that_of_an_earlier_version_of_the_plan(tmp_path, monkeypatch):
    save_data(tmp_path / "d.npz", 0)
    store = tmp_path / "s"
    assert run_quietly(plan_of(tmp_path / "d.npz"), store).complete
    monkeypatch.setattr("qipf.study.run.run.run", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_quietly(plan_of(tmp_path / "d.npz", {"margin": {}}), store)
    assert [method["name"] for method in json.loads((store / "plan.json").read_text())["pairs"][0]["methods"]] == [
        "margin"
    ]
    assert not (store / "table.csv").exists()
    assert not (store / "table.parquet").exists()


def test_methods_with_equal_settings_are_both_in_the_table(tmp_path):
    save_data(tmp_path / "d.npz", 0)
    plan = plan_of(tmp_path / "d.npz", {"entropy": {}, "again": {"kind": "entropy"}})
    report = run_quietly(plan, tmp_path / "s")
    assert report.complete
    rows = open_store(tmp_path / "s").rows()
    both = [[row[7:] for row in rows if row.method == method] for method in ("entropy", "again")]
    assert str(both[0]) == str(both[1])
    assert len(both[0]) > 5


def test_another_file_of_the_same_name_replaces_the_rows_of_the_first(tmp_path):
    """A store has the rows of the plan that it was last run with, never those of two files called alike."""
    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        save_data(tmp_path / folder / "d.npz", number)
    first = run_quietly(plan_of(tmp_path / "a" / "d.npz"), tmp_path / "s")
    other = run_quietly(plan_of(tmp_path / "b" / "d.npz"), tmp_path / "s")
    assert other.done == first.done
    rows = open_store(tmp_path / "s").rows()
    assert len({(row.method, row.metric, row.score, row.errors, row.shift) for row in rows}) == len(rows)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nets.py").write_text("import torch\nimport blocks\nfrom parts.deep import Layer\n")
    (tmp_path / "blocks.py").write_text("def later():\n    import lazily\n")
    (tmp_path / "lazily.py").write_text("import nets\n")
    (tmp_path / "unused.py").write_text("VALUE = 1\n")
    (tmp_path / "torch").mkdir()  # not a module, for want of a file
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "deep.py").write_text("from . import near\nfrom ..outside import nothing\nLayer = 1\n")
    (tmp_path / "parts" / "near.py").write_text("X = 1\n")
    return tmp_path


def test_what_is_imported_is_found_by_reading(folder):
    found = imported_files("nets", folder / "nets.py")
    assert set(found) == {"nets", "blocks", "lazily", "parts", "parts.deep", "parts.near"}
    inside = imported_files("parts.deep", folder / "parts" / "deep.py")
    assert set(inside) == {"parts.deep", "parts", "parts.near"}


def test_a_change_of_any_helper_changes_the_digest_and_one_of_another_file_does_not(folder):
    before = module_digest("nets", folder / "nets.py")
    for name in ("nets.py", "blocks.py", "lazily.py", "parts/__init__.py", "parts/near.py"):
        file = folder / name
        text = file.read_text()
        file.write_text(text + "# changed\n")
        assert module_digest("nets", folder / "nets.py") != before, name
        file.write_text(text)
    (folder / "unused.py").write_text("VALUE = 2\n")
    assert module_digest("nets", folder / "nets.py") == before


def test_of_an_installed_module_only_its_own_package_counts(folder):
    place = folder / "site-packages"
    for name in ("mine", "other"):
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text("")
    (place / "mine" / "nets.py").write_text("import other\nfrom mine import parts\n")
    (place / "mine" / "parts.py").write_text("")
    assert set(imported_files("mine.nets", place / "mine" / "nets.py")) == {"mine", "mine.nets", "mine.parts"}
