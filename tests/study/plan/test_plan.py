"""Plans are checked key by key, and a change in what determines a cell changes its key."""

import json
import tomllib

import numpy as np
import pytest

import tiny
from qipf.study.plan import plan as plans
from qipf.study.plan.plan import Plan, PlanError, parse
from qipf.study.run import graph as study


def tiny_values(**changes):
    values = tomllib.loads(tiny.PLAN)
    values.update(changes)
    return values


def with_pair(**changes):
    values = tiny_values()
    values["pairs"][0].update(changes)
    return values


def with_method(name, **params):
    values = tiny_values()
    values["methods"] = {name: params}
    return values


def test_settings_are_resolved():
    (pair,) = parse(tiny_values()).pairs
    assert pair.shifts == {"rotation": (30.0, 150.0), "brightness": (0.1, 0.4)}
    assert pair.severity == {"rotation": (2, 7), "brightness": (2, 7)}
    assert pair.train["epochs"] == 2
    assert pair.train["batch_size"] == 64  # from the recipe
    assert [method.name for method in pair.methods] == ["qipf", "entropy", "mc-dropout", "svi-ll", "ensemble"]


def test_a_pair_overrides_the_plan_and_a_method_may_depend_on_the_net():
    values = tiny_values()
    values["pairs"].append({"dataset": "mnist", "net": "lenet", "seeds": [1], "shifts": {"zoom": [0.5, 3.0]}})
    values["methods"]["mc-dropout"]["rate"] = {"lenet": 0.1, "default": 0.2}
    first, second = parse(values).pairs
    assert first.seeds == (0,)
    assert second.seeds == (1,)
    assert second.shifts == {"zoom": (0.5, 3.0)}
    assert second.severity == {"zoom": (1, 2)}  # 3.0 is not on the grid: places in the list
    rates = [dict(m.params)["rate"] for pair in (first, second) for m in pair.methods if m.name == "mc-dropout"]
    assert rates == [0.2, 0.1]


@pytest.mark.parametrize("name", plans.shipped())
def test_shipped_plans_are_valid(name):
    plan = plans.load(name)
    assert plan.name == name
    assert plan.description
    entries = study.entries(plan)
    assert len({entry.cell.key for entry in entries}) == len(entries)


def test_the_paper_is_its_four_plans_and_shares_their_cells():
    paper = plans.load("paper")
    assert [(pair.dataset, pair.net) for pair in paper.pairs] == [
        ("mnist", "lenet"), ("kmnist", "lenet"), ("cifar10", "vgg3"), ("cifar10", "resnet18"),
    ]  # fmt: skip
    keys = {entry.cell.key for entry in study.entries(paper)}
    assert {entry.cell.key for entry in study.entries(plans.load("kmnist"))} <= keys
    for pair in paper.pairs:
        assert set(pair.seeds) == set(range(3 if pair.net == "resnet18" else 5))
        assert all(method.seeds is None for method in pair.methods)
        names = {method.name for method in pair.methods}
        assert names >= {"qipf", "qipf-published", "ensemble", "svi", "svi-ll", "mc-dropout", "mc-dropout-ll", "swag"}
        assert {name: len(grid) for name, grid in pair.shifts.items()} == dict.fromkeys(
            ("rotation", "brightness", "shear", "zoom", "shift"), 10
        )


def test_the_pool_serves_base_networks_and_ensembles():
    values = tiny_values(pool=3, seeds=[0, 1, 2])
    entries = study.entries(parse(values))
    trained = [entry for entry in entries if entry.cell.kind == "train"]
    assert sorted(entry.seed for entry in trained) == [0, 1, 2]
    members = {
        entry.seed: [p.params["seed"] for role, p in entry.cell.parents.items() if role.startswith("member")]
        for entry in entries
        if entry.cell.kind == "score" and entry.method == "ensemble" and entry.group == "clean"
    }
    assert members == {0: [0, 1], 1: [1, 2], 2: [2, 0]}


def with_expensive_methods(**seeds):
    values = tiny_values(pool=3, seeds=[2, 0, 1])
    for name, chosen in seeds.items():
        values["methods"][name.replace("_", "-")]["seeds"] = chosen
    return values


def test_an_expensive_method_runs_on_some_seeds_only():
    def cells(values):
        return {entry.cell.key: entry for entry in study.entries(parse(values))}

    values = with_expensive_methods(svi_ll=[0, 2], mc_dropout={"small-cnn": [0], "default": [1]})
    (pair,) = parse(values).pairs
    assert {m.name: m.seeds for m in pair.methods if m.seeds} == {"svi-ll": (2, 0), "mc-dropout": (0,)}
    assert all("seeds" not in method.params for method in pair.methods)
    every, some = cells(with_expensive_methods()), cells(values)
    gone = [every[key] for key in every.keys() - some.keys()]
    # a fit, a score for clean, held-out and two shifts, a measurement for all but held-out
    assert sorted({(entry.method, entry.seed) for entry in gone if entry.cell.kind != "time"}) == [
        ("mc-dropout", 1), ("mc-dropout", 2), ("svi-ll", 1),
    ]  # fmt: skip
    assert sum(entry.cell.kind != "time" for entry in gone) == 3 * (1 + 4 + 3)
    # every method is still timed once, on the first of its own seeds
    timed = {entry.method: entry.seed for entry in some.values() if entry.cell.kind == "time"}
    assert timed == {"qipf": 2, "entropy": 2, "mc-dropout": 0, "svi-ll": 2, "ensemble": 2}
    assert [entry.method for key, entry in some.items() if key not in every] == ["mc-dropout"]
    assert Plan.from_json(json.loads(json.dumps(parse(values).as_json()))) == parse(values)


