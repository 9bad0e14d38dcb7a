"""Train the networks of the research on class fields: python networks.py NET DATASET FOLDER SEED [SEED ...].

Seeds 0, 1, 2 are base networks, seeds from 100 on members of the ensemble. The 5,000 held-out training inputs are
those of the benchmark (`qipf.study.run.study_data.load_data`), so no network sees them.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from qipf import training
from qipf.study.recipes import recipe
from qipf.study.run import study_data

HELD_OUT = 5000


def main(net: str, dataset: str, folder: str, *seeds: str) -> None:
    """Train one network for every seed that has no file in `folder` yet."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = study_data.load_data(dataset, HELD_OUT, None, device)
    settings = dataclasses.asdict(recipe(net, dataset))
    for seed in map(int, seeds):
        path = Path(folder) / f"{net}-{dataset}-{seed}.safetensors"
        if path.exists():
            continue
        start = time.perf_counter()
        trained = training.train(
            study_data.new_network(net, data, seed), data.train, **settings, seed=seed, device=device, progress=False
        )
        save_file(trained.state_dict(), path)
        share = training.accuracy(trained, data.test)
        print(f"{path.name}: accuracy {share:.4f}, {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
