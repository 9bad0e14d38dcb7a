"""Every score of the probe study on one base network."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from networks import perturbed
from torch import Tensor, nn

from decisions import Judge
from qipf.predictive import MCDropout
from qipf.predictive.summary import entropy
from qipf.scores import (
    GEN,
    KNN,
    Contrast,
    Doctor,
    Energy,
    Entropy,
    LastLayerLaplace,
    Mahalanobis,
    MaxLogit,
    MaxLogitPNorm,
    Probe,
    SoftmaxResponse,
    ViM,
    WeightQIPF,
)
from qipf.scores.coordinates import contrast
from qipf.scores.default import default
from qipf.study.run.study_data import StudyData
from qipf.tasks.collect import begin, collect, collect_augmented
from qipf.tasks.outputs import Outputs

REFERENCES = 20_000


def _synchronised() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def single_pass(
    net: nn.Module, data: StudyData, images: list[Tensor], *, first: bool
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor], dict[str, tuple[float, int]], dict[str, Any]]:
    """Logits (K, N, C), scores (K, N) by name, preferred classes, seconds and bytes of fitting, and decisions."""
    probes, spent = _probes(net, data, first)
    layers = next(iter(probes.values())).layers
    generator = torch.Generator().manual_seed(0)
    some = torch.randperm(len(data.train.inputs), generator=generator)[:REFERENCES].to(data.train.inputs.device)
    reference = _outputs(net, data.train.inputs[some], layers, data.train.targets[some])
    held_out = _outputs(net, data.held_out.inputs, layers, data.held_out.targets)
    scorers: dict[str, Any] = {
        "entropy": Entropy(),
        "max softmax": SoftmaxResponse(),
        "max logit": MaxLogit(),
        "energy": Energy(),
        "GEN": GEN(),
        "Doctor": Doctor(),
        "contrast, temperature fitted": Contrast().fit(net, held_out),
        "max logit, p-norm": MaxLogitPNorm().fit(net, held_out),
        "KNN": KNN().fit(net, reference),
        "Mahalanobis": Mahalanobis().fit(net, reference),
        "ViM": ViM().fit(net, reference),
        "last-layer Laplace": LastLayerLaplace(train_size=len(data.train.inputs)).fit(net, reference),
        "QIPF, exact operator": WeightQIPF(factor=160).fit(net, reference),
        "QIPF, authors' program": WeightQIPF(factor=80, operator="published").fit(net, reference),
        **probes,
    }
    disturbed = perturbed(data.held_out, seed=0)
    judge = Judge(probes["probe"], held_out, _outputs(net, disturbed.inputs, layers, disturbed.targets))
    judged: list[dict[str, Any]] = []
    logits: list[Tensor] = []
    scores: dict[str, list[Tensor]] = {name: [] for name in scorers}
    classes: dict[str, list[Tensor]] = {name: [] for name in probes}
    for condition in images:
        outputs = _outputs(net, condition, layers)
        logits.append(outputs.logits)
        judged.append(judge(outputs, data.test.targets))
        for name, scorer in scorers.items():
            scores[name].append(scorer(outputs))
        for name, probe in probes.items():
            classes[name].append(probe.posterior(outputs).argmax(1))
    stacked = {name: torch.stack(values) for name, values in scores.items()}
    preferred = {name: torch.stack(values) for name, values in classes.items()}
    return torch.stack(logits), stacked, preferred, spent, {"held_out": judge.facts(), "conditions": judged}


def _probes(net: nn.Module, data: StudyData, first: bool) -> tuple[dict[str, Probe], dict[str, tuple[float, int]]]:
    probes: dict[str, Probe] = {}
    spent: dict[str, tuple[float, int]] = {}
    efforts = {"probe": "standard", "probe, thorough": "thorough", "probe, quick": "quick"}
    for name, effort in efforts.items():
        if name != "probe" and not first:
            continue  # the other efforts are reported for one network per pair
        began = _synchronised()
        probes[name] = default(net, data.train, effort=effort, batch_size=4000, progress=False)  # pyright: ignore
        spent[name] = (_synchronised() - began, _bytes(probes[name]))
    standard = probes["probe"]
    alone = Probe(space=standard.space, share=0.0)
    alone._use(standard._require_fitted())
    probes["probe, head alone"] = alone
    start = begin(net, data.train, batch_size=4000)
    spec = start.runner.best_reading(start.first)
    outputs = collect_augmented(start, spec, draws=4, progress=False)
    probes["logistic head on the same data"] = _logistic(outputs, standard)
    clean = collect_augmented(start, spec, draws=0, perturb=False, progress=False)
    probes["probe without perturbations"] = Probe(space=standard.space).fit(net, clean)
    return probes, spent


def _bytes(probe: Probe) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.qipf"
        probe.save(path)
        return path.stat().st_size


def _logistic(outputs: Outputs, probe: Probe) -> Probe:
    """A linear head in the probe's form: two hidden units per class, one for each sign of its logit."""
    import numpy as np

    from qipf.scores.base import Fitted
    from qipf.training import train

    rows, labels = outputs.layers[str(probe.space)], outputs.labels
    mean, scale = rows.float().mean(0), rows.float().std(0)
    scale = scale + 1e-3 * scale.mean()
    classes = outputs.logits.shape[1]

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(len(mean), classes)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear((x.float() - mean) / scale)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Linear().to(rows.device)
    batch = min(2000, max(32, len(rows) // 64))
    train(net, (rows, labels), epochs=8, batch_size=batch, learning_rate=3e-3, cuda_graph=True, progress=False)
    weight = (net.linear.weight.detach() / scale).double().cpu().numpy().T
    bias = net.linear.bias.detach().double().cpu().numpy() - mean.double().cpu().numpy() @ weight
    tensors = {
        "inner": np.concatenate([weight, -weight], axis=1).astype(np.float32),
        "inner_bias": np.concatenate([bias, -bias]).astype(np.float32),
        "outer": np.concatenate([np.eye(classes), -np.eye(classes)]).astype(np.float32),
        "outer_bias": np.zeros(classes, np.float32),
    }
    result = Probe(space=probe.space)
    result._use(Fitted(tensors=tensors, facts={"columns": classes, "width": len(mean)}))
    return result


def _outputs(net: nn.Module, images: Tensor, layers: tuple[str, ...], labels: Tensor | None = None) -> Outputs:
    data: Any = images if labels is None else (images, labels)
    return collect(net, data, layers=layers, store=None, batch_size=4000, progress=False)


@torch.no_grad()
def many_pass(net: nn.Module, data: StudyData, images: list[Tensor], classes: Tensor) -> dict[str, Tensor]:
    """MC dropout by contrast and by entropy, with the paper's rates: 0.1 for LeNet, 0.2 on CIFAR-10."""
    method = MCDropout(0.1 if images[0].shape[1] == 1 else 0.2, passes=20)
    method.fit(net, data.train, progress=False)
    by_contrast, by_entropy = [], []
    for condition, predicted in zip(images, classes, strict=True):
        with torch.autocast("cuda", dtype=torch.float16, enabled=condition.device.type == "cuda"):
            mean = method.summarise(condition, batch_size=2000, progress=False).mean.double()
        by_contrast.append(contrast(mean, predicted))
        by_entropy.append(entropy(mean))
    return {"MC dropout, contrast": torch.stack(by_contrast), "MC dropout, entropy": torch.stack(by_entropy)}
