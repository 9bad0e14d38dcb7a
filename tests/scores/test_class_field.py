"""Class fields against plain sums over all pairs, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from qipf.scores import ClassField
from qipf.scores.class_field import BANDWIDTHS, LARGEST, choose_bandwidth, reservoir
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
    half = ((y[:, None] - samples[None]) ** 2).sum(2) / (2 * s * s)
    return np.stack(
        [logsumexp(-half[:, labels == c], axis=1) - np.log((labels == c).sum()) for c in range(CLASSES)], axis=1
    )


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bandwidth": 0}, "bandwidth"),
        ({"kind": "other"}, "kind: expected one of contrast"),
        ({"normalise": "l2"}, "normalise: expected one of unit"),
        ({"priors": "equal"}, "priors: expected one of uniform"),
        ({"kind": "potential", "priors": "reference"}, 'leave out priors="reference"'),
        ({"kind": "modes", "priors": "reference"}, 'leave out priors="reference"'),
    ],
)
def test_bad_settings_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassField(**arguments)


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
