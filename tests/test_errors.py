"""Errors with parts."""

from __future__ import annotations

import pickle

import pytest

from qipf._common.errors import Problem


def test_a_problem_reads_as_one_line() -> None:
    problem = Problem("labels", "10", expected="integers in [0, 9]", hint="classes are counted from 0", row=3)
    assert str(problem) == "labels: expected integers in [0, 9], got 10 in row 3; classes are counted from 0"
    assert str(Problem("data", "there are no inputs")) == "data: there are no inputs"
    assert str(problem.renamed("calibration")).startswith("calibration: expected integers")


@pytest.mark.parametrize("kind", [ValueError, TypeError])
def test_a_problem_is_caught_as_a_value_or_type_error(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="labels"):
        raise Problem("labels", "text")


def test_a_problem_survives_the_way_from_a_worker_process() -> None:
    problem = Problem("labels", "10", expected="integers", hint="count from 0", row=3)
    again = pickle.loads(pickle.dumps(problem))
    assert (str(again), again.row, again.argument) == (str(problem), 3, "labels")
