"""Small models of every task, and the numbers of version 0.1.0 that `tests/golden/house.npz` pins.

`python tests/contract/house.py` writes the file; it was run with the code of version 0.1.0 on one thread of a CPU.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import qipf

GOLDEN = Path(__file__).parents[1] / "golden"
QUIET: dict[str, Any] = {"progress": False}


class Images(nn.Module):
    """A small convolutional network with batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(4 * 36, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(torch.tanh(self.hidden(x.flatten(1))))


class Segments(nn.Module):
    """A small segmentation network."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 4, 3, padding=1)
        self.head = nn.Conv2d(4, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x)))


class Texts(nn.Module):
    """A small model of tokens that sees the mean of the tokens so far."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(23, 12)
        self.mix = nn.Linear(12, 12)
        self.head = nn.Linear(12, 23)

    def forward(self, input_ids: Tensor) -> Tensor:
        hidden = self.embedding(input_ids)
        mean = hidden.cumsum(1) / torch.arange(1, 8).reshape(1, 7, 1)
        return 3 * self.head(torch.tanh(self.mix(hidden + mean)))


def _table(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, outputs))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "classes": Images,
    "table": lambda: _table(3),
    "binary": lambda: _table(1),
    "labels": lambda: _table(4),
    "numbers": lambda: _table(2),
    "tokens": Texts,
    "pixels": Segments,
}
TASKS = {"table": "classes", "binary": "classes"}


def model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().eval()


def data(name: str, seed: int = 0, count: int = 120) -> tuple[Tensor, Tensor]:
    """Inputs, and labels that are right more often than not."""
    generator = torch.Generator().manual_seed(seed)
    if name == "tokens":
        ids = torch.randint(23, (count // 4, 7), generator=generator)
        return ids, ids
    shape = {"classes": (1, 8, 8), "pixels": (1, 12, 10)}.get(name, (6,))
    x = torch.rand((count, *shape), generator=generator)
    with torch.no_grad():
        logits = model(name)(x)
    noisy = logits + 0.3 * logits.std() * torch.randn(logits.shape, generator=generator)
    if name == "numbers":
        return x, noisy
    if name == "labels":
        return x, (noisy > noisy.mean(0)).long()
    if name == "binary":
        return x, (noisy[:, 0] > noisy.mean()).long()
    centred = noisy - logits.mean(tuple(i for i in range(noisy.ndim) if i != 1), keepdim=True)
    return x, centred.argmax(1)


def runners(name: str) -> dict[str, Any]:
    """The model as a torch module, and the ONNX file that was exported from it."""
    return {"torch": model(name), "onnx": str(GOLDEN / "house" / f"{name}.onnx")}


def numbers_of(name: str, runner: str) -> dict[str, np.ndarray]:
    """Everything that is pinned of one model."""
    net, train, test = runners(name)[runner], data(name), data(name, 1, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {f"{name}/{runner}/{key}": _array(values) for key, values in _numbers(name, runner, net, train, test)}


def _numbers(name: str, runner: str, net: Any, train: Any, test: Any) -> Iterator[tuple[str, Any]]:
    task = TASKS.get(name, name)
    if task == "classes":
        out = qipf.collect(net, train, **QUIET)
        yield from (("logits", out.logits), ("features", out.features), ("labels", out.labels))
        if runner == "torch" and name == "classes":
            named = qipf.collect(net, train, features="conv", layers=("conv@2x2", "hidden"), **QUIET)
            yield from (("conv", named.features), ("conv@2x2", named.layers["conv@2x2"]))
            yield from (("hidden", named.layers["hidden"]),)
        seen = qipf.collect(net, test, **QUIET)
        for scorer in (qipf.Entropy(), qipf.KNN(k=5), qipf.Mahalanobis()):
            if name != "binary" or isinstance(scorer, qipf.Entropy):
                yield scorer.name, scorer.fit(net, out)(seen)
        uq = qipf.default(net, train, effort="quick", **QUIET)
        yield from (("default", uq.score(net, test, **QUIET)), ("space", np.asarray(str(uq.space))))
    elif task == "numbers":
        out = qipf.collect(net, train, **QUIET)
        scale = qipf.ResidualScale().fit(net, out)
        yield from (("predictions", out.logits), ("scale", scale(qipf.collect(net, test, **QUIET))))
    elif task == "labels":
        out, uq = _labels(net, train)
        seen, _ = _labels(net, test, fit=False)
        yield from (("logits", out.logits), ("features", out.features), ("labels", out.labels), ("probe", uq(seen)))
    elif task == "tokens":
        columns, uq, seen = _tokens(net, train, test)
        yield from columns.items()
        yield "probe", seen
    else:
        yield from _pixels(net, train, test).items()


def _labels(net: Any, given: Any, fit: bool = True) -> tuple[Any, Any]:
    options = {"task": "labels", **QUIET}
    return qipf.collect(net, given, **options), qipf.default(net, given, **options) if fit else None


def _tokens(net: Any, train: Any, test: Any) -> tuple[dict[str, Any], Any, Any]:
    options = {"task": "tokens", **QUIET}
    out, uq = qipf.collect(net, train, **options), qipf.default(net, train, **options)
    names = ("predicted", "top", "log_rest", "log_sum", "entropy", "log_label")
    columns = {name: getattr(out.summary, name) for name in names}
    return {**columns, "features": out.features}, uq, uq(qipf.collect(net, test, **options))


def _pixels(net: Any, train: Any, test: Any) -> dict[str, Any]:
    task = qipf.tasks.Pixels(per_image=20)
    out = qipf.collect(net, train, task=task, **QUIET)
    uq = qipf.default(net, train, task=task, **QUIET)
    maps, plain = uq.score(net, test, **QUIET), qipf.Entropy().score(net, test, task="pixels", **QUIET)
    return {"logits": out.logits, "features": out.features, "labels": out.labels, "probe": maps, "entropy": plain}


def _array(values: Any) -> np.ndarray:
    return values.detach().float().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def write() -> None:
    """Write the pinned numbers, the exported models, and one saved file per scorer."""
    from scorer_cases import CASES, in_torch, network, planted

    (GOLDEN / "format1").mkdir(exist_ok=True)
    for name in MODELS:
        torch.onnx.export(
            model(name), (data(name)[0][:4],), str(GOLDEN / "house" / f"{name}.onnx"), dynamo=True, verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False,
        )  # fmt: skip
    found = {key: v for name in MODELS for run in ("torch", "onnx") for key, v in numbers_of(name, run).items()}
    outputs = in_torch(planted(0)[0])
    for name, case in CASES.items():
        scorer = case.fit(network(), outputs)
        found[f"file/{name}"] = _array(scorer(in_torch(planted(1)[0])))
        scorer.save(GOLDEN / "format1" / f"{name.replace(' ', '-')}.qipf")  # some were left out, one renamed
    for name in ("labels", "tokens", "pixels"):
        qipf.default(model(name), data(name), task=name, **QUIET).save(GOLDEN / "format1" / f"task-{name}.qipf")
    np.savez_compressed(GOLDEN / "house.npz", **found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    write()
