"""The paper's method against the golden file, automatic differentiation and closed forms; the factor it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial import hermite
from scipy.special import logsumexp, softmax

from qipf.fields.bandwidth import silverman
from qipf.scores import WeightQIPF
from qipf.tasks.outputs import Outputs

UNITS = Outputs(
    np.array([[-1.0], [1.0]]), labels=np.array([-1.0, 2.0])
)  # mean 0, standard deviation 1: a logit is its own standard score


def modes_by_differentiation(samples, bandwidth, y, orders, radius) -> np.ndarray:
    """V_k(y) - min V_k({y - r, y, y + r}) with Laplacians from torch's autograd."""
    samples = torch.asarray(samples)

    def potential(points: np.ndarray, order: int) -> np.ndarray:
        u = torch.asarray(points).requires_grad_()
        psi = torch.exp(-((u[:, None] - samples) ** 2) / (2 * bandwidth**2)).mean(dim=1)
        coefficients = hermite.herm2poly([0] * order + [1])
        value = sum(c * psi.sqrt() ** power for power, c in enumerate(coefficients))
        (first,) = torch.autograd.grad(value.sum(), u, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), u)
        return (bandwidth**2 / 2 * second / value).detach().numpy()

    columns = []
    for order in orders:
        three = np.stack([potential(y + step, order) for step in (-radius, 0.0, radius)])
        columns.append(three[1] - three.min(axis=0))
    return np.stack(columns, axis=1)


