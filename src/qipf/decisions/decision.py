"""Accept predictions whose uncertainty does not exceed a threshold, with a statistical guarantee."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from qipf._common.errors import Problem, check_probability, check_whole
from qipf.arrays import Array, to_numpy
from qipf.decisions.preconditions import check_independent, check_outputs
from qipf.decisions.threshold import Proof, accept_share, prove
from qipf.decisions.two_sample import MOST_ROWS, MOST_SCORES, Check, compare, some_rows
from qipf.metrics.inputs import check, finite
from qipf.scores.base import Attachment, Fitted
from qipf.tasks.outputs import Outputs

if TYPE_CHECKING:
    from qipf.scores.base import Scorer

Kind = Literal["error", "loss", "accept"]
_TEXT = re.compile(r"\s*(error|loss|accept)\s*(<=|>=|=)\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*(%?)\s*")
_RELATION = {"error": "<=", "loss": "<=", "accept": ">="}


@dataclass(frozen=True)
class Promise:
    """A promise about the accepted predictions.

    Attributes:
        kind: "error" limits the error rate of the accepted predictions, "loss" limits their mean loss, and "accept"
            sets the minimum acceptance rate.
        limit: The fraction or the mean loss, strictly between 0 and 1.
        confidence: The minimum probability, over the draw of the held-out data, that a promise about errors or losses
            holds. For "accept", the confidence level of the reported intervals.
    """

    kind: Kind
    limit: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.limit < 1:
            raise Problem("promise", f"{self.limit:g}", expected="a fraction between 0 and 1")
        check_probability("confidence", self.confidence)

    @classmethod
    def parse(cls, text: str, confidence: float = 0.95) -> Self:
        """Parse a promise such as "error<=0.01", "error<=1%", "loss<=0.05" or "accept>=0.9"."""
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if found is None or found[2] not in ("=", _RELATION[found[1]]):
            expected = "a string such as error<=0.01 or accept>=0.9"
            raise Problem("promise", repr(text), expected=expected)
        limit = float(found[3]) / (100 if found[4] else 1)
        return cls(found[1], limit, confidence)  # pyright: ignore[reportArgumentType]

    def __str__(self) -> str:
        return f"{self.kind}{_RELATION[self.kind]}{self.limit:g}"


class Decision(Attachment):
    """A rule that accepts predictions with uncertainties up to a threshold, with a statistical guarantee.

    Promises:

    * "error<=0.01": at most 1% of the accepted predictions are wrong.
    * "loss<=0.05": the mean loss of accepted predictions is at most 0.05, for any loss in [0, 1].
    * "accept>=0.9": at least 90% of the traffic is accepted, on average over held-out data; `proof` contains a
      confidence interval for the error rate.

    The first two promises hold with probability at least `confidence` over the draw of the held-out data. They require
    that held-out and live predictions are independent draws from one distribution, and that neither the model nor the
    scorer was fitted to the held-out data. No promise holds under distribution shift; `check` tests for shift without
    labels.

    Args:
        promise: A string in one of these forms, or a `Promise`.
        confidence: The confidence level of the promise; ignored if `promise` is a `Promise`.
        seed: The seed for splitting the held-out data.
    """

    kind: ClassVar[str] = "decision"

    def __init__(self, promise: str | Promise = "error<=0.01", *, confidence: float = 0.95, seed: int = 0) -> None:
        check_whole("seed", seed, 0)
        self.promise = promise if isinstance(promise, Promise) else Promise.parse(promise, confidence)
        self.seed = seed
        self._threshold: float | None = None
        self._proof: Proof | None = None
        self._reference: dict[str, np.ndarray] = {}

    def fit(self, uncertainty: Array, correct: Array | None = None, *, loss: Array | None = None) -> Self:
        """Find the threshold from held-out scores and the correctness of each prediction, (N,) each.

        For a promise about the loss, pass the loss of each prediction, in [0, 1], instead of `correct`.

        Raises:
            Unsupported: The data cannot support the promise; `needed` estimates how many examples are required.
        """
        scores, losses = self._inputs(uncertainty, correct, loss)
        find = accept_share if self.promise.kind == "accept" else partial(prove, seed=self.seed)
        self._threshold, self._proof = find(scores, losses, self.promise.limit, self.promise.confidence)
        few = some_rows(scores, MOST_SCORES, np.random.default_rng(self.seed))
        self._reference = {"scores": few}
        self.scorer = None
        return self

    def fit_scorer(self, scorer: Scorer, outputs: Outputs, *, loss: Array | None = None) -> Self:
        """Find the threshold from a fitted scorer and held-out outputs with labels or losses.

        A sample of the scores and of the features or logits is stored for `check`.
        """
        check_independent(scorer)
        check_outputs(outputs, classes=loss is None)
        correct = outputs.correct if loss is None else None
        self.fit(scorer(outputs), correct, loss=loss)
        self.bind(scorer)
        spaces = self._spaces(outputs)
        name = "features" if "features" in spaces else "logits"
        few = some_rows(spaces[name], MOST_ROWS, np.random.default_rng(self.seed))
        self._reference[name] = few.astype(np.float32)
        return self

    @property
    def threshold(self) -> float:
        """The largest accepted uncertainty."""
        return self._learned(self._threshold)

    @property
    def proof(self) -> Proof:
        """The counts and confidence intervals that support the promise."""
        return self._learned(self._proof)

    def accept(self, uncertainty: Array) -> Array:
        """Return a mask of the accepted predictions, in the shape and array library of `uncertainty`."""
        values = uncertainty if hasattr(uncertainty, "shape") else np.asarray(uncertainty)
        # rounded down to the precision of the scores, so that rounding never accepts more predictions
        return values <= round_down(self.threshold, str(values.dtype).rpartition(".")[2])

    def __call__(self, outputs: Outputs | Array) -> Array:
        """Return a mask of the accepted predictions, given outputs of the model that the scorer was fitted to."""
        self.threshold  # noqa: B018 (raises if not fitted)
        return self.accept(self._bound()(outputs))

    def check(self, outputs: Outputs | Array, *, level: float = 0.01) -> Check:
        """Test without labels whether live outputs still resemble the held-out outputs.

        A Kolmogorov-Smirnov test compares the scores, and a permutation test of the energy distance compares the
        features or logits. The tests assume independent live predictions, can miss a change in a few rows, and cannot
        detect a change in the labels alone.

        Args:
            outputs: Live `Outputs`, or live scores (N,); after `fit`, only scores are accepted.
            level: The maximum probability of a false alarm.
        """
        self.threshold  # noqa: B018 (raises if not fitted)
        if isinstance(outputs, Outputs):
            live = {"scores": finite(self._bound()(outputs), "uncertainty"), **self._spaces(outputs)}
        else:
            live = {"scores": finite(outputs, "uncertainty")}
        return compare(self._reference, live, level, self.seed)

    def report(self) -> str:
        """Return the promise and its proof in one sentence."""
        proof, promise = self.proof, self.promise
        share = f"accepts {proof.share:.1%} [{proof.share_low:.1%}, {proof.share_high:.1%}] of the traffic"
        counted = f"{proof.errors:g} of {proof.accepted} accepted held-out predictions are wrong"
        if promise.kind == "loss":
            counted = f"the mean loss of {proof.accepted} accepted predictions is {proof.errors / proof.accepted:.3g}"
        bound = f"in [{proof.low:.3%}, {proof.high:.3%}]" if promise.kind == "accept" else f"at most {proof.high:.3%}"
        how = (
            "on average over held-out data" if promise.kind == "accept" else f"with {promise.confidence:.0%} confidence"
        )
        return f"{promise} {how}: {share}; {counted}, so the risk is {bound}"

    def state(self) -> Fitted:
        tensors = {"threshold": np.asarray(self.threshold)}
        tensors |= {f"reference_{name}": values for name, values in self._reference.items()}
        facts = {
            "promise": str(self.promise),
            "limit": self.promise.limit,
            "confidence": self.promise.confidence,
            "seed": self.seed,
            "proof": dataclasses.asdict(self.proof),
        }
        return Fitted(tensors, facts)

    @classmethod
    def from_state(cls, state: Fitted) -> Self:
        facts = state.facts
        promise = dataclasses.replace(Promise.parse(facts["promise"], facts["confidence"]), limit=float(facts["limit"]))
        result = cls(promise, seed=int(facts["seed"]))
        result._proof = Proof(**facts["proof"])
        result._threshold = float(state.tensors["threshold"])
        names = sorted(state.tensors, reverse=True)  # scores first, as in `fit`
        result._reference = {
            name.removeprefix("reference_"): state.tensors[name] for name in names if name.startswith("reference_")
        }
        return result

    def __repr__(self) -> str:
        return f"Decision({str(self.promise)!r})" + ("" if self._threshold is not None else "  # not fitted")

    def _spaces(self, outputs: Outputs) -> dict[str, np.ndarray]:
        """Return the logits, and the first layer that the scorer reads (or the features, if it reads no layer)."""
        read = next((outputs.layers[str(name)] for name in self._bound().layers), outputs.features)
        spaces = {"logits": to_numpy(outputs.logits)}
        return spaces if read is None else spaces | {"features": to_numpy(read)}

    def _inputs(self, uncertainty: Array, correct: Array | None, loss: Array | None) -> tuple[np.ndarray, np.ndarray]:
        if (correct is None) == (loss is None):
            raise ValueError("correct, loss: expected either correct or loss, with one value per prediction")
        if correct is not None:
            if self.promise.kind == "loss":
                raise ValueError(
                    f"loss: expected the loss of each prediction for {self.promise}, got none; pass loss= or promise "
                    f"error<={self.promise.limit:g}"
                )
            scores, wrong = check(uncertainty, correct)
            return scores, wrong.astype(np.float64)
        if self.promise.kind != "loss":
            raise ValueError(f"loss: expected a promise such as loss<=0.05, got {self.promise}; pass correct instead")
        scores, losses = finite(uncertainty, "uncertainty"), finite(loss, "loss")
        if scores.shape != losses.shape:
            raise ValueError(f"uncertainty, loss: expected the same length, got {scores.size} and {losses.size}")
        if losses.size and (losses.min() < 0 or losses.max() > 1):
            raise ValueError(
                f"loss: expected values from 0 to 1, got {losses.min():g} to {losses.max():g}; rescale the loss"
            )
        return scores, losses


def round_down(threshold: float, dtype: str) -> float:
    """Return the largest number of `dtype` that is at most `threshold`."""
    if dtype == "bfloat16":  # the upper 16 bits of float32
        value = np.float32(round_down(threshold, "float32"))
        bits = value.view(np.uint32)
        cut = (bits & np.uint32(0xFFFF0000)).view(np.float32)
        return float(cut if cut <= value else np.uint32((bits & 0xFFFF0000) + 0x10000).view(np.float32))
    kind = np.dtype(dtype).type if dtype in ("float16", "float32") else np.float64
    with np.errstate(over="ignore"):
        value = kind(threshold)
    return float(value if float(value) <= threshold else np.nextafter(value, kind(-np.inf)))
