"""The paper's method: a prediction meets the potential field of the network's own weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, namespace, to_numpy
from qipf.fields import potential, published
from qipf.fields.bandwidth import FACTORS, FactorChoice, cross_validated_factor
from qipf.fields.compiled import CompiledField
from qipf.fields.field import Field
from qipf.fields.hermite import check_orders
from qipf.fields.potential import LowerBound
from qipf.scores.base import Fitted, Scorer, plain
from qipf.scores.coordinates import Coordinate, Task, coordinate
from qipf.scores.weight_samples import (
    Pool,
    UntabulatedError,
    Weights,
    field_from,
    field_in,
    field_tensors,
    read_weights,
)

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs

UNLABELLED_FACTOR = 160.0
"""The factor on Silverman's bandwidth where no labels are at hand to choose one."""


@dataclass(eq=False)
class WeightQIPF(Scorer):
    r"""The quantum information potential field of the weights, at the prediction (paper, Algorithm 1).

    The weights, pooled and standardised to w_1..w_n, make the field
    :math:`\psi(y) = \frac1n \sum_t \exp(-(y - w_t)^2 / 2 s^2)` with s = factor times Silverman's bandwidth. A
    prediction enters it at y = (coordinate - mean) / std, mean and std over the reference outputs. The uncertainty
    is the mean over the orders k of the modes :math:`H_0^k(y) = V_k(y) - \min V_k` of `qipf.modes`.

    Args:
        orders: Hermite orders of the modes.
        factor: times Silverman's bandwidth; "cv" chooses it by cross-validated error detection on the outputs given
            to `fit`, best held out from training, and takes 160 if they have no labels; "auto" does the same, and takes
            160 where there are too few errors to choose by, too. `note` says what was taken and why.
        root: take the square root of the field first, as Algorithm 1 does.
        lower_bound: where the modes' minimum is taken, see `qipf.modes`. Only "neighbourhood" makes modes of order
            1 and more rise as predictions get worse; with the others, and wide kernels, they fall (the undecomposed
            order 0 rises with each). With "batch" a score depends on the batch it is computed in.
        radius: of the neighbourhood, in standardised units.
        pool: how the weights are averaged over blocks: "auto" (a rule that needs no tuning), a number of values a
            layer, or the shapes of the blocks, by layer or in order (a block that overhangs is filled with zeros, as
            the authors' program does); None uses every weight.
        coordinate: "max_logit" (the paper), "log_odds" (the predicted class against all others), or a function of
            the logits, (N, C) -> (N,), which cannot be saved. For one-output regression the output itself is the
            coordinate.
        operator: "exact", or "published" for what the authors' program computes (orders must then be 2, 4, 6, ..).
        tolerance: relative error up to which the field is tabulated for speed; None evaluates it exactly.
    """

    name: ClassVar[str] = "weight-qipf"
    orders: Sequence[int] = (2, 4, 6, 8)
    factor: float | Literal["auto", "cv"] = "auto"
    root: bool = True
    lower_bound: LowerBound = "neighbourhood"
    radius: float = 0.2
    pool: Pool = "auto"
    coordinate: Coordinate = "max_logit"
    operator: Literal["exact", "published"] = "exact"
    tolerance: float | None = 1e-10

    def __post_init__(self) -> None:
        self.orders = check_orders(self.orders)
        self.factor, self.radius, self.tolerance = plain(self.factor), plain(self.radius), plain(self.tolerance)
        self.root, self.pool = plain(self.root), plain(self.pool)
        if self.factor not in ("auto", "cv") and not (
            isinstance(self.factor, int | float) and 0 < self.factor < math.inf
        ):
            raise ValueError(f'factor: expected "auto", "cv" or a positive number, got {self.factor!r}')
        if self.tolerance is not None and not 1e-13 <= self.tolerance <= 1e-2:
            raise ValueError(f"tolerance: expected None or a number between 1e-13 and 1e-2, got {self.tolerance}")
        if not callable(self.coordinate) and self.coordinate not in ("max_logit", "log_odds"):
            raise ValueError(f'coordinate: expected "max_logit", "log_odds" or a function, got {self.coordinate!r}')
        if self.operator not in ("exact", "published"):
            raise ValueError(f'operator: expected "exact" or "published", got {self.operator!r}')
        if self.operator == "published":
            if self.orders != tuple(range(2, 2 * len(self.orders) + 1, 2)) or not self.orders:
                raise ValueError(f"orders: the authors' program gives 2, 4, 6, .., got {list(self.orders)}")
            if self.lower_bound != "neighbourhood" or not self.root:
                raise ValueError("operator: the authors' program has the neighbourhood bound and the root only")

    # --- for users -----------------------------------------------------------------------------------------------

    @property
    def field(self) -> Field | CompiledField:
        """The field of the weights, in standardised units."""
        self._require_fitted()
        return self._field

    @property
    def note(self) -> str:
        """What `fit` has to say about its choices; empty if nothing."""
        return self._require_fitted().facts["note"]

    @property
    def export_problem(self) -> str:
        """Why this scorer cannot become part of an exported graph; empty where it can."""
        if self.operator == "published":
            return 'operator="published" is for comparison in Python only; use operator="exact"'
        return 'lower_bound="batch" depends on the whole batch' if self.lower_bound == "batch" else ""

    def modes(self, outputs: Outputs | Array) -> Array:
        """The modes of every prediction, (N, K), one column an order; `__call__` is their mean."""
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        result = self.modes_of(checked.logits, self._placed(fitted, checked.logits))
        return namespace(checked.logits).astype(result, checked.logits.dtype, copy=False)

    def band(self, outputs: Outputs | Array, width: float = 3.0) -> tuple[Array, Array]:
        """Lower and upper end of a band around the predictions of a one-output regression model, (N,) each.

        Half its height is `width` standard deviations of the modes (the paper's example: 3), brought from
        standardised units back to those of the output.
        """
        facts = self._require_fitted().facts
        if facts["task"] != "regression":
            raise ValueError(f"band: is for one-output regression, and this scorer was fitted to {facts['task']}")
        modes = self.modes(outputs)
        prediction = self._checked(outputs).logits[:, 0]
        half = width * facts["std"] * namespace(modes).std(modes, axis=1)
        return prediction - half, prediction + half

    # --- for those who build on it -------------------------------------------------------------------------------

    def modes_of(self, logits: Array, tensors: Mapping[str, Array]) -> Array:
        """The modes without any check, with the fitted tensors given: what an exported graph traces."""
        facts = self._require_fitted().facts
        values = _double(coordinate(logits, self.coordinate, facts["task"]))
        y = (values - facts["mean"]) / facts["std"]
        field = field_in(self._field, tensors, facts["bandwidth"])
        return self._modes(field, y, tensors.get("reference"))

    def prepare(self, reference: Array) -> None:
        """Move the field's table to the library and device of `reference`, ahead of scoring."""
        if isinstance(self._field, CompiledField):
            self._field.derivatives(reference)  # it keeps the table it looked this up in

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        modes = self.modes_of(outputs.logits, tensors)
        return namespace(modes).mean(modes, axis=1)

    def _modes(self, field: Any, y: Array, reference: Array | None) -> Array:
        if self.operator == "published":
            # The program drops its last mode and stops below its largest order: four more than the last one kept.
            top = max(self.orders) + 4
            return published.modes(field.samples[:, 0], y, field.bandwidth, max_order=top, stride=2, radius=self.radius)
        return potential.modes(field, y, self.orders, self.root, self.lower_bound, self.radius, reference)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        if model is None or outputs is None:
            missing = "the model" if model is None else "its outputs on reference inputs (qipf.collect)"
            raise ValueError(f"weight-qipf: fit(model, outputs) needs {missing}")
        weights = read_weights(model, self.pool, None if self.operator == "published" else self.tolerance)
        task = _task(outputs)
        values = _double(coordinate(outputs.logits, self.coordinate, task))
        values = to_numpy(values).astype(np.float64)
        mean, std = float(values.mean()), float(values.std())
        if values.min() == values.max():
            raise ValueError(
                f"weight-qipf: the coordinate is the same ({mean:g}) for all {len(values)} reference outputs, so "
                "predictions cannot be brought to standard units; give more, and different, reference inputs"
            )
        y = (values - mean) / std
        factor, note = self._choose_factor(weights, y, outputs, task)
        field = weights.field(factor)
        if isinstance(field, Field) and self.tolerance is not None and self.operator == "exact":
            slow = f"the field cannot be tabulated to {self.tolerance:g} at factor {factor:g}; it is evaluated exactly"
            note = f"{note}; {slow}" if note else slow
        tensors = field_tensors(field)
        if self.lower_bound == "reference":
            # For every order only the reference point where it is least matters.
            lowest = np.argmin(potential.potentials(field, y, self.orders, self.root), axis=0)
            tensors["reference"] = y[np.unique(lowest)]
        facts = {
            "task": task,
            "columns": outputs.logits.shape[1],
            "references": len(values),
            "mean": mean,
            "std": std,
            "samples": weights.count,
            "silverman": weights.silverman,
            "factor": factor,
            "bandwidth": field.bandwidth,
            "note": note,
        }
        return Fitted(tensors, facts)

    def _choose_factor(self, weights: Weights, y: np.ndarray, outputs: Outputs, task: Task) -> tuple[float, str]:
        if self.factor not in ("auto", "cv"):
            return float(self.factor), ""
        if outputs.labels is None or task == "regression":
            what = "no labels" if outputs.labels is None else "regression, where no prediction is simply wrong"
            return UNLABELLED_FACTOR, (
                f"factor {UNLABELLED_FACTOR:g} was taken, not cross-validated ({what}); fit on labelled "
                "held-out outputs of a classifier, or give a factor, to choose it"
            )

        def score(factor: float) -> np.ndarray:
            reference = y if self.lower_bound == "reference" else None
            return self._modes(weights.field(factor), y, reference).mean(axis=1)

        wrong = ~to_numpy(outputs.correct)
        try:
            choice, dropped = _cross_validate(score, wrong)
        except ValueError as error:
            if self.factor == "auto":
                return UNLABELLED_FACTOR, f"factor {UNLABELLED_FACTOR:g} was taken, not cross-validated: {error}"
            raise ValueError(
                f'weight-qipf: factor="cv" finds no factor: {error}; factor={UNLABELLED_FACTOR:g} is the one used '
                "where there are no labels"
            ) from error
        names = ", ".join(f"{factor:g}" for factor in dropped)
        return choice.factor, f"the factors {names} were left out: no table holds their fields" if dropped else ""

    def _use(self, fitted: Fitted) -> None:
        facts = fitted.facts
        if facts["task"] not in ("classification", "binary", "regression") or not math.isfinite(facts["mean"]):
            raise ValueError(f"weight-qipf: damaged: task {facts['task']!r}, mean {facts['mean']!r}")
        if not (0 < facts["std"] < math.inf and 0 < facts["bandwidth"] < math.inf):
            raise ValueError(f"weight-qipf: damaged: std {facts['std']!r}, bandwidth {facts['bandwidth']!r}")
        self._field = field_from(fitted.tensors, fitted.facts)
        super()._use(fitted)


def _cross_validate(score: Callable[[float], np.ndarray], wrong: np.ndarray) -> tuple[FactorChoice, list[float]]:
    """The best of the factors whose field can be had, and the factors whose field cannot."""
    score = cache(score)
    factors, dropped = list(FACTORS), []
    while True:
        try:
            return cross_validated_factor(score, wrong, factors), dropped
        except UntabulatedError as error:
            factors.remove(error.factor)
            dropped.append(error.factor)
            if not factors:
                raise


def _task(outputs: Outputs) -> Task:
    if outputs.logits.shape[1] > 1:
        return "classification"
    return "binary" if outputs.binary else "regression"


def _double(values: Array) -> Array:
    """In double precision, where the library has it: the modes are small differences of nearly equal potentials."""
    xp = namespace(values)
    if compat.is_jax_array(values):
        import jax

        if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            return values
    if compat.is_torch_array(values) and values.device.type == "mps":
        return values
    return xp.astype(values, xp.float64, copy=False)
