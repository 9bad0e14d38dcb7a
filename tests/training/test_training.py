"""Training learns, follows its seed, takes data in every form and says what is wrong."""

import copy
import math
from pathlib import Path

import pytest
import torch
from small_training import line, same_weights, small_images, train_vgg
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from qipf import training
from qipf.study import datasets, nets
from qipf.study.recipes import RECIPES, USUAL_NET, recipe
from qipf.training.loop import Split, as_split, minibatches


def test_digits_are_learnt() -> None:
    dataset = datasets.load("digits")
    net = nets.build("small-cnn", seed=0)
    seen: list[training.EpochReport] = []
    plan = recipe("small-cnn", "digits")
    training.train(
        net,
        dataset.train,
        epochs=10,
        batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        on_epoch=seen.append,
    )
    assert training.accuracy(net, dataset.test) > 0.96
    assert not net.training
    assert [report.epoch for report in seen] == list(range(1, 11))
    assert seen[-1].loss < 0.2 * seen[0].loss
    assert seen[-1].accuracy is not None
    assert seen[-1].accuracy > 0.99


def test_the_same_seed_gives_the_same_weights_and_the_global_generator_is_left_alone() -> None:
    torch.rand(3)
    state = torch.get_rng_state()
    first = train_vgg(seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    assert same_weights(first, train_vgg(seed=3))
    assert not same_weights(first, train_vgg(seed=4))


@pytest.mark.parametrize("augment", ["none", "crop", "crop-flip"])
def test_batches_hold_every_image_once(augment) -> None:
    images, targets = small_images(25)
    generator = torch.Generator().manual_seed(0)
    batches = list(minibatches(images, targets, 10, augment, generator))
    assert [len(x) for x, _ in batches] == [10, 10, 5]
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    assert sorted(y.tolist()) == sorted(targets.tolist())
    windows = []  # every crop of every image, flipped or not
    padded = nn.functional.pad(images, (4, 4, 4, 4))
    flipped, moved, used = 0, set(), set()
    for top in range(9):
        for left in range(9):
            crop = padded[:, :, top : top + 8, left : left + 8]
            windows += [(top, left, False, crop), (top, left, True, crop.flip(3))]
    for image in x:
        for top, left, flip, crop in windows:
            equal = (crop == image).flatten(1).all(1)
            if equal.any() and image.any():
                flipped += flip
                moved.add((top, left))
                used.add(int(equal.to(torch.int8).argmax()))
                break
        else:
            raise AssertionError("a batch holds an image that is not a crop of the data")
    assert len(used) == 25
    assert (moved == {(4, 4)}) == (augment == "none")
    assert (flipped > 0) == (augment == "crop-flip")


def test_accuracy_counts_and_restores_the_mode() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.9))
    split = Split(torch.eye(4), torch.tensor([0, 1, 2, 0]))
    net.train()
    assert training.accuracy(net, split, batch_size=3) == 0.75
    assert net.training
    with pytest.raises(ValueError, match="regression"):
        training.accuracy(net, line())


def test_a_loss_of_ones_own() -> None:
    net = nn.Linear(1, 1).double()
    training.train(
        net, line(), epochs=800, batch_size=20, learning_rate=0.1, progress=False,
        loss=lambda outputs, targets: (outputs[:, 0] - 2 * targets).abs().mean(),
    )  # fmt: skip
    assert float(net.weight.detach()) == pytest.approx(6, abs=0.01)


def test_errors_say_what_was_wrong() -> None:
    net = nn.Linear(1, 1).double()
    x, y = line()
    with pytest.raises(ValueError, match="targets"):
        training.train(net, Split(x, y[1:]), epochs=1)
    with pytest.raises(ValueError, match="batch_size >= 1"):
        training.train(net, line(), epochs=1, batch_size=0)
    with pytest.raises(ValueError, match="learning_rate"):
        training.train(net, line(), epochs=1, learning_rate=math.nan)
    with pytest.raises(ValueError, match="images"):
        training.train(net, line(), epochs=1, augment="crop")
    with pytest.raises(ValueError, match="adam"):
        training.train(net, line(), epochs=1, optimizer="lion")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="net"):
        training.train(nn.Flatten(), line(), epochs=1)
    with pytest.raises(ValueError, match="loss"):
        training.train(
            net, line(), epochs=500, optimizer="sgd", schedule="constant", learning_rate=50.0, progress=False
        )


