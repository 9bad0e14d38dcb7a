"""The study of g2p-en and of Tiny ImageNet: the network is the published one, and words and images are as planned."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest
import torch

pytest.importorskip("pandas")

from evidence.results import Results
from qipf.models.outputs import Outputs
from qipf.study import datasets
from real import g2p, g2p_network, g2p_words, record, tables, tiny
from real.conditions import CLEAN, Condition
from real.g2p_network import END, G2P, IGNORED, PADDING, PHONEMES, START, STEPS, WIDTH
from real.g2p_words import Words


@pytest.fixture(scope="module")
def net() -> G2P:
    torch.manual_seed(0)
    made = G2P(16).eval()
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return made


def step(x: np.ndarray, h: np.ndarray, gru: torch.nn.GRU) -> np.ndarray:
    """One step of a GRU as the package computes it."""
    w_ih, w_hh, b_ih, b_hh = (getattr(gru, name).detach().numpy() for name in
                              ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"))  # fmt: skip
    reset_x, update_x, new_x = np.split(w_ih @ x + b_ih, 3)
    reset_h, update_h, new_h = np.split(w_hh @ h + b_hh, 3)
    reset, update = (1 / (1 + np.exp(-(a + b))) for a, b in ((reset_x, reset_h), (update_x, update_h)))
    return (1 - update) * np.tanh(new_x + reset * new_h) + update * h


def by_hand(net: G2P, word: str) -> list[int]:
    """The phonemes that the package would name, with the end, in plain NumPy."""
    state = np.zeros(16)
    letters = [*("abcdefghijklmnopqrstuvwxyz".index(letter) + 3 for letter in word), 2]
    for letter in letters:
        state = step(net.letter.weight.detach().numpy()[letter], state, net.encoder)
    found, before = [], START
    while len(found) < STEPS and END not in found:
        state = step(net.phoneme.weight.detach().numpy()[before], state, net.decoder)
        before = int(np.argmax(net.head.weight.detach().numpy() @ state + net.head.bias.detach().numpy()))
        found.append(before)
    return found


def test_answers_are_those_of_the_formulas_of_the_package(net):
    words = ["a", "uncertain", "probe", "zzz"]
    answers = net.answer(g2p_network.letters(words)).tolist()
    for word, answer in zip(words, answers, strict=True):
        expected = by_hand(net, word)
        assert answer[: len(expected)] == expected
        assert set(answer[len(expected) :]) <= {PADDING}


def test_told_its_own_answers_the_network_repeats_them(net):
    letters = g2p_network.letters(["some", "words", "more"])
    answers = net.answer(letters)
    again = net(g2p_network.inputs(letters, answers)).argmax(2)
    emitted = answers != PADDING
    assert torch.equal(again[emitted], answers[emitted])


def test_the_pronunciation_that_agrees_for_longest_is_meant():
    number = {phoneme: n for n, phoneme in enumerate(PHONEMES)}
    answer = torch.full((1, STEPS), PADDING)
    answer[0, :4] = torch.tensor([number["R"], number["EH1"], number["D"], END])
    words = Words(["read"], [[("R", "IY1", "D"), ("R", "EH1", "D"), ("R", "EH1", "T")]])
    found = g2p_network.meant(words, answer)[0].tolist()
    assert found == [number["R"], number["EH1"], number["D"], END] + [IGNORED] * (STEPS - 4)
    assert len(PHONEMES) == len(set(PHONEMES)) == 74


def test_words_and_phonemes_are_right_up_to_the_first_error(net):
    spellings = ["abc", "bca", "cab"]
    answers = net.answer(g2p_network.letters(spellings)).tolist()
    named = [
        [PHONEMES[n] for n in answer[: answer.index(PADDING) if PADDING in answer else None]] for answer in answers
    ]
    other = "AA0" if named[1][1] != "AA0" else "B"
    meant = [tuple(named[0][:-1]), (named[1][0], other, *named[1][2:-1]), tuple(named[2][:-1])[:-1]]
    found = g2p.read(net, Words(spellings, [[one] for one in meant]))
    ended = [row[-1] == "</s>" for row in named]
    assert found.wrong_word.tolist() == [not ended[0], True, True]
    wrong = found.outputs.logits.argmax(1) != found.outputs.labels
    second = found.tokens.sequence == 1
    assert found.until_error[second].tolist() == [True, True] + [False] * (int(second.sum()) - 2)
    assert wrong[second][:2].tolist() == [False, True]
    for number in range(3):  # nothing is wrong before the error
        rows = (found.tokens.sequence == number) & found.until_error
        assert not wrong[rows][:-1].any()


def test_the_probability_of_a_word_is_the_product_over_its_phonemes(net):
    letters = g2p_network.letters(["abc"])
    answers = net.answer(letters)
    shares = net(g2p_network.inputs(letters, answers)).softmax(2)[0]
    expected = [float(shares[n, answers[0, n]].detach()) for n in range(STEPS) if answers[0, n] != PADDING]
    found = g2p.probabilities(g2p.read(net, Words(["abc"], [[("B",)]])).tokens)
    assert float(found["probability of the word"]) == pytest.approx(-np.log(expected).sum(), rel=1e-5)
    assert float(found["probability of the word, normalised"]) == pytest.approx(-np.log(expected).mean(), rel=1e-5)


def test_replaced_letters_leave_phonemes_and_ends_alone():
    ids = g2p_network.inputs(g2p_network.letters(["pronunciation"] * 200), torch.full((200, STEPS), 7))
    changed = g2p_network.replaced(ids, torch.Generator().manual_seed(0))
    assert torch.equal(changed[:, WIDTH:], ids[:, WIDTH:])
    assert torch.equal(changed[:, 13:], ids[:, 13:])
    share = (changed[:, :13] != ids[:, :13]).float().mean()
    assert 0.10 < share < 0.15  # 15 % are drawn, and about one in ten of these is the same letter


def test_rejection_is_perfect_random_or_reversed():
    wrong = np.array([True] * 20 + [False] * 80)
    assert g2p.rejection_ratio(wrong.astype(float), wrong) == pytest.approx(1)
    assert g2p.rejection_ratio(-wrong.astype(float), wrong) < -1
    drawn = [g2p.rejection_ratio(np.random.default_rng(n).random(100), wrong) for n in range(200)]
    assert abs(np.mean(drawn)) < 0.05


def test_the_dictionary_has_several_pronunciations_and_comments():
    found = g2p_words.dictionary("read R EH1 D\nread(2) R IY1 D # a comment\nit's IH1 T S\n")
    assert found == {"read": [("R", "EH1", "D"), ("R", "IY1", "D")], "it's": [("IH1", "T", "S")]}


def test_words_are_in_one_part_each(monkeypatch):
    monkeypatch.setattr(g2p_words, "FIT", 50)
    monkeypatch.setattr(g2p_words, "HELD_OUT", 20)
    words = {f"{a}{b}{c}": [("B",)] for a in "abcde" for b in "abcde" for c in "abcde"}
    extra = {"it's": [("B",)], "well-off": [("B",)], "a.m.": [("B",)], "ab": [("B",)], "abcdef": [("B",) * 20]}
    parts = g2p_words.split({**words, **extra}, {"aaa", "bbb"})
    assert {name: len(part.spellings) for name, part in parts.items()} == {
        "fit": 50, "held_out": 20, "test": 53, "names": 2, "apostrophes": 1, "hyphens": 1
    }  # fmt: skip
    every = [word for part in parts.values() for word in part.spellings]
    assert len(every) == len(set(every))


def test_names_are_read_from_an_archive():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in {"names/dist.all.last": b"SMITH 1.0 1.0 1\n", "names/main.py": b"import os\n"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    assert g2p_words.names(buffer.getvalue()) == {"smith"}


def test_words_are_misspelt_as_the_protocol_says():
    words = Words(["spelling", "language"] * 100, [[("B",)]] * 200)
    lengths = {"left-out-letters": -1, "doubled-letters": 1, "extra-letters": 1}
    for family in g2p_words.FAMILIES:
        for places in g2p_words.PLACES:
            found = g2p_words.spoilt(words, Condition("shift", family, float(places))).spellings
            assert {len(word) - 8 for word in found} == {places * lengths.get(family, 0)}, family
            if family == "swapped-letters":
                assert all(sorted(a) == sorted(b) for a, b in zip(found, words.spellings, strict=True))
            if family in ("replaced-letters", "neighbouring-keys") and places == 1:
                pairs = [[(a, b) for a, b in zip(*two, strict=True) if a != b]
                         for two in zip(found, words.spellings, strict=True)]  # fmt: skip
                assert {len(one) for one in pairs} == {1}
                if family == "neighbouring-keys":
                    assert {a for one in pairs for a, b in one if b == "g"} == {"f", "h"}
    assert g2p_words.spoilt(words, CLEAN) is words
    suites = [condition.suite for condition in g2p_words.conditions()]
    assert suites == ["clean", *["shift"] * 4, *["unseen"] * 4, *["resembling"] * 4, *["natural"] * 3]


def test_the_whole_study_of_words_runs(net, tmp_path):
    rng = np.random.default_rng(0)
    spellings = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(40)]
    answers = net.answer(g2p_network.letters(spellings)).tolist()
    named = [tuple(PHONEMES[n] for n in answer if n not in (PADDING, END))[: STEPS - 1] for answer in answers]
    meant = [one if rng.random() < 0.5 else ("B", *one[1:]) for one in named]
    words = Words(spellings, [[one] for one in meant])
    probes, classes = g2p.fitted(net, words)
    reference = g2p.as_outputs(net, g2p.tokens_of(net, *g2p.told(net, words)))
    assert reference.labels is not None
    assert torch.allclose(reference.logits, net(g2p.told(net, words)[0])[g2p.told(net, words)[1] != IGNORED], atol=1e-5)
    found = g2p.read(net, words)
    own, single, phonemes = g2p.judged(found, probes, classes, {"energy": lambda o: -o.logits.logsumexp(1)})
    assert all(values.shape == (40,) for values in {**own, **single}.values())
    assert {"energy, mean", "energy, max", "energy, sum", "probability of the word"} <= set(single)
    assert {"probe", "probe, mean", "probe, max", "qipf.default, 74 classes"} <= set(own)
    wrong = phonemes["probe"]
    first = 1 - (1 - wrong[found.tokens.sequence == 0]).double().prod()
    assert float(1 - (-own["probe"][0]).exp()) == pytest.approx(float(first), rel=1e-4)


def test_of_each_score_the_best_summary_is_shown(tmp_path):
    listed = [CLEAN, Condition("natural", "names", 0.0)]
    kept, generator = record.Record(listed), torch.Generator().manual_seed(0)
    wrong = torch.arange(2000) < 500
    better = {
        "probe": 1.5,
        "probe, mean": 0.5,
        "entropy, mean": 0.4,
        "entropy, max": 1.0,
        "probability of the word": 1.2,
    }
    for row, shift in better.items():
        drawn = [torch.randn(2000, generator=generator) + shift * wrong for _ in listed]
        kept.add("g2p-en", row, "probe" if row.startswith("probe") else "single", drawn, [wrong] * 2)
    kept.write(tmp_path / "real" / "g2p")
    results = Results(tmp_path)
    shown = [line.split(" | ")[0] for line in tables.TABLES["real-summaries-g2p"](results).splitlines()[2:]]
    assert shown == ["| **the probe**", "| probability of the word", "| entropy, max", "| probe, mean"]
    assert tables.TABLES["real-bars-to-tiny"](results) == "Full size, then tiny has not been run yet."


def test_units_may_differ_between_conditions():
    wrong, scores = torch.tensor([True, False, True, False]), torch.tensor([0.9, 0.2, 0.8, 0.4])
    listed = [CLEAN, Condition("natural", "names", 0.0)]
    one, many = record.Record(listed), record.Record(listed)
    one.add("a", "s", "single", [scores, scores], [wrong, wrong])
    rows = torch.tensor([0, 0, 1, 2, 2, 2, 3])
    many.add("a", "s", "single", [scores, scores[rows]], [wrong, wrong[rows]], units=[torch.arange(4), rows])
    assert np.array_equal(one.replicates[0][0], many.replicates[0][0])
    assert many.replicates[0].shape == (2, 50)


@pytest.mark.real_data
def test_the_published_network_says_what_its_page_prints(data_dir):
    try:
        files = datasets.files("g2p", data=data_dir, download=False)
    except FileNotFoundError:
        pytest.skip("the files of g2p-en are not there")
    published = g2p_network.load(files[g2p_network.WHEEL])
    (answer,) = published.answer(g2p_network.letters(["activationist"])).tolist()
    expected = ["AE2", "K", "T", "IH0", "V", "EY1", "SH", "AH0", "N", "IH0", "S", "T", "</s>"]
    assert [PHONEMES[n] for n in answer if n != PADDING] == expected


def test_tiny_images_are_in_one_part_each(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(tiny, "ORIGINAL", 40)
    (tmp_path / "val" / "images").mkdir(parents=True)
    lines = [f"val_{n}.JPEG\t{'n02' if n % 2 else 'n01'}\t0" for n in range(40)] + ["val_40.JPEG\tn03\t0"]
    (tmp_path / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    for name in ("n01", "n02", "n03"):
        (tmp_path / "train" / name / "images").mkdir(parents=True)
        for k in range(30):
            (tmp_path / "train" / name / "images" / f"{name}_{k}.JPEG").touch()
    found = tiny.tiny_parts(tmp_path, {"n01": 7, "n02": 3, "n03": 5})
    assert {part: len(listed) for part, listed in found.items()} == {"train": 32, "held_out": 10, "test": 20}
    assert len({path for listed in found.values() for path, _ in listed}) == 62
    assert all((number == 3) == (int(path.stem.split("_")[1]) % 2 == 1) for path, number in found["test"])
    image.fromarray(np.full((64, 64, 3), 90, np.uint8)).save(tmp_path / "grey.JPEG")
    large = tiny.enlarged([tmp_path / "grey.JPEG"])
    assert large.shape == (1, 3, 224, 224)
    assert int((large.int() - 90).abs().max()) <= 2


def test_some_classes_are_kept_and_numbered_again():
    logits = torch.arange(2000.0).view(2, 1000)
    found = tiny.few(Outputs(logits, None, torch.tensor([7, 3])), [3, 7])
    assert found.logits.tolist() == [[3.0, 7.0], [1003.0, 1007.0]]
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0]
