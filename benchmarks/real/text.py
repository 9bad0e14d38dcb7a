"""Train three small transformers on film reviews, and score them on clean, spoilt and other sentences.

    python benchmarks/real/text.py --data DIR --out results/real

`--data` holds rt-polarity.all, custrev.all and mpqa.all of harvardnlp/sent-conv-torch ("sentences" of
`qipf.study.datasets.files`). `--small` reads no test sentence.
results/real/PROTOCOL.md says what is measured and why.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.scores.default import default
from real.record import Record
from real.rivals import fitted_rivals, head_alone, scored
from real.sentences import Text, Vocabulary, conditions, load, part, spoilt
from real.transformer import trained

SEEDS = (0, 1, 2)


class Batches:
    """Batches of ((tokens, mask), labels) that can be read again."""

    def __init__(self, vocabulary: Vocabulary, text: Text) -> None:
        self.tokens, self.mask = vocabulary.tokens(text)
        self.labels = torch.from_numpy(text.labels)

    def __len__(self) -> int:
        return -(-len(self.labels) // 500)

    def __iter__(self) -> Iterator[tuple[tuple[Tensor, Tensor], Tensor]]:
        for rows in torch.arange(len(self.labels)).split(500):
            yield (self.tokens[rows], self.mask[rows]), self.labels[rows]


def read(net: nn.Module, batches: Batches, layers: tuple[str, ...]) -> Outputs:
    return collect(net, batches, layers=layers, progress=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/real"))
    parser.add_argument(
        "--small", action="store_true", help="one network on 3,000 training sentences, judged on others"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    begin = time.time()
    texts = load(chosen.data)
    listed = conditions()
    if chosen.small:  # training sentences play all parts
        whole = texts["train"]
        cuts = {"train": (0, 3000), "held_out": (3000, 4000), "test": (4000, 5000)}
        texts = {name: part(whole, np.arange(*rows)) for name, rows in cuts.items()}
        listed = [one for one in listed if one.suite != "natural"]
    record = Record(listed)
    vocabulary = Vocabulary(texts["train"])
    train, held_out = (Batches(vocabulary, texts[name]) for name in ("train", "held_out"))
    tests = [
        Batches(
            vocabulary, texts[one.family] if one.suite == "natural" else spoilt(texts["test"], one, vocabulary.words)
        )
        for one in listed
    ]
    for seed in SEEDS[: 1 if chosen.small else None]:
        name = f"transformer {seed}"
        net = trained(vocabulary.size, train.tokens, train.mask, train.labels, seed)
        print(f"[{time.time() - begin:6.1f}] {name} trained", flush=True)
        probe = default(net, train, progress=False)
        probes: dict[str, Any] = {"probe": probe, "probe, head alone": head_alone(probe)}
        probes["probe without perturbations"] = default(net, train, perturb=False, progress=False)
        outputs = read(net, held_out, probe.layers), read(net, train, probe.layers)
        rivals, missing = fitted_rivals(net, outputs[1], outputs[0], len(train.labels), published=False)
        found = [read(net, batches, probe.layers) for batches in tests]
        wrong = [one.logits.argmax(1) != one.labels for one in found]
        values = [scored({**probes, **rivals}, one) for one in found]
        for row in values[0]:
            record.add(name, row, "probe" if row in probes else "single", [one[row] for one in values], wrong)
        right = {
            "network": [1 - float(one.double().mean()) for one in wrong],
            "probe": [float((probe.posterior(one).argmax(1) == one.labels).double().mean()) for one in found],
        }
        record.facts["accuracy"][name] = {who: [round(value, 4) for value in values] for who, values in right.items()}
        record.facts.setdefault("missing", {})[name] = missing
        record.facts.setdefault("layers", {})[name] = list(probe.layers)
        print(f"[{time.time() - begin:6.1f}] {name} scored; missing: {missing}", flush=True)
    record.facts["seconds"] = round(time.time() - begin, 1)
    record.facts["sentences"] = {name: len(text.labels) for name, text in texts.items()}
    record.write(chosen.out / "text")


if __name__ == "__main__":
    main()
