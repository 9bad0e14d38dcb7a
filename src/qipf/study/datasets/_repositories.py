"""Sets of many files in public repositories: one archive is downloaded, and its files are checked together."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from qipf.study.datasets._files import PUBLISHED, cache_folder, fetched

_ARCHIVES = "https://codeload.github.com/"
_LARGEST_ARCHIVE = 2**30
_LARGEST_SET = 2 * _LARGEST_ARCHIVE
"""Bytes of a set; images hardly shrink in an archive, so a larger one is not ours."""


class Repository(NamedTuple):
    """The source of a set and the files that belong to it.

    Attributes:
        address: Owner and name on GitHub.
        commit: Its commit.
        folders: Folders with files of the set; "." for the files that lie in no folder.
        endings: Endings of their names.
        files: Number of files.
        sha256: Of the lines "SHA-256  path" of all files in the order of their paths, as `sha256sum` prints them.
    """

    address: str
    commit: str
    folders: tuple[str, ...]
    endings: tuple[str, ...]
    files: int
    sha256: str


REPOSITORIES: dict[str, Repository] = {
    name: Repository(**about | {key: tuple(about[key]) for key in ("folders", "endings")})
    for name, about in PUBLISHED["repositories"].items()
}


def find(name: str, folder: Path | None, *, download: bool, progress: bool) -> Path:
    """Return the checked folder of a set, in `folder` or in the cache, after a download if needed."""
    found = REPOSITORIES[name]
    places = [] if folder is None else [folder / name]
    places.append(cache_folder() / name)
    for place in places:
        if place.is_dir():
            _check(found, place, _wanted(found, place))
            return place
    advice = f"git clone https://github.com/{found.address} {places[0]} and check out {found.commit[:12]} there"
    if not download:
        raise FileNotFoundError(f"{name}: there is no folder {places[0]}; allow the download, or {advice}")
    target = places[-1]
    target.parent.mkdir(parents=True, exist_ok=True)
    address = f"{_ARCHIVES}{found.address}/tar.gz/"
    with fetched(name, found.commit, (address,), target.parent, progress, advice, _LARGEST_ARCHIVE) as archive:
        part = target.with_name(f".part-{os.getpid()}-{name}")
        shutil.rmtree(part, ignore_errors=True)  # of a process with this number that was killed
        try:
            _unpack(found, archive, part)
            _check(found, f"{found.address} as downloaded", _wanted(found, part))
            try:
                part.rename(target)
            except OSError:
                if not target.is_dir():  # otherwise another process was faster
                    raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return target


def _belongs(found: Repository, path: PurePosixPath) -> bool:
    inside = any(
        len(path.parts) == 1 if folder == "." else str(path).startswith(f"{folder}/") for folder in found.folders
    )
    return inside and path.name.endswith(found.endings)


def _wanted(found: Repository, root: Path) -> dict[str, Path]:
    """Return the files of the set below a folder, by their paths in the repository."""
    every = [path for one in found.folders for path in (root.iterdir() if one == "." else (root / one).rglob("*"))]
    paths = {path.relative_to(root).as_posix(): path for path in every if path.is_file()}
    return {name: path for name, path in sorted(paths.items()) if _belongs(found, PurePosixPath(name))}


def digest(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the SHA-256 of the lines `SHA-256  path` of these files, in order."""
    whole = hashlib.sha256()
    for name, content in files:
        whole.update(f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode())
    return whole.hexdigest()


def _check(found: Repository, place: Path | str, files: dict[str, Path]) -> None:
    if len(files) != found.files:
        raise ValueError(
            f"{place}: {len(files)} files in {', '.join(found.folders)}, expected {found.files}; remove the folder and "
            f"get {found.address} again at commit {found.commit[:12]}"
        )
    actual = digest((name, path.read_bytes()) for name, path in files.items())
    if actual != found.sha256:
        raise ValueError(
            f"{place}: these are not the files of commit {found.commit[:12]} of {found.address} (SHA-256 {actual}, "
            f"expected {found.sha256}); remove the folder and get it again"
        )


def _unpack(found: Repository, archive: Path, target: Path) -> None:
    """Write the files of the set and nothing else; a path that leaves the folder belongs to no set.

    Raises:
        ValueError: The archive is broken, or has more or larger files than the set.
    """
    files = size = 0
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name.partition("/")[2])
                leaves = ".." in path.parts or any(sign in member.name for sign in "\\:")  # the latter on Windows
                source = tar.extractfile(member) if member.isfile() and not leaves and _belongs(found, path) else None
                if source is None:
                    continue
                files, size = files + 1, size + member.size
                if files > found.files or size > _LARGEST_SET:
                    raise ValueError(
                        f"{found.address} as downloaded: {files} files of {size} bytes or more, expected {found.files} "
                        f"of at most {_LARGEST_SET}; it is not commit {found.commit[:12]}"
                    )
                place = target.joinpath(*path.parts)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(source.read())
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{found.address} as downloaded is broken or truncated ({error}); try again") from None
