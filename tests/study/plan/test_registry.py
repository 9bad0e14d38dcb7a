"""Every method of the library and of the shipped plans is in the registry, with the right facts."""

import doctest

import pytest

from qipf import predictive
from qipf.scores import SCORERS
from qipf.study.plan import plan as plans
from qipf.study.plan import registry
from qipf.study.plan.registry import COLOURS, KINDS, REGISTRY


def test_every_scorer_and_method_of_several_passes_is_registered():
    assert set(SCORERS) - set(REGISTRY) == set(), "add these scorers to qipf.study.plan.registry"
    assert set(predictive.METHODS) - set(REGISTRY) == set(), "add these methods to qipf.study.plan.registry"
    assert {*SCORERS, *predictive.METHODS, "qipf", "default", "scores", "one-width"} == set(KINDS)


def test_every_entry_exists():
    named = {method.name for name in plans.shipped() for pair in plans.load(name).pairs for method in pair.methods}
    assert set(REGISTRY) <= named | set(KINDS) | {"class-field"}
    assert {entry.kind for entry in REGISTRY.values()} <= set(KINDS) | {"class-field"}
    assert all(REGISTRY[name].passes == "one" for name in SCORERS)


@pytest.mark.parametrize("name", plans.shipped())
def test_methods_of_shipped_plans_are_registered_with_their_kind(name):
    for pair in plans.load(name).pairs:
        for method in pair.methods:
            assert REGISTRY[method.name].kind == method.kind


@pytest.mark.parametrize("name", sorted(predictive.METHODS))
def test_methods_of_several_passes_are_said_to_be(name):
    assert REGISTRY[name].passes == "many"
    assert registry.info(name).statistics[:3] == ("std", "entropy", "mutual_information")
    assert ("max_logit_one_pass" in registry.info(name).statistics) == name.startswith("svi")


def test_titles_and_places_tell_methods_apart():
    entries = [entry for entry in REGISTRY.values() if entry.name != "weight-qipf"]
    assert len({entry.title for entry in entries}) == len(entries)
    assert len({entry.slot for entry in entries}) == len(entries)
    assert all(entry.slot < COLOURS for entry in entries if entry.shown)


def test_statistics_are_those_that_cells_compute():
    from qipf.study.run.cells import SCORES

    assert tuple(SCORES) == registry.MANY_STATISTICS


def test_columns_and_titles():
    assert registry.column_title("mc-dropout (mutual_information)") == "MC dropout, mutual information"
    assert registry.column_title("entropy") == "Entropy of the softmax"
    assert registry.title("mine", "std") == "mine, standard deviation"
    for entry in REGISTRY.values():
        for statistic in entry.statistics:
            assert registry.split_column(registry.column(entry.name, statistic)) == (entry.name, statistic)
    assert "default" in registry.shown_first()
    assert all(statistic in REGISTRY[name].statistics for name in REGISTRY for statistic in REGISTRY[name].shown)


def test_names_of_a_users_plan_get_the_free_places():
    places = registry.slots(["mine", "default", "qipf", "yours"])
    assert places == {"mine": 2, "default": 0, "qipf": 1, "yours": 3}
    assert registry.slots(["mine", "default", "qipf", "yours", "softmax-response"])["mine"] == 3


def test_examples_in_the_documentation_are_right():
    assert doctest.testmod(registry).failed == 0