def test_plans_from_before_methods_had_seeds_are_read():
    plan = parse(tiny_values())
    old = plan.as_json()
    for method in old["pairs"][0]["methods"]:
        del method["seeds"]
    assert Plan.from_json(json.loads(json.dumps(old))) == plan


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (tiny_values(sedes=[1]), "unknown key 'sedes'; did you mean 'seeds'?"),
        (tiny_values(name=""), "name: missing"),
        *(
            (tiny_values(name=name), "name: expected")
            for name in ("x/../../y", "..", "/tmp/x", "a\\b", "a\nb", "-o", "x" * 101)
        ),
        (tiny_values(name=3), "name: expected a string, got 3"),
        (tiny_values(seeds=[]), "seeds: expected a list of length >= 1"),
        (tiny_values(seeds=[1, 1]), "seeds: expected a list of distinct integers"),
        (tiny_values(seeds=[5]), "seeds: .*below 2.*5"),
        (tiny_values(bootstrap=True), "bootstrap: expected an integer, got True"),
        (tiny_values(bootstrap=-1), "bootstrap: expected an integer >= 0"),
        (tiny_values(severities=[11]), r"severities\[0\]: expected an integer <= 10, got 11"),
        (tiny_values(shifts=["rotatoin"]), "'rotatoin'.*did you mean 'rotation'?"),
        (tiny_values(shifts={"zoom": []}), "shifts.zoom: expected a list of length >= 1"),
        (tiny_values(shifts="all"), "shifts: expected a table or a list, got 'all'"),
        (tiny_values(pairs=[]), "pairs: missing"),
        (tiny_values(pairs=[3]), r"pairs\[0\]: expected a table"),
        (tiny_values(methods={}), "methods: missing"),
        (tiny_values(methods={"entropy": 3}), "methods.entropy: expected a table"),
        (tiny_values(methods={"entorpy": {}}), "methods.entorpy: 'entorpy'.*did you mean 'entropy'?"),
        (tiny_values(include=["no-such-plan"]), "there is no plan 'no-such-plan'"),
        (with_pair(dataset="minst"), r"pairs\[0\].dataset: 'minst'.*did you mean 'mnist'\?"),
        (with_pair(net="lenett"), r"pairs\[0\].net: 'lenett'.*did you mean 'lenet'\?"),
        (with_pair(dataset="none.npz"), r"pairs\[0\].dataset: there is no file"),
        (with_pair(train={"epoch": 2}), r"pairs\[0\].train: unknown key 'epoch'; did you mean 'epochs'\?"),
        (
            with_pair(model="net.pth"),
            r"pairs\[0\].model: expected 'file.pt2', 'file.h5', 'file.onnx' or 'module:callable'",
        ),
        (with_pair(model="my:net"), r"pairs\[0\].train: .*`model`"),
        (with_pair(weights="w.safetensors"), r"pairs\[0\].weights: .*`model`"),
        (with_pair(pool=1), "methods.ensemble.members: .*pool"),
        (with_method("knn", kk=3), "methods.knn: unknown key 'kk'"),
        (with_method("knn", k=0), "methods.knn: k"),
        (with_method("mine", kind="knnn"), r"methods.mine.kind: 'knnn'.*did you mean 'knn'\?"),
        (with_method("mc-dropout", rate=2.0), "methods.mc-dropout: rate: expected a probability.* between 0 and 1"),
        (with_method("mc-dropout", rate={"lenet": 0.1}), "methods.mc-dropout.rate: .*'small-cnn'"),
        (with_method("ensemble", members=1), "methods.ensemble.members: expected an integer >= 2"),
        (with_method("entropy", fit_on="test"), "methods.entropy.fit_on"),
        (with_method("mine", kind="scores", file="none.csv"), "methods.mine.file: there is no file"),
        (
            with_expensive_methods(svi_ll=[3]),
            r"methods\.svi-ll\.seeds: 3 is not a seed of pairs\[0\].*2, 0, 1",
        ),
        (with_expensive_methods(svi_ll=[]), r"methods\.svi-ll\.seeds: expected a list of length >= 1, got \[\]"),
        (with_expensive_methods(svi_ll=[0, 0]), r"methods\.svi-ll\.seeds: expected a list of distinct integers"),
        (with_expensive_methods(svi_ll=[True]), r"methods\.svi-ll\.seeds\[0\]: expected an integer, got True"),
        (with_expensive_methods(svi_ll=0), r"methods\.svi-ll\.seeds: expected a list, got 0"),
        (
            with_expensive_methods(svi_ll={"lenet": [0]}),
            r"methods\.svi-ll\.seeds: .*'small-cnn'",
        ),
    ],
)
def test_errors_name_the_key(values, words):
    with pytest.raises(PlanError, match=words):
        parse(values)


