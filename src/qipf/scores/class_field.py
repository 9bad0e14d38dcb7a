"""Score predictions by one potential field per class, estimated from the features of reference inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem, check_choice, check_positive
from qipf.arrays import Array, is_traced, namespace, to_numpy
from qipf.scores.base import Fitted, Scorer, wide
from qipf.scores.coordinates import FLOOR, class_logits, log_odds, log_softmax, log_sum_exp, pick, softmax
from qipf.scores.reference import check_labels, log_loss, unit
from qipf.tasks.outputs import Outputs

Normalise = Literal["unit", "centred-unit", "none"]
NORMALISATIONS: tuple[str, ...] = ("unit", "centred-unit", "none")
FEATURE_LIMIT = 4e9  # limit of unscaled features: squares of larger ones overflow in single precision
BANDWIDTHS = (0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8)
"""Candidates, in units of the root mean square length of the samples (1 for unit-length features)."""
LEFT_OUT, KEPT = 1500, 6000
LEAST_SPREAD = 1e-3
"""The smallest standard deviation of unit-length features; below it, rounding dominates squared distances."""
FEATURES = "features"  # the space that `Outputs.features` spans; every other name is one of `Outputs.layers`
Kind = Literal["contrast", "density", "own-density", "potential", "modes"]
LARGEST = 1e6
"""The largest contrast or density, at most the half-precision maximum; the score of classes without references."""
KINDS: tuple[str, ...] = ("contrast", "density", "own-density", "potential", "modes")

ABSENT = -1e30  # the bias of padding and the log of an empty sum: finite in float32, and below all other values
_LONGEST_BLOCK = 256
_GPU_TILE = 2**26  # elements per tile: 256 MiB in float32
_EVEN = 1.25  # pad all classes to the same number of blocks, to sum them at once, if that costs at most this factor


@dataclass(eq=False)
class ClassField(Scorer):
    r"""Score how much closer a prediction is to other classes than to its own, with one field per class.

    With psi_c the information potential field (paper, Definition 2) of the reference features of class c, the
    posterior is :math:`p(c \mid y) \propto \pi_c \psi_c(y)`, and with c* the predicted class

    .. math::  u = \log \sum_{c \ne c^*} p(c \mid y) - \log p(c^* \mid y) .

    A predicted class without references has the largest score, u = 1e6.

    Args:
        kind: "contrast" as above; "density", -log psi of all references; "own-density", -log psi of the predicted
            class; "potential", V_0 of the whole field (Definition 3); or "modes", the mean of the modes of orders
            2, 4, 6, 8 (Definition 4). The last two weight all references equally.
        bandwidth: Bandwidth of the kernel in normalised features. "cv" maximises the
            leave-one-out likelihood of the labels.
        normalise: "unit" scales features to unit length; "centred-unit" first subtracts the mean of the references;
            "none" leaves features as they are, up to 4e9 in size.
        space: "features", or the name of a layer that was collected with `qipf.collect(..., layers=...)`.
        priors: Class priors pi_c: "uniform", or "reference" for the shares of the classes among the references.
    """

    name: ClassVar[str] = "class-field"
    reads_labels: ClassVar[bool] = True
    kind: Kind = "contrast"
    bandwidth: float | Literal["cv"] = "cv"
    normalise: Normalise = "unit"
    space: str = FEATURES
    priors: Literal["uniform", "reference"] = "uniform"

    def __post_init__(self) -> None:
        if self.bandwidth != "cv":
            self.bandwidth = check_positive("bandwidth", self.bandwidth)
        check_choice("kind", self.kind, KINDS)
        check_choice("normalise", self.normalise, NORMALISATIONS)
        check_choice("priors", self.priors, ("uniform", "reference"))
        if self.kind in ("potential", "modes") and self.priors != "uniform":
            raise ValueError(
                f'kind: "{self.kind}" is for a field in which every reference counts the same; leave out '
                'priors="reference", or use kind="density"'
            )

    @property
    def reads_features(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if it reads `Outputs.features` instead of a layer."""
        return self.space == FEATURES

    @property
    def layers(self) -> tuple[str, ...]:
        """The layer to read, if it is not the features."""
        return () if self.space == FEATURES else (self.space,)

    @property
    def export_problem(self) -> str:
        """The reason why this scorer cannot be exported; empty if it can."""
        return "" if self.kind not in ("potential", "modes") else f'kind "{self.kind}" evaluates its field in blocks'

    def fit_batches(self, batches: Iterable[Outputs], *, references: int = 20_000, seed: int = 0) -> Self:
        """Fit to more outputs than fit in memory, using a uniform sample of their rows.

        Args:
            batches: Labelled outputs, for instance one shard of the training data at a time.
            references: The number of rows to keep.
            seed: Seed of the sample.
        """
        return self.fit(data=reservoir(batches, references, seed))

    def posterior(self, outputs: Outputs) -> Array:
        """Return the class probabilities of every input, (N, C), independent of the network's prediction."""
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        return softmax(self._log_fields(checked, self._placed(fitted, checked.logits)))

    # --- fitting -------------------------------------------------------------------------------------------------

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        if outputs is None or outputs.labels is None:
            raise ValueError(f"{self.name}: needs labelled reference outputs, fit(data=qipf.collect(model, (x, y)))")
        classes = class_logits(outputs.logits).shape[1]
        labels = check_labels(outputs.labels, classes, self.name)
        features = to_numpy(wide(self._features(outputs)))
        centre = centre_of(features, self.normalise).astype(np.float32)
        samples = normalise(features, centre, self.normalise).astype(np.float32)
        if self.normalise == "unit" and 0 < float(samples.std(axis=0, dtype=np.float64).max()) < LEAST_SPREAD:
            found = "a common offset hides how they differ once they have unit length"
            raise Problem(self.space, found, hint='use normalise="centred-unit"')
        bandwidth = choose_bandwidth(samples, labels, classes) if self.bandwidth == "cv" else self.bandwidth
        counts = np.maximum(np.bincount(labels, minlength=classes), 1)
        shares = 1.0 / (counts * classes) if self.priors == "uniform" else np.full(classes, 1.0 / len(labels))
        packed = pack(samples, labels, classes, shares[labels])
        tensors = {"keys": packed.keys, "squares": packed.squares, "weights": packed.weights, "centre": centre}
        facts = {
            "columns": outputs.logits.shape[1], "references": len(labels), "bandwidth": float(bandwidth),
            "blocks": list(packed.blocks), "length": packed.length,
        }  # fmt: skip
        return Fitted(tensors, facts)

    def _features(self, outputs: Outputs) -> Array:
        return outputs.features if self.space == FEATURES else outputs.layers[self.space]

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        checked = super()._checked(outputs, fitted)
        if checked.regression and checked.labels is not None:
            raise ValueError(f"{self.name}: a regression has no classes; use WeightQIPF")
        return checked

    def _width(self, fitted: Fitted) -> int:
        return fitted.tensors["centre"].shape[0]

    # --- scoring -------------------------------------------------------------------------------------------------

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        logits = class_logits(outputs.logits)
        xp = namespace(logits)
        if self.kind in ("potential", "modes"):
            return self._potential(outputs, tensors)
        predicted = xp.argmax(logits, axis=1)
        fields = self._log_fields(outputs, tensors)
        if self.kind == "contrast":
            found = -log_odds(xp.astype(log_softmax(fields), logits.dtype, copy=False), predicted)
        else:
            found = -(log_sum_exp(fields) if self.kind == "density" else pick(fields, predicted))
        largest = min(LARGEST, 0.9 * float(xp.finfo(outputs.logits.dtype).max))
        return xp.clip(found, -largest, largest)

    def _log_fields(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        """Return the logarithm of pi_c psi_c, (N, C)."""
        y, packed = self._queries(outputs, tensors)
        return log_fields(y, packed, self._require_fitted().facts["bandwidth"])

    def _queries(self, outputs: Outputs, tensors: Mapping[str, Array]) -> tuple[Array, Packed]:
        values = wide(self._features(outputs))
        xp = namespace(values)
        facts = self._require_fitted().facts
        keys, squares, weights, centre = (
            xp.astype(tensors[part], values.dtype, copy=False) for part in ("keys", "squares", "weights", "centre")
        )
        packed = Packed(keys, squares, weights, tuple(int(count) for count in facts["blocks"]), int(facts["length"]))
        return normalise(values, centre, self.normalise), packed

    def _potential(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        from qipf.fields.field import Field
        from qipf.fields.potential import potentials, uncertainty_modes

        y, packed = self._queries(outputs, tensors)
        xp = namespace(y)
        bandwidth = self._require_fitted().facts["bandwidth"]
        field = Field(xp.take(packed.keys, xp.nonzero(packed.weights > ABSENT / 2)[0], axis=0), bandwidth)
        if y.shape[0] == 0:
            return y[:, 0]
        if self.kind == "potential":
            return potentials(field, y, (0,))[:, 0]
        return xp.mean(uncertainty_modes(field, y, radius=0.2 * bandwidth), axis=1)


def normalise(values: Array, centre: Array, how: str) -> Array:
    """Scale features to unit length ("unit"), after centring ("centred-unit"), or not at all ("none").

    Args:
        values: (N, d).
        centre: (d,) the vector to subtract; zero for "unit".
        how: One of `NORMALISATIONS`; "none" only subtracts the centre, which does not change distances.
    """
    if how == "none":
        return namespace(values).clip(values, -FEATURE_LIMIT, FEATURE_LIMIT) - centre
    return unit(0.5 * values - 0.5 * centre)  # halved, so that the difference of the largest floats is finite


def centre_of(features: np.ndarray, how: str) -> np.ndarray:
    """Return the vector that `normalise` subtracts for these reference features."""
    if how == "unit":
        return np.zeros(features.shape[1])
    return np.clip(features.mean(axis=0, dtype=np.float64), -FEATURE_LIMIT, FEATURE_LIMIT)


def choose_bandwidth(samples: np.ndarray, labels: np.ndarray, classes: int) -> float:
    r"""Return the bandwidth that maximises the leave-one-out likelihood of the labels.

    .. math::  s = \arg\min_s -\sum_i \log \frac{\psi_{y_i}(w_i)}{\sum_c \psi_c(w_i)}

    Only the references and their labels are used.
    """
    order = np.random.default_rng(0).permutation(len(samples))
    split = min(LEFT_OUT, max(1, len(samples) // 5))
    left_out, kept = order[:split], order[split : split + KEPT]
    if len(kept) == 0:
        raise ValueError('bandwidth: "cv" needs at least two references; give a number instead')
    scale = float(np.sqrt(np.mean(np.einsum("ij,ij->i", samples[kept], samples[kept]))))
    scale = scale if scale > 0 else 1.0
    packed = pack(samples[kept], labels[kept], classes)
    losses = [
        log_loss(log_fields(samples[left_out], packed, bandwidth * scale), labels[left_out]) for bandwidth in BANDWIDTHS
    ]
    return BANDWIDTHS[int(np.argmin(losses))] * scale


def reservoir(batches: Iterable[Outputs], size: int, seed: int) -> Outputs:
    """Return a uniform sample of `size` rows of a stream of outputs, in bounded memory (Vitter's algorithm R)."""
    rng = np.random.default_rng(seed)
    kept: dict[str, np.ndarray] = {}
    seen = 0
    for batch in batches:
        columns = _columns(batch)
        count = len(batch)
        if not kept:
            kept = {name: np.empty((size, *values.shape[1:]), values.dtype) for name, values in columns.items()}
        if columns.keys() != kept.keys():
            raise ValueError(f"batches: expected {', '.join(kept)} in every batch, got {', '.join(columns)}")
        numbers = np.arange(seen, seen + count)
        places = np.where(numbers < size, numbers, rng.integers(0, numbers + 1))
        rows = np.flatnonzero(places < size)
        for name, values in columns.items():
            kept[name][places[rows]] = values[rows]  # if several rows share an index, the last one wins
        seen += count
    if seen == 0:
        raise ValueError("batches: got no rows, expected at least one; an iterator that was read before is empty")
    found = {name: values[: min(size, seen)] for name, values in kept.items()}
    return Outputs(
        found.pop("logits"),
        found.pop("features", None),
        found.pop("labels", None),
        {name.removeprefix("layer:"): values for name, values in found.items()},
    )


def _columns(batch: Outputs) -> dict[str, np.ndarray]:
    columns = {"logits": batch.logits, "features": batch.features, "labels": batch.labels}
    columns |= {f"layer:{name}": values for name, values in batch.layers.items()}
    return {name: to_numpy(values) for name, values in columns.items() if values is not None}


class Packed(NamedTuple):
    """Samples sorted by class and padded to whole blocks of one class each, so that one product covers all."""

    keys: Array
    """(m, d) samples in units of the bandwidth"""
    squares: Array
    """(m,) -|w|^2 / 2"""
    weights: Array
    """(m,) log weights, and `ABSENT` for padding"""
    blocks: tuple[int, ...]
    """The number of blocks of each class."""
    length: int
    """The number of rows of a block."""


def pack(samples: np.ndarray, labels: np.ndarray, classes: int, weights: np.ndarray | None = None) -> Packed:
    """Arrange samples for `log_fields`.

    Args:
        samples: (n, d), centred and divided by the bandwidth.
        labels: (n,) classes from 0 to `classes` - 1.
        classes: The number of classes.
        weights: (n,) the weight of each sample; None for 1.
    """
    counts = np.bincount(labels, minlength=classes)
    typical = max(1, int(counts[counts > 0].mean()) // 8) if len(labels) else 1
    length = min(_LONGEST_BLOCK, 1 << (typical.bit_length() - 1))  # padding is at most an eighth of a class
    blocks = -(-counts // length)
    if classes * blocks.max() <= _EVEN * blocks.sum():
        blocks[:] = blocks.max()
    starts = np.concatenate([[0], np.cumsum(blocks)[:-1]]) * length
    order = np.argsort(labels, kind="stable")
    within = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = starts[labels[order]] + within
    keys = np.zeros((int(blocks.sum()) * length, samples.shape[1]), samples.dtype)
    squares = np.zeros(len(keys), samples.dtype)
    log_weights = np.full(len(keys), ABSENT, samples.dtype)
    keys[places] = samples[order]
    wide = samples[order].astype(np.float64)
    squares[places] = -0.5 * np.einsum("ij,ij->i", wide, wide)
    log_weights[places] = 0.0 if weights is None else np.log(weights[order])
    return Packed(keys, squares, log_weights, tuple(int(count) for count in blocks), length)


def log_fields(y: Array, packed: Packed, bandwidth: float = 1.0) -> Array:
    r"""Return log kernel sums, :math:`\log \sum_{t \in c} a_t e^{-|y - w_t|^2 / 2 s^2}`, shape (N, C).

    In units of the bandwidth,

    .. math::  -\tfrac12 |y - w_t|^2 = -\tfrac12 |y|^2 + (y, 1) \cdot (w_t, -\tfrac12 |w_t|^2),

    so this is a log-sum-exp over query-key dot products, computed tile by tile. Queries and samples
    should be centred to reduce rounding errors.

    Args:
        y: (N, d) queries, in the units of the packed samples and relative to their centre.
        packed: The result of `pack`, with the array library, dtype and device of `y`.
        bandwidth: s, in the same units.
    """
    xp = namespace(y)
    sharpness = 1.0 / bandwidth**2
    half = 0.5 * sharpness * xp.sum(y * y, axis=1)[:, None]
    y = sharpness * y
    bias = sharpness * packed.squares + packed.weights
    if is_traced(y):  # a traced batch has no size, so it cannot be tiled
        return _by_class(xp, _block_sums(xp, y, packed.keys, bias, packed.length), packed) - half
    if y.shape[0] == 0:
        return xp.zeros((0, len(packed.blocks)), dtype=y.dtype, device=compat.device(y))
    rows, columns = _tile(y, packed.length)
    parts = []
    for block in _slices(y.shape[0], rows):
        sums = [
            _block_sums(xp, y[block, :], packed.keys[tile, :], bias[tile], packed.length)
            for tile in _slices(packed.keys.shape[0], columns)
        ]
        parts.append(_by_class(xp, xp.concat(sums, axis=1), packed))
    return xp.concat(parts, axis=0) - half


def _block_sums(xp: Any, y: Array, keys: Array, bias: Array, length: int) -> Array:
    """Return the log-sum-exp over every block of keys, (N, m / length)."""
    products = xp.addmm(bias, y, keys.T) if compat.is_torch_array(y) else y @ xp.matrix_transpose(keys) + bias
    return _log_sum(xp, xp.reshape(products, (y.shape[0], -1, length)))


def _by_class(xp: Any, sums: Array, packed: Packed) -> Array:
    """Combine block sums (N, blocks) into class sums (N, C)."""
    if len(set(packed.blocks)) == 1:
        return _log_sum(xp, xp.reshape(sums, (sums.shape[0], len(packed.blocks), -1)))
    columns, start = [], 0
    for count in packed.blocks:
        part = sums[:, start : start + count]
        start += count
        columns.append(_log_sum(xp, part[:, None, :]) if count else xp.full_like(sums[:, :1], ABSENT))
    return xp.concat(columns, axis=1)


def _log_sum(xp: Any, values: Array) -> Array:
    """Return the log-sum-exp over the last of three axes."""
    if values.shape[2] == 1:
        return values[:, :, 0]
    high = xp.max(values, axis=2)
    return high + xp.log(xp.sum(xp.exp(xp.clip(values - high[:, :, None], FLOOR, None)), axis=2))


def _tile(y: Array, multiple: int) -> tuple[int, int]:
    """Return the rows and columns of a tile that fits in the CPU cache, or saturates a GPU."""
    rows, columns = 512, 2048
    if compat.is_torch_array(y) and y.device.type == "cuda":
        rows = min(8192, max(1, y.shape[0]))
        columns = _GPU_TILE // rows
    return rows, max(1, columns // multiple) * multiple


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
