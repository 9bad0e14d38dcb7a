"""Class fields and their kernel sums against plain sums over all pairs, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp

from qipf.fields import Field
from qipf.scores import ClassField, class_field
from qipf.scores.class_field import ABSENT, BANDWIDTHS, LARGEST, Packed, choose_bandwidth, log_fields, pack, reservoir
from qipf.tasks.outputs import Outputs

CLASSES, WIDTH = 3, 8


def blobs(seed: int, count: int = 300, spread: float = 0.7, classes: int = CLASSES) -> Outputs:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    features = np.eye(classes, WIDTH)[labels] * 2 + spread * rng.standard_normal((count, WIDTH)) + 0.5
    return Outputs(features[:, :classes] * 2, features, labels, {"low": features[:, ::-1] ** 2 + 0.1})


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def plain_log_fields(y: np.ndarray, samples: np.ndarray, labels: np.ndarray, s: float) -> np.ndarray:
    """log psi_c, the mean over the class, by differences."""
    return plain_fields(y / s, samples / s, labels, CLASSES) - np.log(np.bincount(labels, minlength=CLASSES))


def plain_contrast(log_posterior: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    own = log_posterior[np.arange(len(predicted)), predicted]
    others = np.array([logsumexp(np.delete(row, c)) for row, c in zip(log_posterior, predicted, strict=True)])
    return others - own


@pytest.mark.parametrize("normalise", ["unit", "centred-unit", "none"])
def test_contrast_is_the_log_ratio_of_the_class_fields(normalise: str) -> None:
    reference, query = blobs(0), blobs(1, 40)
    centre = 0 if normalise == "unit" else reference.features.mean(0)
    samples, y = reference.features - centre, query.features - centre
    if normalise != "none":
        samples, y = unit(samples), unit(y)
    fields = plain_log_fields(y, samples, reference.labels, 0.3)
    found = ClassField(bandwidth=0.3, normalise=normalise).fit(data=reference)(query)
    np.testing.assert_allclose(found, plain_contrast(fields, query.predicted), atol=1e-4)


def test_priors_of_the_reference_shift_every_class_by_its_share() -> None:
    reference, query = blobs(0)[:250], blobs(1, 40)
    fields = plain_log_fields(unit(query.features), unit(reference.features), reference.labels, 0.3)
    shares = np.log(np.bincount(reference.labels) / len(reference))
    found = ClassField(bandwidth=0.3, priors="reference").fit(data=reference)(query)
    np.testing.assert_allclose(found, plain_contrast(fields + shares, query.predicted), atol=1e-4)


def test_the_posterior_is_the_normalised_class_fields_of_a_layer() -> None:
    reference, query = blobs(0), blobs(1, 40)
    fields = plain_log_fields(unit(query.layers["low"]), unit(reference.layers["low"]), reference.labels, 0.3)
    scorer = ClassField(bandwidth=0.3, space="low").fit(data=reference)
    posterior = scorer.posterior(query)
    np.testing.assert_allclose(posterior, np.exp(log_softmax(fields, axis=1)), atol=1e-4)
    np.testing.assert_allclose(posterior.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(scorer(query), plain_contrast(fields, query.predicted), atol=1e-4)


def test_densities() -> None:
    reference, query = blobs(0), blobs(1, 40)
    fields = plain_log_fields(unit(query.features), unit(reference.features), reference.labels, 0.3) - np.log(3)
    density = ClassField(kind="density", bandwidth=0.3).fit(data=reference)(query)
    own = ClassField(kind="own-density", bandwidth=0.3).fit(data=reference)(query)
    np.testing.assert_allclose(density, -logsumexp(fields, axis=1), atol=1e-4)
    np.testing.assert_allclose(own, -fields[np.arange(40), query.predicted], atol=1e-4)


def test_potential_and_modes_are_those_of_the_whole_field() -> None:
    from qipf.fields.field import Field
    from qipf.fields.potential import potentials, uncertainty_modes

    reference, query = blobs(0), blobs(1, 40)
    field = Field(unit(reference.features), 0.5)
    y = unit(query.features)
    found = ClassField(kind="potential", bandwidth=0.5).fit(data=reference)(query)
    np.testing.assert_allclose(found, potentials(field, y, (0,))[:, 0], rtol=1e-4, atol=1e-5)
    found = ClassField(kind="modes", bandwidth=0.5).fit(data=reference)(query)
    np.testing.assert_allclose(found, uncertainty_modes(field, y, radius=0.1).mean(axis=1), rtol=1e-3, atol=1e-4)


def test_the_chosen_bandwidth_is_the_likeliest_of_the_candidates() -> None:
    reference = blobs(0, 2000)
    samples = unit(reference.features).astype(np.float32)
    fresh = blobs(7, 1000)

    def loss(s: float) -> float:
        fields = plain_log_fields(unit(fresh.features), samples.astype(float), reference.labels, s)
        return -log_softmax(fields, axis=1)[np.arange(1000), fresh.labels].mean()

    chosen = choose_bandwidth(samples, reference.labels, CLASSES)
    losses = {s: loss(s) for s in BANDWIDTHS}
    assert losses[min(BANDWIDTHS, key=lambda s: abs(s - chosen))] < min(losses.values()) + 0.01
    assert losses[BANDWIDTHS[0]] > min(losses.values()) + 0.05  # the data does tell candidates apart


def test_fitting_to_a_stream_is_fitting_to_a_sample_of_it() -> None:
    reference, query = blobs(0, 900), blobs(1, 40)
    batches = [reference[start : start + 70] for start in range(0, 900, 70)]
    whole = ClassField(bandwidth=0.3).fit(data=reference)
    np.testing.assert_allclose(
        ClassField(bandwidth=0.3).fit_batches(batches, references=2000)(query), whole(query), atol=1e-5
    )
    kept = reservoir(iter(batches), 100, seed=1)
    assert len(kept) == 100
    found = {row.tobytes() for row in kept.features}
    assert len(found) == 100
    assert found <= {row.tobytes() for row in reference.features}


def test_every_row_of_a_stream_is_as_likely_to_be_kept() -> None:
    rows = np.arange(60.0)[:, None]
    batches = [Outputs(rows[start : start + 7]) for start in range(0, 60, 7)]
    counts = np.zeros(60)
    for seed in range(2000):
        counts[reservoir(batches, 12, seed).logits[:, 0].astype(int)] += 1
    # binomial with p = 1/5: standard deviation 18 of 400; five of them over 60 rows is one chance in 30,000
    assert np.abs(counts - 400).max() < 90


def test_a_class_without_references_is_never_trusted() -> None:
    reference, query = blobs(0), blobs(1, 200)
    seen = reference[reference.labels != 2]
    u = ClassField(bandwidth=0.3).fit(data=seen)(query)
    assert u[query.predicted == 2].min() > u[query.predicted != 2].max()
    assert (u[query.predicted == 2] == LARGEST).all()


@pytest.mark.parametrize("kind", ["contrast", "own-density"])
@pytest.mark.parametrize("present", [0, 2])
def test_scores_are_finite_also_in_half_precision(kind: str, present: int) -> None:
    reference, query = blobs(0), blobs(1, 200)
    scorer = ClassField(kind=kind, bandwidth=0.3).fit(data=reference[reference.labels == present])
    half = Outputs(query.logits.astype(np.float16), query.features.astype(np.float16))
    u = scorer(half)
    assert u.dtype == np.float16
    assert np.isfinite(u).all()
    unknown = query.predicted != present
    np.testing.assert_array_equal(u[unknown], np.float16(0.9 * 65504))
    assert u[~unknown].max() < u[unknown].min()


def test_features_are_needed_only_where_they_are_the_space() -> None:
    reference, query = blobs(0), blobs(1, 40)
    whole = ClassField(space="low", bandwidth=0.3).fit(data=reference)
    assert not whole.reads_features
    assert whole.layers == ("low",)
    assert ClassField().reads_features
    assert ClassField().layers == ()
    bare = Outputs(reference.logits, None, reference.labels, reference.layers)
    found = ClassField(space="low", bandwidth=0.3).fit(data=bare)(Outputs(query.logits, layers=query.layers))
    np.testing.assert_array_equal(found, whole(query))


def test_a_binary_model_with_one_logit() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    features = np.stack([2.0 * labels - 1, np.ones(400)], axis=1) + 0.4 * rng.standard_normal((400, 2))
    outputs = Outputs(3 * features[:, :1], features, labels)
    two = Outputs(np.concatenate([-1.5 * features[:, :1], 1.5 * features[:, :1]], axis=1), features, labels)
    one_logit = ClassField(bandwidth=0.2).fit(data=outputs)(outputs)
    np.testing.assert_allclose(one_logit, ClassField(bandwidth=0.2).fit(data=two)(two), rtol=1e-6)


def test_bad_outputs_are_refused() -> None:
    reference = blobs(0)
    with pytest.raises(ValueError, match="reference"):
        ClassField().fit(data=Outputs(reference.logits, reference.features))
    one_logit = Outputs(reference.logits[:, :1], reference.features, reference.labels)
    with pytest.raises(ValueError, match="labels"):
        ClassField().fit(data=one_logit)
    with pytest.raises(ValueError, match="centred"):
        ClassField().fit(data=Outputs(reference.logits, reference.features + 1e4, reference.labels))
    with pytest.raises(ValueError, match="block"):
        ClassField(space="block").fit(data=reference)
    fitted = ClassField(bandwidth=0.3).fit(data=reference)
    with pytest.raises(ValueError, match="features"):
        fitted(Outputs(reference.logits, reference.features[:, :5]))
    fitted = ClassField(space="low", bandwidth=0.3).fit(data=reference)
    with pytest.raises(ValueError, match="columns"):
        fitted(Outputs(reference.logits, layers={"low": reference.layers["low"][:, :5]}))


def exponents(y: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """-|y - w|^2 / 2 by differences, in float64."""
    return -0.5 * ((y[:, None, :].astype(np.float64) - samples[None, :, :]) ** 2).sum(axis=2)


def plain_fields(y: np.ndarray, samples: np.ndarray, labels: np.ndarray, classes: int, weights=None) -> np.ndarray:
    weights = np.ones(len(samples)) if weights is None else weights
    each = exponents(y, samples)
    return np.stack([logsumexp(each[:, labels == c], b=weights[labels == c], axis=1) for c in range(classes)], axis=1)


def in_torch(packed: Packed) -> Packed:
    keys, squares, weights = (torch.from_numpy(part) for part in packed[:3])
    return packed._replace(keys=keys, squares=squares, weights=weights)


@pytest.fixture
def cloud(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    samples = rng.standard_normal((700, 40))
    labels = rng.choice(5, 700, p=[0.5, 0.3, 0.1, 0.09, 0.01])  # far from even
    return rng.standard_normal((600, 40)), samples, labels


def test_the_sum_of_a_class_is_the_field_of_its_samples(cloud) -> None:
    """`qipf.fields.Field` is the place of the formula: a mean instead of a sum, which is log n less."""
    y, samples, labels = cloud
    found = log_fields(y, pack(samples, labels, 5), bandwidth=1.7)
    for c in range(5):
        own = samples[labels == c]
        np.testing.assert_allclose(found[:, c], Field(own, 1.7).log(y) + np.log(len(own)), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(0, 70), min_size=1, max_size=6).filter(lambda counts: sum(counts) > 0),
    dimension=st.integers(1, 12),
    seed=st.integers(0, 999),
)
def test_log_fields_for_any_sizes_of_classes(counts: list[int], dimension: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    samples, y = rng.standard_normal((len(labels), dimension)), rng.standard_normal((9, dimension))
    weights = rng.uniform(0.1, 3, len(labels))
    found = log_fields(y, pack(samples, labels, len(counts), weights))
    present = [c for c, count in enumerate(counts) if count]
    relabelled = np.searchsorted(present, labels)
    expected = plain_fields(y, samples, relabelled, len(present), weights)
    np.testing.assert_allclose(found[:, present], expected, rtol=1e-10, atol=1e-10)
    absent = [c for c, count in enumerate(counts) if not count]
    assert (found[:, absent] < ABSENT / 2).all()


def test_more_rows_and_columns_than_a_tile_holds(rng: np.random.Generator) -> None:
    samples, y = rng.standard_normal((5000, 6)), rng.standard_normal((1100, 6))
    labels = rng.integers(0, 3, 5000)
    found = log_fields(y, pack(samples, labels, 3))
    rows = [0, 511, 512, 1099]
    np.testing.assert_allclose(found[rows], plain_fields(y[rows], samples, labels, 3), rtol=1e-10)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_float32_is_as_good_as_float64(cloud, library: str) -> None:
    y, samples, labels = cloud
    y, samples = y.astype(np.float32), samples.astype(np.float32)
    packed = pack(samples, labels, 5)
    found = log_fields(y, packed) if library == "numpy" else log_fields(torch.from_numpy(y), in_torch(packed)).numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, plain_fields(y, samples, labels, 5), atol=5e-5)


def test_far_queries_stay_finite_and_exact(cloud) -> None:
    y, samples, labels = cloud
    far = 30 * y
    np.testing.assert_allclose(
        log_fields(far, pack(samples, labels, 5)), plain_fields(far, samples, labels, 5), rtol=1e-10
    )
    single = log_fields(far.astype(np.float32), pack(samples.astype(np.float32), labels, 5))
    np.testing.assert_allclose(single, plain_fields(far, samples, labels, 5), rtol=1e-5)


def test_a_traced_batch_gives_the_same(cloud) -> None:
    y, samples, labels = cloud
    packed = in_torch(pack(samples, labels, 5))
    one_by_one = torch.func.vmap(lambda row: log_fields(row[None, :], packed)[0])(torch.from_numpy(y[:20]))
    np.testing.assert_allclose(one_by_one.numpy(), log_fields(y[:20], pack(samples, labels, 5)), rtol=1e-12)


def test_gradients_flow_to_the_queries(cloud) -> None:
    y, samples, labels = cloud
    packed = in_torch(pack(samples, labels, 5))
    query = torch.from_numpy(y[:3]).requires_grad_()
    log_fields(query, packed).sum().backward()
    step = 1e-6 * np.eye(40)[7]
    slope = [
        (plain_fields(row[None] + step, samples, labels, 5) - plain_fields(row[None] - step, samples, labels, 5)).sum()
        / 2e-6
        for row in y[:3]
    ]
    np.testing.assert_allclose(query.grad.numpy()[:, 7], slope, rtol=1e-4)


@pytest.mark.gpu
def test_on_a_gpu_float32_is_as_good(cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(class_field, "_GPU_TILE", 2**11)  # several tiles: sums are carried from one to the next
    y, samples, labels = cloud
    packed = pack(samples.astype(np.float32), labels, 5)
    keys, squares, weights = (torch.from_numpy(part).cuda() for part in packed[:3])
    there = packed._replace(keys=keys, squares=squares, weights=weights)
    found = log_fields(torch.from_numpy(y.astype(np.float32)).cuda(), there).cpu().numpy()
    np.testing.assert_allclose(found, plain_fields(y, samples, labels, 5), atol=2e-4)
