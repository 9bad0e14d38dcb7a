"""One field per class, from the features of reference inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from qipf._common.errors import Problem
from qipf.arrays import Array, namespace, to_numpy
from qipf.fields.field import check_bandwidth
from qipf.scores.base import Fitted, Scorer, wide
from qipf.scores.coordinates import class_logits, log_odds, log_softmax, log_sum_exp, pick, softmax
from qipf.scores.kernel_sums import ABSENT, Packed, log_fields, pack
from qipf.scores.reference import check_labels, log_loss, unit
from qipf.tasks.outputs import Outputs

Normalise = Literal["unit", "centred-unit", "none"]
NORMALISATIONS: tuple[str, ...] = ("unit", "centred-unit", "none")
FEATURE_LIMIT = 4e9  # features that are not scaled end here: the squares of larger ones leave single precision
BANDWIDTHS = (0.07, 0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8)
"""Candidates, in units of the root mean square length of the samples (which is 1 for unit-length features)."""
LEFT_OUT, KEPT = 1500, 6000
LEAST_SPREAD = 1e-3
"""The least standard deviation of features of unit length; of smaller ones, squared distances are lost to rounding."""
FEATURES = "features"  # the space that `Outputs.features` spans; every other name is one of `Outputs.layers`
Kind = Literal["contrast", "density", "own-density", "potential", "modes"]
LARGEST = 1e6
"""The largest contrast or density, or the largest number of half precision; the score of a class without references."""
KINDS: tuple[str, ...] = ("contrast", "density", "own-density", "potential", "modes")


@dataclass(eq=False)
class ClassField(Scorer):
    r"""Score how much closer a prediction lies to other classes than to its own, by one field per class.

    With psi_c the information potential field (paper, Definition 2) of the reference features of class c, the
    posterior is :math:`p(c \mid y) \propto \pi_c \psi_c(y)`, and with c* the predicted class

    .. math::  u = \log \sum_{c \ne c^*} p(c \mid y) - \log p(c^* \mid y) .

    A predicted class without any references is unknown to the fields, and its score is the largest, u = 1e6.

    Args:
        kind: "contrast" as above; "density", -log psi of all references; "own-density", -log psi of the predicted
            class; "potential", V_0 of the whole field (Definition 3); or "modes", the mean of the modes of orders
            2, 4, 6, 8 (Definition 4). In the last two every reference counts the same.
        bandwidth: Bandwidth of the kernel in normalised features. "cv" chooses the one under which references that
            were left out have the most likely labels.
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
            self.bandwidth = check_bandwidth(self.bandwidth)
        for given, name, known in (
            (self.kind, "kind", KINDS),
            (self.normalise, "normalise", NORMALISATIONS),
            (self.priors, "priors", ("uniform", "reference")),
        ):
            if given not in known:
                raise ValueError(f"{name}: expected one of {', '.join(known)}, got {given!r}")
        if self.kind in ("potential", "modes") and self.priors != "uniform":
            raise ValueError(
                f'kind: "{self.kind}" is for a field in which every reference counts the same; leave out '
                'priors="reference", or use kind="density"'
            )

    @property
    def reads_features(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if it reads `Outputs.features`, and not one of the layers."""
        return self.space == FEATURES

    @property
    def layers(self) -> tuple[str, ...]:
        """The layer that it reads, if that is not the features."""
        return () if self.space == FEATURES else (self.space,)

    @property
    def export_problem(self) -> str:
        """Reason why this scorer cannot become part of an exported graph; empty if it can."""
        return "" if self.kind not in ("potential", "modes") else f'kind "{self.kind}" evaluates its field in blocks'

    def fit_batches(self, batches: Iterable[Outputs], *, references: int = 20_000, seed: int = 0) -> Self:
        """Fit to more outputs than fit in memory, by keeping a uniform sample of their rows.

        Args:
            batches: Labelled outputs, for instance of one shard of the training data after another.
            references: How many rows to keep.
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
        centre: (d,) what is subtracted; zero for "unit".
        how: One of `NORMALISATIONS`; "none" only subtracts the centre, which does not change distances.
    """
    if how == "none":
        return namespace(values).clip(values, -FEATURE_LIMIT, FEATURE_LIMIT) - centre
    return unit(0.5 * values - 0.5 * centre)  # half, so that the difference of the largest floats is finite


def centre_of(features: np.ndarray, how: str) -> np.ndarray:
    """Return what `normalise` subtracts for these reference features."""
    if how == "unit":
        return np.zeros(features.shape[1])
    return np.clip(features.mean(axis=0, dtype=np.float64), -FEATURE_LIMIT, FEATURE_LIMIT)


def choose_bandwidth(samples: np.ndarray, labels: np.ndarray, classes: int) -> float:
    r"""Return the bandwidth under which samples that were left out have the most likely labels.

    .. math::  s = \arg\min_s -\sum_i \log \frac{\psi_{y_i}(w_i)}{\sum_c \psi_c(w_i)}

    It reads the references and their labels, and no other inputs.
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
            kept[name][places[rows]] = values[rows]  # of several rows for one index, the last one counts
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
