"""Functions of logits that several scorers share, each written without overflow and without lost digits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import array_api_compat as compat

from qipf.arrays import Array, namespace, row_max
from qipf.scores.base import wide

if TYPE_CHECKING:
    from qipf.tasks.outputs import Outputs

Coordinate = Literal["max_logit", "log_odds"] | Callable[[Array], Array]
FLOOR = -80.0  # exponentials of less vanish next to 1, and are many times slower on the CPU
Task = Literal["classification", "binary", "regression"]


def class_logits(logits: Array) -> Array:
    """Logits with one column per class, in 32 bits or more.

    One logit z becomes the two logits (-z/2, z/2). They give the same probabilities, and a score that reads only the
    largest logit does not favour either class.
    """
    xp = namespace(logits)
    logits = wide(logits)
    return xp.concat([-0.5 * logits, 0.5 * logits], axis=1) if logits.shape[1] == 1 else logits


def others(logits: Array) -> tuple[Array, Array]:
    r"""How far every class lies behind the winner, :math:`d_j = z_j - \max z \le 0`, and :math:`e_j = \exp d_j`.

    The winner's own :math:`e_j` is set to zero, so that :math:`s = \sum_j e_j` keeps its precision where
    :math:`1 - \max_j p_j = s / (1 + s)` would be lost to rounding.
    """
    xp = namespace(logits)
    # Exponentials that underflow are many times slower on the CPU, and carry no information.
    floor = -80.0 if xp.finfo(logits.dtype).bits < 64 else -700.0
    behind = xp.clip(logits - xp.max(logits, axis=1, keepdims=True), floor, None)
    columns = xp.arange(logits.shape[1], device=compat.device(logits))
    winner = columns[None, :] == xp.argmax(logits, axis=1, keepdims=True)
    return behind, xp.where(winner, xp.zeros_like(behind), xp.exp(behind))


def log_odds(scores: Array, predicted: Array | None = None) -> Array:
    r"""The log odds of one class per row, :math:`s_c - \log\sum_{j \ne c} e^{s_j} = \log p_c - \log(1 - p_c)`, (N,).

    The sum is taken relative to its largest term, so the result neither overflows nor rounds to a tie.

    Args:
        scores: (N, C) logits or log probabilities, with C of at least 2.
        predicted: (N,) the class of each row; None takes the one with the largest score.
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
    r"""How strongly probabilities (N, C) speak against one class per row, :math:`\log(1 - p_c) - \log p_c`, (N,).

    1 - p is the sum of the other probabilities: taken from p itself, it would round all sure predictions to a tie.
    """
    xp = namespace(chances)
    tiny = float(xp.finfo(chances.dtype).smallest_normal)
    if compat.is_torch_array(chances):  # the same in half as many operations
        chosen = classes[:, None]
        against, own = chances.scatter(1, chosen, 0.0).sum(1), chances.gather(1, chosen)[:, 0]
    else:
        chosen = xp.arange(chances.shape[1], device=compat.device(chances))[None, :] == classes[:, None]
        nothing = xp.zeros_like(chances)
        against = xp.sum(xp.where(chosen, nothing, chances), axis=1)
        own = xp.sum(xp.where(chosen, chances, nothing), axis=1)
    return xp.log(xp.clip(against, tiny, None) / xp.clip(own, tiny, None))


def log_sum_exp(values: Array) -> Array:
    """The logarithm of the summed exponentials of every row of (N, C), (N,)."""
    xp = namespace(values)
    high = xp.max(values, axis=1)
    return high + xp.log(xp.sum(xp.exp(xp.clip(values - high[:, None], FLOOR, None)), axis=1))


def log_softmax(values: Array) -> Array:
    """Values (N, C) shifted so that the exponentials of every row sum to one."""
    return values - log_sum_exp(values)[:, None]


def softmax(values: Array) -> Array:
    """The exponentials of every row of (N, C), scaled so that they sum to one."""
    if compat.is_torch_array(values):
        return values.softmax(1)
    xp = namespace(values)
    powers = xp.exp(xp.clip(values - xp.max(values, axis=1, keepdims=True), FLOOR, None))
    return powers / xp.sum(powers, axis=1, keepdims=True)


def pick(values: Array, columns: Array) -> Array:
    """One value per row of (N, C), in the given columns."""
    xp = namespace(values)
    own = xp.arange(values.shape[1], device=compat.device(values))[None, :] == columns[:, None]
    return xp.sum(xp.where(own, values, xp.zeros_like(values)), axis=1)


def softplus(values: Array) -> Array:
    """The logarithm of 1 + exp(values), elementwise, without overflow."""
    xp = namespace(values)
    return xp.clip(values, 0.0, None) + xp.log1p(xp.exp(xp.clip(-xp.abs(values), FLOOR, None)))


def coordinate(logits: Array, kind: Coordinate, task: Task) -> Array:
    r"""The number y(x) at which the field is evaluated for a prediction, (N,).

    Args:
        logits: (N, C), or (N, 1).
        kind: "max_logit", :math:`\max_j z_j`, as in the paper; "log_odds", those of the predicted class against all
            others, :math:`\log p - \log(1 - p) = z_{c^*} - \log\sum_{j \ne c^*} e^{z_j}`; or a function of the logits.
        task: for "regression" the coordinate is the output itself; for "binary" both kinds are |z| up to a factor.
    """
    if callable(kind):
        values = kind(logits)
        if tuple(values.shape) != (logits.shape[0],):
            raise ValueError(
                f"coordinate: expected the callable to return one number per row, shape ({logits.shape[0]},), "
                f"got {tuple(values.shape)}"
            )
        return values
    if task == "regression":
        return wide(logits)[:, 0]
    two_sided = class_logits(logits)
    if kind == "max_logit":
        return row_max(two_sided)
    return log_odds(two_sided)


def task_of(outputs: Outputs) -> Task:
    """What the outputs of a network with one prediction per input are for `WeightQIPF`, by their shape and labels."""
    if outputs.logits.shape[1] > 1:
        if outputs.regression:
            raise ValueError(
                f"weight-qipf: reads one number per input, and these outputs have {outputs.logits.shape[1]} targets "
                "each; use qipf.ResidualScale('qipf')"
            )
        return "classification"
    if outputs.labels is None:
        warnings.warn(
            "outputs: one output and no labels are taken as a regression; for a binary classifier give labels of 0 and "
            "1, for a regression the targets",
            stacklevel=4,
        )
    return "binary" if outputs.binary else "regression"
