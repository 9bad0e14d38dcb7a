"""Estimate the expected absolute residual of every output of a regression model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import array_api_compat as compat
import numpy as np

from qipf._common.errors import check_choice, check_whole
from qipf._common.optional import require
from qipf.arrays import Array, interpolate, namespace, to_numpy
from qipf.scores.base import Fitted, Scorer, wide
from qipf.scores.neighbours import by_blocks
from qipf.scores.weight_qipf import WeightQIPF
from qipf.tasks.outputs import Outputs, with_prefix

FACTOR = 160.0
"""The bandwidth of the field for method "qipf", as a multiple of Silverman's bandwidth."""
STEPS = 32
"""The maximum number of points on the curve that maps uncertainties to residuals."""
PER_STEP = 10
"""The minimum number of reference predictions per point on the curve."""
PREFIX = "field_"
METHODS = ("neighbours", "head", "qipf")
SMALLEST = 1e-3
"""The smallest scale, relative to the mean absolute residual."""


@dataclass(eq=False)
class ResidualScale(Scorer):
    r"""The expected absolute residual of each prediction, learned from inputs that the model was not trained on.

    The scale :math:`s_j` of a prediction :math:`f_j` estimates :math:`|y_j - f_j|` for the target :math:`y_j`. It is

    * for "neighbours", the mean absolute residual of the `k` reference inputs that are nearest in standardised features
      and predictions;
    * for "head", the output of a small network with one hidden layer, trained to minimise
      :math:`|y_j - f_j| / s_j + \log s_j`;
    * for "qipf", the isotonic regression of the residuals on the uncertainty of `WeightQIPF`, the paper's method, which
      reads no features, so equal predictions have equal scales.

    The score is the mean of :math:`\log (s_j / \bar s_j)` over the targets j, where :math:`\bar s_j` is the mean
    absolute residual over the reference inputs.

    Args:
        method: "neighbours", "head" or "qipf".
        k: The maximum number of neighbours.
        hidden: The number of hidden units of the head.
        epochs: The number of training epochs of the head.
        seed: The random seed of the head.
    """

    name: ClassVar[str] = "residual-scale"

    method: Literal["neighbours", "head", "qipf"] = "neighbours"
    k: int = 30
    hidden: int = 16
    epochs: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        for name in ("k", "hidden", "epochs"):
            check_whole(name, getattr(self, name), 1)

    @property
    def reads_features(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if the scale depends on features."""
        return self.method != "qipf"

    def scales(self, outputs: Outputs) -> Array:
        """Return the expected absolute residual of every prediction, (N, targets).

        Args:
            outputs: The result of `qipf.collect(model, inputs)`.
        """
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        return self._scales(checked, self._placed(fitted, checked.logits))

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        if outputs is None or outputs.labels is None or not outputs.regression:
            labels = None if outputs is None else outputs.labels
            kind = (
                "none" if labels is None else f"{str(labels.dtype).removeprefix('torch.')} labels {tuple(labels.shape)}"
            )
            raise ValueError(
                f"{self.name}: expected floating-point targets that are not all 0 or 1, got {kind}; "
                "provide inputs and targets that the network was not trained on"
            )
        if self.method == "qipf" and model is None:
            raise ValueError(f'{self.name}: method="qipf" reads the weights of the network; call fit(model, outputs)')
        rows = to_numpy(self._rows(outputs)).astype(np.float64)
        predictions = to_numpy(outputs.logits).astype(np.float64)
        residuals = np.abs(to_numpy(outputs.labels).astype(np.float64).reshape(predictions.shape) - predictions)
        if not np.isfinite(residuals).all():
            row = int(np.argmax(~np.isfinite(residuals).all(axis=1)))
            raise ValueError(
                f"{self.name}: expected finite targets, got NaN or infinity in row {row}; remove such rows"
            )
        typical = residuals.mean(axis=0)
        if not (typical > 0).all():
            raise ValueError(
                f"{self.name}: all residuals of a target are zero; provide inputs on which the model makes errors"
            )
        width = rows.shape[1] - predictions.shape[1]
        mean, spread = rows.mean(axis=0), _spread(rows, width)
        tensors = {"mean": mean, "factor": 1 / spread, "typical": typical}
        standard = (rows - mean) / spread
        facts = {"columns": predictions.shape[1], "width": width, "references": len(rows)}
        if self.method == "neighbours":
            tensors |= {"rows": standard, "residuals": residuals}
        elif self.method == "head":
            head = _train_head(standard, residuals / typical, self.hidden, self.epochs, self.seed)
            tensors |= head
        else:
            curves, field = _fit_field(model, standard, residuals / typical)
            return Fitted({**tensors, **curves}, {**facts, **field})
        return Fitted({key: value.astype(np.float32) for key, value in tensors.items()}, facts)

    def _use(self, fitted: Fitted) -> None:
        self._field = WeightQIPF(factor=FACTOR) if self.method == "qipf" else None
        if self._field is not None:
            self._field._use(Fitted(with_prefix(fitted.tensors, PREFIX), fitted.facts["field"]))
        super()._use(fitted)

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        scales = self._scales(outputs, tensors)
        xp = namespace(scales)
        return xp.mean(xp.log(scales / xp.astype(tensors["typical"], scales.dtype, copy=False)), axis=1)

    def _scales(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        rows = self._rows(outputs)
        xp = namespace(rows)
        cast = ("mean", "factor", "typical") if self._field is not None else tuple(tensors)
        parts = {key: xp.astype(tensors[key], rows.dtype, copy=False) for key in cast}
        standard = xp.clip((rows - parts["mean"]) * parts["factor"], -1e6, 1e6)
        if self._field is not None:
            ratio = _field_ratios(self._field, standard, tensors)
        elif self.method == "neighbours":
            ratio = self._near(standard, parts["rows"], parts["residuals"]) / parts["typical"]
        else:
            units = xp.clip(standard @ parts["inner"] + parts["inner_bias"], 0.0, None)
            ratio = xp.exp(xp.clip(units @ parts["outer"] + parts["outer_bias"], -7.0, 7.0))
        return xp.clip(ratio, SMALLEST, None) * parts["typical"]

    def _near(self, queries: Array, rows: Array, residuals: Array) -> Array:
        """Return the mean residuals of the nearest rows, computed block by block."""
        xp = namespace(queries)
        count, squares = min(self.k, rows.shape[0]), xp.sum(rows * rows, axis=1)

        def mean(products: Array) -> Array:
            nearest = _nearest(squares[None, :] - 2 * products, count)
            picked = xp.take(residuals, xp.reshape(nearest, (-1,)), axis=0)
            return xp.mean(xp.reshape(picked, (products.shape[0], count, residuals.shape[1])), axis=1)

        return by_blocks(queries, rows, mean)

    def _rows(self, outputs: Outputs) -> Array:
        """Return the inputs to the method: the predictions, preceded by the features if the method reads them."""
        logits = wide(outputs.logits)
        if not self.reads_features:
            return logits
        xp = namespace(logits)
        return xp.concat([xp.astype(wide(outputs.features), logits.dtype, copy=False), logits], axis=1)


def _spread(rows: np.ndarray, features: int) -> np.ndarray:
    """Return the standard deviation of every column, or infinity for constant columns, so that they are ignored.

    A feature also counts as constant if its deviation is negligible compared with the mean deviation of the features.
    Predictions, in the columns after the first `features`, are not compared, because their units may differ.
    """
    deviation, largest = rows.std(axis=0), np.abs(rows).max(axis=0, initial=0.0)
    least = np.finfo(np.float32).eps * largest
    if features:
        least[:features] = np.maximum(least[:features], 1e-6 * deviation[:features].mean())
    return np.where(deviation > np.maximum(least, 1e-30), deviation, np.inf)


def _train_head(rows: np.ndarray, ratios: np.ndarray, hidden: int, epochs: int, seed: int) -> dict[str, np.ndarray]:
    """Train `exp(max(x @ inner + inner_bias, 0) @ outer + outer_bias)` to predict the expected ratio of every row.

    The rows have zero mean and unit variance; ratios are absolute residuals divided by their mean.
    """
    torch = require("torch", extra="torch")
    from qipf.training import seeded, train
    from qipf.training.loop import Split

    def loss(outputs: Any, targets: Any) -> Any:
        logs = outputs.clamp(-7.0, 7.0)
        return (targets.reshape(logs.shape) * torch.exp(-logs) + logs).mean()

    with seeded(seed, torch.device("cpu")):
        net = torch.nn.Sequential(
            torch.nn.Linear(rows.shape[1], hidden),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(hidden, ratios.shape[1]),
        )
        torch.nn.init.zeros_(net[3].weight)  # the initial prediction is the mean residual
        torch.nn.init.zeros_(net[3].bias)
    data = Split(torch.as_tensor(rows, dtype=torch.float32), torch.as_tensor(ratios, dtype=torch.float32))
    batch = int(min(256, max(32, len(rows) // 16)))
    train(
        net, data, epochs=epochs, batch_size=batch, learning_rate=3e-3, weight_decay=0.05, loss=loss, seed=seed,
        device="cpu", progress=False,
    )  # fmt: skip
    names = {"inner": net[0].weight.T, "inner_bias": net[0].bias, "outer": net[3].weight.T, "outer_bias": net[3].bias}
    return {name: np.ascontiguousarray(value.detach().numpy()) for name, value in names.items()}


def _fit_field(model: Any, standard: np.ndarray, ratios: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Fit a field of the weights and one isotonic curve per target; return their tensors and facts.

    Args:
        model: The model whose weights define the field.
        standard: Predictions with zero mean and unit variance, (n, targets).
        ratios: Absolute residuals divided by their mean, (n, targets).
    """
    from scipy.optimize import isotonic_regression

    column = standard.reshape(-1, 1)
    field = WeightQIPF(factor=FACTOR).fit(model, Outputs(column, labels=np.full(len(column), 0.5)))
    fitted = field._require_fitted()
    scores = field.modes(column).mean(axis=1).reshape(standard.shape)
    centre, spread = scores.mean(axis=0), np.maximum(scores.std(axis=0), np.finfo(np.float64).tiny)
    at, to = [], []
    steps = max(1, min(STEPS, len(standard) // PER_STEP))
    for scaled, ratio in zip(((scores - centre) / spread).T, ratios.T, strict=True):
        order = np.argsort(scaled, kind="stable")
        rising = isotonic_regression(ratio[order]).x
        at.append([part.mean() for part in np.array_split(scaled[order], steps)])
        to.append([part.mean() for part in np.array_split(rising, steps)])
    tensors = {"centre": centre, "spread": spread, "knots": np.array(at), "values": np.array(to)}
    tensors |= {PREFIX + key: value for key, value in fitted.tensors.items()}
    return tensors, {"field": {key: value for key, value in fitted.facts.items() if key != "model"}}


def _field_ratios(field: WeightQIPF, standard: Array, tensors: Mapping[str, Array]) -> Array:
    """Return the expected absolute residual relative to its mean, (N, targets)."""
    xp = namespace(standard)
    own, columns = with_prefix(tensors, PREFIX), []
    for target in range(standard.shape[1]):
        modes = field.modes_of(standard[:, target : target + 1], own)
        scores = xp.astype(xp.mean(modes, axis=1), standard.dtype, copy=False)
        at, to, centre, spread = (
            xp.astype(tensors[key], standard.dtype, copy=False)[target, ...]
            for key in ("knots", "values", "centre", "spread")
        )
        columns.append(interpolate((scores - centre) / spread, at, to))
    return xp.stack(columns, axis=1)


def _nearest(distances: Array, count: int) -> Array:
    """Return the column indices of the smallest distances in every row, nearest first."""
    if compat.is_torch_array(distances):  # a full sort cannot be exported to ONNX
        return distances.topk(count, dim=1, largest=False).indices
    return namespace(distances).argsort(distances, axis=1)[:, :count]
