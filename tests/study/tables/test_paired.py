"""Paired differences: only what both methods have is compared."""

import pytest

from qipf.study.tables.paired import Paired
from qipf.study.tables.paper import Case


def rows(method, level, seeds, intensities=range(1, 9), **place):
    where = {"dataset": "mnist", "net": "lenet", "shift": "rotation", "metric": "roc_auc", "score": "score", **place}
    return [
        {**where, "method": method, "seed": s, "intensity": float(i), "value": level + 0.1 * s + 0.02 * i}
        for s in seeds
        for i in intensities
    ]


def test_a_method_on_fewer_networks_is_compared_on_those():
    paired = Paired(rows("a", 0.5, (0, 1, 2)) + rows("b", 0.45, (1,)), "roc_auc")
    found = paired.difference("a", "b")
    assert (found.value, found.low, found.high) == (pytest.approx(0.05),) * 3
    assert (found.pairs, found.seeds, found.cases, found.verdict) == (8, 1, 1, "yes")
    back = paired.difference("b", "a")
    assert (back.value, back.verdict) == (pytest.approx(-0.05), "no")


def test_cases_can_be_chosen_and_those_without_both_are_left_out():
    table = rows("a", 0.5, (0,)) + rows("b", 0.4, (0,)) + rows("a", 0.9, (0,), shift="zoom")
    table += rows("a", 0.5, (0,), net="vgg3", dataset="cifar10") + rows("b", 0.2, (0,), net="vgg3", dataset="cifar10")
    paired = Paired(table, "roc_auc")
    everywhere = paired.difference("a", "b")
    assert (everywhere.value, everywhere.cases) == (pytest.approx(0.2), 2)
    here = paired.difference("a", "b", [Case("rotation", "mnist", "lenet")])
    assert here.value == pytest.approx(0.1)
    assert paired.difference("a", "b", [Case("zoom", "mnist", "lenet")]) is None
    assert paired.difference("a", "nothing") is None


def test_lower_is_better_and_few_pairs_decide_nothing():
    table = rows("a", 0.1, (0,), range(1, 6), metric="ece_proper") + rows(
        "b", 0.3, (0,), range(1, 6), metric="ece_proper"
    )
    found = Paired(table, "ece_proper").difference("a", "b")
    assert (found.value, found.verdict) == (pytest.approx(0.2), "undecided")


def test_shifts_are_drawn_again_where_several_are_averaged():
    """Ahead by 0.06 under one shift and behind by 0.02 under the other: each case is certain, their mean is not."""
    table = rows("a", 0.56, (0, 1)) + rows("b", 0.5, (0, 1))
    table += rows("a", 0.48, (0, 1), shift="zoom") + rows("b", 0.5, (0, 1), shift="zoom")
    paired = Paired(table, "roc_auc")
    found = paired.difference("a", "b")
    assert (found.value, found.low, found.high) == tuple(map(pytest.approx, (0.02, -0.02, 0.06)))
    assert found.verdict == "undecided"
    assert found.chance == pytest.approx(0.5, abs=0.03)  # one draw in four has only the second shift
    one = paired.difference("a", "b", [Case("rotation", "mnist", "lenet")])
    assert (one.low, one.high, one.verdict) == (pytest.approx(0.06), pytest.approx(0.06), "yes")
    assert one.chance < 0.001


def test_a_difference_that_does_not_matter():
    table = rows("a", 0.504, (0, 1)) + rows("b", 0.5, (0, 1)) + rows("c", 0.4949, (0, 1))
    paired = Paired(table, "roc_auc")
    near, far = paired.difference("a", "b"), paired.difference("b", "c")
    assert (near.negligible, near.verdict) == (True, "yes")
    assert not far.negligible


def test_the_error_of_images_widens_the_interval():
    """A certain difference of 0.05 with a standard error of 0.01 over images: 0.05 +- 1.96 * 0.01."""
    paired = Paired(rows("a", 0.55, (0, 1, 2)) + rows("b", 0.5, (0, 1, 2)), "roc_auc")
    found = paired.difference("a", "b", image_error=0.01)
    assert found.value == pytest.approx(0.05)
    assert (found.low, found.high) == tuple(pytest.approx(end, abs=6e-4) for end in (0.0304, 0.0696))
    unsure = paired.difference("a", "b", image_error=0.05)
    assert unsure.verdict == "undecided"
    assert unsure.chance == pytest.approx(0.317, abs=0.02)  # beyond one standard error on either side
