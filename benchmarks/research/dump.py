"""Outputs of a network that the research looks at: python dump.py NET DATASET WEIGHTS TARGET SEED IMAGES SHIFTS.

One npz file a part, half precision for features:
  reference   20,000 training inputs
  perturbed   10,000 training and 5,000 held-out inputs, each with one reference perturbation (input i: kind i mod 5,
              intensity (i div 5) mod 10), and the 5,000 held-out inputs as they are
  test        the first IMAGES test inputs, clean and under every intensity of the named shifts (comma-separated),
              with the entropy of the mean of 5 and of 10 ensemble members
`part-layers` holds the layers below the features, where asked for (QIPF_LAYERS=1).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.models.split import Split
from qipf.study import shifts
from qipf.study.run import study_data

HELD_OUT, REFERENCES = 5000, 20_000
LAYERS = {"lenet": ("conv2", "dense1"), "vgg3": ("1", "2"), "resnet18": ("blocks.3", "blocks.5")}


def perturbed(split: Split) -> Split:
    """Every input with one reference perturbation: kind i mod 5, intensity (i div 5) mod 10."""
    images = split.inputs.clone()
    place = torch.arange(len(images))
    for kind, (name, intensities) in enumerate(shifts.PERTURBATIONS.items()):
        for step, intensity in enumerate(intensities):
            rows = place[(place % 5 == kind) & (place // 5 % 10 == step)].to(images.device)
            if len(rows):
                images[rows] = shifts.perturb(images[rows], name, intensity, seed=step)
    return Split(images, split.targets)


def main(net: str, dataset: str, weights: str, target: str, seed: str, images: str, names: str) -> None:
    """Write the parts of one base network to the folder `target`."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = study_data.load_data(dataset, HELD_OUT, None, device)
    folder, stem = Path(weights), f"{net}-{dataset}-{seed}"

    def load(number: int) -> nn.Module:
        model = study_data.new_network(net, data, 0)
        model.load_state_dict(load_file(folder / f"{net}-{dataset}-{number}.safetensors"))
        return model.to(device).eval()

    base = load(int(seed))
    members = [load(k) for k in range(100, 200) if (folder / f"{net}-{dataset}-{k}.safetensors").exists()]
    layers = LAYERS[net] if os.environ.get("QIPF_LAYERS") else ()

    def of(split: Split) -> Outputs:
        return collect(base, split, layers=layers, batch_size=1000, progress=False)

    def write(part: str, parts: list[Outputs], **more: np.ndarray) -> None:
        whole = {"logits": np.concatenate([np.asarray(p.logits, np.float32) for p in parts])}
        whole["features"] = np.concatenate([np.asarray(p.features, np.float16) for p in parts])
        whole["labels"] = np.concatenate([np.asarray(p.labels, np.int8) for p in parts])
        np.savez(Path(target) / f"{stem}-{part}.npz", **whole, **more)
        if layers:
            low = {n: np.concatenate([np.asarray(p.layers[n], np.float16) for p in parts]) for n in layers}
            np.savez(Path(target) / f"{stem}-{part}-layers.npz", **low)

    first = study_data.first
    write("reference", [of(first(data.train, REFERENCES))])
    write("perturbed", [of(perturbed(first(data.train, 10_000))), of(perturbed(data.held_out)), of(data.held_out)])
    test = first(data.test, int(images))
    groups = [("clean", 0.0)] + [(name, level) for name in names.split(",") for level in shifts.SHIFTS[name]]
    outputs, entropies = [], []
    for name, level in groups:
        split = test if name == "clean" else Split(shifts.apply(test.inputs, name, level), test.targets)
        outputs.append(of(split))
        entropies.append(ensemble_entropy(members, split.inputs))
    write(
        "test", outputs,
        group=np.array([name for name, _ in groups]), level=np.array([level for _, level in groups]),
        **{f"ensemble{k}": np.concatenate([e[k] for e in entropies]) for k in entropies[0]},
    )  # fmt: skip


@torch.no_grad()
def ensemble_entropy(members: list[nn.Module], x: Tensor) -> dict[int, np.ndarray]:
    """The entropy of the mean of the first 5 and of the first 10 members."""
    total, found = 0.0, {}
    for count, member in enumerate(members, 1):
        total = total + torch.cat([member(part).softmax(1) for part in x.split(1000)])
        if count in (5, 10):
            mean = total / count
            found[count] = torch.special.entr(mean).sum(1).cpu().numpy()
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
