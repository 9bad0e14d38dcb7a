"""The network of g2p-en, which turns letters into phonemes, as a torch module with the published weights.

An encoder reads the letters and a decoder names one phoneme after the other; both are GRUs. The package computes them
in NumPy and imports much else, so its weights are read from the wheel and nothing of it is run.
"""

from __future__ import annotations

import io
import zipfile

import numpy as np
import torch
from torch import Tensor, nn

from real.g2p_words import LONGEST, Words

WHEEL, WEIGHTS = "g2p_en-2.1.0-py3-none-any.whl", "g2p_en/checkpoint20.npz"
LETTERS = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
_VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
_CONSONANTS = (
    "B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH", "T", "TH", "V", "W", "Y",
    "Z", "ZH",
)  # fmt: skip
PHONEMES = (
    "<pad>", "<unk>", "<s>", "</s>", *sorted([*_CONSONANTS, "UW", *(v + str(s) for v in _VOWELS for s in range(3))])
)  # fmt: skip
PADDING, UNKNOWN, END_OF_LETTERS = 0, 1, 2
START, END = 2, 3
WIDTH = 40
"""Places for letters in the inputs of the network; the places for phonemes follow."""
STEPS = LONGEST + 1
"""Phonemes that are named at most, with the end."""
IGNORED = -100


class G2P(nn.Module):
    """Letters and the phonemes before each place to the logits of the phoneme at that place.

    Args:
        hidden: Width of the embeddings and of both GRUs.
    """

    def __init__(self, hidden: int = 256) -> None:
        super().__init__()
        self.letter, self.phoneme = nn.Embedding(len(LETTERS), hidden), nn.Embedding(len(PHONEMES), hidden)
        self.encoder, self.decoder = (nn.GRU(hidden, hidden, batch_first=True) for _ in range(2))
        self.head = nn.Linear(hidden, len(PHONEMES))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (N, STEPS, phonemes) for ids (N, WIDTH + STEPS): letters, then the phoneme before each place."""
        states, _ = self.decoder(self.phoneme(ids[:, WIDTH:]), self.encode(ids[:, :WIDTH]))
        return self.head(states)

    def encode(self, letters: Tensor) -> Tensor:
        """The state of the encoder at the end of each word, (1, N, hidden)."""
        last = (letters != PADDING).sum(1) - 1
        states, _ = self.encoder(self.letter(letters[:, : int(last.max()) + 1]))
        return states[torch.arange(len(letters)), last][None]

    @torch.no_grad()
    def answer(self, letters: Tensor) -> Tensor:
        """The package's answers, (N, STEPS): the likeliest phoneme at each place, and padding after the end."""
        state, before = self.encode(letters), torch.full((len(letters), 1), START)
        found, ended = [], torch.zeros(len(letters), dtype=torch.bool)
        for _ in range(STEPS):
            states, state = self.decoder(self.phoneme(before), state)
            before = self.head(states).argmax(2)
            found.append(before[:, 0].masked_fill(ended, PADDING))
            ended |= before[:, 0] == END
        return torch.stack(found, 1)


def load(wheel: bytes) -> G2P:
    """The network with the published weights."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive, np.load(io.BytesIO(archive.read(WEIGHTS))) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    return with_weights(arrays)


def with_weights(arrays: dict[str, Tensor]) -> G2P:
    """The network with weights that are named as in the package."""
    net = G2P(arrays["fc_w"].shape[1]).eval()
    renamed = {"letter.weight": "enc_emb", "phoneme.weight": "dec_emb", "head.weight": "fc_w", "head.bias": "fc_b"}
    for part, short in {"encoder": "enc", "decoder": "dec"}.items():
        for kind in ("weight", "bias"):
            for place in ("ih", "hh"):
                renamed[f"{part}.{kind}_{place}_l0"] = f"{short}_{kind[0]}_{place}"
    net.load_state_dict({ours: arrays[theirs] for ours, theirs in renamed.items()})
    return net


def letters(spellings: list[str]) -> Tensor:
    """Letters (N, WIDTH) with the end; whatever is not a letter is unknown."""
    found = torch.full((len(spellings), WIDTH), PADDING)
    number = {letter: n for n, letter in enumerate(LETTERS)}
    for row, word in enumerate(spellings):
        ids = [number.get(letter, UNKNOWN) for letter in word] + [END_OF_LETTERS]
        found[row, : len(ids)] = torch.tensor(ids)
    return found


def meant(words: Words, answers: Tensor) -> Tensor:
    """What each word should be, (N, STEPS), with the end and then `IGNORED`.

    Of several pronunciations it is the one that agrees with the answer (N, STEPS) for longest, the first of equals.
    """
    found = torch.full((len(answers), STEPS), IGNORED)
    number = {phoneme: n for n, phoneme in enumerate(PHONEMES)}
    for row, (listed, answer) in enumerate(zip(words.pronunciations, answers.tolist(), strict=True)):
        ids = [[*(number[phoneme] for phoneme in one), END] for one in listed]
        best = max(ids, key=lambda one: _agreement(one, answer))
        found[row, : len(best)] = torch.tensor(best)
    return found


def _agreement(one: list[int], other: list[int]) -> int:
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def inputs(of_letters: Tensor, following: Tensor) -> Tensor:
    """Inputs of the network whose decoder is told the phonemes before each place of `following` (N, STEPS)."""
    before = following.roll(1, 1).clamp(min=PADDING)
    before[:, 0] = START
    return torch.cat([of_letters, before], 1)


def replaced(ids: Tensor, generator: torch.Generator) -> Tensor:
    """Up to 30 % of the letters of each word replaced by those of other words, as `probe_tokens` does with tokens."""
    kept = ids.clone()
    own = kept[:, :WIDTH]
    is_letter = own > END_OF_LETTERS
    share = 0.3 * torch.rand(len(ids), 1, generator=generator)
    chosen = is_letter & (torch.rand(own.shape, generator=generator) < share)
    pool = own[is_letter]
    own[chosen] = pool[torch.randint(len(pool), (int(chosen.sum()),), generator=generator)]
    return kept
