"""Reading the predictions of a regression, with the scales of every method, from the store of a study."""

from __future__ import annotations

from qipf.study.run.errors import StoreError
from qipf.study.run.numbers import Numbers, numbers_of
from qipf.study.run.read import Bench, Condition


def read_numbers(bench: Bench, condition: Condition) -> tuple[Numbers, Numbers]:
    """The held-out predictions that intervals are learned from, and those of a condition.

    Args:
        bench: an opened store.
        condition: one of `bench.conditions()`.

    Raises:
        StoreError: they are not in the store.
    """
    pair = bench._pair(condition.dataset, condition.net)
    grid = pair.shifts.get(condition.shift, (condition.intensity,))
    return _numbers(bench, condition, "held-out", 0), _numbers(
        bench, condition, condition.shift, grid.index(condition.intensity)
    )


def _numbers(bench: Bench, condition: Condition, group: str, place: int) -> Numbers:
    entries = bench._places.get((*condition[:3], group), [])
    base = next((bench.store.arrays("base", e["key"]) for e in entries if e["kind"] == "base"), None)
    if base is None or "targets" not in base:
        about = "/".join(map(str, condition[:2]))
        raise StoreError(f"{bench.store.path} has no predicted numbers for {about} under {group} (yet)")
    scored = {e["method"]: bench.store.arrays("score", e["key"]) for e in entries if e["kind"] == "score"}
    return numbers_of(base, scored, place)
