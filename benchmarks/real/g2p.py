"""Does a probe find the words that g2p-en mispronounces? Clean words, misspelt ones, names, apostrophes and hyphens.

    python benchmarks/real/g2p.py --data DIR --out results/real

`--data` holds the files "g2p" of `qipf.study.datasets.files`; without it they are downloaded. `--fit-only` reads no
word that is judged. results/real/PROTOCOL.md says what is measured and why, in its third amendment.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from qipf.metrics.ranking import roc_auc
from qipf.models.kinds.groups import Summary, by_group
from qipf.models.kinds.tokens import Tokens, collect_tokens
from qipf.models.outputs import Outputs
from qipf.scores import Probe, probe_tokens
from qipf.scores.default import default
from qipf.study import datasets
from real import g2p_network as network
from real.g2p_words import NATURAL, Words, conditions, load, others, spoilt
from real.program import Clock
from real.record import Record
from real.rivals import Score, fitted_rivals, head_alone, scored

REFERENCES, CHECKED = 15_000, 12_000
BATCH = 500
SUMMARIES: tuple[Summary, ...] = ("mean", "max", "sum")
TRAINED_ON = 750_000
"""Phonemes that the network was trained on, if these were four fifths of the dictionary; last-layer Laplace asks."""


class Read(NamedTuple):
    """What the network says about words: one row per phoneme, and whether phonemes and words are right."""

    tokens: Tokens
    outputs: Outputs
    wrong_word: Tensor
    until_error: Tensor
    """which phonemes have nothing wrong before them"""


def told(net: network.G2P, words: Words) -> tuple[Tensor, Tensor]:
    """Inputs whose decoder is told the right phonemes before each place, and the right phonemes."""
    letters = network.letters(words.spellings)
    right = network.meant(words, net.answer(letters))
    return network.inputs(letters, right), right


def tokens_of(net: network.G2P, ids: Tensor, labels: Tensor) -> Tokens:
    return collect_tokens(net, (ids, labels), shift=False, features=True, batch_size=BATCH, progress=False)


def as_outputs(net: network.G2P, tokens: Tokens) -> Outputs:
    """The phonemes as predictions of one of 74 classes."""
    assert tokens.features is not None
    with torch.no_grad():
        return Outputs(net.head(tokens.features), tokens.features, tokens.labels)


def read(net: network.G2P, words: Words) -> Read:
    """What the network answers for these words."""
    letters = network.letters(words.spellings)
    answers = net.answer(letters)
    right = network.meant(words, answers)
    same = answers == right.masked_fill(right == network.IGNORED, network.PADDING)
    emitted = answers != network.PADDING
    tokens = tokens_of(net, network.inputs(letters, answers), answers.masked_fill(~emitted, network.IGNORED))
    before = torch.cat([torch.ones(len(same), 1, dtype=torch.bool), same.cumprod(1).bool()[:, :-1]], 1)
    outputs = as_outputs(net, tokens)
    labels = right.clamp(min=network.PADDING)[emitted]  # past the end of the right pronunciation nothing is right
    return Read(tokens, Outputs(outputs.logits, outputs.features, labels), ~same.all(1), before[emitted])


def of_words(per_phoneme: dict[str, Tensor], tokens: Tokens) -> dict[str, Tensor]:
    """Every summary of every score."""
    return {
        f"{name}, {how}": torch.from_numpy(by_group(values.double(), tokens.sequence, tokens.sequences, how))
        for name, values in per_phoneme.items()
        for how in SUMMARIES
    }


def probabilities(tokens: Tokens) -> dict[str, Tensor]:
    """The two rivals that come from the probability of the whole word; higher is less sure."""
    found = (torch.from_numpy(-tokens.log_probability(normalised=one)) for one in (False, True))
    return dict(zip(("probability of the word", "probability of the word, normalised"), found, strict=True))


def all_right(wrong: Tensor, tokens: Tokens) -> Tensor:
    """The negative logarithm of the probability that every phoneme of a word is right."""
    logs = -torch.log1p(-wrong.double().clamp(max=1 - 1e-12))
    return torch.from_numpy(by_group(logs, tokens.sequence, tokens.sequences, "sum"))


def fitted(net: network.G2P, words: Words) -> tuple[dict[str, Probe], Probe]:
    """The probe of the protocol and its versions, and `qipf.default` for 74 classes."""
    data = told(net, words)
    settings: dict[str, Any] = {"shift": False, "batch_size": BATCH, "progress": False}
    probe = probe_tokens(net, data, perturb=network.replaced, **settings)
    plain = probe_tokens(net, data, perturb=False, **settings)
    classes = default(None, as_outputs(net, tokens_of(net, *data)), progress=False)
    return {"probe": probe, "probe, head alone": head_alone(probe), "probe without perturbations": plain}, classes


def judged(
    found: Read, probes: dict[str, Probe], classes: Probe, rivals: dict[str, Score]
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Scores of words by the probes and by rivals, and of phonemes by both."""
    wrong = {name: probe.posterior(found.tokens.question())[:, 0] for name, probe in probes.items()}
    posterior = classes.posterior(found.outputs)
    wrong["qipf.default, 74 classes"] = 1 - posterior.gather(1, found.tokens.predicted[:, None])[:, 0]
    single = scored(rivals, found.outputs)
    words = {name: all_right(values, found.tokens) for name, values in wrong.items()}
    summed = of_words({"probe": wrong["probe"]}, found.tokens)
    words |= {name: values for name, values in summed.items() if not name.endswith("sum")}
    return words, of_words(single, found.tokens) | probabilities(found.tokens), wrong | single


