"""Settings of the wrong type are named in one line."""

from __future__ import annotations

import pytest

from qipf.decisions.decision import Decision
from qipf.decisions.intervals import Intervals
from qipf.decisions.monitor import Monitor
from qipf.decisions.sets import PredictionSets

WRONG = {
    "confidence": lambda: Decision("error<=0.01", confidence="95"),  # type: ignore[arg-type]
    "seed": lambda: Decision("error<=0.01", seed=1.5),  # type: ignore[arg-type]
    "coverage": lambda: PredictionSets("90 %"),  # type: ignore[arg-type]
    "free": lambda: PredictionSets(free=None),  # type: ignore[arg-type]
    "per_class": lambda: PredictionSets(per_class="yes"),  # type: ignore[arg-type]
    "joint": lambda: Intervals(joint=1),  # type: ignore[arg-type]
    "penalty": lambda: PredictionSets(penalty="none"),  # type: ignore[arg-type]
    "false_alarm": lambda: Monitor(false_alarm=None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_the_setting_is_named(name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name}: expected"):
        WRONG[name]()


@pytest.mark.parametrize("value", [0, 1, -0.1, 2, float("nan")])
def test_a_probability_lies_between_0_and_1(value: float) -> None:
    for make in (Intervals, PredictionSets, lambda p: Monitor(false_alarm=p), lambda p: Decision(confidence=p)):
        with pytest.raises(ValueError, match="between 0 and 1"):
            make(value)
