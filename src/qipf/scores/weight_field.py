"""The paper's method: a prediction is placed in the potential field of the network's own weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import array_api_compat as compat
import numpy as np

from qipf.arrays import Array, is_traced, namespace, to_numpy
from qipf.fields import published
from qipf.fields.compiled import CompiledField
from qipf.fields.field import Field
from qipf.fields.hermite import check_orders
from qipf.fields.mode_table import ModeTable
from qipf.fields.potential import LowerBound, potentials, uncertainty_modes
from qipf.scores.base import Fitted, Scorer, plain, wide
from qipf.scores.coordinates import Coordinate, coordinate, task_of
from qipf.scores.precision import double
from qipf.scores.weight_factor import choose_factor
from qipf.scores.weight_samples import Pool, field_from, field_in, field_tensors, standardised_weights

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs


@dataclass(eq=False)
class WeightQIPF(Scorer):
    r"""The quantum information potential field of the weights, at the prediction (paper, Algorithm 1).

    The weights, pooled and standardised to w_1..w_n, make the field
    :math:`\psi(y) = \frac1n \sum_t \exp(-(y - w_t)^2 / 2 s^2)` with s = factor times Silverman's bandwidth. A
    prediction enters it at y = (coordinate - mean) / std, with the mean and the standard deviation over the reference
    outputs. The uncertainty is the mean over the orders k of the modes :math:`H_0^k(y) = V_k(y) - \min V_k` of
    `qipf.fields.uncertainty_modes`.

    With even orders and the neighbourhood bound, which are the defaults, scoring is one look-up in a table of the
    modes, in float32 for float32 and half-precision logits and in float64 for float64 logits. In float32 a mode is
    what the exact formula gives for a coordinate moved by at most one unit in its last place, to a relative error of
    4e-7 (of the mode, or of a thousandth of a typical mode where the mode is smaller than that). Other settings, and
    fields that no table represents accurately enough, are evaluated in float64.

    Args:
        orders: Hermite orders of the modes.
        factor: The bandwidth as a multiple of Silverman's. "cv" chooses it by cross-validated error detection on the
            outputs given to `fit`, which are best held out from training, and uses 160 if they have no labels; "auto"
            does the same, and also uses 160 where there are too few errors to choose by. `note` says what was used.
        root: Take the square root of the field first, as Algorithm 1 does.
        lower_bound: Where the minimum is taken, see `qipf.fields.uncertainty_modes`. Only "neighbourhood" makes modes
            of order 1 and above rise as predictions get worse; with the others, and wide kernels, they fall (the
            undecomposed order 0 rises with all of them). With "batch" a score depends on the batch it is computed in.
        radius: The radius of the neighbourhood, in standardised units.
        pool: How the weights are averaged over blocks: "auto" (a rule that needs no tuning), a number of values per
            layer, or the shapes of the blocks, by layer name or in order (an overhanging block is filled with zeros, as
            in the authors' program); None uses every weight.
        coordinate: "max_logit" (the paper), "log_odds" (the predicted class against all others), or a function of
            the logits, (N, C) -> (N,), with which the scorer cannot be saved. For one-output regression the output
            itself is the coordinate.
        operator: "exact", or "published" for what the authors' program computes (orders must then be 2, 4, 6, ...).
        tolerance: The relative error up to which the field is tabulated for speed; None evaluates it exactly.
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
                raise ValueError(f"orders: the authors' program gives 2, 4, 6, ..., got {list(self.orders)}")
            if self.lower_bound != "neighbourhood" or not self.root:
                raise ValueError("operator: the authors' program supports the neighbourhood bound and the root only")

    # --- for users -----------------------------------------------------------------------------------------------

    @property
    def field(self) -> Field | CompiledField:
        """The field of the weights, in standardised units."""
        self._require_fitted()
        return self._field

    @property
    def note(self) -> str:
        """What `fit` has to say about its choices; empty if it has nothing to say."""
        return self._require_fitted().facts["note"]

    @property
    def export_problem(self) -> str:
        """Why this scorer cannot become part of an exported graph; empty where it can."""
        if self.operator == "published":
            return 'operator="published" is for comparison in Python only; use operator="exact"'
        return 'lower_bound="batch" depends on the whole batch' if self.lower_bound == "batch" else ""

    def __call__(self, outputs: Outputs | Array) -> Array:
        """Return the uncertainty of every prediction, (N,), in the library, dtype and on the device of the logits.

        Args:
            outputs: `Outputs`, or bare (N, C) logits.
        """
        logits = getattr(outputs, "logits", outputs)
        tables = self._tables if self.fitted is not None and not callable(self.coordinate) else {}
        if compat.is_torch_array(logits) and _plain_bits(logits) in tables:
            return namespace(logits).from_numpy(super().__call__(logits.numpy()))  # NumPy costs less per operation
        scores = self.fused_score(logits) if self.fitted is not None and _fits(logits, self.fitted) else None
        if scores is not None and bool(scores.isfinite().all()):
            return scores
        return super().__call__(outputs)  # it says what is wrong

    def modes(self, outputs: Outputs | Array) -> Array:
        """Return the modes of every prediction, (N, K), one column per order; `__call__` returns their mean."""
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        result = self.modes_of(checked.logits, self._placed(fitted, checked.logits))
        return namespace(checked.logits).astype(result, checked.logits.dtype, copy=False)

    def band(self, outputs: Outputs | Array, width: float = 3.0) -> tuple[Array, Array]:
        """Return the lower and upper ends (N,) of a band around the predictions of a one-output regression model.

        Half its height is `width` standard deviations of the modes (3 in the paper's example), converted from
        standardised units to those of the output.
        """
        facts = self._require_fitted().facts
        if facts["output"] != "regression":
            raise ValueError(
                f"band: expected a scorer of one-output regression, this one was fitted to {facts['output']}"
            )
        modes = self.modes(outputs)
        prediction = self._checked(outputs).logits[:, 0]
        half = width * facts["std"] * namespace(modes).std(modes, axis=1)
        return prediction - half, prediction + half

    # --- for those who build on it -------------------------------------------------------------------------------

    def modes_of(self, logits: Array, tensors: Mapping[str, Array]) -> Array:
        """Return the modes without any check, from the given fitted tensors: what an exported graph traces."""
        return self._evaluate(logits, tensors, mean=False)

    def fused_score(self, logits: Array) -> Array | None:
        """The scores by one kernel of a GPU, NaN where a logit is not finite; None where there is no such kernel.

        It serves float32 logits that no gradient is asked of, and the largest logit as the coordinate.
        """
        if not compat.is_torch_array(logits) or not logits.is_cuda or logits.requires_grad or is_traced(logits):
            return None
        table = self._tables.get(32)
        if table is None or self.coordinate != "max_logit" or str(logits.dtype) != "torch.float32":
            return None
        task = self._require_fitted().facts["output"]
        return table.of_logits(logits, {"classification": 0, "regression": 1, "binary": 2}[task])

    def prepare(self, reference: Array) -> None:
        """Move all tables to the library and device of `reference`, ahead of scoring."""
        self._require_fitted()
        for table in self._tables.values():
            table.place(reference)
        if isinstance(self._field, CompiledField):
            self._field.derivatives(reference)  # it keeps the table that it looks this up in

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        return self._evaluate(outputs.logits, tensors, mean=True)

    def _evaluate(self, logits: Array, tensors: Mapping[str, Array], *, mean: bool) -> Array:
        """Return the modes (N, K), or their mean (N,)."""
        facts = self._require_fitted().facts
        values = wide(coordinate(logits, self.coordinate, facts["output"]))
        table = self._tables.get(namespace(values).finfo(values.dtype).bits)
        if table is not None:
            return table(values, mean=mean)
        y = (double(values) - facts["mean"]) / facts["std"]
        field = field_in(self._field, tensors, facts["bandwidth"])
        modes = self._modes(field, y, tensors.get("reference"))
        return namespace(modes).mean(modes, axis=1) if mean else modes

    def _modes(self, field: Any, y: Array, reference: Array | None) -> Array:
        if self.operator == "published":
            # The program stops below its largest order and drops the last mode: four more than the last one kept.
            top = max(self.orders) + 4
            samples = field.samples[:, 0]
            return published.uncertainty_modes(samples, y, field.bandwidth, top, stride=2, radius=self.radius)
        return uncertainty_modes(field, y, self.orders, self.root, self.lower_bound, self.radius, reference)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        if model is None or outputs is None:
            missing = "the model" if model is None else "its outputs on reference inputs (qipf.collect)"
            raise ValueError(f"weight-qipf: fit(model, outputs) needs {missing}")
        weights = standardised_weights(model, self.pool, None if self.operator == "published" else self.tolerance)
        task = task_of(outputs)
        values = double(coordinate(outputs.logits, self.coordinate, task))
        values = to_numpy(values).astype(np.float64)
        mean, std = float(values.mean()), float(values.std())
        if values.min() == values.max():
            raise ValueError(
                f"weight-qipf: the coordinate is the same ({mean:g}) for all {len(values)} reference outputs, so "
                "predictions cannot be standardised; give more, and more varied, reference inputs"
            )
        y = (values - mean) / std

        def score(factor: float) -> np.ndarray:
            reference = y if self.lower_bound == "reference" else None
            return self._modes(weights.field_for(factor, len(y)), y, reference).mean(axis=1)

        factor, note = (
            (self.factor, "")
            if self.factor not in ("auto", "cv")
            else choose_factor(score, outputs, task, required=self.factor == "cv")
        )
        field = weights.field(factor)
        if isinstance(field, Field) and self.tolerance is not None and self.operator == "exact":
            slow = f"the field cannot be tabulated to {self.tolerance:g} at factor {factor:g}; it is evaluated exactly"
            note = f"{note}; {slow}" if note else slow
        tensors = field_tensors(field)
        if self.lower_bound == "reference":
            # For every order only the reference point with the lowest potential matters.
            lowest = np.argmin(potentials(field, y, self.orders, self.root), axis=0)
            tensors["reference"] = y[np.unique(lowest)]
        facts = {
            "output": task,
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

    def _mode_tables(self, mean: float, std: float) -> dict[int, ModeTable]:
        """Return the table of the modes for each precision of the coordinate, in bits, that has an accurate one."""
        if not isinstance(self._field, CompiledField) or self.lower_bound != "neighbourhood":
            return {}
        found = {
            bits: ModeTable.fit(
                self._field, tuple(self.orders), self.root, self.radius, mean=mean, std=std, dtype=dtype
            )
            for bits, dtype in ((32, np.float32), (64, np.float64))
        }
        return {bits: table for bits, table in found.items() if table is not None}

    def _use(self, fitted: Fitted) -> None:
        facts = fitted.facts
        if facts["output"] not in ("classification", "binary", "regression") or not math.isfinite(facts["mean"]):
            raise ValueError(f"weight-qipf: damaged: task {facts['output']!r}, mean {facts['mean']!r}")
        if not (0 < facts["std"] < math.inf and 0 < facts["bandwidth"] < math.inf):
            raise ValueError(f"weight-qipf: damaged: std {facts['std']!r}, bandwidth {facts['bandwidth']!r}")
        self._field = field_from(fitted.tensors, fitted.facts)
        self._tables = self._mode_tables(facts["mean"], facts["std"])
        super()._use(fitted)


def _plain_bits(logits: Array) -> int | None:
    """Return the precision of a torch tensor that NumPy can read without a copy and without losing a gradient."""
    if logits.device.type != "cpu" or logits.requires_grad or is_traced(logits):
        return None
    return {"torch.float32": 32, "torch.float64": 64}.get(str(logits.dtype))


def _fits(logits: Array, fitted: Fitted) -> bool:
    return getattr(logits, "ndim", 0) == 2 and logits.shape[1] == fitted.facts["columns"]