def test_published_operator_gives_the_authors_modes(golden) -> None:
    file = np.load(golden / "author-mnist-lenet.npz")
    scorer = WeightQIPF(factor=80, operator="published", pool=None).fit([file["pooled"][None]], UNITS)
    assert scorer.fitted.facts["bandwidth"] == pytest.approx(float(file["sigma"]), rel=1e-6)
    y = file["y"][:, None]
    np.testing.assert_allclose(scorer.modes(y), file["modes_order12"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(scorer(y), file["modes_order12"].mean(axis=1), rtol=1e-4, atol=1e-4)
    two = WeightQIPF(orders=(2, 4), factor=80, operator="published", pool=None).fit([file["pooled"][None]], UNITS)
    np.testing.assert_allclose(two.modes(y), file["modes_order8"], rtol=1e-4, atol=1e-4)


def test_exact_operator_agrees_with_automatic_differentiation() -> None:
    scorer = WeightQIPF(orders=(2, 4, 6), factor=30, pool=None, radius=0.3, tolerance=None).fit(weights(), UNITS)
    raw = weights()[0].ravel()
    samples = (raw - raw.mean()) / raw.std()
    y = np.linspace(-3, 3, 41)
    expected = modes_by_differentiation(samples, 30 * silverman(samples), y, (2, 4, 6), 0.3)
    np.testing.assert_allclose(scorer.modes(y[:, None]), expected, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(scorer(y[:, None]), expected.mean(axis=1), rtol=1e-7, atol=1e-10)


def test_the_fast_field_is_the_exact_one() -> None:
    exact = WeightQIPF(factor=160, pool=None, tolerance=None).fit(weights(), UNITS)
    fast = WeightQIPF(factor=160, pool=None).fit(weights(), UNITS)
    pooled = WeightQIPF(factor=160, pool=1000).fit(weights(), UNITS)  # fewer weights than that: all are kept
    y = np.linspace(-8, 8, 301)[:, None]
    np.testing.assert_allclose(fast.modes(y), exact.modes(y), rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(pooled.modes(y), exact.modes(y), rtol=1e-6, atol=1e-10)
    assert fast.fitted.facts["samples"] == pooled.fitted.facts["samples"] == 200


@pytest.mark.parametrize("lower_bound", ["neighbourhood", "reference"])
def test_predictions_enter_in_standard_units_of_the_reference(lower_bound, rng) -> None:
    logits = rng.standard_normal((50, 6))
    scorer = WeightQIPF(factor=40, lower_bound=lower_bound).fit(weights(), Outputs(logits=logits))
    shifted = WeightQIPF(factor=40, lower_bound=lower_bound).fit(weights(), Outputs(logits=5 * logits - 70))
    np.testing.assert_allclose(shifted.modes(5 * logits - 70), scorer.modes(logits), rtol=1e-6, atol=1e-9)
    scaled = WeightQIPF(factor=40, lower_bound=lower_bound).fit([7 * weights()[0] + 3], Outputs(logits=logits))
    np.testing.assert_allclose(scaled.modes(logits), scorer.modes(logits), rtol=1e-6, atol=1e-9)


def test_reference_bound_is_the_minimum_over_all_reference_outputs(rng) -> None:
    import qipf.fields.potential as potential

    logits = rng.standard_normal((60, 3))
    scorer = WeightQIPF(factor=40, lower_bound="reference", tolerance=None).fit(weights(), Outputs(logits=logits))
    top = logits.max(axis=1)
    y = (top - top.mean()) / top.std()
    raw = potential.potentials(scorer.field, y, (2, 4, 6, 8))
    np.testing.assert_allclose(scorer.modes(logits), raw - raw.min(axis=0), rtol=1e-9, atol=1e-12)


def test_coordinates_against_closed_forms(rng) -> None:
    logits = 4 * rng.standard_normal((40, 5))
    p = softmax(logits, axis=1).max(axis=1)
    by_hand = {
        "max_logit": logits.max(axis=1),
        "log_odds": np.log(p) - np.log1p(-p),
        "callable": logsumexp(logits, axis=1),
    }
    for kind, values in by_hand.items():
        chosen = (lambda z: logsumexp(z, axis=1)) if kind == "callable" else kind
        scorer = WeightQIPF(factor=50, coordinate=chosen).fit(weights(), Outputs(logits=logits))
        same = WeightQIPF(factor=50).fit(weights(), Outputs(values[:, None], labels=values))  # regression: the output
        np.testing.assert_allclose(scorer.modes(logits), same.modes(values[:, None]), rtol=1e-6, atol=1e-9)


def test_binary_one_logit_is_the_two_class_model(rng) -> None:
    z = 3 * rng.standard_normal((80, 1))
    labels = rng.integers(0, 2, 80)
    for kind in ("max_logit", "log_odds"):
        one = WeightQIPF(factor=60, coordinate=kind).fit(weights(), Outputs(logits=z, labels=labels))
        two_logits = np.concatenate([-z / 2, z / 2], axis=1)
        two = WeightQIPF(factor=60, coordinate=kind).fit(weights(), Outputs(logits=two_logits, labels=labels))
        np.testing.assert_allclose(one(z), two(two_logits), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(one(-z), one(z), rtol=1e-12)
    assert one.fitted.facts["output"] == "binary"


def test_band_is_three_standard_deviations_of_the_modes(rng) -> None:
    outputs = Outputs(logits=10 + 2 * rng.standard_normal((100, 1)), labels=rng.standard_normal(100))
    scorer = WeightQIPF(factor=20).fit(weights(), outputs)
    lower, upper = scorer.band(outputs)
    np.testing.assert_allclose((lower + upper) / 2, outputs.logits[:, 0], rtol=1e-12)
    expected = 3 * scorer.modes(outputs).std(axis=1) * outputs.logits.std()
    np.testing.assert_allclose((upper - lower) / 2, expected, rtol=1e-6, atol=1e-10)
    narrow = scorer.band(outputs, width=1)
    np.testing.assert_allclose(narrow[1] - narrow[0], (upper - lower) / 3, rtol=1e-6, atol=1e-10)
    classes = WeightQIPF(factor=20).fit(weights(), Outputs(logits=rng.standard_normal((9, 3))))
    with pytest.raises(ValueError, match="regression"):
        classes.band(rng.standard_normal((9, 3)))


def test_explicit_blocks_pool_the_kernels(rng) -> None:
    kernel = rng.standard_normal((6, 8))
    blocks = kernel.reshape(3, 2, 2, 4).mean(axis=(1, 3))
    pooled = WeightQIPF(factor=50, pool=[(2, 4)]).fit([kernel], UNITS)
    every = WeightQIPF(factor=50, pool=None).fit([blocks], UNITS)
    y = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(pooled(y), every(y), rtol=1e-6, atol=1e-10)
    assert pooled.fitted.facts["samples"] == 6


def test_single_precision_logits_are_scored_accurately_in_single_precision(rng) -> None:
    logits = rng.standard_normal((100, 5)).astype(np.float32)
    scorer = WeightQIPF(factor=160).fit(weights(), Outputs(logits=logits))
    single, double = scorer(logits), scorer(logits.astype(np.float64))
    near_zero = 1e-3 * np.median(double)  # where the modes nearly vanish, the last digit of a logit matters
    np.testing.assert_allclose(single, double, rtol=2e-6, atol=2e-4 * near_zero)
    np.testing.assert_array_equal(scorer(torch.asarray(logits)).numpy(), single)


def test_bad_fits_are_refused(rng) -> None:
    with pytest.raises(ValueError, match="model"):
        WeightQIPF().fit(data=UNITS)
    with pytest.raises(ValueError, match="outputs"):
        WeightQIPF().fit(weights())
    with pytest.raises(ValueError, match="same"):
        WeightQIPF().fit(weights(), Outputs(logits=np.ones((5, 2))))
    with pytest.raises(ValueError, match="standard deviation"):
        WeightQIPF().fit([np.ones((4, 4))], UNITS)
    with pytest.raises(ValueError, match="number"):
        WeightQIPF(coordinate=lambda z: z).fit(weights(), Outputs(logits=rng.standard_normal((5, 2))))


def weights(seed: int = 0, count: int = 200) -> list[np.ndarray]:
    return [np.random.default_rng(seed).standard_normal((count // 4, 4))]


def test_cross_validation_takes_the_factor_that_finds_errors_best(rng) -> None:
    from sklearn.metrics import roc_auc_score

    from qipf.fields.bandwidth import FACTORS

    logits = rng.gamma(4.0, 1.5, (600, 1)) * np.eye(3)[rng.integers(0, 3, 600)]
    right = rng.random(600) < 1 - np.exp(-logits.max(axis=1) / 3)
    labels = np.where(right, logits.argmax(axis=1), (logits.argmax(axis=1) + 1) % 3)
    outputs = Outputs(logits=logits, labels=labels)
    scorer = WeightQIPF().fit(weights(), outputs)
    assert scorer.note == ""
    chosen = scorer.fitted.facts["factor"]
    areas = {
        factor: roc_auc_score(~right, WeightQIPF(factor=factor).fit(weights(), outputs)(outputs)) for factor in FACTORS
    }
    assert areas[chosen] > max(areas.values()) - 0.02  # the mean over folds is not quite the whole
    assert max(areas.values()) - min(areas.values()) > 0.05  # and the choice matters


def labelled(rng: np.random.Generator, count: int = 200) -> Outputs:
    logits = rng.standard_normal((count, 3))
    labels = np.where(rng.random(count) < 0.2, (logits.argmax(axis=1) + 1) % 3, logits.argmax(axis=1))
    return Outputs(logits=logits, labels=labels)


def test_a_score_without_a_table_is_evaluated_exactly(rng, monkeypatch) -> None:
    outputs = labelled(rng)
    exact = WeightQIPF(factor="cv", pool=40, tolerance=None).fit(weights(), outputs)
    monkeypatch.setattr("qipf.fields.mode_table.PIECES", 2)
    scorer = WeightQIPF(factor="cv", pool=40).fit(weights(), outputs)
    assert scorer.fitted.facts["factor"] == exact.fitted.facts["factor"]
    assert "evaluated exactly" in scorer.note
    np.testing.assert_array_equal(scorer(outputs), exact(outputs))


def test_factors_too_narrow_for_a_sketch_are_left_out(rng, monkeypatch) -> None:
    from qipf.fields.bandwidth import FACTORS, cross_validated_factor
    from qipf.fields.sketch import FieldSketch, TooNarrowError

    outputs, model = labelled(rng), weights()
    middle = sorted(FACTORS)[len(FACTORS) // 2]
    kept = [factor for factor in FACTORS if factor >= middle]

    def score(factor: float) -> np.ndarray:
        return WeightQIPF(factor=factor, pool=None, tolerance=None).fit(model, outputs)(outputs)

    expected = cross_validated_factor(score, ~outputs.correct, kept).factor
    finish = FieldSketch.finish

    def checked(self, *args, factor: float, **kwargs):
        if factor < middle:
            raise TooNarrowError("too narrow")
        return finish(self, *args, factor=factor, **kwargs)

    monkeypatch.setattr(FieldSketch, "finish", checked)
    scorer = WeightQIPF(factor="cv", pool=None).fit(model, outputs)
    assert scorer.fitted.facts["factor"] == expected
    assert f"{min(FACTORS):g}" in scorer.note
    assert "left out" in scorer.note


def test_without_labels_factor_160_is_taken_and_said(rng) -> None:
    for outputs in (
        Outputs(logits=rng.standard_normal((30, 4))),
        Outputs(logits=rng.standard_normal((30, 1)), labels=rng.standard_normal(30)),
    ):
        scorer = WeightQIPF().fit(weights(), outputs)
        assert scorer.fitted.facts["factor"] == 160
        assert "160" in scorer.note
        fixed = WeightQIPF(factor=160).fit(weights(), outputs)
        assert fixed.note == ""
        np.testing.assert_array_equal(scorer(outputs), fixed(outputs))


def test_cross_validation_without_errors_says_what_to_do(rng) -> None:
    logits = rng.standard_normal((50, 3))
    with pytest.raises(ValueError, match="factor"):
        WeightQIPF(factor="cv").fit(weights(), Outputs(logits=logits, labels=logits.argmax(axis=1)))
    automatic = WeightQIPF().fit(weights(), Outputs(logits=logits, labels=logits.argmax(axis=1)))
    assert automatic.fitted.facts["factor"] == 160
    assert "got 0 of 50" in automatic.note


@pytest.mark.parametrize("option", ["pool", "lower_bound"])
def test_unknown_names_are_refused_by_the_constructor(option) -> None:
    with pytest.raises(ValueError, match=option):
        WeightQIPF(**{option: "other"})