def rejection_ratio(scores: np.ndarray, wrong: np.ndarray) -> float:
    """PRR: how much of the way from random to perfect rejection a score goes, by the area under risk and coverage."""

    def area(order: np.ndarray) -> float:
        return float(np.mean(np.cumsum(wrong[order]) / np.arange(1, len(wrong) + 1)))

    random, best = float(wrong.mean()), area(np.argsort(wrong, kind="stable"))
    return (random - area(np.argsort(scores, kind="stable"))) / (random - best)


def check(net: network.G2P, words: Words) -> dict[str, float]:
    """ROC-AUC and PRR of the probability of the whole word, on words that are not judged."""
    found = read(net, words)
    scores, wrong = probabilities(found.tokens)["probability of the word"].numpy(), found.wrong_word.numpy()
    area = roc_auc(scores, ~wrong)
    return {"words": len(wrong), "right": float(1 - wrong.mean()), "roc_auc": float(area),
            "prr": rejection_ratio(scores, wrong)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("results/real"))
    parser.add_argument("--fit-only", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    say = Clock()
    files = datasets.files("g2p", data=chosen.data)
    net, parts = network.load(files[network.WHEEL]), load(files)
    judged_words = {word for part in ("test", *NATURAL) for word in parts[part].spellings}
    checked = check(net, others(files, judged_words, CHECKED))
    say(f"check of the set-up: {checked}")
    probes, classes = fitted(net, parts["fit"])
    say("probes fitted")
    reference, held_out = (as_outputs(net, tokens_of(net, *told(net, parts[name]))) for name in ("fit", "held_out"))
    rivals, missing = fitted_rivals(net, reference[:REFERENCES], held_out, TRAINED_ON, published=False)
    say(f"rivals fitted; missing: {missing}")
    if chosen.fit_only:
        return
    records = {name: Record(conditions()) for name in ("g2p", "g2p-phonemes")}
    rows: dict[str, dict[tuple[str, str], list[Tensor]]] = {name: {} for name in records}
    wrong: dict[str, list[Tensor]] = {name: [] for name in records}
    units, right = [], []
    for condition in conditions():
        words = parts[condition.family] if condition.suite == "natural" else spoilt(parts["test"], condition)
        found = read(net, words)
        own, single, phonemes = judged(found, probes, classes, rivals)
        kept = found.until_error
        wrong["g2p"].append(found.wrong_word)
        wrong["g2p-phonemes"].append((found.outputs.logits.argmax(1) != found.outputs.labels)[kept])
        units.append(found.tokens.sequence[kept])
        for kind, part in (("probe", own), ("single", single)):
            for name, values in part.items():
                rows["g2p"].setdefault((name, kind), []).append(values)
        for name, values in phonemes.items():
            rows["g2p-phonemes"].setdefault((name, "single" if name in rivals else "probe"), []).append(values[kept])
        right.append(round(1 - float(found.wrong_word.double().mean()), 4))
        say("-".join(map(str, condition)))
    for title, record in records.items():
        for (name, kind), values in rows[title].items():
            record.add("g2p-en", name, kind, values, wrong[title], units=units if title == "g2p-phonemes" else None)
        accuracy = [round(1 - float(one.double().mean()), 4) for one in wrong[title]]
        record.facts |= {"accuracy": {"g2p-en": {"network": accuracy}}, "missing": {"g2p-en": missing},
                         "words": {name: len(part.spellings) for name, part in parts.items()}, "check": checked,
                         "settings": probes["probe"].settings(), "seconds": say.seconds,
                         "processor_seconds": say.processor_seconds}  # fmt: skip
        record.write(chosen.out / title)
    say("done")


if __name__ == "__main__":
    main()
