"""One battery through which every scorer runs. A new scorer is one line in CASES."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import qipf.scores as scores
from qipf.models.outputs import Outputs
from qipf.scores import SCORERS, Scorer
from qipf.scores.persistence import load
from qipf.scores.probe import Probe

CASES: dict[str, Scorer] = {
    "softmax-response": scores.SoftmaxResponse(),
    "entropy": scores.Entropy(),
    "margin": scores.OneMinusMargin(),
    "max-logit": scores.MaxLogit(),
    "energy": scores.Energy(),
    "logit-margin": scores.LogitMargin(),
    "doctor": scores.Doctor(),
    "gen": scores.GEN(),
    "rel-u": scores.RelU(),
    "contrast": scores.Contrast(),
    "max-logit-p-norm": scores.MaxLogitPNorm(p=3),
    "max-logit-p-norm fallback": scores.MaxLogitPNorm(),
    "knn": scores.KNN(k=10),
    "mahalanobis": scores.Mahalanobis(),
    "last-layer-laplace": scores.LastLayerLaplace(),
    "last-layer-laplace full": scores.LastLayerLaplace(structure="full"),
    "geometric-margin": scores.GeometricMargin(),
    "sirc": scores.SIRC(),
    "sirc norm": scores.SIRC(secondary="norm"),
    "delta-knn": scores.DeltaKNN(),
    "vim": scores.ViM(),
    "class-field": scores.ClassField(),
    "class-field density": scores.ClassField(kind="density", bandwidth=0.2),
    "class-field potential": scores.ClassField(kind="potential", bandwidth=0.2),
    "class-field centred": scores.ClassField(normalise="centred-unit", priors="reference"),
    "probe": Probe(hidden=32, epochs=20),
    "probe with the network's softmax alone": Probe(share=1.0),
    "combine": scores.Combine((scores.Entropy(), scores.KNN(k=10))),
    "combine fisher": scores.Combine((scores.Entropy(), scores.ClassField(bandwidth=0.2)), rule="fisher"),
    "combine learned": scores.Combine((scores.MaxLogit(), scores.KNN(k=10)), rule="learned"),
    "weight-qipf": scores.WeightQIPF(),
    "weight-qipf exact": scores.WeightQIPF(factor=160, tolerance=None),
    "weight-qipf log-odds": scores.WeightQIPF(factor=160, coordinate="log_odds"),
    # Orders above 0 rank the wrong way round with this bound, as WeightQIPF's docstring says.
    "weight-qipf reference": scores.WeightQIPF(factor=160, lower_bound="reference", orders=(0,)),
    "weight-qipf published": scores.WeightQIPF(factor=80, operator="published"),
    "weight-qipf every weight": scores.WeightQIPF(factor=160, pool=None),
}

CLASSES, WIDTH = 4, 12
CENTRES = 4 * np.eye(CLASSES, WIDTH)
HEAD = 3 * np.eye(WIDTH, CLASSES)


def planted(seed: int, clear: int = 300, vague: int = 60) -> tuple[Outputs, np.ndarray]:
    """Clear predictions near a class centre, vague ones between two; a few of those are wrong."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, clear + vague)
    other = (labels + rng.integers(1, CLASSES, clear + vague)) % CLASSES
    is_vague = np.arange(clear + vague) >= clear
    share = np.where(is_vague, rng.uniform(0.4, 0.6, clear + vague), rng.uniform(0.95, 1.0, clear + vague))[:, None]
    features = share * CENTRES[labels] + (1 - share) * CENTRES[other]
    features = features * np.where(is_vague, 0.9, 1.0)[:, None] + 0.1 * rng.standard_normal(features.shape)
    shuffled = rng.permutation(clear + vague)
    outputs = Outputs(logits=features @ HEAD, features=features, labels=labels)
    return outputs[shuffled], is_vague[shuffled]


def network() -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return net


def in_torch(outputs: Outputs, dtype: torch.dtype = torch.float64) -> Outputs:
    return Outputs(
        logits=torch.asarray(outputs.logits, dtype=dtype),
        features=torch.asarray(outputs.features, dtype=dtype),
        labels=torch.asarray(outputs.labels),
    )


@pytest.fixture(params=CASES)
def fresh(request: pytest.FixtureRequest) -> Scorer:
    return copy.deepcopy(CASES[request.param])


@pytest.fixture(scope="module")
def _fitted_cases() -> dict[str, Scorer]:
    reference, _ = planted(0, clear=400, vague=40)
    net = network()
    return {name: copy.deepcopy(scorer).fit(net, reference) for name, scorer in CASES.items()}


@pytest.fixture(params=CASES)
def scorer(request: pytest.FixtureRequest, _fitted_cases: dict[str, Scorer]) -> Scorer:
    return _fitted_cases[request.param]


def test_every_scorer_is_in_the_battery() -> None:
    ours = {name for name, kind in SCORERS.items() if kind.__module__.startswith("qipf.")}
    ours -= {"residual-scale"}  # it reads numbers, not classes; tests/scores/test_residual_scale.py checks the same
    assert ours == {scorer.name for scorer in CASES.values()}


def test_score_before_fit_fails_clearly(fresh: Scorer) -> None:
    outputs, _ = planted(1)
    if fresh.fitted is not None:  # nothing to fit: it scores right away, and fitting changes nothing
        np.testing.assert_array_equal(fresh(outputs), copy.deepcopy(fresh).fit(network(), outputs)(outputs))
        return
    with pytest.raises(RuntimeError, match=r"not fitted.*fit\(model, outputs\)"):
        fresh(outputs)
    with pytest.raises(RuntimeError, match="not fitted"):
        fresh.save("never-written.qipf")


