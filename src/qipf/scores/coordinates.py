"""Check the arrays that scorers read and return, and compute numerically stable functions of logits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, at_least, is_traced, namespace, row_max, to_numpy

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

Coordinate = Literal["max_logit", "log_odds"] | Callable[[Array], Array]
FLOOR = -80.0  # exponentials of smaller values are negligible next to 1, but much slower to compute on a CPU
Task = Literal["classification", "binary", "regression"]
_NOTHING = nullcontext()


def check_size(features: Array, name: str, most: float) -> None:
    """Raise ValueError if the magnitude of a feature exceeds `most`."""
    xp = namespace(features)
    largest = float(xp.max(xp.abs(features)))
    if largest > most:
        raise ValueError(
            f"{name}: expected features with magnitudes of at most {most:.0e}, got {largest:.3g}; scale them down first"
        )


def check_matrix(values: Array, name: str) -> None:
    """Raise Problem unless `values` has the shape (N, C) with at least one column."""
    if values.ndim != 2 or values.shape[1] == 0:
        hint = "for a model with one output, reshape to (N, 1)" if values.ndim == 1 else ""
        raise Problem(name, f"{tuple(values.shape)}", expected="shape (N, C) with one row per prediction", hint=hint)


def check_rows(values: Array, name: str, numbers: Sequence[int] | None = None) -> None:
    """Raise Problem if rows contain NaN or infinity; the message gives their indices, or their `numbers` if passed."""
    check_matrix(values, name)
    if is_traced(values) or values.shape[0] == 0:
        return
    if compat.is_torch_array(values) and values.device.type == "cpu":
        values = to_numpy(values)  # ten times faster than torch
    xp = namespace(values)
    if bool(xp.all(xp.isfinite(values))):
        return
    found = to_numpy(values)
    bad = np.asarray(~np.isfinite(found).all(axis=1))
    where = f"in {_shown(bad, numbers)}"
    if name.endswith("logits") and (np.isfinite(found) | np.isneginf(found)).all():
        hint = "clip the logits first, for example with numpy.clip(logits, -20, None)"
        raise Problem(name, f"minus infinity {where}, possibly from taking the logarithm of zero", hint=hint)
    raise Problem(name, f"NaN or infinite values {where}", hint="remove or replace these values first")


def _shown(bad: np.ndarray, numbers: Sequence[int] | None) -> str:
    rows = np.flatnonzero(bad)
    named = [str(row if numbers is None else numbers[row]) for row in rows[:5]]
    word = "row" if len(rows) == 1 else "rows"
    return (
        f"{len(rows)} of {len(bad)} rows: {word} {', '.join(named)}{', ...' if len(rows) > 5 else ''} (counted from 0)"
    )


def wide(values: Array) -> Array:
    """Cast values in half precision to float32."""
    if getattr(values.dtype, "itemsize", 0) >= 4:
        return values
    xp = namespace(values)
    return xp.astype(values, xp.float32) if xp.finfo(values.dtype).bits < 32 else values


def double(values: Array) -> Array:
    """Cast values to float64 if the library and the device support it."""
    xp = namespace(values)
    if compat.is_jax_array(values):
        import jax

        if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            return values
    if compat.is_torch_array(values) and values.device.type == "mps":
        return values
    return xp.astype(values, xp.float64, copy=False)


def without_autocast(values: Array) -> AbstractContextManager[Any]:
    """Return a context in which torch autocast is disabled on the device of `values`."""
    if not compat.is_torch_array(values):
        return _NOTHING
    import torch

    kind = values.device.type
    if not torch.compiler.is_compiling() and not torch.is_autocast_enabled(kind):  # faster, but cannot be traced
        return _NOTHING
    return torch.autocast(kind, enabled=False)


def in_range(values: Array, dtype: Any) -> Array:
    """Cast values to `dtype`, clipped to its range; NaN is preserved."""
    if compat.is_torch_array(values):
        import torch

        if values.dtype == dtype:
            return torch.nan_to_num(values, nan=math.nan)
        limits = torch.finfo(min(dtype, values.dtype, key=lambda kind: torch.finfo(kind).max))
        return values.clamp(limits.min, limits.max).to(dtype)
    xp = namespace(values)
    limits = xp.finfo(dtype)
    if xp.finfo(values.dtype).bits < limits.bits:
        values = xp.astype(values, dtype)
    return xp.astype(xp.clip(values, float(limits.min), float(limits.max)), dtype, copy=False)


def check_scores(scores: Array, name: str) -> None:
    """Raise Problem if a score is not finite."""
    if is_traced(scores) or scores.shape[0] == 0:
        return
    xp = namespace(scores)
    if bool(xp.all(xp.isfinite(scores))):
        return
    found = f"no finite score for {_shown(~np.isfinite(to_numpy(scores)), None)}"
    hint = "the logits or features are too large for this method; scale them down, or remove these rows"
    raise Problem(name, found, hint=hint)


def class_logits(logits: Array) -> Array:
    """Return logits with one column per class, in float32 or wider.

    A single logit z becomes (-z/2, z/2).
    """
    xp = namespace(logits)
    logits = wide(logits)
    return xp.concat([-0.5 * logits, 0.5 * logits], axis=1) if logits.shape[1] == 1 else logits


def others(logits: Array) -> tuple[Array, Array]:
    r"""Return the differences from the largest logit, :math:`d_j = z_j - \max z \le 0`, and :math:`e_j = \exp d_j`.

    :math:`e_j` is set to 0 for the class with the largest logit. With :math:`s = \sum_j e_j`, the probability
    :math:`1 - \max_j p_j = s / (1 + s)` can then be computed without cancellation.
    """
    xp = namespace(logits)
    # Exponentials that underflow carry no information and are much slower to compute on a CPU.
    floor = -80.0 if xp.finfo(logits.dtype).bits < 64 else -700.0
    behind = xp.clip(logits - xp.max(logits, axis=1, keepdims=True), floor, None)
    columns = xp.arange(logits.shape[1], device=compat.device(logits))
    winner = columns[None, :] == xp.argmax(logits, axis=1, keepdims=True)
    return behind, xp.where(winner, xp.zeros_like(behind), xp.exp(behind))


def log_odds(scores: Array, predicted: Array | None = None) -> Array:
    r"""Return the log odds of a class, :math:`s_c - \log\sum_{j \ne c} e^{s_j} = \log p_c - \log(1 - p_c)`, (N,).

    The scores are logits or log probabilities, (N, C) with C >= 2. The default class is the one with the largest score.
    """
    xp = namespace(scores)
    limits = xp.finfo(scores.dtype)
    scores = xp.clip(scores, limits.min / 4, limits.max / 4)  # so that no difference overflows
    columns = xp.arange(scores.shape[1], device=compat.device(scores))
    own = columns[None, :] == (xp.argmax(scores, axis=1) if predicted is None else predicted)[:, None]
    lowest = xp.full_like(scores, limits.min / 2)
    rest = xp.where(own, lowest, scores)
    return xp.max(xp.where(own, scores, lowest), axis=1) - log_sum_exp(rest)


def contrast(chances: Array, classes: Array) -> Array:
    r"""Return the log odds against the given class of each row, :math:`\log(1 - p_c) - \log p_c`, (N,).

    The `chances` are probabilities, (N, C).
    """
    # 1 - p is computed as the sum of the other probabilities, so that confident predictions do not tie
    xp = namespace(chances)
    chances = at_least(chances, float(xp.finfo(chances.dtype).smallest_normal))
    if compat.is_torch_array(chances):  # the same result with half the number of operations
        chosen = classes.unsqueeze(1)
        against, own = chances.scatter(1, chosen, 0.0).sum(1, keepdim=True), chances.gather(1, chosen)
        return (against / own).log().squeeze(1)
    chosen = xp.arange(chances.shape[1], device=compat.device(chances))[None, :] == classes[:, None]
    nothing = xp.zeros_like(chances)
    against = xp.sum(xp.where(chosen, nothing, chances), axis=1)
    own = xp.sum(xp.where(chosen, chances, nothing), axis=1)
    return xp.log(against / own)


def log_sum_exp(values: Array) -> Array:
    """Return the log-sum-exp of every row, (N,)."""
    xp = namespace(values)
    high = xp.max(values, axis=1)
    return high + xp.log(xp.sum(xp.exp(xp.clip(values - high[:, None], FLOOR, None)), axis=1))


def softmax(values: Array) -> Array:
    """Return the softmax of every row, (N, C)."""
    if compat.is_torch_array(values):
        return values.softmax(1)
    xp = namespace(values)
    powers = xp.exp(xp.clip(values - xp.max(values, axis=1, keepdims=True), FLOOR, None))
    return powers / xp.sum(powers, axis=1, keepdims=True)


def softplus(values: Array) -> Array:
    """Return the elementwise softplus, log(1 + exp(values)), without overflow."""
    xp = namespace(values)
    return xp.clip(values, 0.0, None) + xp.log1p(xp.exp(xp.clip(-xp.abs(values), FLOOR, None)))


def coordinate(logits: Array, kind: Coordinate, task: Task) -> Array:
    r"""Return the coordinate of each prediction in the field of `WeightQIPF`, (N,).

    Args:
        logits: The logits, (N, C), or (N, 1) for a binary classifier or regression model.
        kind: "max_logit" for :math:`\max_j z_j`, as in the paper; "log_odds" for the log odds of the predicted class,
            :math:`\log p - \log(1 - p)`; or a function of the logits.
        task: For "regression", the coordinate is the output itself, unless `kind` is a function.
    """
    if callable(kind):
        values = kind(logits)
        if tuple(values.shape) != (logits.shape[0],):
            raise ValueError(
                f"coordinate: expected the function to return one number for each of the {logits.shape[0]} rows, "
                f"got shape {tuple(values.shape)}"
            )
        return values
    if task == "regression":
        return wide(logits)[:, 0]
    two_sided = class_logits(logits)
    if kind == "max_logit":
        return row_max(two_sided)
    return log_odds(two_sided)


def task_of(outputs: Outputs) -> Task:
    """Infer the task of outputs for `WeightQIPF` from their shape and labels."""
    if outputs.logits.shape[1] > 1:
        if outputs.regression:
            raise ValueError(
                f"weight-qipf: expected a regression model with one output, got {outputs.logits.shape[1]} outputs; "
                "use qipf.ResidualScale('qipf')"
            )
        return "classification"
    if outputs.labels is None:
        warnings.warn(
            "outputs: without labels, a model with one output is treated as a regression model; pass labels of 0 and 1 "
            "for a binary classifier, or targets for regression",
            stacklevel=4,
        )
    return "binary" if outputs.binary else "regression"
