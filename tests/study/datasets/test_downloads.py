"""Downloads: once, checked, and nothing is left of one that failed."""

import gzip

import pytest
import torch
from made_up import archive, leftovers, tiny_cifar, tiny_idx_set

from qipf.study import datasets
from qipf.study.datasets import _files


def test_download_once_then_from_the_cache(web, cache) -> None:
    web.files = {f"{name}.gz": gzip.compress(content) for name, content in tiny_idx_set().items()}
    first = datasets.load("mnist")
    assert len(web.asked) == 4
    again = datasets.load("mnist", download=False)
    assert len(web.asked) == 4
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert leftovers(cache) == sorted(web.files)


def test_the_second_address_is_tried(web, cache, monkeypatch) -> None:
    monkeypatch.setitem(_files.ADDRESSES, "mnist", (web.address + "gone/", web.address))
    web.files = {f"{name}.gz": gzip.compress(content) for name, content in tiny_idx_set().items()}
    assert datasets.load("mnist").test.targets.tolist() == [2, 6]


def test_downloads_are_encrypted() -> None:
    assert all(address.startswith("https://") for addresses in _files.ADDRESSES.values() for address in addresses)


def test_a_failed_download_says_what_to_do_and_leaves_nothing(web, cache) -> None:
    with pytest.raises(OSError, match="images"):
        datasets.load("mnist")
    assert leftovers(cache) == []


def test_a_broken_download_is_removed(web, cache) -> None:
    web.files = {f"{name}.gz": gzip.compress(content) for name, content in tiny_idx_set().items()}
    web.cut_short = True
    with pytest.raises((OSError, ValueError), match="download"):
        datasets.load("mnist")
    assert leftovers(cache) == []
    web.cut_short = False
    web.files["train-images-idx3-ubyte.gz"] = gzip.compress(tiny_idx_set()["t10k-images-idx3-ubyte"])
    with pytest.raises(ValueError, match="t10k-images"):
        datasets.load("mnist")
    assert leftovers(cache) == []
    web.files["train-images-idx3-ubyte.gz"] = gzip.compress(tiny_idx_set()["train-images-idx3-ubyte"])
    assert datasets.load("mnist").train.targets.tolist() == [3, 1, 4, 1, 5, 9]


def test_an_endless_download_is_stopped(web, cache, monkeypatch) -> None:
    monkeypatch.setattr(_files, "_LARGEST_DOWNLOAD", 1000)
    web.files["train-images-idx3-ubyte.gz"] = bytes(2000)
    with pytest.raises(ValueError, match="2000"):
        datasets.load("mnist")
    assert leftovers(cache) == []


def test_the_cifar_archive_is_read_without_unpacking(web, cache, tmp_path) -> None:
    members = {f"cifar-10-batches-bin/{name}": content for name, content in tiny_cifar().items()}
    web.files["cifar-10-binary.tar.gz"] = archive({"../../escaped": b"x", "/absolute": b"x", **members})
    first = datasets.load("cifar10")
    assert leftovers(cache) == sorted(tiny_cifar())
    assert not list(tmp_path.rglob("escaped"))
    again = datasets.load("cifar10", download=False)
    assert torch.equal(first.test.inputs, again.test.inputs)
    assert web.asked == ["/cifar-10-binary.tar.gz"]


@pytest.mark.parametrize("spoil", [
    lambda content: content[: len(content) // 2],
    lambda _: archive({"cifar-10-batches-bin/data_batch_1.bin": tiny_cifar()["data_batch_1.bin"]}),
    lambda _: archive({"data_batch_1.bin": bytes(10_000_000)}),
    lambda _: b"no archive",
])  # fmt: skip
def test_a_broken_cifar_archive_leaves_nothing(web, cache, spoil) -> None:
    web.files["cifar-10-binary.tar.gz"] = spoil(archive(tiny_cifar()))
    with pytest.raises(ValueError, match=r"broken or truncated|lacks data_batch_2|larger than"):
        datasets.load("cifar10")
    assert leftovers(cache) == []