@pytest.mark.parametrize("kind", ["class-field", "combine"])
def test_methods_of_an_earlier_version_are_refused(kind):
    with pytest.raises(PlanError, match="is not a method"):
        parse(with_method(kind))


def test_methods_that_a_model_of_your_own_cannot_do():
    values = with_method("svi")
    del values["pairs"][0]["train"]
    values["pairs"][0].update(model="my:net")
    with pytest.raises(PlanError, match="methods"):
        parse(values)


def test_pairs_twice_and_broken_files(tmp_path):
    values = tiny_values()
    values["pairs"] *= 2
    with pytest.raises(PlanError, match="both appear"):
        parse(values)
    file = tmp_path / "plan.toml"
    file.write_text("name = ")
    with pytest.raises(PlanError, match="TOML"):
        plans.load(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="UTF-8"):
        plans.load(file)
    with pytest.raises(PlanError, match="'demo'"):
        plans.load("dmeo")


def test_files_of_the_same_name_are_not_merged(tmp_path):
    values = tiny_values()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "mine.npz", x=np.zeros((4, 1, 8, 8), np.float32), y=np.arange(4))
    values["pairs"] = [{"dataset": f"{folder}/mine.npz", "net": "small-cnn"} for folder in ("a", "b")]
    with pytest.raises(PlanError, match="rename"):
        parse(values, folder=tmp_path)


def test_what_determines_a_cell_changes_its_key_and_nothing_else_does(tmp_path):
    def keys(values, kind):
        return {entry.cell.key for entry in study.entries(parse(values)) if entry.cell.kind == kind}

    base = tiny_values()
    more_bootstrap = tiny_values(bootstrap=20)
    assert keys(base, "score") == keys(more_bootstrap, "score")
    assert not keys(base, "measure") & keys(more_bootstrap, "measure")
    longer = with_pair(train={"epochs": 3})
    assert not keys(base, "train") & keys(longer, "train")
    assert not keys(base, "measure") & keys(longer, "measure")
    assert {e.cell.key for e in study.entries(parse(base), "cuda")}.isdisjoint(
        e.cell.key for e in study.entries(parse(base))
    )
    x = np.zeros((20, 1, 8, 8), np.float32)
    found = []
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=x + (name == "b"), y=np.arange(20) % 10)
        found.append(keys(with_pair(dataset=str(tmp_path / f"{name}.npz")), "train"))
    assert not found[0] & found[1]


@pytest.mark.parametrize(
    ("task", "changes", "methods", "words"),
    [
        ("boxes", {}, {"entropy": {}}, "predicts"),
        ("number", {}, {"entropy": {}}, "did you mean 'numbers'"),
        ("pixels", {"model": None, "net": "lenet"}, {"entropy": {}}, "your own `model`"),
        ("pixels", {"shifts": {"rotation": [30]}}, {"entropy": {}}, "rotation"),
        ("tokens", {"shifts": {"word-drops": [2]}}, {"entropy": {}}, "word-drops"),
        ("labels", {"out_of_distribution": ["digits"]}, {"entropy": {}}, "out_of_distribution"),
        ("labels", {"coverage": 0.9}, {"entropy": {}}, "coverage"),
        ("numbers", {"seeds": [0, 1]}, {"one-width": {}}, "seeds"),
        ("numbers", {"coverage": 1.5}, {"one-width": {}}, "coverage"),
        ("pixels", {}, {"mc-dropout": {}}, "methods.mc-dropout"),
        ("tokens", {}, {"knn": {}}, "knn.*tokens"),
        ("labels", {}, {"knn": {"fit_on": "perturbed"}}, "fit_on"),
        ("labels", {}, {"default": {"effort": "quick"}}, "methods.default.effort"),
        ("labels", {}, {"one-width": {}}, "one-width.*numbers"),
        ("numbers", {}, {"entropy": {}}, "entropy.*numbers"),
        ("numbers", {}, {"head": {"kind": "residual-scale", "fit_on": "held-out"}}, "fit_on"),
        ("numbers", {}, {"head": {"kind": "residual-scale", "method": "probe"}}, "probe"),
        ("numbers", {}, {"one-width": {"kind": "residual-scale"}}, "reserved"),
        ("numbers", {}, {"one-width": {"k": 3}}, "unknown key 'k'"),
    ],
)
def test_what_does_not_fit_a_task_is_named(tmp_path, task, changes, methods, words):
    np.savez(tmp_path / "own.npz", x=np.zeros(1))
    pair = {"dataset": "own.npz", "net": "mine", "model": "nets:build", "predicts": task, **changes}
    pair = {key: value for key, value in pair.items() if value is not None}
    with pytest.raises(PlanError, match=words):
        parse({"name": "own", "pairs": [pair], "methods": methods}, folder=tmp_path)