def test_recipes_name_things_that_exist() -> None:
    for net, dataset in RECIPES:
        assert net in nets.NETS
        assert dataset in datasets.NAMES
    assert set(USUAL_NET) == set(datasets.NAMES)
    assert USUAL_NET["cifar10"] == "vgg3"
    assert recipe("lenet", "digits").epochs > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_learns_the_digits_too_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    dataset = datasets.load("digits")
    net = nets.build("vgg3", channels=1, size=8, seed=0)
    state = torch.cuda.get_rng_state()
    path = tmp_path / "state"

    def stop(report: training.EpochReport) -> None:
        if report.epoch == 5:
            raise KeyboardInterrupt

    options = {"epochs": 10, "learning_rate": 3e-3, "device": "cuda", "progress": False, "checkpoint": path}
    with pytest.raises(KeyboardInterrupt):
        training.train(net, dataset.train, on_epoch=stop, **options)
    training.train(net, dataset.train, **options)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert training.accuracy(net, dataset.test) > 0.95
    assert all(p.is_cuda and p.is_contiguous() for p in net.parameters())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("options", [{}, {"optimizer": "sgd", "schedule": "constant", "learning_rate": 0.1}])
def test_recorded_steps_learn_what_ordinary_steps_learn(options: dict) -> None:
    split = datasets.load("digits").train
    losses: dict[bool, list[float]] = {True: [], False: []}
    weights = {}
    for recorded, found in losses.items():
        net = nets.build("small-cnn", size=8, seed=1)
        settings = {"epochs": 4, "batch_size": 100, "learning_rate": 1e-2, "cuda_graph": recorded, **options}
        training.train(
            net, split, device="cuda", progress=False,
            on_epoch=lambda report, found=found: found.append(report.loss), **settings,
        )  # fmt: skip
        weights[recorded] = torch.cat([parameter.flatten() for parameter in net.parameters()])
    assert losses[True] == pytest.approx(losses[False], rel=0.02)
    assert losses[True][-1] < 0.8 * losses[True][0]
    # bfloat16 sums differ in their last bits from run to run, and the steps carry that on
    assert torch.nn.functional.cosine_similarity(weights[True], weights[False], dim=0) > 0.999


def test_pairs_and_tensor_datasets_train_as_the_split_does() -> None:
    split = small_images()
    frozen = split.inputs.double().numpy()
    frozen.flags.writeable = False
    forms = [
        split, tuple(split), TensorDataset(*split), (split.inputs, split.targets.int()[:, None]),
        (frozen, split.targets.numpy()),
    ]  # fmt: skip
    start = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    trained = [training.train(copy.deepcopy(start), form, epochs=2, progress=False) for form in forms]
    assert not same_weights(trained[0], start)
    assert all(same_weights(net, trained[0]) for net in trained)
    assert len({training.accuracy(trained[0], form) for form in forms}) == 1
    targets = torch.linspace(0, 1, 60)[:, None]
    assert torch.equal(as_split((split.inputs, targets)).targets, targets)  # a loss may want them so


def test_what_is_no_training_data_is_said() -> None:
    split, net = small_images(), nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    cases = [
        (split.inputs, "got float32"),
        (DataLoader(TensorDataset(*split)), "got DataLoader"),
        (TensorDataset(split.inputs), "got a tuple of length 1"),
        ((split.inputs, split.targets.tolist()), "got a tuple of length 2 .* list"),
    ]
    for data, message in cases:
        with pytest.raises(TypeError, match=f"split: expected a Split, a pair .*{message}"):
            training.train(net, data, epochs=1, progress=False)
        with pytest.raises(TypeError, match=message):
            training.accuracy(net, data)


def test_one_logit_learns_two_classes_by_default() -> None:
    x = torch.linspace(-1, 1, 40)[:, None]
    split = Split(x, (x[:, 0] > 0).long())
    net = training.train(nn.Linear(1, 1), split, epochs=60, batch_size=40, learning_rate=0.1, progress=False)
    assert training.accuracy(net, split) > 0.9
