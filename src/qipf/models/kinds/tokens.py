"""Language models: one prediction per token, reduced from the vocabulary to a few numbers on the fly."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from qipf._common.errors import check_flag, check_whole
from qipf._common.optional import require
from qipf.arrays import Array
from qipf.models.kinds.excerpts import number_of
from qipf.models.kinds.groups import Summary, by_group
from qipf.models.outputs import Outputs
from qipf.models.sessions.model import as_onnx, check_no_device

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SCORES = ("softmax-response", "entropy", "margin", "max-logit", "energy", "logit-margin")
"""The scores that `Tokens.score` gives; each equals the scorer with that name on the full logits."""
NO_TOKENS = (
    "data: expected at least one token with a label, got none: labels of -100 and attention masks leave tokens out, "
    "and a text of one token has no next one to predict (shift=False, or --token-labels own, compares it with the "
    "label of its own place)"
)
"""For data without any token to learn from or to judge."""
MASKED = -1e29
"""A largest logit below this one says that all tokens were masked by minus infinity."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """M predictions of tokens in N sequences, in the order of the data.

    Attributes:
        sequence: (M,) the number of the sequence that each prediction belongs to.
        position: (M,) the place of the predicted token in its sequence.
        predicted: (M,) the token with the largest logit.
        top: (M, k) the largest logits in descending order.
        log_rest: (M,) the log odds against the predicted token, log(1 - p) - log p.
        log_sum: (M,) the logarithm of the summed exponentials of all logits.
        entropy: (M,) of the softmax, in nats.
        labels: (M,) the tokens that really stand there, or None.
        log_label: (M,) the log probability of these, or None.
        features: (M, D) the hidden state behind each prediction, or None.
        sequences: N, how many sequences there are.
    """

    sequence: Tensor
    position: Tensor
    predicted: Tensor
    top: Tensor
    log_rest: Tensor
    log_sum: Tensor
    entropy: Tensor
    labels: Tensor | None
    log_label: Tensor | None
    features: Tensor | None
    sequences: int

    def __len__(self) -> int:
        return len(self.predicted)

    def take(self, rows: Array) -> Tokens:
        """Return some of the predictions, by their numbers; `sequences` stays as it is."""
        torch = require("torch", extra="torch")
        places = torch.as_tensor(rows)
        columns = {name: values for name, values in vars(self).items() if name != "sequences"}
        picked: dict[str, Any] = {
            name: None if values is None else values[places.to(values.device)] for name, values in columns.items()
        }
        return Tokens(**picked, sequences=self.sequences)

    @property
    def correct(self) -> Tensor:
        """(M,) whether the token with the largest logit is the label."""
        if self.labels is None:
            raise ValueError("these tokens have no labels; collect them from (ids, ids), which are shifted by one")
        return self.predicted == self.labels

    def score(self, name: str = "entropy") -> Tensor:
        """Return the uncertainty of every prediction, (M,); higher is less sure.

        Args:
            name: One of `SCORES`, as the scorers of the same name define them.

        Raises:
            ValueError: There is no such score, or the logits of a token are NaN or infinite.
        """
        self.check_finite()
        if name == "softmax-response":
            return self.log_rest.sigmoid()
        if name == "entropy":
            return self.entropy
        if name == "margin":
            best = (-self.log_rest).sigmoid()
            return 1 - best * (1 - (self.top[:, 1] - self.top[:, 0]).exp())
        if name == "max-logit":
            return -self.top[:, 0]
        if name == "energy":
            return -self.log_sum
        if name == "logit-margin":
            return self.top[:, 1] - self.top[:, 0]
        raise ValueError(f"name: expected one of {', '.join(SCORES)}, got {name!r}")

    def question(self) -> Outputs:
        """Return `Outputs` of the question whether each predicted token is right, for `qipf.Probe`.

        The only logit is the log odds of the predicted token. The labels, where there are any, are 1 where the token
        is right. The features are the hidden state and the numbers that `score` uses. The posterior of a probe that is
        fitted to these outputs has the probability that the token is wrong in column 0. Compare scores with
        `Tokens.correct`; `correct` of these outputs says whether the odds were on the right side of one half.
        """
        if self.features is None:
            raise ValueError("these tokens have no features; collect them with features=True")
        self.check_finite()
        torch = require("torch", extra="torch")
        numbers = [self.log_rest, self.entropy, self.top[:, 0], self.log_sum, self.top[:, 0] - self.top[:, 1]]
        rows = torch.cat([self.features, torch.stack(numbers, 1).to(self.features)], 1)
        return Outputs(
            -self.log_rest[:, None], rows, None if self.labels is None else self.correct.long(), task="tokens"
        )

    def per_sequence(self, values: Array | str, how: Summary = "mean") -> np.ndarray:
        """Summarise one number per token to one per sequence, (N,); NaN for a sequence without tokens.

        Args:
            values: (M,) numbers, or the name of a score.
            how: "mean", "max" or "sum".
        """
        numbers = self.score(values) if isinstance(values, str) else values
        return by_group(numbers, self.sequence, self.sequences, how)

    def log_probability(self, *, normalised: bool = True) -> np.ndarray:
        """Return the log probability of the labels of each sequence, (N,), per token if `normalised`."""
        if self.log_label is None:
            raise ValueError("these tokens have no labels; collect them from (ids, ids), which are shifted by one")
        self.check_finite()
        return self.per_sequence(self.log_label, "mean" if normalised else "sum")

    def check_finite(self, data: Any = None) -> None:
        """Raise ValueError with the first token whose logits are NaN, or infinite, or all masked.

        Args:
            data: What the tokens were collected from, where that knows the numbers of its texts in a larger set.
        """
        bad = ~(self.log_sum.isfinite() & (self.top[:, 0] > MASKED))
        if not bool(bad.any()):
            return
        first = int(bad.int().argmax())
        text = number_of(data, int(self.sequence[first]))
        raise ValueError(
            f"logits: NaN or infinite values in {int(bad.sum())} of {len(bad)} tokens, the first at place "
            f"{int(self.position[first])} of sequence {text} (both counted from 0); check what the model does "
            "with this text, or run it in single precision"
        )

    def perplexity(self) -> np.ndarray:
        """Return the exponential of the mean negative log probability of the labels of each sequence, (N,)."""
        return np.exp(-self.log_probability())


def collect_tokens(
    model: Any,
    data: Any,
    *,
    shift: bool | None = None,
    ignore: int = -100,
    top: int = 2,
    features: str | bool = False,
    device: torch.device | str | None = None,
    store: torch.device | str | None = "cpu",
    batch_size: int = 8,
    progress: bool = True,
) -> Tokens:
    """Return what a language model predicts for every token: one pass, evaluation mode, no gradients.

    The model returns logits (N, T, V), as a tensor or as `.logits`. Of the V logits of a token only the few numbers
    that scores of confidence need are kept, so memory grows by some 50 bytes per token, and by the features. Tokens
    where the batch's `attention_mask` is 0 are left out.

    Args:
        model: A torch module, which is left as it was found, or an ONNX model; both as for `qipf.collect`.
        data: Token ids (N, T), a tuple (ids, labels), or anything else that `qipf.collect` takes. With labels
            (N, T), those that equal `ignore` are left out.
        shift: Compare the logits at each place with the label of the next place, as causal models of Hugging Face do.
            False for models that predict the label of their own place, such as taggers and masked language models. None
            is True, with a warning where the labels are not the token ids.
        ignore: The label of tokens to leave out.
        top: How many of the largest logits of each token to keep, 2 or more.
        features: True for the hidden state that enters the last linear layer, or the name of a module whose output
            (N, T, D) to keep; False for none. Of an ONNX model, the name of a tensor.
        device: Where the inputs go; None is the device of the model.
        store: Where the results go; None is the device of the model.
        batch_size: Sequences per batch, for data that does not come in batches.
        progress: Show a progress bar.

    Raises:
        TypeError: An argument is of the wrong type.
        ValueError: There is no data, or the logits or the labels do not have the expected shape.
    """
    torch = require("torch", extra="torch")
    from qipf._common.progress import track
    from qipf.models.batches import Batches
    from qipf.models.kinds.taps import Tap
    from qipf.models.kinds.token_batches import TokenReader, forward
    from qipf.models.kinds.token_columns import Columns
    from qipf.runners.recorder import untouched
    from qipf.runners.torch import input_device, unwrap

    check_whole("top", top, 2)
    check_whole("ignore", ignore, -(2**63))
    read = TokenReader(None if shift is None else check_flag("shift", shift), ignore, top, data)
    onnx = as_onnx(model)
    count = 0
    with ExitStack() as during:
        if onnx is not None:
            from qipf.models.kinds.session_taps import SessionTap

            check_no_device(device)
            target, keep_on = torch.device("cpu"), torch.device(store or "cpu")
            tap = SessionTap(onnx, data, features, batch_size, progress)
            passes = iter(tap)
        else:
            module = unwrap(model)
            target = input_device(module, device)
            keep_on = target if store is None else torch.device(store)
            tap = Tap(module, features, torch.nn.Linear)
            during.enter_context(untouched(module, eager=tap.active))
            during.enter_context(tap)
            batches = Batches(data, batch_size, module, target)
            shown = track(batches, "collecting tokens", total=batches.count, show=progress)
            passes = ((batch, partial(forward, module, batch, number)) for number, batch in enumerate(shown))
        kept = Columns(keep_on)
        for number, (batch, run) in enumerate(passes):
            read.choose(batch, target)
            # Nothing here may name the logits: those of two batches would exist at once.
            found, sequences = read(run(), batch, number, tap)
            kept.append({**found, "sequence": found["sequence"] + count})
            count += sequences
    whole: dict[str, Any] = kept.finish()
    if not whole:
        raise ValueError("data: expected at least one sequence, got none; is the data set empty?")
    return Tokens(**{"labels": None, "log_label": None, "features": None, **whole}, sequences=count)
