"""The study of real networks: its parts compute what they should."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("pandas")

import qipf
from qipf.models.augmented import collect_augmented
from qipf.models.outputs import Outputs
from real import (
    camvid,
    conditions,
    folder,
    human,
    imagenet,
    imagenette,
    prepare,
    resnets,
    rivals,
    sentences,
    sixteen,
)
from real.conditions import CLEAN, Condition


@pytest.mark.parametrize(
    ("name", "millions"), [("resnet20", 0.27), ("resnet32", 0.46), ("resnet44", 0.66), ("resnet56", 0.85)]
)
def test_resnets_have_the_size_that_the_paper_gives(name, millions):
    net = resnets.ResNet(resnets.BLOCKS[name])
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(convolutions) == int(name.removeprefix("resnet"))
    assert net(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_shortcuts_take_every_second_pixel_and_add_zeros():
    block = resnets.Block(2, 4).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.rand(1, 2, 4, 4)
    expected = torch.zeros(1, 4, 2, 2)
    expected[:, 1:3] = x[:, :, ::2, ::2]
    assert torch.allclose(block(x), expected)


def test_conditions_are_those_of_the_protocol():
    every = conditions.of_images()
    assert [sum(c.suite == suite for c in every) for suite in ("clean", "shift", "unseen", "resembling")] == [
        1,
        50,
        55,
        25,
    ]
    few = conditions.of_large_images()
    assert [sum(c.suite == suite for c in few) for suite in ("clean", "shift", "unseen", "resembling")] == [1, 10, 8, 3]
    assert set(few) <= set(every)


def test_rank_correlation_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    a, b = rng.random(200), np.round(rng.random(200), 1)
    value, drawn = human.rank_correlation(a, b, rng.poisson(1.0, (50, 200)))
    assert value == pytest.approx(stats.spearmanr(a, b).statistic)
    assert drawn.shape == (50,)
    assert 0.03 < drawn.std() < 0.12  # 1 / sqrt(200) is 0.07


def test_images_that_the_networks_have_seen_are_not_judged():
    names = [f"train/{one}/n_{k}.JPEG" for one in folder.CLASSES for k in range(260)]
    names += [f"val/{one}/ILSVRC2012_val_{k}.JPEG" for one in folder.CLASSES for k in range(3)]
    found = folder.parts(names)
    assert {name: len(listed) for name, listed in found.items()} == {"train": 2000, "held_out": 500, "test": 30}
    assert all("ILSVRC2012_val" in name for name in found["test"])
    assert not set(found["train"]) & set(found["held_out"])
    assert found == folder.parts(names[::-1])


def test_predictions_outside_the_ten_classes_come_first():
    logits = torch.zeros(4, 1000)
    logits[0, 217] = logits[1, 3] = 9.0  # 217 is one of the ten, 3 is not
    logits[2, 0], logits[3, 4] = 5.0, 2.0
    scores = imagenette.outside_first(torch.tensor([0.3, -2.0, 0.1, -3.0]), logits)
    assert scores.argsort(descending=True).tolist() == [3, 1, 0, 2]
    assert scores[[0, 2]].tolist() == pytest.approx([0.3, 0.1])


def test_sixteen_classes_have_the_mean_probability_of_their_members():
    assert len(sixteen.OF_CLASS) == sum(map(len, sixteen.MEMBERS.values())) == 207
    assert sorted(sixteen.NAMES) == sixteen.NAMES
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))
    shares = torch.softmax(logits, 1)
    found = sixteen.log_means(logits).exp()
    clock, bear = sixteen.NAMES.index("clock"), sixteen.NAMES.index("bear")
    assert torch.allclose(found[:, clock], (shares[:, 409] + shares[:, 530] + shares[:, 892]) / 3)
    assert torch.allclose(found[:, bear], shares[:, 294:298].mean(1))
    few = sixteen.sixteen(Outputs(logits, None, torch.tensor([530, 0, 296])))
    assert few.labels is not None
    assert few.labels.tolist() == [clock, bear]
    assert torch.equal(few.logits, sixteen.log_means(logits[[0, 2]]))


def test_photographs_are_cropped_and_drawings_named(tmp_path):
    image = pytest.importorskip("PIL.Image")
    wide = np.zeros((300, 600, 3), np.uint8)
    wide[:, 300:] = 255
    image.fromarray(wide).save(tmp_path / "wide.png")
    prepare.photograph(tmp_path / "wide.png", tmp_path / "validation" / "7" / "a.JPEG")
    (pixels,) = folder.pixels([tmp_path / "validation" / "7" / "a.JPEG"])
    assert pixels.shape == (3, 224, 224)
    assert pixels[:, :, :100].max() < 20
    assert pixels[:, :, 124:].min() > 235
    for name in ("cat3-dog1", "cat3-cat1", "dog10-knife2"):
        prepare.drawing(tmp_path / "validation" / "7" / "a.JPEG", tmp_path / "conflict" / "any" / f"{name}.JPEG")
    found, shapes, textures = imagenet.drawings(tmp_path, "conflict")
    assert len(found) == 2  # without the one whose shape and texture are of one class
    assert [sixteen.NAMES[n] for n in shapes] == ["cat", "dog"]
    assert [sixteen.NAMES[n] for n in textures] == ["dog", "knife"]
    with pytest.raises(SystemExit, match="224 by 224"):
        prepare.drawing(tmp_path / "wide.png", tmp_path / "none.JPEG")


def test_photographs_of_a_class_are_judged_once(tmp_path):
    for number in (3, 8):
        for k in range(5):
            path = tmp_path / "validation" / str(number) / f"{k}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (tmp_path / "training" / str(number)).mkdir(parents=True)
        (tmp_path / "training" / str(number) / "t.JPEG").touch()
    found = imagenet.parts(tmp_path)
    assert {name: len(paths) for name, paths in found.items()} == {"train": 8, "held_out": 2, "test": 2}
    assert len({path for paths in found.values() for path in paths}) == 12
    assert not any(path.stem == "t" for path in found["test"] + found["held_out"])


def test_pixels_stay_in_their_place_under_every_condition_of_camvid():
    images = torch.zeros(2, 3, 64, 96)
    images[:, :, :, 48:] = 1.0
    for condition in camvid.conditions():
        if condition.family not in ("stripes", "spatter"):  # these hide a part of the image
            left, right = conditions.apply(images, condition).split(48, dim=3)
            assert left[..., :40].mean() < right[..., 8:].mean(), condition
    changed = camvid.perturbed(images.repeat(20, 1, 1, 1), torch.Generator().manual_seed(0))
    assert torch.all(changed[..., :40].mean((1, 2, 3)) < changed[..., 56:].mean((1, 2, 3)))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).relu().mean((2, 3)))


def test_the_probe_of_the_study_is_the_default():
    net, generator = Small().eval(), torch.Generator().manual_seed(1)
    images, labels = torch.rand(80, 3, 8, 8, generator=generator), torch.arange(80) % 4
    default = qipf.default(net, (images, labels), progress=False)
    augmented, _ = collect_augmented(net, (images, labels), draws=4, progress=False)
    clean = rivals.read(net, images, default.layers, labels)
    found = imagenette.probes(augmented, clean)
    outputs = rivals.read(net, images, default.layers)
    assert torch.equal(found["probe"](outputs), default(outputs))
    plain = qipf.default(net, (images, labels), perturb=False, progress=False)
    assert found["probe without perturbations"].share == plain.share
    assert set(found) == {"probe", "probe, head alone", "probe without perturbations"}


def test_the_probe_of_the_study_is_the_default_for_few_images():
    net, generator = Small().eval(), torch.Generator().manual_seed(1)
    images, labels = torch.rand(40, 3, 8, 8, generator=generator), torch.arange(40) % 4
    with pytest.warns(UserWarning, match="few for a head"):
        default = qipf.default(net, (images, labels), progress=False)
    augmented, _ = collect_augmented(net, (images, labels), draws=4, progress=False)
    outputs = rivals.read(net, images, default.layers, labels)
    found = imagenette.probes(augmented, outputs)
    assert torch.equal(found["probe"](outputs), default(outputs))
    first = imagenette.probes(augmented, outputs, 0.2)
    assert torch.equal(found["probe, share 0.2"](outputs), first["probe"](outputs))
    assert not torch.equal(found["probe"](outputs), first["probe"](outputs))
    assert "probe, share 0.2" not in first


def test_every_rival_can_be_fitted():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((400, 8)).astype(np.float32)
    logits = (2 * features @ rng.standard_normal((8, 4))).astype(np.float32)
    labels = np.where(rng.random(400) < 0.8, logits.argmax(1), rng.integers(0, 4, 400))
    outputs = Outputs(*(torch.from_numpy(part) for part in (logits, features, labels)))
    net = nn.Linear(8, 4)
    with torch.no_grad():
        found, missing = rivals.fitted_rivals(net, outputs, outputs, 400)
        scores = rivals.scored(found, outputs)
    assert not missing
    assert len(scores) == 22
    assert all(torch.isfinite(values).all() and values.shape == (400,) for values in scores.values())


def test_sentences_are_spoilt_as_the_protocol_says():
    text = sentences.Text([["the", "film", "is", "good"] * 25] * 20, np.zeros(20, np.int64))
    for family, shares in {
        "typing-errors": (0.2, 0.3),
        "random-words": (0.28, 0.3),
        "swapped-neighbours": (0.2, 0.6),
    }.items():
        changed = sentences.spoilt(text, Condition("shift", family, 0.3), ["other"])
        pairs = zip(changed.sentences, text.sentences, strict=True)
        share = np.mean([np.mean([a != b for a, b in zip(*pair, strict=True)]) for pair in pairs])
        assert shares[0] - 0.03 < share < shares[1] + 0.03, family
        if family == "swapped-neighbours":
            assert all(sorted(a) == sorted(b) for a, b in zip(changed.sentences, text.sentences, strict=True))
    fewer = sentences.spoilt(text, Condition("shift", "left-out-words", 0.3), [])
    assert 66 < np.mean([len(one) for one in fewer.sentences]) < 74
    assert sentences.spoilt(text, CLEAN, []) is text


def test_words_become_numbers_and_padding_is_masked():
    text = sentences.read(b"1 a fine film .\n0 a dull film .\n1 fine \xe9 .\n")
    assert text.labels.tolist() == [1, 0, 1]
    vocabulary = sentences.Vocabulary(text)
    assert vocabulary.words == [".", "a", "film", "fine"]
    tokens, mask = vocabulary.tokens(text)
    assert tokens[1, :6].tolist() == [1, 4, 2, 5, 3, 0]
    assert mask.sum(1).tolist() == [5, 5, 4]
