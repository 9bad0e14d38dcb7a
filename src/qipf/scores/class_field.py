"""Fields of what the network learned about each class: one field per class, from the features of references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from qipf.arrays import Array, as_array, namespace, to_numpy
from qipf.fields.field import check_bandwidth
from qipf.scores.base import Fitted, Scorer, check_rows, wide
from qipf.scores.class_features import NORMALISATIONS, Normalise, centre_of, landmarks, normalise
from qipf.scores.class_selection import choose_bandwidth, choose_temperature
from qipf.scores.coordinates import class_logits, log_odds, log_softmax, log_sum_exp, mean_posterior, pick
from qipf.scores.held_out import check_labels
from qipf.scores.kernel_sums import ABSENT, Packed, log_fields, pack

if TYPE_CHECKING:
    from qipf.models.outputs import Outputs

FEATURES = "features"  # the space that `Outputs.features` spans; every other name is one of `Outputs.layers`
Kind = Literal["contrast", "density", "own-density", "potential", "modes"]
LARGEST = 1e6
"""The largest contrast or density, or the largest number of half precision; the score of a class without references."""
KINDS: tuple[str, ...] = ("contrast", "density", "own-density", "potential", "modes")


@dataclass(eq=False)
class ClassField(Scorer):
    r"""How much closer a prediction lies to other classes than to its own, measured by one field per class.

    With psi_c the information potential field (paper, Definition 2) of the reference features of class c, the
    posterior of a space is :math:`p(c \mid y) \propto \pi_c \psi_c(y)`, and with c* the predicted class

    .. math::  u = \log \sum_{c \ne c^*} p(c \mid y) - \log p(c^* \mid y) .

    Each space gives a posterior, and so does the softmax of the network where `logits` is set; they are pooled first. A
    predicted class without any references is unknown to the fields, and its score is the largest, u = 1e6.

    Args:
        kind: "contrast", as above. With one space and without logits also "density", -log psi of all references;
            "own-density", -log psi of the predicted class; "potential", V_0 of the whole field (Definition 3); or
            "modes", the mean of the modes of orders 2, 4, 6, 8 (Definition 4). In the last two every reference counts
            the same.
        bandwidth: bandwidth of the kernel in normalised features. Several bandwidths give one posterior each, and the
            space gets their mean. "cv" chooses, for each space, the bandwidth under which references that were left
            out have the most likely labels.
        normalise: "unit" scales features to unit length; "centred-unit" first subtracts the mean of the references;
            "none" leaves features as they are, up to 4e9 in size.
        spaces: "features", and names of layers that were collected with `qipf.collect(..., layers=...)`.
        logits: also pool the softmax of the logits, at a temperature that is chosen as the bandwidths are.
        pool: "linear" for the mean of the posteriors, as in an ensemble; "log" for the mean of their logarithms.
        priors: class priors pi_c: "uniform", or "reference" for the shares of the classes among the references.
        landmarks: keep about this many weighted k-means centres instead of all references; None keeps all. How much
            this changes the scores is measured and kept in `fitted.facts["landmark_error"]`.
    """

    name: ClassVar[str] = "class-field"
    reads_labels: ClassVar[bool] = True
    kind: Kind = "contrast"
    bandwidth: float | tuple[float, ...] | Literal["cv"] = "cv"
    normalise: Normalise = "unit"
    spaces: tuple[str, ...] = (FEATURES,)
    logits: bool = False
    pool: Literal["linear", "log"] = "linear"
    priors: Literal["uniform", "reference"] = "uniform"
    landmarks: int | None = None

    def __post_init__(self) -> None:
        self.spaces = (self.spaces,) if isinstance(self.spaces, str) else tuple(self.spaces)
        if not self.spaces:
            raise ValueError('spaces: expected at least one, for instance ("features",)')
        if self.bandwidth != "cv":
            given = self.bandwidth if isinstance(self.bandwidth, tuple | list) else (self.bandwidth,)
            several = tuple(check_bandwidth(bandwidth) for bandwidth in given)  # pyright: ignore[reportArgumentType]
            if not several:
                raise ValueError('bandwidth: expected a number, several of them, or "cv"')
            self.bandwidth = several[0] if len(several) == 1 else several
        for given, name, known in (
            (self.kind, "kind", KINDS),
            (self.normalise, "normalise", NORMALISATIONS),
            (self.pool, "pool", ("linear", "log")),
            (self.priors, "priors", ("uniform", "reference")),
        ):
            if given not in known:
                raise ValueError(f"{name}: expected one of {', '.join(known)}, got {given!r}")
        if self.kind != "contrast" and (self.logits or len(self.spaces) > 1 or isinstance(self.bandwidth, tuple)):
            raise ValueError(
                f'kind: "{self.kind}" takes one space and one bandwidth, no logits; use kind="contrast" to pool more'
            )
        if self.kind in ("potential", "modes") and (self.landmarks is not None or self.priors != "uniform"):
            raise ValueError(
                f'kind: "{self.kind}" is for a field in which every reference counts the same; leave out landmarks and '
                'priors="reference", or use kind="density"'
            )
        if self.landmarks is not None and (not isinstance(self.landmarks, int) or self.landmarks < 1):
            raise ValueError(f"landmarks: expected a whole number of at least 1 or None, got {self.landmarks!r}")

    @property
    def reads_features(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the features are among the spaces."""
        return FEATURES in self.spaces

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in addition to the features, whose outputs this scorer reads."""
        return tuple(name for name in self.spaces if name != FEATURES)

    @property
    def export_problem(self) -> str:
        """Why this scorer cannot become part of an exported graph; empty where it can."""
        return "" if self.kind not in ("potential", "modes") else f'kind "{self.kind}" evaluates its field in blocks'

    def fit_batches(self, batches: Iterable[Outputs], *, references: int = 20_000, seed: int = 0) -> Self:
        """Fit to more outputs than fit in memory, by keeping a uniform sample of their rows.

        Args:
            batches: labelled outputs, for instance of one shard of the training data after another.
            references: how many rows to keep.
            seed: seed of the sample.
        """
        from qipf.scores.class_selection import reservoir

        return self.fit(outputs=reservoir(batches, references, seed))

    def posterior(self, outputs: Outputs) -> Array:
        """The pooled class probabilities of every input, (N, C), independent of what the network predicts."""
        fitted = self._require_fitted()
        checked = self._checked(outputs, fitted)
        pooled = self._pooled(checked, self._placed(fitted, checked.logits))
        return namespace(pooled).exp(pooled)

    # --- fitting -------------------------------------------------------------------------------------------------

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        if outputs is None or outputs.labels is None:
            raise ValueError(f"{self.name}: needs labelled reference outputs, fit(outputs=qipf.collect(model, (x, y)))")
        logits = to_numpy(class_logits(outputs.logits))
        labels = check_labels(outputs.labels, logits.shape[1], self.name)
        tensors: dict[str, np.ndarray] = {}
        facts: dict[str, Any] = {"columns": outputs.logits.shape[1], "references": len(labels)}
        bandwidths, blocks, lengths, errors = [], [], [], []
        for number, space in enumerate(self.spaces):
            features = to_numpy(wide(self._space(outputs, space)))
            centre = centre_of(features, self.normalise).astype(np.float32)
            samples = normalise(features, centre, self.normalise).astype(np.float32)
            chosen = choose_bandwidth(samples, labels, logits.shape[1]) if self.bandwidth == "cv" else self.bandwidth
            several = list(chosen) if isinstance(chosen, tuple) else [float(chosen)]
            packed, error = self._packed(samples, labels, logits.shape[1], several)
            tensors |= {f"keys{number}": packed.keys, f"squares{number}": packed.squares}
            tensors |= {f"weights{number}": packed.weights, f"centre{number}": centre}
            bandwidths.append(several)
            blocks.append(list(packed.blocks))
            lengths.append(packed.length)
            errors.append(error)
        facts |= {"bandwidths": bandwidths, "blocks": blocks, "lengths": lengths, "spaces": list(self.spaces)}
        if self.landmarks is not None:
            facts["landmark_error"] = max(errors)
        if self.logits:
            facts["temperature"] = choose_temperature(logits, labels)
        return Fitted(tensors, facts)

    def _packed(
        self, samples: np.ndarray, labels: np.ndarray, classes: int, bandwidths: list[float]
    ) -> tuple[Packed, float]:
        counts = np.maximum(np.bincount(labels, minlength=classes), 1)
        shares = 1.0 / (counts * classes) if self.priors == "uniform" else np.full(classes, 1.0 / len(labels))
        whole = pack(samples, labels, classes, shares[labels])
        if self.landmarks is None or self.landmarks >= len(samples):
            return whole, 0.0
        centres, kept_labels, weights = landmarks(samples, labels, self.landmarks)
        fewer = pack(centres, kept_labels, classes, weights * shares[kept_labels])
        probes = samples[np.random.default_rng(0).permutation(len(samples))[:500]]
        errors = [np.abs(_contrasts(probes, fewer, s) - _contrasts(probes, whole, s)).mean() for s in bandwidths]
        return fewer, float(max(errors))

    def _space(self, outputs: Outputs, space: str) -> Array:
        return outputs.features if space == FEATURES else outputs.layers[space]

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        checked = super()._checked(outputs, fitted)
        if checked.regression and checked.labels is not None:
            raise ValueError(f"{self.name}: a regression has no classes; use WeightQIPF")
        for number, space in enumerate(self.spaces):
            if space != FEATURES and space not in checked.layers:
                there = ", ".join(map(repr, checked.layers)) or "none"
                raise ValueError(
                    f"{self.name} reads the layer {space!r}, but the outputs have {there}; "
                    f"collect it: qipf.collect(..., layers=[{space!r}])"
                )
            values = as_array(self._space(checked, space), space)
            if space != FEATURES:
                check_rows(values, space)
            if fitted is not None and values.shape[1] != fitted.tensors[f"centre{number}"].shape[0]:
                expected = fitted.tensors[f"centre{number}"].shape[0]
                raise ValueError(f"{space}: expected {expected} columns, as in fitting, got {values.shape[1]}")
        return checked

    # --- scoring -------------------------------------------------------------------------------------------------

    def _score(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        logits = class_logits(outputs.logits)
        xp = namespace(logits)
        if self.kind in ("potential", "modes"):
            return self._potential(outputs, tensors)
        predicted = xp.argmax(logits, axis=1)
        if self.kind == "contrast":
            found = -log_odds(self._pooled(outputs, tensors), predicted)
        else:
            (fields,) = self._log_fields(0, outputs, tensors)
            found = -(log_sum_exp(fields) if self.kind == "density" else pick(fields, predicted))
        largest = min(LARGEST, 0.9 * float(xp.finfo(outputs.logits.dtype).max))
        return xp.clip(found, -largest, largest)

    def _pooled(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        """The logarithm of the pooled posterior, (N, C)."""
        facts = self._require_fitted().facts
        logits = class_logits(outputs.logits)
        xp = namespace(logits)
        views = []
        for number in range(len(self.spaces)):
            scales = [log_softmax(fields) for fields in self._log_fields(number, outputs, tensors)]
            views.append(xp.astype(mean_posterior(scales, self.pool), logits.dtype, copy=False))
        if self.logits:
            views.append(log_softmax(logits / facts["temperature"]))
        return mean_posterior(views, self.pool)

    def _log_fields(self, number: int, outputs: Outputs, tensors: Mapping[str, Array]) -> list[Array]:
        """The logarithm of pi_c psi_c in one space, (N, C), for each of its bandwidths."""
        y, packed = self._queries(number, outputs, tensors)
        return [log_fields(y, packed, s) for s in self._require_fitted().facts["bandwidths"][number]]

    def _queries(self, number: int, outputs: Outputs, tensors: Mapping[str, Array]) -> tuple[Array, Packed]:
        values = wide(self._space(outputs, self.spaces[number]))
        xp = namespace(values)
        facts = self._require_fitted().facts
        keys, squares, weights, centre = (
            xp.astype(tensors[f"{part}{number}"], values.dtype, copy=False)
            for part in ("keys", "squares", "weights", "centre")
        )
        blocks = tuple(int(count) for count in facts["blocks"][number])
        packed = Packed(keys, squares, weights, blocks, int(facts["lengths"][number]))
        return normalise(values, centre, self.normalise), packed

    def _potential(self, outputs: Outputs, tensors: Mapping[str, Array]) -> Array:
        from qipf.fields.field import Field
        from qipf.fields.potential import potentials, uncertainty_modes

        y, packed = self._queries(0, outputs, tensors)
        xp = namespace(y)
        bandwidth = self._require_fitted().facts["bandwidths"][0][0]
        field = Field(xp.take(packed.keys, xp.nonzero(packed.weights > ABSENT / 2)[0], axis=0), bandwidth)
        if y.shape[0] == 0:
            return y[:, 0]
        if self.kind == "potential":
            return potentials(field, y, (0,))[:, 0]
        return xp.mean(uncertainty_modes(field, y, radius=0.2 * bandwidth), axis=1)


@dataclass(eq=False)
class PosteriorContrast(ClassField):
    """`ClassField` with the softmax of the network pooled in.

    It has two bandwidths, because sharp fields find pixel noise and wide fields find warps; see the research page on
    class fields. `qipf.default` fits this scorer, and says which reference outputs are best for it.
    """

    name: ClassVar[str] = "posterior-contrast"
    bandwidth: float | tuple[float, ...] | Literal["cv"] = (0.14, 0.4)
    logits: bool = True


def _contrasts(samples: np.ndarray, packed: Packed, bandwidth: float) -> np.ndarray:
    fields = log_fields(samples, packed, bandwidth)
    return -log_odds(fields)
