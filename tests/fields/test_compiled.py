"""A compiled field against the exact one: same numbers, everywhere, whatever the bandwidth."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch

from libraries import LIBRARIES
from qipf.fields._fused import neighbourhood_modes
from qipf.fields.bandwidth import silverman
from qipf.fields.compiled import CompiledField
from qipf.fields.field import Field
from qipf.fields.potential import modes, potentials

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
    compiled = field.compile(1e-10)
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
    compiled = Field(np.asarray([0.0, 1.0, 3.0]), 0.5).compile()
    y = 1e12
    assert compiled.log(np.asarray(y)) == pytest.approx(-((y - 3) ** 2) / (2 * 0.5**2) - np.log(3), rel=1e-14)
    assert np.isfinite(compiled.log(np.asarray([1e200, -1e200]))).all()


@pytest.mark.parametrize("factor", [0.5, 20.0, 160.0])
def test_modes_from_the_table_are_the_modes(factor: float) -> None:
    values = samples("normal")
    field = Field(values, factor * silverman(values))
    compiled = field.compile()
    y = np.concatenate([np.linspace(-4, 4, 3001), [-1e3, 50.0, 1e6]])
    for root in (True, False):
        exact = modes(field, y, ORDERS, root)
        found = compiled.neighbourhood_modes(y, ORDERS, root, 0.2)
        size = np.abs(potentials(field, np.stack([y - 0.2, y, y + 0.2]).ravel(), ORDERS, root))
        size = size.reshape(3, -1, len(ORDERS)).max(axis=0) + np.abs(exact)
        error = np.abs(found - exact) / np.maximum(size, 1e-280)
        near_pole = size > 1e3 * np.median(size[:3001])
        assert error[~near_pole].max() <= 1e-9
        assert np.isfinite(found).all()
        assert (found >= 0).all()


def test_modes_are_finite_at_a_pole() -> None:
    compiled = Field(np.asarray([0.0]), 1.0).compile()
    pole = np.sqrt(-2 * np.log(0.5))  # psi = 1/2, phi = 0.7071: the zero of H_2
    y = np.asarray([np.nextafter(pole, 9), pole, np.nextafter(pole, 0)])
    found = compiled.neighbourhood_modes(y, (2,), True, 0.2)
    assert np.isfinite(found).all()
    assert found.max() > 1e6


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gives_its_own_arrays_and_the_same_numbers(library: str) -> None:
    values = samples("heavy tails")
    compiled = Field(values, 2 * silverman(values)).compile()
    y = np.concatenate([np.linspace(-6, 6, 97), [-1e5, 1e5]])
    query = LIBRARIES[library](y)
    expected = compiled.derivatives(y)
    found = compiled.derivatives(query)
    for mine, theirs in zip(found, expected, strict=True):
        assert type(mine) is type(query)
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-11)
    np.testing.assert_allclose(np.asarray(modes(compiled, query)), modes(compiled, y), rtol=1e-6, atol=1e-12)
    single = compiled.log(query[0])
    assert single.shape == ()
    assert float(single) == pytest.approx(float(expected.log[0]), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_narrow_types_come_back_as_they_came(dtype: torch.dtype) -> None:
    values = samples("normal")
    compiled = Field(values, 20 * silverman(values)).compile()
    y = torch.linspace(-3, 3, 50).to(dtype)
    found = compiled.log(y)
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found.double(), compiled.log(y.double()), rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps
    )
    assert compiled.neighbourhood_modes(y, (2, 4), True, 0.2).dtype == dtype


def test_gradients_flow_through_the_table() -> None:
    values = samples("normal")
    field = Field(values, 20 * silverman(values))
    y = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(field.compile().log(y).sum(), y)
    np.testing.assert_allclose(gradient * field.bandwidth, field.derivatives(y.detach()).gradient[:, 0], rtol=1e-9)
    found = field.compile().neighbourhood_modes(y, (2, 4), True, 0.2)
    np.testing.assert_allclose(found.detach(), modes(field, y.detach(), (2, 4)), rtol=1e-7)
    assert found.requires_grad


def test_jax_traces_it() -> None:
    values = samples("normal")
    compiled = Field(values, 20 * silverman(values)).compile()
    y = np.linspace(-2, 2, 9)
    jitted = jax.jit(lambda q: compiled.neighbourhood_modes(q, (2, 4, 6, 8), True, 0.2))
    np.testing.assert_allclose(
        jitted(jax.numpy.asarray(y)), compiled.neighbourhood_modes(y, (2, 4, 6, 8), True, 0.2), rtol=1e-8, atol=1e-13
    )


def test_torch_export_gives_the_same_for_any_batch() -> None:
    values = samples("normal")
    compiled = Field(values, 20 * silverman(values)).compile()
    compiled.log(torch.zeros(1, dtype=torch.float64))  # the table is there before the trace

    class Score(torch.nn.Module):
        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return compiled.neighbourhood_modes(y, (2, 4, 6, 8), True, 0.2)

    y = torch.linspace(-3, 3, 11, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's remarks about caches in a third package
        program = torch.export.export(Score(), (y,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for query in (y, y[:2], torch.linspace(-50, 50, 400, dtype=torch.float64)):
        expected = neighbourhood_modes(
            np, ((query - compiled._centre) / compiled.bandwidth).numpy(), 0.2 / compiled.bandwidth, compiled.scaled,
            (2, 4, 6, 8), True,
        )  # fmt: skip
        np.testing.assert_allclose(program.module()(query), expected, rtol=1e-8, atol=1e-12)


def test_a_saved_state_is_the_same_field() -> None:
    values = samples("heavy tails")
    compiled = Field(values, silverman(values)).compile()
    again = CompiledField.from_state(compiled.state())
    y = np.linspace(-30, 30, 500)
    for mine, theirs in zip(again.derivatives(y), compiled.derivatives(y), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (again.error, again.tolerance, len(again), again.bandwidth) == (
        compiled.error, compiled.tolerance, len(compiled), compiled.bandwidth
    )  # fmt: skip


def test_a_damaged_state_is_refused() -> None:
    state = Field(np.asarray([0.0, 1.0]), 1.0).compile().state()
    with pytest.raises(ValueError, match="lacks the array 'table'"):
        CompiledField.from_state({key: value for key, value in state.items() if key != "table"})
    with pytest.raises(ValueError, match="damaged"):
        CompiledField.from_state({**state, "table": state["table"][:-1]})
    with pytest.raises(ValueError, match="damaged"):
        CompiledField.from_state({**state, "table": state["table"] * np.nan})


def test_rescaled_is_the_field_of_the_standardised_samples() -> None:
    values = samples("far from zero")
    mean, std = values.mean(), values.std()
    compiled = Field(values, 0.3).compile().rescaled(mean, std)
    exact = Field((values - mean) / std, 0.3 / std)
    y = np.linspace(-4, 4, 100)
    np.testing.assert_allclose(compiled.log(y), exact.log(y), rtol=1e-10)


def test_many_samples_are_summarised_without_loss() -> None:
    values = np.random.default_rng(4).standard_normal(100_000)
    for factor in (0.5, 20.0):
        field = Field(values, factor * silverman(values))
        compiled = field.compile()
        y = np.linspace(-5, 5, 40)
        np.testing.assert_allclose(compiled.log(y), field.log(y), rtol=1e-10)
        assert relative_to_terms(field, compiled, y) <= 1e-10


def test_what_cannot_be_compiled_says_so() -> None:
    with pytest.raises(ValueError, match=r"R\^2"):
        Field(np.zeros((3, 2)), 1.0).compile()
    with pytest.raises(ValueError, match="tolerance"):
        Field(np.zeros(3), 1.0).compile(1e-20)
    with pytest.raises(ValueError, match="memory budget"):
        Field(np.asarray([0.0, 1.0]), 1e-7).compile()
    with pytest.raises(ValueError, match="memory budget"):
        CompiledField(Field(np.asarray([0.0, 1.0]), 1.0), memory=10_000)
    gaps = np.concatenate([np.linspace(-1, 1, 100), [500.0]])
    with pytest.raises(ValueError, match="cannot be met"):
        Field(gaps, 0.01).compile(1e-13)


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

    compiled = Field(np.asarray([0.0, 1.0]), 1.0).compile()
    compiled._pieces.table[:, 4] *= 1 + 1e-8
    compiled._cache.clear()
    other = Measure(np.asarray([-0.5, 0.5]), np.ones((1, 2)), -0.5, 0.5)
    with pytest.raises(ValueError, match="cannot be met: the error measured"):
        check_error(compiled, other, None)


@pytest.mark.parametrize(
    ("gpu", "optin", "whole", "fits", "resident"),
    [
        ("H200", 227, 228, True, 2),
        ("A100", 163, 164, True, 1),
        ("RTX 3090", 99, 100, False, 1),
        ("T4", 64, 64, False, 1),
    ],
)
def test_small_gpus_take_the_plain_path(monkeypatch, gpu, optin, whole, fits, resident) -> None:
    """A kernel of 110 KiB; figures of shared memory from NVIDIA's table of compute capabilities."""
    from qipf.fields import _gpu

    about = SimpleNamespace(
        name=gpu, shared_memory_per_block_optin=optin * 1024, shared_memory_per_multiprocessor=whole * 1024
    )
    asked = []
    kernel = SimpleNamespace(set_shared_memory_config=asked.append)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    monkeypatch.setattr(torch.cuda, "_compile_kernel", lambda source, name: kernel, raising=False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    assert (_gpu.compiled(gpu, "score", 110 * 1024, 0) is kernel) == fits
    assert asked == [110 * 1024] * fits
    assert _gpu.resident_blocks(about, 110 * 1024) == resident


def test_a_gpu_without_a_compiler_takes_the_plain_path(monkeypatch) -> None:
    from qipf.fields import _gpu

    def fail(source: str, name: str) -> None:
        raise RuntimeError("NVRTC is missing")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace())
    monkeypatch.setattr(torch.cuda, "_compile_kernel", fail, raising=False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    assert _gpu.compiled("no compiler", "score", 1024, 0) is None
    assert _gpu.most_shared(SimpleNamespace()) == 48 * 1024


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("factor", [1.0, 20.0, 160.0])
def test_a_gpu_gives_the_same_modes(factor: float) -> None:
    values = samples("normal")
    compiled = Field(values, factor * silverman(values)).compile()
    y = torch.cat([torch.randn(10_000), torch.tensor([1e4, -1e8])]).cuda()
    expected = compiled.neighbourhood_modes(y.cpu().double(), (2, 4, 6, 8), True, 0.2)
    around = torch.cat([y - 0.2, y, y + 0.2]).cpu().double().numpy()
    size = np.abs(potentials(compiled, around, (2, 4, 6, 8))).reshape(3, -1, 4).max(axis=0)
    found = compiled.neighbourhood_modes(y, (2, 4, 6, 8), True, 0.2)
    error = np.abs(found.cpu().double().numpy() - expected.numpy()) / np.maximum(size, 1e-20)
    assert found.is_cuda
    assert np.quantile(error, 0.99) < 1e-4
