"""Find, download and verify dataset files."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import IO, NamedTuple, cast

from qipf._common.files import atomic_write
from qipf._common.optional import require
from qipf._common.progress import bar


class PublishedFile(NamedTuple):
    """Size and SHA-256 of the decompressed content of a file."""

    size: int
    sha256: str


_PUBLISHED = tomllib.loads(resources.files("qipf.study.datasets").joinpath("published.toml").read_text("utf-8"))
ADDRESSES = {name: tuple(found.pop("addresses")) for name, found in _PUBLISHED.items()}
FILES = {name: {file: PublishedFile(**about) for file, about in found.items()} for name, found in _PUBLISHED.items()}
CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
_CIFAR_FOLDER = "cifar-10-batches-bin"
_LARGEST_DOWNLOAD = 256 * 2**20


def read(name: str, folder: Path | None, *, download: bool, progress: bool) -> dict[str, bytes]:
    """Return the verified content of a dataset's files from `folder`, the cache or the network."""
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(
            f"data: there is no folder {folder}; set --data or QIPF_DATA to the folder that contains the files"
        )
    contents: dict[str, bytes] = {}
    for file in FILES[name]:
        path = _find(name, file, folder)
        if path is not None:
            contents[file] = _check(_raw(path, FILES[name][file].size), name, file, path)
    missing = [file for file in FILES[name] if file not in contents]
    if missing and not download:
        looked = f"in {folder}, {folder / name} or the cache" if folder else "in the cache, and QIPF_DATA is not set"
        raise FileNotFoundError(
            f"{name}: {', '.join(missing)} not found {looked}; "
            "set `data` or QIPF_DATA to a folder that contains the files, or set download=True"
        )
    if missing:
        contents |= _download(name, missing, progress)
    return {file: contents[file] for file in FILES[name]}


def cache_folder() -> Path:
    """Return the folder in which downloads are cached."""
    return Path(require("pooch", extra="bench").os_cache("qipf"))


def _find(name: str, file: str, folder: Path | None) -> Path | None:
    places = [] if folder is None else [folder / name, folder / _CIFAR_FOLDER, folder]
    with suppress(ImportError):  # if pooch is not installed, there is no cache
        places.append(cache_folder() / name)
    for place in places:
        for path in (place / file, place / f"{file}.gz"):
            if path.is_file():
                return path
    return None


def _raw(path: Path, size: int) -> bytes:
    """Return the decompressed content of a file; raise ValueError if it exceeds `size` bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _capped(file, size, str(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: broken or truncated gzip file ({error}); download it again") from None


def _capped(file: gzip.GzipFile | IO[bytes], size: int, name: str) -> bytes:
    data = file.read(size + 1)
    if len(data) > size:
        raise ValueError(f"{name}: larger than the {size} bytes expected; download it again")
    return data


def _check(data: bytes, name: str, file: str, path: Path | str) -> bytes:
    digest = hashlib.sha256(data).hexdigest()
    if digest == FILES[name][file].sha256:
        return data
    for other, files in FILES.items():
        for other_file, known in files.items():
            if known.sha256 == digest:
                raise ValueError(
                    f"{path}: this is {other_file} of {other}, not {file} of {name}; move it to "
                    f"{other}/{other_file} (add .gz if it is compressed)"
                )
    if len(data) < FILES[name][file].size:
        raise ValueError(f"{path}: truncated, {len(data)} of {FILES[name][file].size} bytes; download it again")
    raise ValueError(f"{path}: not the official {file} of {name} (SHA-256 {digest}); download it again")


def _download(name: str, missing: list[str], progress: bool) -> dict[str, bytes]:
    """Download the missing files into the cache; files with the wrong content are not kept."""
    target = cache_folder() / name
    target.mkdir(parents=True, exist_ok=True)
    contents: dict[str, bytes] = {}
    if name == "cifar10":
        with _fetched(name, CIFAR_ARCHIVE, ADDRESSES[name], target, progress) as archive:
            contents = _members(archive, missing)
        for file, data in contents.items():
            atomic_write(target / file, data)
        return contents
    for file in missing:
        zipped = f"{file}.gz"
        with _fetched(name, zipped, ADDRESSES[name], target, progress) as path:
            contents[file] = _check(_raw(path, FILES[name][file].size), name, file, f"downloaded {zipped}")
            path.replace(target / zipped)
    return contents


def _members(archive: Path, wanted: list[str]) -> dict[str, bytes]:
    """Return the contents of files in an archive. Nothing is extracted to disk, so malicious paths do no harm."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                file = Path(member.name).name
                if file in wanted and member.isfile():
                    data = _capped(cast("IO[bytes]", tar.extractfile(member)), FILES["cifar10"][file].size, file)
                    contents[file] = _check(data, "cifar10", file, f"downloaded {file}")
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{CIFAR_ARCHIVE}: the download is broken or truncated ({error}); try again") from None
    absent = [file for file in wanted if file not in contents]
    if absent:
        raise ValueError(f"{CIFAR_ARCHIVE}: the download lacks {', '.join(absent)}; try again")
    return contents


@contextmanager
def _fetched(name: str, file: str, addresses: tuple[str, ...], target: Path, progress: bool) -> Iterator[Path]:
    """Download `file` from the first address that works, and yield its temporary path in the folder `target`."""
    temporary = target / f".part-{os.getpid()}-{file}"  # ends in .gz if `file` does; see `_raw`
    problems = []
    try:
        for address in addresses:
            try:
                _save(f"{address}{file}", temporary, progress)
                break
            except OSError as error:  # requests raises only subclasses of OSError
                problems.append(f"{address}{file}: {error}")
        else:
            how = ", extract it in DIR" if file == CIFAR_ARCHIVE else f" to DIR/{name}"
            advice = f"Download {file} yourself{how} and pass --data DIR (or set QIPF_DATA)"
            raise OSError(f"{name}: the download failed. {advice}. " + "; ".join(problems))
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _save(address: str, path: Path, progress: bool) -> None:
    """Download a file; raise ValueError if it is larger than `_LARGEST_DOWNLOAD` bytes."""
    get = require("requests", extra="bench").get
    with bar(progress) as shown, get(address, stream=True, timeout=60) as answer, path.open("wb") as file:
        answer.raise_for_status()
        received, announced = 0, int(answer.headers.get("Content-Length", 0))
        task = shown.add_task(f"download {address.rpartition('/')[2]}", total=announced or None)
        for block in answer.iter_content(2**18):
            received += len(block)
            if max(received, announced) > _LARGEST_DOWNLOAD:
                raise ValueError(
                    f"{address}: expected at most {_LARGEST_DOWNLOAD} bytes, got {max(received, announced)}"
                )
            file.write(block)
            shown.update(task, completed=received)
