"""An option that would have no effect is refused in one line that names it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from task_models import data, model, onnx_file
from torch import nn

import qipf

QUIET: dict[str, Any] = {"progress": False}


@cache
def outputs(name: str) -> qipf.Outputs:
    return qipf.collect(model(name), data(name), **QUIET)


def same(inputs: Any, generator: torch.Generator) -> Any:
    return inputs


def default(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: qipf.default(model(name), data(name), **options, **QUIET)


def of_outputs(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: qipf.default(model(name), outputs(name), **options, **QUIET)


def collect(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: qipf.collect(model(name), data(name), **options, **QUIET)


def from_onnx(**options: Any) -> Callable[[], Any]:
    return lambda: qipf.collect(onnx_file("classes"), data("classes"), **options, **QUIET)


def fitted(**options: Any) -> Callable[[], Any]:
    return lambda: qipf.KNN(k=3).fit(model("classes"), outputs("classes"), **options)


def scored(kind: str, method: str = "score", **options: Any) -> Callable[[], Any]:
    net = model("classes")
    made = {"probe": lambda: qipf.default(net, data("classes"), effort="quick", **QUIET)}
    made |= {"entropy": lambda: qipf.Entropy().fit(net, data("classes"), **QUIET)}
    if method == "wrap":
        return lambda: qipf.wrap(net, made[kind](), **options)
    return lambda: list(getattr(made[kind](), method)(net, data("classes")[0], **options, **QUIET))


class Unknown(nn.Module):
    """Takes inputs for which there is no perturbation."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.flatten(1))


def unknown(**options: Any) -> Callable[[], Any]:
    given = torch.rand(60, 2, 2, 2, 1), torch.arange(60) % 3
    return lambda: qipf.default(Unknown(), given, **options, **QUIET)


OTHERS = ("labels", "numbers", "tokens", "pixels")
NAMES = ("classes", *OTHERS)
CASES: list[tuple[str, Callable[[], Any]]] = [
    *((name, default("classes", **{name: value})) for name, value in (("split", "hidden"), ("depth", 0.3))),
    ("checkpoint", default("classes", checkpoint="there.safetensors")),
    ("split, depth", default("classes", effort="thorough", split="hidden", depth=0.3)),
    ("perturb_only", default("classes", perturb=[same], perturb_only=[same])),
    *(("effort", default(name, effort=effort)) for name in OTHERS for effort in ("quick", "thorough")),
    ("perturb", default("numbers", perturb=False)),
    ("perturb_only", default("numbers", perturb_only=[same])),
    ("memory", default("numbers", memory=10**6)),
    ("features", unknown(features="head")),
    ("size", unknown(size=5)),
    *(("task", of_outputs(name, task="pixels")) for name in NAMES),
    *(("depth", of_outputs(name, depth=0.3)) for name in NAMES),
    *(("effort", of_outputs(name, effort="thorough")) for name in NAMES),
    *((name, of_outputs("classes", **{name: value})) for name, value in
      (("perturb", False), ("size", 3), ("memory", 100), ("device", "cpu"), ("batch_size", 3))),
    *(("effort", of_outputs(name, effort="quick")) for name in OTHERS),
    ("features", of_outputs("numbers", features="2")),
    *(("most", collect(name, most=10)) for name in ("classes", "labels", "numbers")),
    *(("store", collect(name, store="nonsense")) for name in NAMES),
    ("store", from_onnx(store="cuda")),
    ("device", from_onnx(device="cuda")),
    ("batch_size", lambda: qipf.collect(model("classes"), [data("classes")], batch_size=3, **QUIET)),
    ("task", fitted(task="pixels")),
    ("features", fitted(features="hidden")),
    ("device", fitted(device="cpu")),
    ("batch_size", fitted(batch_size=3)),
    ("task", lambda: qipf.Entropy().fit(task="classes")),
    *(("features", scored(kind, way, features="conv")) for kind in ("probe", "entropy") for way in
      ("score", "stream", "wrap")),
    *(("task", scored(kind, way, task="labels")) for kind in ("probe", "entropy") for way in ("score", "stream")),
    *(("views", scored("entropy", way, views=2)) for way in ("score", "wrap")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "use"), CASES, ids=[f"{number}-{name}" for number, (name, _) in enumerate(CASES)])
def test_an_option_without_effect_is_refused(name: str, use: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=rf"(^|, ){name}(, \w+)*: ") as caught:
        use()
    assert "\n" not in str(caught.value)


def test_the_size_of_numbers_limits_them() -> None:
    assert qipf.default(model("numbers"), data("numbers"), size=20, **QUIET).fitted.facts["references"] == 20


def test_a_wrapped_model_reads_the_features_that_the_scorer_was_fitted_to() -> None:
    net, (x, y) = model("classes"), data("classes")
    scorer = qipf.KNN(k=3).fit(net, (x, y), features="hidden", **QUIET)  # as wide as the input of the head
    torch.testing.assert_close(qipf.wrap(net, scorer)(x)[1], scorer.score(net, x, **QUIET))
