"""Data sets that need no file, and files that are found, checked and read; wrong ones are refused."""

import gzip

import numpy as np
import pytest
import torch
from made_up import tiny_cifar, tiny_idx_set

from qipf.study import datasets


def test_digits_are_all_there_split_by_class() -> None:
    from sklearn.datasets import load_digits

    dataset = datasets.load()
    assert dataset.name == "digits"
    assert len(dataset.train.targets) + len(dataset.test.targets) == 1797
    both = torch.cat([dataset.train.inputs, dataset.test.inputs])[:, 0].numpy() * 16
    assert sorted(map(bytes, both.astype(np.uint8))) == sorted(map(bytes, load_digits().images.astype(np.uint8)))
    share = dataset.test.targets.bincount() / torch.cat([dataset.train.targets, dataset.test.targets]).bincount()
    assert float((share - 1 / 3).abs().max()) < 0.004
    assert torch.equal(datasets.load("digits").test.inputs, dataset.test.inputs)
    assert dataset.train.inputs.dtype == torch.float32
    assert float(dataset.train.inputs.max()) == 1.0


def test_two_moons_lie_on_their_half_circles() -> None:
    points, labels = datasets.two_moons(400, noise=0.0, seed=1)
    assert labels.bincount().tolist() == [200, 200]
    upper, lower = points[labels == 0], points[labels == 1]
    torch.testing.assert_close(upper.norm(dim=1), torch.ones(200))
    torch.testing.assert_close((lower - torch.tensor([1.0, 0.5])).norm(dim=1), torch.ones(200))
    assert float(upper[:, 1].min()) >= 0
    assert float(lower[:, 1].max()) <= 0.5
    dataset = datasets.load("two-moons", seed=2)
    assert torch.equal(dataset.train.inputs, datasets.load("two-moons", seed=2).train.inputs)
    assert not torch.equal(dataset.train.inputs, datasets.load("two-moons", seed=3).train.inputs)
    assert not torch.equal(dataset.train.inputs, dataset.test.inputs)
    noisy = datasets.two_moons(20_000, noise=0.15, seed=0)
    radius = noisy.inputs[noisy.targets == 0].norm(dim=1)
    assert float(radius.std()) == pytest.approx(0.15, rel=0.05)


def test_the_regression_pairs_lie_in_the_seen_regions_near_the_curve() -> None:
    dataset = datasets.load("regression")
    x, y = dataset.train.inputs[:, 0].double(), dataset.train.targets.double()
    assert x.shape == (120,)
    assert bool((((x >= -1.2) & (x <= 0.1)) | ((x >= 0.7) & (x <= 1))).all())
    assert int((x > 0.5).sum()) == 33, "30 of 110 pairs, as in the authors' program"
    many = datasets.regression(20_000, noise=0.001)
    x, y = many.inputs[:, 0].double(), many.targets.double()
    slope = 4 * torch.cos(4 * x) + 13 * torch.cos(13 * x)  # of y in the noise, at noise 0
    error = y - (x + torch.sin(4 * x) + torch.sin(13 * x))
    assert float((error / slope)[slope.abs() > 2].std()) == pytest.approx(0.001, rel=0.05)
    assert dataset.test.inputs.min() == -2.5
    assert dataset.test.inputs.max() == 2
    at = dataset.test.inputs[:, 0].double()
    expected = at + torch.sin(4 * at) + torch.sin(13 * at)
    torch.testing.assert_close(dataset.test.targets.double(), expected, atol=1e-5, rtol=0)
    assert dataset.classes == 1


@pytest.mark.parametrize("folder", ["", "mnist"])
@pytest.mark.parametrize("zipped", [False, True])
def test_files_are_found_in_both_places_gzipped_or_not(tmp_path, cache, folder, zipped) -> None:
    place = tmp_path / "data" / folder
    place.mkdir(parents=True)
    for name, content in tiny_idx_set().items():
        (place / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(content) if zipped else content)
    dataset = datasets.load("mnist", data=tmp_path / "data", download=False)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 5), dtype=np.uint8)
    assert torch.equal(dataset.train.inputs, torch.from_numpy(pixels)[:, None].float() / 255)
    assert dataset.train.targets.tolist() == [3, 1, 4, 1, 5, 9]
    assert dataset.train.targets.dtype == torch.int64
    assert dataset.test.targets.tolist() == [2, 6]
    assert dataset.test.inputs.shape == (2, 1, 4, 5)


def test_the_environment_names_the_folder(tmp_path, cache, monkeypatch) -> None:
    for name, content in tiny_idx_set().items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("QIPF_DATA", str(tmp_path))
    assert datasets.load("mnist", download=False).test.targets.tolist() == [2, 6]


def test_cifar_batches_are_channels_first_and_in_order(tmp_path, cache) -> None:
    for name, content in tiny_cifar().items():
        (tmp_path / name).write_bytes(content)
    dataset = datasets.load("cifar10", data=tmp_path, download=False)
    assert dataset.train.inputs.shape == (15, 3, 32, 32)
    record = np.frombuffer(tiny_cifar()["data_batch_2.bin"], dtype=np.uint8)[:3073]
    assert int(dataset.train.targets[3]) == record[0]
    green = record[1 + 1024 : 1 + 2048].reshape(32, 32) / 255
    np.testing.assert_allclose(dataset.train.inputs[3, 1].numpy(), green, atol=1e-7)


def test_missing_files_are_named(tmp_path, cache) -> None:
    with pytest.raises(FileNotFoundError, match="images"):
        datasets.load("mnist", data=tmp_path, download=False)
    with pytest.raises(FileNotFoundError, match="folder"):
        datasets.load("mnist", data=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="emnist"):
        datasets.load("emnist")


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda content: content[:-1], "truncated, 135 of 136 bytes"),
    (lambda content: content + b"\0", "larger than the 136 bytes"),
    (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "not the official train-images"),
    (lambda _: tiny_idx_set()["t10k-images-idx3-ubyte"], "this is t10k-images-idx3-ubyte of mnist, not"),
])  # fmt: skip
def test_wrong_files_are_refused(tmp_path, cache, spoil, message) -> None:
    for name, content in tiny_idx_set().items():
        (tmp_path / name).write_bytes(spoil(content) if name == "train-images-idx3-ubyte" else content)
    with pytest.raises(ValueError, match=message):
        datasets.load("mnist", data=tmp_path, download=False)


def test_broken_gzip_and_bombs_are_refused(tmp_path, cache) -> None:
    for name, content in tiny_idx_set().items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    images = tmp_path / "train-images-idx3-ubyte.gz"
    whole = images.read_bytes()
    for broken in (whole[: len(whole) // 2], b"no gzip at all"):
        images.write_bytes(broken)
        with pytest.raises(ValueError, match="gzip"):
            datasets.load("mnist", data=tmp_path, download=False)
    images.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(ValueError, match="136"):
        datasets.load("mnist", data=tmp_path, download=False)


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "mean", "first"), [
    ("mnist", 0.1306605, [5, 0, 4, 1, 9]),
    ("kmnist", 0.1917625, [8, 7, 0, 1, 4]),
])  # fmt: skip
def test_the_real_files_are_read(data_dir, name: str, mean: float, first: list[int]) -> None:
    dataset = datasets.load(name, data=data_dir, download=False)
    assert dataset.train.inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test.inputs.shape == (10_000, 1, 28, 28)
    assert float(dataset.train.inputs.double().mean()) == pytest.approx(mean, abs=1e-6)
    assert dataset.train.targets[:5].tolist() == first
