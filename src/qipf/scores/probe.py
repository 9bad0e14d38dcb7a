"""A small head on a network's features, trained on clean and perturbed inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import array_api_compat as compat
import numpy as np

from qipf._common.errors import Problem, check_whole
from qipf._common.optional import require
from qipf.arrays import Array, namespace, to_numpy, widest_float
from qipf.scores.base import Fitted, wide
from qipf.scores.coordinates import check_size
from qipf.scores.mixture import MANY, SEEN_COPIES, Mixture, best_shares, cooled, folds, parts_of
from qipf.tasks.outputs import Outputs, check_classes
from qipf.tasks.tokens import Tokens

WIDE = 1024
"""The number of features above which heads are trained with input dropout."""
MOST_NUMBERS = 1_970_000
"""The maximum number of weights in a head: just under 8 MB in single precision."""
LARGEST_BATCH = 2000
ROWS_AT_ONCE = 8192
"""The number of rows that are checked or converted to double precision at a time."""
FOLDS = 4
"""The number of cross-validation folds used to choose the share."""
DOUBT = 200
"""The assumed number of inputs on which only the network is right; it penalises the weight of the head."""


class ProbeHead(NamedTuple):
    """The weights of `max(x @ inner + inner_bias, 0) @ outer + outer_bias`, in single precision."""

    inner: Array
    inner_bias: Array
    outer: Array
    outer_bias: Array


@dataclass(eq=False)
class Probe(Mixture):
    r"""Log odds against the predicted class, from a small head on the network's features.

    The head has one hidden layer and is trained to predict the true class of clean and perturbed inputs; see
    `qipf.default`. The posterior over classes and the score of the predicted class :math:`c^*` are

    .. math:: q = (1 - s)\, h + s\, p, \qquad u = \log(1 - q_{c^*}) - \log q_{c^*},

    where :math:`h` is the softmax of the head, :math:`p` the softmax of the network at the given `temperature`, and
    :math:`s` the `share`.

    Args:
        space: The layer in `Outputs.layers` that the head reads; by default, `Outputs.features`.
        hidden: The number of hidden units, reduced if the head would exceed 8 MB.
        epochs: The number of training epochs.
        dropout: The dropout rate of the hidden units.
        input_dropout: The dropout rate of the features; by default, 0.2 for more than 1,024 features and 0 otherwise.
        learning_rate: The peak learning rate of the one-cycle schedule.
        share: The weight of the network's softmax in the posterior.
        temperature: The temperature of the network's logits; `qipf.default` replaces it by a value nearer to 1 if the
            share is above one half.
        seed: The random seed.
        views: The number of views per image to average over, including the image itself; see `qipf.tasks.views`.
        progress: Show a progress bar during training.
    """

    name: ClassVar[str] = "probe"

    space: str | None = None
    hidden: int = 1024
    epochs: int = 8
    dropout: float = 0.2
    input_dropout: float | None = None
    learning_rate: float = 3e-3
    share: float = 0.2
    temperature: float = 1.5
    seed: int = 0
    views: int = 1
    progress: bool = False

    def __post_init__(self) -> None:
        for name, low, high in (("share", 0, 1), ("dropout", 0, 0.99), ("input_dropout", 0, 0.99)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name}: expected a number from {low} to {high}, got {value!r}")
        for name in ("hidden", "epochs", "views"):
            check_whole(name, getattr(self, name), 1)
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: expected a positive number, got {getattr(self, name)!r}")

    @property
    def reads_features(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True if the head reads `Outputs.features` instead of a layer."""
        return self.space is None and self.share < 1

    def _own_layers(self) -> tuple[str, ...]:
        return () if self.space is None or self.share == 1 else (self.space,)

    def _heads(self, rows: Sequence[Array], tensors: Mapping[str, Array]) -> Sequence[tuple[float, Array]]:
        return [(1 - self.share, head_logits(rows[0], tensors))]

    def _rows(self, outputs: Outputs) -> Sequence[Array]:
        return [outputs.features] if self.reads_features else super()._rows(outputs)

    def _fit(self, model: Any, outputs: Outputs | None) -> Fitted:
        if outputs is None or outputs.labels is None or outputs.regression:
            raise Problem(
                "labels", "none" if outputs is None or outputs.labels is None else "regression targets",
                expected="outputs with true classes as labels",
                hint="collect outputs from labelled data, or use qipf.default(model, data)",
            )  # fmt: skip
        columns = outputs.logits.shape[1]
        classes = 2 if columns == 1 else columns
        check_classes(outputs.labels, columns, task="classes")
        if self.share == 1:
            return Fitted(tensors={}, facts={"columns": columns})
        (rows,) = self._rows(outputs)
        check_size(rows, self.name, 1e18)  # training squares the features in single precision
        head = self._trained(rows, outputs.labels, classes)
        if not all(np.isfinite(part).all() for part in head):
            raise ValueError("learning_rate: the weights of the trained head are not finite; use a smaller value")
        return Fitted(tensors=head._asdict(), facts={"columns": columns, "width": rows.shape[1]})

    def _trained(self, features: Array, labels: Array, classes: int) -> ProbeHead:
        """Train the head to classify rows, on the device of the features.

        Features are standardised during training, and the standardisation is then folded into the weights.
        """
        torch = require("torch", extra="torch")
        from qipf.training import seeded, train
        from qipf.training.loop import Split

        rows = _single(torch, features)
        targets = torch.as_tensor(to_numpy(labels).astype(np.int64)).to(rows.device)
        mean, scale = _moments(rows)
        batch = int(min(LARGEST_BATCH, max(32, len(rows) // 64)))
        with torch.inference_mode(False), torch.enable_grad():  # regardless of the caller's mode
            with seeded(self.seed, rows.device):
                net = self._net(torch.nn, mean, scale, classes)
            train(
                net, Split(rows, targets), epochs=self.epochs, batch_size=batch, learning_rate=self.learning_rate,
                weight_decay=0.01, seed=self.seed, device=rows.device, cuda_graph=True, progress=self.progress,
            )  # fmt: skip
        return _folded(net, mean, scale)

    def _net(self, nn: Any, mean: Any, scale: Any, classes: int) -> Any:
        class Standardise(nn.Module):
            def forward(self, x: Any) -> Any:
                return (x.float() - mean) / scale

        width = len(mean)
        hidden = max(16, min(self.hidden, MOST_NUMBERS // (width + classes + 1)))
        dropout = self.input_dropout if self.input_dropout is not None else 0.2 if width > WIDE else 0.0
        layers = [Standardise(), nn.Dropout(dropout), nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(self.dropout)]
        net = nn.Sequential(*layers, nn.Linear(hidden, classes))
        nn.init.normal_(net[2].weight, std=(2 / width) ** 0.5)
        nn.init.normal_(net[5].weight, std=hidden**-0.5)
        nn.init.zeros_(net[2].bias)
        nn.init.zeros_(net[5].bias)
        return net.to(mean.device)

    def _checked(self, outputs: Outputs | Array, fitted: Fitted | None = None) -> Outputs:
        if isinstance(outputs, Outputs) and outputs.summary is not None:
            outputs = Tokens().question(outputs)
        return super()._checked(outputs, fitted)


def fit_share(probe: Probe, model: Any, outputs: Outputs, *, in_place: bool = False) -> Probe:
    """Fit a probe with the share that `best_shares` chooses on held-out inputs.

    With at least `MANY` inputs, the share is chosen on one fold, and the head is trained on the others. With fewer
    inputs, the share is chosen by cross-validation, and the head is trained on all inputs. `probe.share` is
    overwritten.

    The outputs must be labelled. For perturbed copies, `groups` contains the index of each row's input, and `positions`
    the index of the copy, which is 0 for the clean input. If `in_place`, the rows are reordered instead of copied.
    """
    if outputs.labels is None or outputs.regression or not len(outputs):
        return probe.fit(model, outputs)  # raises
    probe._checked(outputs)
    if outputs.groups is None or outputs.positions is None:
        xp = namespace(outputs.labels)
        rows = xp.arange(len(outputs), device=compat.device(outputs.labels))
        outputs = Outputs.unchecked(**{**vars(outputs), "groups": rows, "positions": xp.zeros_like(rows)})
    parts = _held_out(outputs, probe.seed)
    many = int(parts.max()) >= FOLDS
    head, own = replace(probe, share=0.0, progress=probe.progress and many), replace(probe, share=1.0)
    found = []
    for part in range(1 if many else int(parts.max()) + 1):
        held = parts == part
        outputs, rest = _last(outputs, held, in_place) if many else (outputs, outputs[~held])
        if not len(rest):
            continue
        tested = outputs[len(rest) :] if many else outputs[held]
        tested = tested[to_numpy(tested.positions) <= SEEN_COPIES]
        both = own.class_probabilities(tested, {}), head.fit(model, rest).posterior(tested)
        at = np.arange(len(tested)), to_numpy(tested.labels).astype(np.int64)
        found.append(([to_numpy(one)[at] for one in both], to_numpy(tested.positions) > 0))
    probe.share = 1.0
    if found:
        chances, copies = np.concatenate([both for both, _ in found], axis=1), np.concatenate([at for _, at in found])
        probe.share = best_shares(chances, copies, DOUBT / len(np.unique(to_numpy(outputs.groups))))[0]
    if many and probe.share < 1:
        probe._use(head._require_fitted())
    else:
        probe.fit(model, outputs)
    probe._note(cooled(probe.temperature, probe.share))
    return probe


def _held_out(outputs: Outputs, seed: int) -> np.ndarray:
    """Assign each row to a random fold; all copies of an input are in the same fold."""
    _, first, groups = np.unique(to_numpy(outputs.groups), return_index=True, return_inverse=True)
    count = FOLDS if len(first) < MANY else parts_of(len(first))
    return folds(to_numpy(outputs.labels)[first], seed, count)[groups]


def _last(outputs: Outputs, held: np.ndarray, in_place: bool) -> tuple[Outputs, Outputs]:
    """Return the outputs reordered so that the held-out rows come last, and a view of the other rows."""
    count = int((~held).sum())
    if not in_place:
        outputs = outputs[np.argsort(held, kind="stable")]
    else:
        early, late = np.flatnonzero(held[:count]), count + np.flatnonzero(~held[count:])
        for values in outputs.arrays().values():
            values[early], values[late] = values[late], values[early]
    return outputs, outputs[:count]


def head_logits(rows: Array, tensors: Mapping[str, Array]) -> Array:
    """Apply the head with the given tensors to rows (N, D), and return its logits (N, C)."""
    rows = wide(rows)
    inner, inner_bias, outer, outer_bias = (_as(tensors[name], rows.dtype) for name in ProbeHead._fields)
    if compat.is_torch_array(rows):  # the same result with half the number of operations
        import torch

        return torch.addmm(outer_bias, torch.addmm(inner_bias, rows, inner).relu(), outer)
    xp = namespace(rows)
    return xp.clip(rows @ inner + inner_bias, 0.0, None) @ outer + outer_bias


def _single(torch: Any, features: Any) -> Any:
    """Return the features as a torch tensor in single precision; bfloat16 is kept to save memory."""
    if isinstance(features, torch.Tensor):
        rows = features.detach()
        rows = rows if rows.dtype in (torch.float32, torch.bfloat16) else rows.float()
    else:
        with np.errstate(over="ignore"):  # checked below
            rows = torch.from_numpy(np.array(to_numpy(features), np.float32))
    if len(rows) and not all(bool(torch.isfinite(part).all()) for part in rows.split(ROWS_AT_ONCE)):
        raise ValueError("probe: the features are too large for single precision; scale them down first")
    return rows


def _moments(rows: Any) -> tuple[Any, Any]:
    """Return the mean and scale of every column; the scale of nearly constant columns is bounded away from zero."""
    wide = getattr(require("torch", extra="torch"), widest_float(rows.device))
    mean = sum(part.to(wide).sum(0) for part in rows.split(ROWS_AT_ONCE)) / len(rows)
    square = sum(((part.to(wide) - mean) ** 2).sum(0) for part in rows.split(ROWS_AT_ONCE))
    deviation: Any = (square / len(rows)) ** 0.5
    typical = deviation.mean()
    floor = 1e-3 * typical if float(typical) > 0 else 1.0
    return mean.float(), (deviation + floor).float()  # pyright: ignore[reportAttributeAccessIssue]


def _folded(net: Any, mean: Any, scale: Any) -> ProbeHead:
    inner, outer = (net[index].weight.detach().cpu().double().T for index in (2, 5))
    inner_bias, outer_bias = (net[index].bias.detach().cpu().double() for index in (2, 5))
    inner = inner / scale.cpu().double()[:, None]
    inner_bias = inner_bias - mean.cpu().double() @ inner
    return ProbeHead(*(to_numpy(part.float().contiguous()) for part in (inner, inner_bias, outer, outer_bias)))


def _as(values: Array, dtype: Any) -> Array:
    return values if values.dtype == dtype else namespace(values).astype(values, dtype)
