import gzip
import hashlib
import http.server
import io
import re
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from qipf.study import datasets
from qipf.study.datasets import _files, _others, _repositories


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def tiny_idx_set() -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    return {
        "train-images-idx3-ubyte": idx(generator.integers(0, 256, (6, 4, 5), dtype=np.uint8)),
        "train-labels-idx1-ubyte": idx(np.array([3, 1, 4, 1, 5, 9], dtype=np.uint8)),
        "t10k-images-idx3-ubyte": idx(generator.integers(0, 256, (2, 4, 5), dtype=np.uint8)),
        "t10k-labels-idx1-ubyte": idx(np.array([2, 6], dtype=np.uint8)),
    }


def tiny_cifar() -> dict[str, bytes]:
    generator = np.random.default_rng(1)
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    records = {name: generator.integers(0, 256, (3, 3073), dtype=np.uint8) for name in names}
    for array in records.values():
        array[:, 0] %= 10
    return {name: array.tobytes() for name, array in records.items()}


def known(contents: dict[str, bytes]) -> dict:
    return {n: _files._File(len(c), hashlib.sha256(c).hexdigest()) for n, c in contents.items()}


def archive(contents: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class Server:
    """A web server on this machine that has `files`, and notes what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut_short = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                content = outer.files.get(self.path.lstrip("/"))
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if outer.cut_short else content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache of this test's own, and sets small enough to make up."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv("QIPF_DATA", raising=False)
    monkeypatch.setitem(_files.FILES, "mnist", known(tiny_idx_set()))
    monkeypatch.setitem(_files.FILES, "cifar10", known(tiny_cifar()))
    return folder / "qipf"


@pytest.fixture
def web(server, cache, monkeypatch) -> Server:
    monkeypatch.setitem(_files.ADDRESSES, "mnist", (server.address,))
    monkeypatch.setitem(_files.ADDRESSES, "cifar10", (server.address,))
    return server


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


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
    with pytest.raises(FileNotFoundError, match=r"train-images-idx3-ubyte, .* not found in .*put the files there"):
        datasets.load("mnist", data=tmp_path, download=False)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        datasets.load("mnist", data=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="unknown dataset 'emnist'; choose one of digits"):
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
        with pytest.raises(ValueError, match="broken or truncated gzip"):
            datasets.load("mnist", data=tmp_path, download=False)
    images.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(ValueError, match="larger than the 136 bytes"):
        datasets.load("mnist", data=tmp_path, download=False)


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
    with pytest.raises(OSError, match=r"the download failed. Get train-images-idx3-ubyte.gz yourself(.|\n)*404"):
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
    with pytest.raises(ValueError, match="as downloaded: this is t10k-images"):
        datasets.load("mnist")
    assert leftovers(cache) == []
    web.files["train-images-idx3-ubyte.gz"] = gzip.compress(tiny_idx_set()["train-images-idx3-ubyte"])
    assert datasets.load("mnist").train.targets.tolist() == [3, 1, 4, 1, 5, 9]


def test_an_endless_download_is_stopped(web, cache, monkeypatch) -> None:
    monkeypatch.setattr(_files, "_LARGEST_DOWNLOAD", 1000)
    web.files["train-images-idx3-ubyte.gz"] = bytes(2000)
    with pytest.raises(ValueError, match="2000 bytes are announced"):
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


@pytest.mark.parametrize(("data", "message"), [
    (b"", "starts with nothing"),
    (b"\x1f\x8b\x08\x00", "not an idx file, it starts with 1f8b0800"),
    (b"\0\0\x0d\x01\0\0\0\0", "type 0x0d, expected 0x08"),
    (b"\0\0\x08\x02\0\0", "header is cut short"),
    (b"\0\0\x08\x00", "names no dimension"),
    (idx(np.zeros((2, 3), np.uint8))[:-1], "truncated, 5 values for shape"),
    (idx(np.zeros((2, 3), np.uint8)) + b"\0", "too long, 7 values"),
    (b"\0\0\x08\x03" + b"\xff" * 12 + b"\0", "truncated, 1 values"),
])  # fmt: skip
def test_parse_idx_errors(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^name: .*{message}"):
        datasets.parse_idx(data, "name")


@pytest.mark.parametrize(("data", "message"), [
    (b"", "not a whole number"),
    (bytes(3072), "3072 bytes are not a whole number"),
    (b"\x0a" + bytes(3072), "label 10 found"),
])  # fmt: skip
def test_parse_cifar_errors(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        datasets.parse_cifar(data, "name")


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


@pytest.mark.real_data
def test_a_file_in_the_wrong_folder_is_recognised(data_dir, tmp_path) -> None:
    (tmp_path / "kmnist").symlink_to(data_dir / "mnist")
    with pytest.raises(ValueError, match=r"this is train-images-idx3-ubyte of mnist, not .* of kmnist"):
        datasets.load("kmnist", data=tmp_path, download=False)


def test_published_files_are_found_checked_and_downloaded(tmp_path, cache, server, monkeypatch) -> None:
    content = {"a.th": b"weights", "b.th": b"more weights"}
    sources = {
        name: _others.RemoteFile(f"{server.address}{name[0]}/", len(c), hashlib.sha256(c).hexdigest())
        for name, c in content.items()
    }
    monkeypatch.setitem(_others.OTHERS, "cifar10h", sources)
    monkeypatch.setitem(_files.FILES, "cifar10h", known(content))
    server.files = {"a/a.th": content["a.th"], "b/b.th": content["b.th"]}
    place = tmp_path / "data" / "cifar10h"
    place.mkdir(parents=True)
    (place / "a.th").write_bytes(content["a.th"])
    with pytest.raises(FileNotFoundError, match=r"b\.th"):
        datasets.files("cifar10h", data=tmp_path / "data", download=False)
    assert datasets.files("cifar10h", data=tmp_path / "data", progress=False) == content
    assert server.asked == ["/b/b.th"]
    assert leftovers(cache) == ["b.th"]
    (place / "a.th").write_bytes(b"WEIGHTS")
    with pytest.raises(ValueError, match="SHA-256"):
        datasets.files("cifar10h", data=tmp_path / "data", download=False)


def test_names_of_published_files_are_not_datasets() -> None:
    with pytest.raises(ValueError, match="digits"):
        datasets.load("cifar10h")
    with pytest.raises(ValueError, match="cifar10-resnets"):
        datasets.files("mnist")


def test_published_files_come_from_fixed_addresses() -> None:
    """A commit, or for PyPI the digest of the file: no address whose content may change."""
    for files in _others.OTHERS.values():
        for source in files.values():
            assert source.address.startswith("https://")
            assert source.address.endswith("/")
            assert re.search(r"/[0-9a-f]{40}/|/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{60}/", source.address)
            assert len(source.sha256) == 64


CHECKOUT = {"train/a/1.JPEG": b"one", "train/b/2.JPEG": b"two", "val/3.JPEG": b"three"}


@pytest.fixture
def published(server, cache, monkeypatch) -> Server:
    """A repository with one set in it, at an address of this test's own."""
    lines = "".join(f"{hashlib.sha256(c).hexdigest()}  {n}\n" for n, c in sorted(CHECKOUT.items()))
    made = _repositories.Repository(
        "owner/name", 40 * "a", ("train", "val"), (".JPEG",), len(CHECKOUT), hashlib.sha256(lines.encode()).hexdigest()
    )
    monkeypatch.setitem(_repositories.REPOSITORIES, "imagenette", made)
    monkeypatch.setattr(_repositories, "_ARCHIVES", server.address)
    return server


def serve(server: Server, contents: dict[str, bytes]) -> None:
    server.files[f"owner/name/tar.gz/{40 * 'a'}"] = archive({f"name-aaaa/{n}": c for n, c in contents.items()})


def test_a_repository_is_downloaded_once_without_what_does_not_belong_to_it(published, cache, tmp_path) -> None:
    serve(published, {"README.md": b"x", "val/list.txt": b"x", "train/../../escaped.JPEG": b"x", **CHECKOUT})
    found = datasets.repository("imagenette", progress=False)
    assert {p.relative_to(found).as_posix(): p.read_bytes() for p in found.rglob("*") if p.is_file()} == CHECKOUT
    assert datasets.repository("imagenette", download=False) == found
    assert len(published.asked) == 1
    assert not list(tmp_path.rglob("escaped*"))
    assert [path.name for path in cache.iterdir()] == ["imagenette"]


@pytest.mark.parametrize(("contents", "message"), [
    ({**CHECKOUT, "val/3.JPEG": b"other"}, "not the files of commit aaaaaaaaaaaa"),
    ({"val/3.JPEG": b"three"}, "1 files in train, val, expected 3"),
])  # fmt: skip
def test_a_wrong_repository_leaves_nothing(published, cache, contents, message: str) -> None:
    serve(published, contents)
    with pytest.raises(ValueError, match=message):
        datasets.repository("imagenette", progress=False)
    assert leftovers(cache) == []


def test_a_broken_archive_of_a_repository_leaves_nothing(published, cache) -> None:
    serve(published, CHECKOUT)
    (name,) = published.files
    published.files[name] = published.files[name][:60]
    with pytest.raises(ValueError, match="broken or truncated"):
        datasets.repository("imagenette", progress=False)
    assert leftovers(cache) == []


def test_an_archive_that_unpacks_to_more_than_the_set_is_not_read_on(published, cache, monkeypatch) -> None:
    serve(published, {**CHECKOUT, "val/4.JPEG": b"four"})
    with pytest.raises(ValueError, match=r"4 files of .* expected 3"):
        datasets.repository("imagenette", progress=False)
    serve(published, {**CHECKOUT, "val/3.JPEG": bytes(100_000)})
    monkeypatch.setattr(_repositories, "_LARGEST_SET", 50_000)
    with pytest.raises(ValueError, match="of at most 50000"):
        datasets.repository("imagenette", progress=False)
    assert leftovers(cache) == []


def test_two_processes_may_get_a_repository_at_once(published, cache, monkeypatch) -> None:
    """The other one has finished by the time that this one has checked its files."""
    serve(published, CHECKOUT)
    check = _repositories._check

    def slow(*given) -> None:
        check(*given)
        monkeypatch.setattr(_repositories, "_check", check)
        datasets.repository("imagenette", progress=False)

    monkeypatch.setattr(_repositories, "_check", slow)
    monkeypatch.setattr(_repositories.os, "getpid", iter(range(100)).__next__)
    found = datasets.repository("imagenette", progress=False)
    assert {p.relative_to(found).as_posix() for p in found.rglob("*") if p.is_file()} == set(CHECKOUT)
    assert [path.name for path in cache.iterdir()] == ["imagenette"]


def test_a_checkout_is_checked_and_its_other_files_do_not_matter(published, tmp_path) -> None:
    place = tmp_path / "data" / "imagenette"
    for name, content in {**CHECKOUT, ".git/config": b"x", "train/notes.txt": b"x"}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    assert datasets.repository("imagenette", data=tmp_path / "data", download=False) == place
    (place / "val" / "3.JPEG").write_bytes(b"THREE")
    with pytest.raises(ValueError, match="not the files of commit"):
        datasets.repository("imagenette", data=tmp_path / "data", download=False)
    assert published.asked == []


def test_a_missing_repository_says_what_to_do(published, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"git clone https://github\.com/owner/name"):
        datasets.repository("imagenette", data=tmp_path, download=False)
    with pytest.raises(OSError, match=r"git clone(.|\n)*404"):
        datasets.repository("imagenette", progress=False)
    with pytest.raises(ValueError, match="tiny-imagenet"):
        datasets.repository("imagenet")


def test_repositories_are_fixed_by_a_commit_and_a_digest() -> None:
    for found in _repositories.REPOSITORIES.values():
        assert re.fullmatch("[0-9a-f]{40}", found.commit)
        assert re.fullmatch("[0-9a-f]{64}", found.sha256)
        assert re.fullmatch(r"[\w-]+/[\w-]+", found.address)
