"""The table of uncertainty modes against the modes of the exact field, and poles in closed form."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest
import torch

from libraries import LIBRARIES
from qipf.fields import Field, ModeTable, silverman, uncertainty_modes
from qipf.fields.potential import potentials

ORDERS = (2, 4, 6, 8)
MEAN, STD = 10.0, 3.0


def samples(kind: str) -> np.ndarray:
    generator = np.random.default_rng(3)
    values = {
        "normal": lambda: generator.standard_normal(1500),
        "heavy tails": lambda: generator.standard_t(3, 1500),
        "few": lambda: generator.standard_normal(60),
        "three values": lambda: generator.choice([-1.0, 0.0, 1.0], 300),
    }[kind]()
    return (values - values.mean()) / values.std()


def fitted(field: Field, root: bool = True, **settings) -> ModeTable:
    table = ModeTable.fit(field, ORDERS, root, 0.2, mean=MEAN, std=STD, **settings)
    assert table is not None
    return table


def modes_at(field: Field, z: np.ndarray, root: bool = True) -> np.ndarray:
    return uncertainty_modes(field, (z - MEAN) / STD, ORDERS, root)


def check_error(
    found: np.ndarray, exact: np.ndarray, typical: np.ndarray, moved: list[np.ndarray], tolerance: float = 1e-8
) -> None:
    """The promised error, and what the rounding of a query in its last digits makes of the exact modes."""
    promised = 2 * tolerance * (typical + exact) ** 2 / typical
    rounding = np.max([np.abs(other - exact) for other in moved], axis=0)
    assert (np.abs(found - exact) <= promised + rounding).all()


@pytest.mark.parametrize(("factor", "root"), [(1.0, True), (5.0, False), (20.0, True), (160.0, True), (452.5, False)])
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "few", "three values"])
def test_every_mode_and_their_mean_are_within_the_tolerance(kind, factor, root) -> None:
    values = samples(kind)
    field = Field(values, factor * silverman(values))
    generator = np.random.default_rng(5)
    wide = 4 * field.bandwidth
    y = np.concatenate([generator.standard_normal(200), generator.uniform(-wide, wide, 200), [50.0, -400.0, 1e6]])
    z = MEAN + STD * y
    table = fitted(field, root)
    found, mean = table(z), table(z, mean=True)
    assert (found >= 0).all()
    assert np.isfinite(found).all()
    exact = modes_at(field, z, root)
    moved = [modes_at(field, z * (1 + sign * 1e-14), root) for sign in (-1, 1)]
    check_error(found, exact, table.arrays["typical"][1:], moved)
    check_error(mean, exact.mean(axis=1), table.arrays["typical"][0], [other.mean(axis=1) for other in moved])


@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-10])
def test_other_tolerances_are_kept_too(tolerance: float) -> None:
    values = samples("normal")
    field = Field(values, 20 * silverman(values))
    z = np.random.default_rng(1).normal(MEAN, STD, 500)
    table, exact = fitted(field, tolerance=tolerance), modes_at(field, z).mean(axis=1)
    check_error(table(z, mean=True), exact, table.arrays["typical"][0], [exact], tolerance)


@pytest.mark.parametrize("seed", range(3))
def test_two_breaks_that_lie_close_together_are_found(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.uniform(-1, 1, 210) * generator.choice([1, 0.4], 210)
    values = (values - values.mean()) / values.std()
    field = Field(values, 5 * silverman(values))
    table = ModeTable.fit(field, ORDERS, True, 0.2, mean=0.03, std=0.14)
    assert table is not None
    z = 0.03 + 0.14 * np.linspace(-4, 4, 2001)
    exact = uncertainty_modes(field, (z - 0.03) / 0.14, ORDERS)
    check_error(table(z), exact, table.arrays["typical"][1:], [exact])


def test_a_given_lower_bound_takes_the_place_of_the_neighbourhood() -> None:
    values = samples("heavy tails")
    field = Field(values, 20 * silverman(values))
    reference = np.linspace(-2, 2, 9)
    lowest = potentials(field, reference, ORDERS).min(axis=0)
    z = np.linspace(MEAN - 30, MEAN + 30, 301)
    exact = uncertainty_modes(field, (z - MEAN) / STD, ORDERS, lower_bound="reference", reference=reference)
    table = fitted(field, lowest=lowest)
    check_error(table(z), exact, table.arrays["typical"][1:], [exact])
    np.testing.assert_allclose(table(np.asarray([1e9]))[0], np.maximum(-lowest, 0), rtol=1e-9)


def test_modes_are_finite_and_large_at_a_pole() -> None:
    pole = np.sqrt(-2 * np.log(0.5))  # psi = 1/2, phi = 0.7071: the zero of H_2
    table = ModeTable.fit(Field(np.asarray([0.0]), 1.0), (2,), True, 0.2)
    assert table is not None
    found = table(np.stack([np.nextafter(pole, 9), pole, np.nextafter(pole, 0)]))
    assert np.isfinite(found).all()
    assert found.max() > 1e8


def test_every_library_gives_its_own_arrays_and_the_same_numbers() -> None:
    values = samples("normal")
    table = fitted(Field(values, 20 * silverman(values)))
    z = np.linspace(-20, 40, 101)
    expected = table(z)
    for convert in LIBRARIES.values():
        found = table(convert(z))
        assert type(found) is type(convert(z))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-15)
    many = np.random.default_rng(0).normal(MEAN, STD, 10_001)  # several blocks
    np.testing.assert_array_equal(table(many)[-7:], table(many[-7:]))
    assert table(z[:0]).shape == (0, 4)


def test_gradients_flow_through_the_table() -> None:
    values = samples("normal")
    field = Field(values, 20 * silverman(values))
    z = torch.linspace(9, 20, 9, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(fitted(field)(z).sum(), z)
    ends = [modes_at(field, z.detach().numpy() + step).sum(axis=1) for step in (-1e-4, 1e-4)]
    np.testing.assert_allclose(gradient, (ends[1] - ends[0]) / 2e-4, rtol=1e-4, atol=1e-9)


def test_it_can_be_traced_and_exported_for_any_batch() -> None:
    values = samples("normal")
    table = fitted(Field(values, 20 * silverman(values)))
    arrays = {name: torch.from_numpy(part) for name, part in table.arrays.items()}

    class Modes(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return table(z, arrays=arrays)

    z = torch.linspace(-20, 40, 11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks about caches in another package
        program = torch.export.export(Modes(), (z,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for query in (z, z[:2], torch.linspace(-500, 500, 400)):
        np.testing.assert_allclose(program.module()(query), table(query), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(jax.jit(table)(z.numpy()), table(z), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("bandwidth", [1e-9, 1e9])
def test_extreme_bandwidths_have_no_table_and_take_no_memory(bandwidth: float) -> None:
    assert ModeTable.fit(Field(np.linspace(-2, 2, 40), bandwidth), (2, 4), True, 0.2) is None


def test_what_no_table_represents_has_none() -> None:
    values = samples("normal")
    field = Field(values, silverman(values))
    assert ModeTable.fit(field, (0, 2), True, 0.2) is None  # does not vanish far away
    assert ModeTable.fit(field, (3,), True, 0.2) is None
    narrow = Field(np.concatenate([values, [400.0]]), 0.01)
    assert ModeTable.fit(narrow, ORDERS, True, 0.2) is None  # would be too large


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gpu_gives_the_same_modes(dtype: type) -> None:
    values = samples("normal")
    table = fitted(Field(values, 160 * silverman(values)))
    z = np.random.default_rng(0).normal(MEAN, 2 * STD, 20_000).astype(dtype)
    found = table(torch.asarray(z).cuda())
    assert found.is_cuda
    np.testing.assert_allclose(found.cpu(), table(z), rtol=1e-9, atol=1e-12)
