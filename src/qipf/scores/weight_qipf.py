"""The paper's method: score a prediction by its position in the potential field of the network's weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from qipf._common.errors import Problem, check_choice, check_positive
from qipf.arrays import Array, namespace, to_numpy
from qipf.fields import published
from qipf.fields.bandwidth import FACTORS, cross_validated_factor, silverman
from qipf.fields.binned import BinnedField
from qipf.fields.field import Field
from qipf.fields.mode_table import TOLERANCE, ModeTable
from qipf.fields.potential import LowerBound, check_orders, potentials, uncertainty_modes
from qipf.fields.sketch import FieldSketch, TooNarrowError
from qipf.scores.base import MOST, Fitted, Scorer, plain, wide
from qipf.scores.coordinates import Coordinate, Task, coordinate, double, task_of
from qipf.tasks.collect import collect_from
from qipf.tasks.outputs import with_prefix
from qipf.weights.pooling import pool_weights
from qipf.weights.weights import read_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qipf.tasks.outputs import Outputs

UNLABELLED_FACTOR = 160.0
"""The bandwidth factor that is used if none can be chosen by cross-validation."""
FEW = 2**20  # the number of weight-query pairs up to which the exact field is cheaper than bins
TABLE, BINS = "table_", "bins_"  # prefixes of the fitted tensors

Pool = Literal["auto"] | int | Sequence[Sequence[int]] | Mapping[str, Sequence[int]] | None


@dataclass(eq=False)
class WeightQIPF(Scorer):
    r"""The quantum information potential field of the weights, evaluated at the prediction (Algorithm 1 of the paper).

    The pooled and standardised weights w_1..w_n define the field
    :math:`\psi(y) = \frac1n \sum_t \exp(-(y - w_t)^2 / 2 s^2)`, where s is `factor` times Silverman's bandwidth. Each
    prediction has the position y = (coordinate - mean) / std, with the mean and standard deviation over the reference
    outputs. The uncertainty is the mean of the modes :math:`H_0^k(y) = V_k(y) - \min V_k` over the orders k, where
    :math:`V_k` is the potential of order k (`qipf.fields.potentials`).

    Args:
        orders: The Hermite orders of the modes.
        factor: The bandwidth as a multiple of Silverman's bandwidth. "auto" and "cv" choose it by cross-validated error
            detection on the outputs passed to `fit`, which should be held out; for regression or without labels, they
            use 160 (see `note`). With too few errors, "auto" uses 160, and "cv" raises ValueError.
        root: Use the square root of the field, as in Algorithm 1.
        lower_bound: The points over which the minimum is taken; see `qipf.fields.uncertainty_modes`. With wide kernels,
            only "neighbourhood" makes modes of order 1 and above increase as predictions get worse. For "batch", a
            score depends on the other predictions in the batch.
        radius: The radius of the neighbourhood, in standardised units.
        pool: The blocks over which weights are averaged: "auto", a number of blocks per layer, the block shapes as a
            mapping from layer names or a sequence in layer order, or None to use every weight.
        coordinate: "max_logit", as in the paper; "log_odds", the log odds of the predicted class; or a function of the
            logits, (N, C) -> (N,). A scorer with such a function cannot be saved. For one-output regression, both
            strings select the output itself.
        operator: "exact", or "published" for the authors' implementation, which requires the orders 2, 4, 6, ...
        tolerance: The approximate error of tabulated modes, relative to a typical score; None evaluates them exactly.
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
    tolerance: float | None = TOLERANCE

    def __post_init__(self) -> None:
        self.orders = check_orders(self.orders)
        self.factor, self.radius, self.tolerance = plain(self.factor), plain(self.radius), plain(self.tolerance)
        self.root, self.pool = plain(self.root), plain(self.pool)
        if self.factor not in ("auto", "cv"):
            check_positive("factor", self.factor)
        if self.tolerance is not None and not 1e-13 <= self.tolerance <= 1e-2:
            raise ValueError(f"tolerance: expected None or a number from 1e-13 to 1e-2, got {self.tolerance}")
        if not callable(self.coordinate):
            check_choice("coordinate", self.coordinate, ("max_logit", "log_odds"))
        check_choice("operator", self.operator, ("exact", "published"))
        check_choice("lower_bound", self.lower_bound, get_args(LowerBound))
        if isinstance(self.pool, str) and self.pool != "auto":
            raise Problem("pool", repr(self.pool), expected='"auto", None, an integer or block shapes')
        if self.operator == "published":
            if self.orders != tuple(range(2, 2 * len(self.orders) + 1, 2)) or not self.orders:
                raise ValueError(
                    f"orders: expected 2, 4, 6, ... (as in the authors' implementation), got {list(self.orders)}"
                )
            if self.lower_bound != "neighbourhood" or not self.root:
                raise ValueError('operator: "published" supports only lower_bound="neighbourhood" and root=True')

    # --- for users -----------------------------------------------------------------------------------------------

    @property
    def field(self) -> Field | BinnedField:
        """The field of the weights, in standardised units."""
        fitted = self._require_fitted()
        return self._field_of(fitted.tensors, fitted.facts["bandwidth"])

    @property
    def note(self) -> str:
        """Remarks on the choices made by `fit`; empty if there are none."""
        return self._require_fitted().facts["note"]

    @property
    def export_problem(self) -> str:
        if self.operator == "published":
            return 'operator="published" is for comparison in Python only; use operator="exact"'
        if self.lower_bound == "batch":
            return 'with lower_bound="batch", a score depends on the whole batch'
        if self.fitted is not None and self._table is None and self._bins is not None:
            return "its modes are not tabulated and its weights are not stored; use even orders, or pool the weights"
        return ""

    def modes(self, outputs: Any, data: Any = None, *, batch_size: int | None = None, progress: bool = True) -> Array:
        """Return the modes of every prediction, (N, K), one column per order.

        Pass `Outputs`, bare (N, C) logits, or a model and `data`. Further arguments are as for `qipf.collect`.
        """
        if data is not None:
            outputs = self._run(outputs, data, batch_size, progress)
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        result = self.modes_of(checked.logits, self._placed(fitted, checked.logits))
        return namespace(checked.logits).astype(result, checked.logits.dtype, copy=False)

    def plot(
        self, outputs: Any = None, data: Any = None, *, batch_size: int | None = None, progress: bool = True
    ) -> Figure:
        """Draw the weights, their field, the potentials and the modes; return the matplotlib figure.

        Pass `outputs`, or a model and `data`, to draw predictions as well; with labels, correct and wrong predictions
        are drawn separately. The arguments are those of `modes`.
        """
        from qipf.scores.field_figure import draw, view

        if data is not None:
            outputs = self._run(outputs, data, batch_size, progress)
        fitted = self._require_fitted()
        checked = None if outputs is None else self._checked(outputs, fitted)
        if checked is not None and len(checked.logits) == 0:
            raise Problem("outputs", "no rows", expected="at least one prediction to draw")
        return draw(view(self, checked))

    def band(self, outputs: Outputs | Array, width: float = 3.0) -> tuple[Array, Array]:
        """Return the lower and upper bounds (N,) of a band around the predictions of a one-output regression model.

        The half-width is `width` times the standard deviation over the modes, in the units of the output.
        """
        facts = self._require_fitted().facts
        if facts["output"] != "regression":
            raise ValueError(
                f"band: expected a scorer for a one-output regression model, got one for the task {facts['output']!r}"
            )
        modes = self.modes(outputs)
        prediction = self._checked(outputs).logits[:, 0]
        half = width * facts["std"] * namespace(modes).std(modes, axis=1)
        return prediction - half, prediction + half

    # --- for subclasses ------------------------------------------------------------------------------------------

    def modes_of(self, logits: Array, tensors: Mapping[str, Array]) -> Array:
        """Return the modes from the given fitted tensors, as in `graph_score`."""
        return self._evaluate(logits, tensors, mean=False)

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        return self._evaluate(outputs.logits, tensors, mean=True)

    def _evaluate(self, logits: Array, tensors: Mapping[str, Array], *, mean: bool) -> Array:
        """Return the modes (N, K), or their mean (N,)."""
        facts = self._require_fitted().facts
        values = wide(coordinate(logits, self.coordinate, facts["output"]))
        if self._table is not None:
            return self._table(values, mean=mean, arrays=with_prefix(tensors, TABLE))
        y = (double(values) - facts["mean"]) / facts["std"]
        modes = self._modes(self._field_of(tensors, facts["bandwidth"]), y, tensors.get("reference"))
        return namespace(modes).mean(modes, axis=1) if mean else modes

    def _field_of(self, tensors: Mapping[str, Array], bandwidth: float) -> Field | BinnedField:
        return Field(tensors["samples"], bandwidth) if self._bins is None else self._bins

    def _modes(self, field: Any, y: Array, reference: Array | None) -> Array:
        if self.operator == "published":
            # The authors' code stops below its largest order and drops the last mode, so add four to the largest order.
            top = max(self.orders) + 4
            samples = field.samples[:, 0]
            return published.uncertainty_modes(samples, y, field.bandwidth, top, radius=self.radius)
        return uncertainty_modes(field, y, self.orders, self.root, self.lower_bound, self.radius, reference)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        if model is None or outputs is None:
            missing = "the model" if model is None else "outputs for reference inputs (qipf.collect)"
            raise ValueError(f"weight-qipf: fit(model, outputs) needs {missing}")
        count, unit, field_at = self._weight_fields(model)
        task = task_of(outputs)
        values = to_numpy(double(coordinate(outputs.logits, self.coordinate, task))).astype(np.float64)
        mean, std = float(values.mean()), float(values.std())
        if values.min() == values.max():
            raise ValueError(
                f"weight-qipf: the coordinate is the same ({mean:g}) for all {len(values)} reference outputs, so "
                "predictions cannot be standardised; provide more varied reference inputs"
            )
        y = (values - mean) / std

        def score(factor: float) -> np.ndarray:
            field = field_at(factor)
            if isinstance(field, Field) and self.operator == "exact" and count * len(y) > FEW:
                field = BinnedField.of(field)
            return self._modes(field, y, y if self.lower_bound == "reference" else None).mean(axis=1)

        found = self._chosen_factor(score, outputs, task) if isinstance(self.factor, str) else (self.factor, "")
        factor, note = found
        field = field_at(factor)
        tensors = {"samples": to_numpy(field.samples)[:, 0]} if isinstance(field, Field) else {}
        if isinstance(field, BinnedField):
            tensors |= {BINS + key: value for key, value in field.state().items()}
        lowest = None
        if self.lower_bound == "reference":
            # For every order, only the reference point with the lowest potential matters.
            reached = potentials(field, y, self.orders, self.root)
            tensors["reference"], lowest = y[np.unique(np.argmin(reached, axis=0))], reached.min(axis=0)
        if self.tolerance is not None and self.operator == "exact" and self.lower_bound != "batch":
            settings = {"mean": mean, "std": std, "lowest": lowest, "tolerance": self.tolerance}
            table = ModeTable.fit(field, self.orders, self.root, self.radius, **settings)
            if table is None:
                slow = (
                    f"the score cannot be tabulated with tolerance {self.tolerance:g} at factor {factor:g}, so it is "
                    "evaluated exactly"
                )
                note = f"{note}; {slow}" if note else slow
            else:
                tensors |= {TABLE + key: value for key, value in table.arrays.items()}
        facts: dict[str, Any] = {"output": task, "columns": outputs.logits.shape[1], "references": len(values)}
        facts |= {"mean": mean, "std": std, "samples": count, "silverman": unit, "factor": factor}
        facts |= {"bandwidth": field.bandwidth, "note": note}
        return Fitted(tensors, facts)

    def _run(self, model: Any, data: Any, batch_size: int | None, progress: bool) -> Outputs:
        start = self._start(model, data, None, None, batch_size)
        return collect_from(start, False, most=MOST, progress=progress)

    def _weight_fields(self, model: Any) -> tuple[int, float, Callable[[float], Field | BinnedField]]:
        """Return the number of weights, Silverman's bandwidth, and the field as a function of the bandwidth factor.

        With `pool=None`, the exact operator and a tolerance, all weights are summarised in a sketch of bounded size.
        """
        if self.pool is not None or self.tolerance is None or self.operator == "published":
            samples = standardised_weights(model, self.pool)
            unit = silverman(samples)
            return len(samples), unit, lambda factor: Field(samples, factor * unit)
        sketch = FieldSketch()
        for kernel in read_weights(model).values():
            sketch.add(kernel)
        _check_spread(sketch.count, 0.0 if sketch.minimum == sketch.maximum else sketch.std)
        unit = sketch.silverman() / sketch.std
        return sketch.count, unit, lambda factor: sketch.finish(factor=factor, standardise=True)

    def _chosen_factor(self, score: Callable[[float], np.ndarray], outputs: Outputs, task: Task) -> tuple[float, str]:
        """Return the factor for which `score(factor)` detects errors best, and a note, which may be empty."""
        if outputs.labels is None or task == "regression":
            what = "no labels" if outputs.labels is None else "regression has no wrong predictions"
            return UNLABELLED_FACTOR, (
                f"factor {UNLABELLED_FACTOR:g} was used without cross-validation ({what}); to choose a factor, fit to "
                "labelled held-out outputs of a classifier, or pass a number"
            )
        scores, dropped = {}, []
        for factor in FACTORS:
            try:
                scores[factor] = score(factor)
            except TooNarrowError:
                dropped.append(f"{factor:g}")
        try:
            choice = cross_validated_factor(scores.__getitem__, ~to_numpy(outputs.correct), list(scores))
        except ValueError as error:
            if self.factor != "cv":
                return UNLABELLED_FACTOR, f"factor {UNLABELLED_FACTOR:g} was used without cross-validation: {error}"
            raise ValueError(
                f'weight-qipf: factor="cv" cannot choose a factor: {error}; '
                f'pass factor="auto" to use {UNLABELLED_FACTOR:g}'
            ) from error
        left_out = f"factors whose bandwidths are too narrow for a sketch were left out: {', '.join(dropped)}"
        return choice.factor, left_out if dropped else ""

    def _use(self, fitted: Fitted) -> None:
        if "field_table" in fitted.tensors:
            raise ValueError("weight-qipf: the file contains a table from an earlier version; fit the scorer again")
        table, bins = with_prefix(fitted.tensors, TABLE), with_prefix(fitted.tensors, BINS)
        self._table = ModeTable(table) if table else None
        self._bins = BinnedField.from_state(bins) if bins else None
        super()._use(fitted)


def standardised_weights(model: Any, pool: Pool) -> np.ndarray:
    """Return the weights of a model, pooled as in `WeightQIPF`, with mean 0 and standard deviation 1, (n,)."""
    weights = read_weights(model)
    if pool is None:
        samples = np.concatenate([kernel.reshape(-1) for kernel in weights.values()])
    elif pool == "auto":
        samples = pool_weights(weights)
    elif isinstance(pool, int):
        samples = pool_weights(weights, target=pool)
    else:
        samples = pool_weights(weights, pool, edges="zeros")
    samples = samples.astype(np.float64)
    mean, std = samples.mean(), samples.std()
    _check_spread(len(samples), std)
    return (samples - mean) / std


def _check_spread(count: int, std: float) -> None:
    if not (math.isfinite(std) and std > 0):
        raise ValueError(
            f"weights: expected finite values that are not all equal, got a standard deviation of {std:g} "
            f"(number of weights: {count})"
        )
