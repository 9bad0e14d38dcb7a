"""A compiled field against the exact one: same numbers, everywhere, whatever the bandwidth."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from libraries import LIBRARIES
from qipf.fields.bandwidth import silverman
from qipf.fields.compiled import CompiledField
from qipf.fields.field import Field
from qipf.fields.potential import potentials, uncertainty_modes

ORDERS = (0, 1, 2, 4, 6, 8)


def samples(kind: str) -> np.ndarray:
    generator = np.random.default_rng(3)
    values = {
        "normal": lambda: generator.standard_normal(1500),
        "heavy tails": lambda: generator.standard_t(3, 1500),
        "sharp edges and outliers": lambda: np.concatenate([generator.uniform(-1, 1, 900), [9.0, 9.5, -4.0]]),
        "three values": lambda: generator.choice([-1.0, 0.0, 1.0], 300),
        "far from zero": lambda: 1000 + generator.standard_normal(500),
    }[kind]()
    return values if kind == "far from zero" else (values - values.mean()) / values.std()


KINDS = ("normal", "heavy tails", "sharp edges and outliers", "three values", "far from zero")


def relative_to_terms(field: Field, compiled: CompiledField, y: np.ndarray) -> float:
    """The largest error of V_k relative to the terms it is a sum of, more than 1e-3 away from its poles in phi."""
    log, gradient, laplacian = field.derivatives(y)
    phi = np.exp(log / 2)
    size = np.abs(laplacian) + gradient[:, 0] ** 2
    exact, found = potentials(field, y, ORDERS), potentials(compiled, y, ORDERS)
    worst = 0.0
    for column, k in enumerate(ORDERS):
        roots = np.polynomial.hermite.Hermite.basis(k).roots() if k > 1 else np.empty(0)
        away = np.abs(phi[:, None] - roots).min(axis=1, initial=np.inf) > 1e-2
        scale = size if k < 2 else size * np.minimum(1.0, k * phi**2)
        error = np.abs(exact - found)[:, column] / np.maximum(scale, 1e-290)
        worst = max(worst, float(error[away].max(initial=0.0)))
    return worst


@pytest.mark.parametrize("factor", [0.5, 5.0, 80.0, 500.0])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_exact_field_for_all_bandwidths(kind: str, factor: float) -> None:
    values = samples(kind)
    field = Field(values, factor * silverman(values))
    compiled = CompiledField(field)
    assert compiled.error <= 1e-10
    generator = np.random.default_rng(8)
    spread = values.max() - values.min()
    y = np.concatenate(
        [
            generator.uniform(values.min() - 0.5 * spread, values.max() + 0.5 * spread, 300),
            generator.choice(values, 100),
            values.max() + field.bandwidth * 10 ** generator.uniform(0, 9, 50),
            values.min() - field.bandwidth * 10 ** generator.uniform(0, 9, 50),
        ]
    )
    exact, found = field.derivatives(y), compiled.derivatives(y)
    np.testing.assert_allclose(found.log, exact.log, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(compiled(y), field(y), rtol=2e-10, atol=1e-300)
    assert relative_to_terms(field, compiled, y) <= 1e-10


def test_far_away_only_the_nearest_sample_counts() -> None:
    compiled = CompiledField(Field(np.asarray([0.0, 1.0, 3.0]), 0.5))
    y = 1e12
    assert compiled.log(np.asarray(y)) == pytest.approx(-((y - 3) ** 2) / (2 * 0.5**2) - np.log(3), rel=1e-14)
    assert np.isfinite(compiled.log(np.asarray([1e200, -1e200]))).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gives_its_own_arrays_and_the_same_numbers(library: str) -> None:
    values = samples("heavy tails")
    compiled = CompiledField(Field(values, 2 * silverman(values)))
    y = np.concatenate([np.linspace(-6, 6, 97), [-1e5, 1e5]])
    query = LIBRARIES[library](y)
    expected = compiled.derivatives(y)
    found = compiled.derivatives(query)
    for mine, theirs in zip(found, expected, strict=True):
        assert type(mine) is type(query)
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-11)
    np.testing.assert_allclose(
        np.asarray(uncertainty_modes(compiled, query)), uncertainty_modes(compiled, y), rtol=1e-6, atol=1e-12
    )
    single = compiled.log(query[0])
    assert single.shape == ()
    assert float(single) == pytest.approx(float(expected.log[0]), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_narrow_types_come_back_as_they_came(dtype: torch.dtype) -> None:
    values = samples("normal")
    compiled = CompiledField(Field(values, 20 * silverman(values)))
    y = torch.linspace(-3, 3, 50).to(dtype)
    found = compiled.log(y)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found.double(), compiled.log(y.double()), rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps
    )


def test_gradients_flow_through_the_table() -> None:
    values = samples("normal")
    field = Field(values, 20 * silverman(values))
    y = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(CompiledField(field).log(y).sum(), y)
    np.testing.assert_allclose(gradient * field.bandwidth, field.derivatives(y.detach()).gradient[:, 0], rtol=1e-9)
    found = uncertainty_modes(CompiledField(field), y, (2, 4))
    np.testing.assert_allclose(found.detach(), uncertainty_modes(field, y.detach(), (2, 4)), rtol=1e-7)
    assert found.requires_grad


def test_a_saved_state_is_the_same_field() -> None:
    values = samples("heavy tails")
    compiled = CompiledField(Field(values, silverman(values)))
    again = CompiledField.from_state(compiled.state())
    y = np.linspace(-30, 30, 500)
    for mine, theirs in zip(again.derivatives(y), compiled.derivatives(y), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (again.error, again.tolerance, len(again), again.bandwidth) == (
        compiled.error, compiled.tolerance, len(compiled), compiled.bandwidth
    )  # fmt: skip


def test_a_damaged_state_is_refused() -> None:
    state = CompiledField(Field(np.asarray([0.0, 1.0]), 1.0)).state()
    with pytest.raises(ValueError, match="lacks the array 'table'"):
        CompiledField.from_state({key: value for key, value in state.items() if key != "table"})
    with pytest.raises(ValueError, match="damaged"):
        CompiledField.from_state({**state, "table": state["table"][:-1]})
    with pytest.raises(ValueError, match="damaged"):
        CompiledField.from_state({**state, "table": state["table"] * np.nan})


def test_rescaled_is_the_field_of_the_standardised_samples() -> None:
    values = samples("far from zero")
    mean, std = values.mean(), values.std()
    compiled = CompiledField(Field(values, 0.3)).rescaled(mean, std)
    exact = Field((values - mean) / std, 0.3 / std)
    y = np.linspace(-4, 4, 100)
    np.testing.assert_allclose(compiled.log(y), exact.log(y), rtol=1e-10)


def test_many_samples_are_summarised_without_loss() -> None:
    values = np.random.default_rng(4).standard_normal(100_000)
    for factor in (0.5, 20.0):
        field = Field(values, factor * silverman(values))
        compiled = CompiledField(field)
        y = np.linspace(-5, 5, 40)
        np.testing.assert_allclose(compiled.log(y), field.log(y), rtol=1e-10)
        assert relative_to_terms(field, compiled, y) <= 1e-10


def test_what_cannot_be_compiled_says_so() -> None:
    with pytest.raises(ValueError, match=r"R\^2"):
        CompiledField(Field(np.zeros((3, 2)), 1.0))
    with pytest.raises(ValueError, match="tolerance"):
        CompiledField(Field(np.zeros(3), 1.0), tolerance=1e-20)
    with pytest.raises(ValueError, match="memory budget"):
        CompiledField(Field(np.asarray([0.0, 1.0]), 1e-7))
    with pytest.raises(ValueError, match="memory budget"):
        CompiledField(Field(np.asarray([0.0, 1.0]), 1.0), memory=10_000)
    gaps = np.concatenate([np.linspace(-1, 1, 100), [500.0]])
    with pytest.raises(ValueError, match="cannot be met"):
        CompiledField(Field(gaps, 0.01), tolerance=1e-13)


def test_the_tolerance_that_cannot_be_met_is_the_one_asked_for() -> None:
    class Rough:
        """A normal density whose second derivative is noise in one place, as no field's is."""

        lowest, highest, count = -1.0, 1.0, 2

        def evaluate(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            return -0.5 * u * u, -u, np.where(np.abs(u - 0.06) < 0.03, np.sin(1e12 * u), -1.0)

    with pytest.raises(ValueError, match="tolerance 1e-06 cannot be met: rounding or gaps"):
        CompiledField.from_measure(Rough(), 0.0, 1.0, tolerance=1e-6)  # type: ignore[arg-type]


def test_a_wrong_table_does_not_pass_its_check() -> None:
    from qipf.fields._check import check_error
    from qipf.fields._measure import Measure

    compiled = CompiledField(Field(np.asarray([0.0, 1.0]), 1.0))
    compiled._pieces.table[:, 4] *= 1 + 1e-8
    compiled._cache.clear()
    other = Measure(np.asarray([-0.5, 0.5]), np.ones((1, 2)), -0.5, 0.5)
    with pytest.raises(ValueError, match="cannot be met: the error measured"):
        check_error(compiled, other, None)
