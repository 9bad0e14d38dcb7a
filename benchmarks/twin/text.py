"""Compare the twin with an ensemble on small text transformers: the part "text" of results/twin/PROTOCOL.md.

    python benchmarks/twin/text.py --data DATA --out results/twin

DATA contains rt-polarity.all, custrev.all and mpqa.all of harvardnlp/sent-conv-torch: sentences from film reviews (MR)
and product reviews (CR), and phrases of opinion (MPQA). Each line starts with its class, 0 or 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parent.parent))

import qipf
from qipf.predictive.moments import entropy
from qipf.scores import Entropy, SoftmaxResponse
from qipf.scores.coordinates import contrast
from qipf.tasks.outputs import Outputs
from twin.measures import Record
from twin.setting import Condition

BASES, MEMBERS = range(10, 15), range(100, 110)
TRAIN, HELD_OUT, TEST = 7500, 1000, 2000
LONGEST = 48
"""The maximum number of words of a sentence; further words are omitted."""
PADDING, FIRST, UNKNOWN = 0, 1, 2
WIDTH, EPOCHS, BATCH = 64, 8, 100
WORD_ERRORS = {
    "swapped neighbours": "shift",
    "omitted words": "shift",
    "typing errors": "unseen",
    "random words": "resembling",
}
"""The group of each kind of error. Random words resemble the perturbation on which probe and twin are trained."""
CONDITIONS = [
    Condition("clean", "clean", 0.0),
    *(Condition(group, family, share) for family, group in WORD_ERRORS.items() for share in (0.1, 0.2, 0.3)),
    Condition("natural", "CR", 0.0),
    Condition("natural", "MPQA", 0.0),
]

Sentence = list[str]


class Text(NamedTuple):
    """Sentences, split into words, and their classes."""

    sentences: list[Sentence]
    labels: np.ndarray

    def part(self, rows: np.ndarray) -> Text:
        """Return some of the sentences."""
        return Text([self.sentences[row] for row in rows], self.labels[rows])


class Transformer(nn.Module):
    """Two layers of attention; the output of the first token yields two logits."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, WIDTH, padding_idx=PADDING)
        self.positions = nn.Embedding(1 + LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.2, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the logits (N, 2)."""
        x = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.layers(x, src_key_padding_mask=mask == 0)[:, 0]))


def read(file: Path) -> Text:
    """Read the sentences of a file in random order."""
    lines = [line.split() for line in file.read_text("latin-1").split("\n") if line.strip()]
    text = Text([line[1:] or [""] for line in lines], np.array([int(line[0]) for line in lines]))
    return text.part(np.random.default_rng(0).permutation(len(lines)))


def changed(text: Text, condition: Condition, words: list[str]) -> Text:
    """Introduce errors into a fraction of the words; random words are drawn from `words`."""
    rng = np.random.default_rng([len(condition.family), int(100 * condition.intensity)])
    found = []
    for sentence in text.sentences:
        new = list(sentence)
        for at in np.flatnonzero(rng.random(len(new)) < condition.intensity).tolist():
            new[at] = _wrong(new, at, condition.family, rng, words)
        found.append([word for word in new if word] or sentence[:1])
    return Text(found, text.labels)


def _wrong(sentence: Sentence, at: int, family: str, rng: np.random.Generator, words: list[str]) -> str:
    """Return the word that replaces a word; with swapped neighbours, also change the next word."""
    word = sentence[at]
    if family == "omitted words":
        return ""
    if family == "random words":
        return words[int(rng.integers(len(words)))]
    if family == "swapped neighbours":
        if at + 1 == len(sentence):
            return word
        sentence[at + 1], word = word, sentence[at + 1]
        return word
    if len(word) < 2:
        return word
    cut = int(rng.integers(len(word) - 1))
    return word[:cut] + (word[cut + 1] + word[cut] if rng.random() < 0.5 else word[cut + 1]) + word[cut + 2 :]


class Vocabulary:
    """The words that occur at least twice in the training sentences, with their token ids."""

    def __init__(self, text: Text) -> None:
        counts = Counter(word for sentence in text.sentences for word in sentence)
        self.words = sorted(word for word, count in counts.items() if count > 1)
        self._ids = {word: 3 + number for number, word in enumerate(self.words)}

    def tokens(self, text: Text) -> tuple[Tensor, Tensor]:
        """Return the token ids (N, 1 + LONGEST) and the mask, which is 0 for padding."""
        found = torch.full((len(text.sentences), 1 + LONGEST), PADDING)
        for row, sentence in enumerate(text.sentences):
            ids = [FIRST, *(self._ids.get(word, UNKNOWN) for word in sentence[:LONGEST])]
            found[row, : len(ids)] = torch.tensor(ids)
        return found, (found != PADDING).long()


def trained(words: int, inputs: tuple[Tensor, Tensor], labels: Tensor, seed: int) -> Transformer:
    """Train a network; in every step, a random tenth of the words is hidden."""
    torch.manual_seed(seed)
    net, (tokens, mask) = Transformer(words), inputs
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.01)
    steps = EPOCHS * -(-len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(labels)).split(BATCH):
            longest = int(mask[rows].sum(1).max())
            shown, used = tokens[rows, :longest], mask[rows, :longest]
            hidden = (torch.rand(shown.shape) < 0.1) & (shown > UNKNOWN)
            loss = functional.cross_entropy(net(torch.where(hidden, UNKNOWN, shown), used), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the three files")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--smoke", action="store_true", help="replace the test sentences by 200 held-out ones")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    mr = read(chosen.data / "rt-polarity.all")
    train, held_out, test = (
        mr.part(np.arange(*ends))
        for ends in ((0, TRAIN), (TRAIN, TRAIN + HELD_OUT), (TRAIN + HELD_OUT, TRAIN + HELD_OUT + TEST))
    )
    other = {
        name: read(chosen.data / file).part(np.arange(TEST))
        for name, file in (("CR", "custrev.all"), ("MPQA", "mpqa.all"))
    }
    bases, members = BASES, MEMBERS
    if chosen.smoke:
        test, bases, members = held_out.part(np.arange(200)), BASES[:1], MEMBERS[:2]
        other = dict.fromkeys(other, test)
    vocabulary = Vocabulary(train)
    words, inputs, labels = 3 + len(vocabulary.words), vocabulary.tokens(train), torch.from_numpy(train.labels)
    texts = [
        other[c.family] if c.group == "natural" else changed(test, c, vocabulary.words) if c.intensity else test
        for c in CONDITIONS
    ]
    seen = [vocabulary.tokens(text) for text in texts]
    answers = torch.from_numpy(np.stack([text.labels for text in texts]))

    @torch.no_grad()
    def probabilities(net: nn.Module) -> Tensor:
        return torch.stack([net(*one) for one in seen]).softmax(2).double()

    total, means = 0.0, {}
    for number, seed in enumerate(members, start=1):
        total = total + probabilities(trained(words, inputs, labels, seed))
        if number in (len(members) // 2, len(members)):
            means[f"ensemble of {number}"] = total / number
    facts: dict[str, Any] = {"accuracy": {}, "seconds": {}, "shares": {}}
    record = Record(CONDITIONS, len(test.labels), "cpu")
    for base in bases:
        begin = time.perf_counter()
        net = trained(words, inputs, labels, base)
        times = [time.perf_counter() - begin]
        scorers = {}
        efforts: dict[str, Any] = {"probe": {}, "twin": {"effort": "thorough"}}
        for name, effort in efforts.items():
            begin = time.perf_counter()
            scorers[name] = qipf.default(net, (inputs, labels), **effort, progress=False)
            times.append(time.perf_counter() - begin)
        facts["seconds"][base] = dict(zip(("network", "probe", "twin"), times, strict=True))
        facts["shares"][base] = [scorers["probe"].share, scorers["twin"].share, scorers["twin"].head_share]
        with torch.no_grad():
            logits = torch.stack([net(*one) for one in seen])
            found = {
                name: torch.stack([qipf.wrap(net, scorer, posterior=True)(*one).posterior for one in seen])
                for name, scorer in scorers.items()
            }
        predicted, flat = logits.argmax(2), Outputs(logits.flatten(0, 1))
        wrong = predicted != answers
        facts["accuracy"][f"network {base}"] = (~wrong).double().mean(1).tolist()
        for name, score in (("entropy", Entropy()), ("max softmax", SoftmaxResponse())):
            record.add(base, name, score(flat).reshape(wrong.shape), wrong)
        for name, posterior in {**found, **means}.items():
            scores = contrast(posterior.double().flatten(0, 1), predicted.flatten())
            record.add(base, name, scores.reshape(wrong.shape), wrong)
            facts["accuracy"][f"{name} {base}"] = (posterior.argmax(2) == answers).double().mean(1).tolist()
        for name, posterior in means.items():
            record.add(base, f"{name}, entropy", entropy(posterior), wrong)
        record.write(chosen.out / "text", {"pair": "text", **facts})
        print(base, [round(one, 1) for one in times], facts["shares"][base], flush=True)


if __name__ == "__main__":
    main()