def test_it_can_be_fitted_again_to_something_else(fresh: Scorer) -> None:
    outputs, _ = planted(0)
    halved = Outputs(logits=outputs.logits[:, :3], features=outputs.features[:, :5], labels=outputs.labels % 3)
    again = copy.deepcopy(fresh).fit(network(), outputs).fit(network(), halved)
    np.testing.assert_array_equal(again(halved), fresh.fit(network(), halved)(halved))


def test_a_failed_fit_leaves_the_scorer_as_it_was(scorer: Scorer) -> None:
    outputs, _ = planted(1)
    before = scorer(outputs)
    with pytest.raises(ValueError, match="empty"):
        scorer.fit(network(), outputs[:0])
    np.testing.assert_array_equal(scorer(outputs), before)


def test_higher_is_less_sure(scorer: Scorer) -> None:
    outputs, vague = planted(2)
    # Vague predictions lie between two classes, inside the space that ViM looks away from.
    assert roc_auc_score(vague, scorer(outputs)) > (0.85 if scorer.name == "vim" else 0.95)


def test_invariant_to_batch_splits(scorer: Scorer) -> None:
    outputs, _ = planted(3)
    parts = [scorer(outputs[start : start + 37]) for start in range(0, len(outputs), 37)]
    np.testing.assert_allclose(np.concatenate(parts), scorer(outputs), rtol=1e-7, atol=1e-12)


def test_invariant_to_order(scorer: Scorer, rng: np.random.Generator) -> None:
    outputs, _ = planted(3)
    order = rng.permutation(len(outputs))
    np.testing.assert_allclose(scorer(outputs[order]), scorer(outputs)[order], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_bad_rows_are_named(scorer: Scorer, bad: float) -> None:
    outputs, _ = planted(3)
    logits = outputs.logits.copy()
    logits[17, 2] = bad
    logits[101, 0] = bad
    broken = Outputs(logits=logits, features=outputs.features)
    with pytest.raises(ValueError, match=r"logits.*row 17, 101"):
        scorer(broken)
    with pytest.raises(ValueError, match=r"logits.*row 17, 101"):
        copy.deepcopy(scorer).fit(network(), broken)


def test_empty_in_empty_out(scorer: Scorer) -> None:
    nothing = planted(3)[0][:0]
    assert scorer(nothing).shape == (0,)
    assert tuple(scorer(in_torch(nothing, torch.float32)).shape) == (0,)


def test_other_numbers_of_classes_are_refused(scorer: Scorer) -> None:
    outputs, _ = planted(3)
    if "columns" not in scorer.fitted.facts:
        assert isinstance(scorer, scores.confidence.Confidence)
        return
    with pytest.raises(ValueError, match="expected 4 columns"):
        scorer(Outputs(logits=outputs.logits[:, :3], features=outputs.features))


def test_bare_logits_are_enough_where_nothing_else_is_read(scorer: Scorer) -> None:
    outputs, _ = planted(3)
    if scorer.reads_features:
        with pytest.raises(ValueError, match="reads features"):
            scorer(outputs.logits)
    else:
        np.testing.assert_array_equal(scorer(outputs.logits), scorer(outputs))


@pytest.mark.parametrize(
    ("logits", "error"),
    [(np.zeros(4), ValueError), (np.zeros((2, 0)), ValueError), (np.zeros((2, 4), int), TypeError), ("x", TypeError)],
)
def test_bad_logits_are_refused(scorer: Scorer, logits, error: type[Exception]) -> None:
    with pytest.raises(error, match="logits"):
        scorer(logits)


def test_saved_and_loaded_scores_are_bit_identical(scorer: Scorer, tmp_path) -> None:
    outputs, _ = planted(4)
    scorer.save(tmp_path / "file.qipf")
    loaded = load(tmp_path / "file.qipf")
    assert type(loaded) is type(scorer)
    np.testing.assert_array_equal(loaded(outputs), scorer(outputs))
    assert torch.equal(loaded(in_torch(outputs)), scorer(in_torch(outputs)))
    loaded.save(tmp_path / "again.qipf")
    assert (tmp_path / "again.qipf").read_bytes() == (tmp_path / "file.qipf").read_bytes()


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
    tolerance = {"rtol": 1e-7, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 2e-3, "atol": 2e-3}
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


def test_no_global_random_state_is_touched(fresh: Scorer) -> None:
    net = network()
    outputs, _ = planted(5)

    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002

    before = states()
    fitted = fresh.fit(net, outputs)
    fitted(in_torch(outputs))
    assert states() == before
    assert fitted is fresh


def test_inputs_are_not_changed(scorer: Scorer) -> None:
    outputs, _ = planted(5)
    logits, features = outputs.logits.copy(), outputs.features.copy()
    scorer(outputs)
    np.testing.assert_array_equal(outputs.logits, logits)
    np.testing.assert_array_equal(outputs.features, features)


def test_safe_in_several_threads(scorer: Scorer) -> None:
    outputs = [planted(seed, clear=60, vague=20)[0] for seed in range(6)]
    mixed = [part if number % 2 else in_torch(part) for number, part in enumerate(outputs)] * 4
    serial = [np.asarray(scorer(part)) for part in mixed]
    newly_loaded = copy.deepcopy(scorer)  # nothing moved to torch yet: the threads race for it
    newly_loaded._use(scorer.fitted)
    with ThreadPoolExecutor(6) as pool:
        for got, expected in zip(pool.map(newly_loaded, mixed), serial, strict=True):
            np.testing.assert_array_equal(np.asarray(got), expected)


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
    with pytest.raises(ValueError, match="scale them down"):
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
