"""The table of uncertainty modes against the modes of the exact field."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest
import torch

from libraries import LIBRARIES
from qipf.fields import CompiledField, Field, ModeTable, silverman, uncertainty_modes

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


def fitted(field: Field, dtype: type, root: bool = True, orders: tuple[int, ...] = ORDERS) -> ModeTable:
    table = ModeTable.fit(CompiledField(field), orders, root, 0.2, mean=MEAN, std=STD, dtype=dtype)
    assert table is not None
    return table


def modes_at(field: Field, z: np.ndarray, root: bool = True) -> np.ndarray:
    return uncertainty_modes(field, (z.astype(np.float64) - MEAN) / STD, ORDERS, root)


@pytest.mark.parametrize(("factor", "root"), [(1.0, True), (5.0, False), (20.0, True), (160.0, True), (452.5, False)])
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "few", "three values"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mode_is_the_exact_one_at_a_query_moved_by_its_last_digit(kind, factor, root, dtype) -> None:
    values = samples(kind)
    field = Field(values, factor * silverman(values))
    generator = np.random.default_rng(5)
    y = np.concatenate([generator.standard_normal(200), generator.uniform(-12, 12, 100), [50.0, -400.0, 1e6]])
    z = (MEAN + STD * y).astype(dtype)
    found = fitted(field, dtype, root)(z)
    assert found.dtype == dtype
    assert (found >= 0).all()
    assert np.isfinite(found).all()
    exact = modes_at(field, z, root)
    step = np.finfo(dtype).eps if dtype is np.float32 else 1e-9  # the field is tabulated to 1e-10
    moved = [np.abs(modes_at(field, z.astype(np.float64) * (1 + sign * step), root) - exact) for sign in (-1, 1)]
    tolerance = 4e-7 if dtype is np.float32 else 4e-8
    allowed = np.maximum(*moved) + tolerance * np.maximum(exact, 1e-3 * np.median(exact[:200], axis=0))
    assert (np.abs(found - exact) <= allowed).all()


def test_modes_are_finite_at_a_pole() -> None:
    pole = np.sqrt(-2 * np.log(0.5))  # psi = 1/2, phi = 0.7071: the zero of H_2
    for dtype in (np.float32, np.float64):
        table = ModeTable.fit(CompiledField(Field(np.asarray([0.0]), 1.0)), (2,), True, 0.2, dtype=dtype)
        assert table is not None
        at = np.asarray(pole, dtype)
        found = table(np.stack([np.nextafter(at, dtype(9)), at, np.nextafter(at, dtype(0))]))
        assert np.isfinite(found).all()
        assert found.max() > 1e4


def test_every_library_gives_its_own_arrays_and_the_same_numbers() -> None:
    values = samples("normal")
    table = fitted(Field(values, 20 * silverman(values)), np.float64)
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
    (gradient,) = torch.autograd.grad(fitted(field, np.float64)(z).sum(), z)
    ends = [modes_at(field, z.detach().numpy() + step).sum(axis=1) for step in (-1e-4, 1e-4)]
    np.testing.assert_allclose(gradient, (ends[1] - ends[0]) / 2e-4, rtol=1e-4, atol=1e-9)


def test_it_can_be_traced_and_exported_for_any_batch() -> None:
    values = samples("normal")
    table = fitted(Field(values, 20 * silverman(values)), np.float32)

    class Modes(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return table(z)

    z = torch.linspace(-20, 40, 11)
    table.place(z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks about caches in another package
        program = torch.export.export(Modes(), (z,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for query in (z, z[:2], torch.linspace(-500, 500, 400)):
        np.testing.assert_allclose(program.module()(query), table(query), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(jax.jit(table)(z.numpy()), table(z), rtol=1e-6, atol=1e-9)


def test_what_no_table_represents_has_none() -> None:
    values = samples("normal")
    compiled = CompiledField(Field(values, silverman(values)))
    assert ModeTable.fit(compiled, (0, 2), True, 0.2) is None  # does not vanish far away
    assert ModeTable.fit(compiled, (3,), True, 0.2) is None
    narrow = CompiledField(Field(np.concatenate([values, [400.0]]), 0.1), tolerance=1e-6)
    assert ModeTable.fit(narrow, (2, 4, 6, 8), True, 0.2, dtype=np.float32) is None  # would be too large


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gpu_gives_the_same_modes(dtype: type) -> None:
    values = samples("normal")
    table = fitted(Field(values, 160 * silverman(values)), dtype)
    z = np.random.default_rng(0).normal(MEAN, 2 * STD, 20_000).astype(dtype)
    found = table(torch.asarray(z).cuda())
    assert found.is_cuda
    expected = table(z)
    tolerance = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(found.cpu(), expected, rtol=tolerance, atol=tolerance * np.median(expected))
