"""Sentences of film reviews (MR), of product reviews (CR) and phrases of opinion (MPQA), and how they are spoilt."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qipf.study import datasets
from real.conditions import CLEAN, Condition

FILES = {"mr": "rt-polarity.all", "cr": "custrev.all", "mpqa": "mpqa.all"}
TRAIN, HELD_OUT, OTHER = 7500, 1000, 2000
LONGEST = 48
"""Words of a sentence that are read, after the first token."""
PADDING, FIRST, UNKNOWN = 0, 1, 2
SHARES = (0.1, 0.2, 0.3)

Sentence = list[str]


class Text(NamedTuple):
    """Sentences as words, and whether each is positive."""

    sentences: list[Sentence]
    labels: np.ndarray


def read(content: bytes) -> Text:
    """The sentences of a file whose lines begin with 0 or 1."""
    lines = [line.split() for line in content.decode("latin-1").split("\n") if line.strip()]
    return Text([line[1:] or [""] for line in lines], np.array([int(line[0]) for line in lines]))


def part(text: Text, rows: np.ndarray) -> Text:
    """Some of the sentences."""
    return Text([text.sentences[row] for row in rows], text.labels[rows])


def load(folder: Path | None, *, download: bool = False) -> dict[str, Text]:
    """The parts "train", "held_out" and "test" of MR, and "cr" and "mpqa"."""
    files = datasets.files("sentences", data=folder, download=download)
    mr = read(files[FILES["mr"]])
    order = np.random.default_rng(0).permutation(len(mr.labels))
    cuts = {"train": order[:TRAIN], "held_out": order[TRAIN : TRAIN + HELD_OUT], "test": order[TRAIN + HELD_OUT :]}
    found = {name: part(mr, rows) for name, rows in cuts.items()}
    for name in ("cr", "mpqa"):
        whole = read(files[FILES[name]])
        found[name] = part(whole, np.random.default_rng(0).permutation(len(whole.labels))[:OTHER])
    return found


def conditions() -> list[Condition]:
    """Clean sentences, spoilt ones, and those of other sources."""
    found = [CLEAN]
    families = {
        "swapped-neighbours": "shift",
        "left-out-words": "shift",
        "typing-errors": "unseen",
        "random-words": "resembling",
    }
    found += [Condition(suite, family, share) for family, suite in families.items() for share in SHARES]
    return [*found, Condition("natural", "cr", 0.0), Condition("natural", "mpqa", 0.0)]


def spoilt(text: Text, condition: Condition, words: list[str]) -> Text:
    """The sentences of a condition; `words` are those that random ones are drawn from."""
    if condition == CLEAN:
        return text
    rng = np.random.default_rng([len(condition.family), int(100 * condition.intensity)])
    change = {
        "swapped-neighbours": _swap, "left-out-words": _leave_out, "typing-errors": _mistype, "random-words": _replace
    }[condition.family]  # fmt: skip
    changed = [change(list(one), rng.random(len(one)) < condition.intensity, rng, words) for one in text.sentences]
    return Text(changed, text.labels)


def _swap(one: Sentence, chosen: np.ndarray, rng: np.random.Generator, words: list[str]) -> Sentence:
    for place in np.flatnonzero(chosen[:-1]):
        one[place], one[place + 1] = one[place + 1], one[place]
    return one


def _leave_out(one: Sentence, chosen: np.ndarray, rng: np.random.Generator, words: list[str]) -> Sentence:
    return [word for word, gone in zip(one, chosen, strict=True) if not gone] or one[:1]


def _mistype(one: Sentence, chosen: np.ndarray, rng: np.random.Generator, words: list[str]) -> Sentence:
    for place in np.flatnonzero(chosen):
        word = one[place]
        if len(word) > 1:
            at = int(rng.integers(len(word) - 1))
            swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
            one[place] = swapped if rng.random() < 0.5 else word[:at] + word[at + 1 :]
    return one


def _replace(one: Sentence, chosen: np.ndarray, rng: np.random.Generator, words: list[str]) -> Sentence:
    for place in np.flatnonzero(chosen):
        one[place] = words[int(rng.integers(len(words)))]
    return one


class Vocabulary:
    """Numbers of the words that occur at least twice in the training sentences."""

    def __init__(self, text: Text) -> None:
        counts: dict[str, int] = {}
        for sentence in text.sentences:
            for word in sentence:
                counts[word] = counts.get(word, 0) + 1
        self.words = sorted(word for word, count in counts.items() if count > 1)
        self._number = {word: 3 + number for number, word in enumerate(self.words)}
        self.size = 3 + len(self.words)

    def tokens(self, text: Text) -> tuple[Tensor, Tensor]:
        """Tokens (N, 1 + LONGEST), and the mask that is 1 where there is one."""
        found = torch.full((len(text.sentences), 1 + LONGEST), PADDING)
        for row, sentence in enumerate(text.sentences):
            numbers = [FIRST, *(self._number.get(word, UNKNOWN) for word in sentence[:LONGEST])]
            found[row, : len(numbers)] = torch.tensor(numbers)
        return found, (found != PADDING).long()
