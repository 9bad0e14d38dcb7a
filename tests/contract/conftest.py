"""Every scorer of the battery in turn: fresh, and fitted."""

from __future__ import annotations

import copy

import pytest
from scorer_cases import CASES, network, planted

from qipf.scores import Scorer


@pytest.fixture(params=CASES)
def fresh(request: pytest.FixtureRequest) -> Scorer:
    return copy.deepcopy(CASES[request.param])


@pytest.fixture(scope="session")
def _fitted_cases() -> dict[str, Scorer]:
    reference, _ = planted(0, clear=400, vague=40)
    net = network()
    return {name: copy.deepcopy(scorer).fit(net, reference) for name, scorer in CASES.items()}


@pytest.fixture(params=CASES)
def scorer(request: pytest.FixtureRequest, _fitted_cases: dict[str, Scorer]) -> Scorer:
    return _fitted_cases[request.param]
