"""Shift text, given as strings or token ids (N, T), at five severities.

| shift | effect on strings | effect on token ids | fraction at severities 1 to 5 |
|---|---|---|---|
| typos | omits, doubles, swaps or replaces letters | replaces tokens with other tokens | 2, 5, 10, 20, 30% |
| word-drops | omits words | omits tokens, moves the rest to the front and adds padding | 5, 10, 20, 30, 40% |

If possible, shift strings (`shift_texts`) before tokenisation. If the texts are already tokenised, shift token ids
(`apply`): the first token of a text and the padding are unchanged, and replacement tokens come from random positions in
the set. Typos in token ids resemble the perturbations used by `qipf.default` (`qipf.tasks.perturb`); typos in strings
and dropped words do not.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from qipf.study.shifts.effects import Counter, check_severity

SHARES: dict[str, tuple[float, ...]] = {
    "typos": (0.02, 0.05, 0.1, 0.2, 0.3),
    "word-drops": (0.05, 0.1, 0.2, 0.3, 0.4),
}
"""Fraction of the letters, words or tokens changed at each severity."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def shift_texts(texts: Iterable[str], name: str, severity: float, seed: int = 0) -> list[str]:
    """Apply "typos" or "word-drops" to strings, at a severity from 1 to 5.

    Random numbers depend on `seed`, the shift and the string's index.
    """
    share = _share(name, severity)
    if isinstance(texts, str):
        raise TypeError("texts: expected a list of strings, got a single string; pass [text]")
    found = []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts: expected strings, got {type(text).__name__} at index {number}")
        rng = np.random.default_rng([seed, list(SHARES).index(name), number])
        found.append(_misspelt(text, share, rng) if name == "typos" else _thinned(text, share, rng))
    return found


def apply(ids: Tensor, name: str, severity: float, seed: int = 0, *, padding: int = 0) -> Tensor:
    """Shift token ids (N, T) (see `qipf.study.shifts.apply`); `padding` is the id that pads short texts."""
    share = _share(name, severity)
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.dtype == torch.bool:
        found = str(ids.dtype).removeprefix("torch.") if isinstance(ids, Tensor) else type(ids).__name__
        raise TypeError(f"{name}: expected token ids (N, T) as integers, got {found}; for strings, use shift_texts")
    if ids.ndim != 2:
        raise ValueError(f"{name}: expected token ids (N, T), got shape {tuple(ids.shape)}")
    if name == "word-drops":
        return compact(ids, kept_tokens(ids, severity, seed, padding=padding), padding)
    draws = Counter(seed * len(SHARES), len(ids), device=ids.device)
    known = ids[ids != padding]
    if not len(known):
        return ids.clone()
    chosen = (draws.uniform(ids.shape[1]) < share) & _free(ids, padding)
    others = (draws.uniform(ids.shape[1]).double() * len(known)).long().clamp(max=len(known) - 1)
    return torch.where(chosen, known[others], ids)


def kept_tokens(ids: Tensor, severity: float, seed: int = 0, *, padding: int = 0) -> Tensor:
    """Return a mask (N, T) of the tokens that "word-drops" keeps; pass it to `compact` to move labels accordingly."""
    draws = Counter(seed * len(SHARES) + 1, len(ids), device=ids.device)
    return (draws.uniform(ids.shape[1]) >= _share("word-drops", severity)) | ~_free(ids, padding)


def compact(values: Tensor, kept: Tensor, fill: int) -> Tensor:
    """Move the kept values (N, T) to the front of their rows, and set the rest to `fill`."""
    order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)
    return torch.where(kept.gather(1, order), values.gather(1, order), fill)


def _share(name: str, severity: float) -> float:
    check_severity(name, SHARES, severity)
    return SHARES[name][int(severity) - 1]


def _free(ids: Tensor, padding: int) -> Tensor:
    """Return a mask of the tokens that may change; the first token may not, since it is often a class token."""
    free = ids != padding
    free[:, :1] = False
    return free


def _thinned(text: str, share: float, rng: np.random.Generator) -> str:
    words = text.split()
    kept = rng.random(len(words)) >= share
    if words and not kept.any():
        kept[rng.integers(len(words))] = True
    return " ".join(word for word, keep in zip(words, kept, strict=True) if keep)


def _misspelt(text: str, share: float, rng: np.random.Generator) -> str:
    """Misspell a fraction of the letters, each in a random way."""
    letters, wrong, kinds = list(text), rng.random(len(text)) < share, rng.integers(4, size=len(text))
    random = rng.integers(len(_LETTERS), size=len(text))
    for place, letter in enumerate(text):
        if not wrong[place] or not letter.isalpha():
            continue
        if kinds[place] == 0:
            letters[place] = ""
        elif kinds[place] == 1:
            letters[place] = 2 * letter
        elif kinds[place] == 2 and place + 1 < len(text) and text[place + 1].isalpha() and not wrong[place + 1]:
            letters[place], letters[place + 1] = text[place + 1], letter
        else:
            other = _LETTERS[random[place]]
            letters[place] = other.upper() if letter.isupper() else other
    return "".join(letters)
