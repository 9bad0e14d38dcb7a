"""The battery, continued: numbers that are huge, tiny, of another library or of another precision."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scorer_cases import CASES, in_torch, network, planted

from qipf.scores import SCORERS, Scorer
from qipf.tasks.outputs import Outputs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_in_numpy_out(scorer: Scorer, dtype: type) -> None:
    outputs, _ = planted(4)
    cast = Outputs(logits=outputs.logits.astype(dtype), features=outputs.features.astype(dtype))
    result = scorer(cast)
    assert type(result) is np.ndarray
    assert result.dtype == dtype
    assert result.shape == (len(outputs),)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_torch_out_with_the_same_scores(scorer: Scorer, dtype: torch.dtype) -> None:
    outputs, _ = planted(4)
    given = in_torch(outputs, dtype)
    result = scorer(given)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == dtype
    assert result.device == given.logits.device
    tolerance = {"rtol": 1e-7, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 4e-4}
    np.testing.assert_allclose(result.numpy(), scorer(outputs), **tolerance)


@pytest.mark.gpu
def test_torch_on_a_gpu_stays_there(scorer: Scorer) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    outputs = in_torch(planted(4)[0])
    result = scorer(outputs.to("cuda"))
    assert result.device.type == "cuda"
    np.testing.assert_allclose(result.cpu().numpy(), scorer(outputs).numpy(), rtol=1e-7, atol=1e-10)


def test_fitting_to_torch_outputs_is_the_same(fresh: Scorer) -> None:
    outputs, _ = planted(0)
    here, there = copy.deepcopy(fresh).fit(network(), outputs), fresh.fit(network(), in_torch(outputs))
    np.testing.assert_allclose(there(outputs), here(outputs), rtol=1e-9)


def test_as_a_module_it_gives_the_same_scores(scorer: Scorer) -> None:
    from qipf.deploy.wrapper import ScorerModule

    outputs = in_torch(planted(6)[0])
    np.testing.assert_allclose(ScorerModule(scorer)(outputs).numpy(), scorer(outputs).numpy(), rtol=1e-12)


def refuses(call: Callable[[], object], name: str) -> bool:
    """Whether the call raises a ValueError that names the scorer; any other error is the test's."""
    try:
        call()
    except ValueError as error:
        if name not in str(error):
            raise
        return True
    return False


@pytest.mark.parametrize(("dtype", "factor"), [(np.float32, 1e30), (np.float64, 1e30), (np.float64, 1e200)])
@pytest.mark.parametrize("scorer", [name for name, scorer in CASES.items() if scorer.reads_features], indirect=True)
def test_huge_features_give_finite_scores(scorer: Scorer, dtype: type, factor: float) -> None:
    outputs, _ = planted(7, clear=40, vague=10)
    huge = np.where(np.arange(50)[:, None] % 2 == 0, factor, 1.0)  # every second row
    for features in (outputs.features * huge, -outputs.features * huge):
        given = Outputs(outputs.logits.astype(dtype), features.astype(dtype))
        scores = scorer(given)
        assert np.isfinite(scores).all()
        np.testing.assert_allclose(scores[1::2], scorer(given[1::2]), rtol=1e-5, atol=1e-5)  # the others are not hurt


@pytest.mark.parametrize("factor", [1e-30, 1e30, 1e200])
@pytest.mark.parametrize("fresh", [name for name, scorer in CASES.items() if scorer.reads_features], indirect=True)
def test_huge_and_tiny_references_give_finite_scores_or_an_error(fresh: Scorer, factor: float) -> None:
    outputs, _ = planted(7)
    scaled = Outputs(outputs.logits, outputs.features * factor, outputs.labels)
    if refuses(lambda: fresh.fit(network(), scaled), fresh.name):
        return
    assert np.isfinite(fresh(scaled)).all()


@pytest.mark.parametrize("name", ["last-layer-laplace", "mahalanobis", "sirc", "vim"])
def test_references_are_not_larger_than_what_scoring_can_square(name: str) -> None:
    """Scoring cuts larger features off, which left scores of 1e15 in single precision without any order."""
    outputs, _ = planted(7)
    huge = Outputs(outputs.logits, (outputs.features * 1e15).astype(np.float32), outputs.labels)
    with pytest.raises(ValueError, match="scale"):
        SCORERS[name]().fit(network(), huge)


def test_huge_logits_give_finite_scores_or_an_error(scorer: Scorer) -> None:
    outputs, _ = planted(7, clear=40, vague=10)
    for dtype, factor in ((np.float32, 1e30), (np.float64, 1e300)):
        given = Outputs((outputs.logits * factor).astype(dtype), outputs.features.astype(dtype))
        if not refuses(lambda given=given: scorer(given), scorer.name):
            assert np.isfinite(scorer(given)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_outputs_are_scored_in_single(scorer: Scorer, dtype: torch.dtype) -> None:
    outputs = in_torch(planted(8, clear=60, vague=20)[0], dtype)
    scores = scorer(outputs)
    assert scores.dtype == dtype
    single = Outputs(outputs.logits.float(), outputs.features.float())
    np.testing.assert_array_equal(scores.float().numpy(), scorer(single).to(dtype).float().numpy())
    far = Outputs(outputs.logits, 100 * outputs.features)
    assert torch.isfinite(scorer(far)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_does_not_reach_into_a_scorer(scorer: Scorer, dtype: torch.dtype) -> None:
    outputs = in_torch(planted(8, clear=60, vague=20)[0], torch.float32)
    plain = scorer(outputs)
    with torch.autocast("cpu", dtype=dtype):
        assert torch.equal(scorer(outputs), plain)
