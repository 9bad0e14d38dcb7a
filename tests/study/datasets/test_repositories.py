"""Data sets that are checkouts of a repository, fixed by a commit and a digest."""

import hashlib
import re

import pytest
from made_up import Server, archive, leftovers

from qipf.study import datasets
from qipf.study.datasets import _repositories

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
    with pytest.raises(ValueError, match="truncated"):
        datasets.repository("imagenette", progress=False)
    assert leftovers(cache) == []


def test_an_archive_that_unpacks_to_more_than_the_set_is_not_read_on(published, cache, monkeypatch) -> None:
    serve(published, {**CHECKOUT, "val/4.JPEG": b"four"})
    with pytest.raises(ValueError, match="files"):
        datasets.repository("imagenette", progress=False)
    serve(published, {**CHECKOUT, "val/3.JPEG": bytes(100_000)})
    monkeypatch.setattr(_repositories, "_LARGEST_SET", 50_000)
    with pytest.raises(ValueError, match="50000"):
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
    with pytest.raises(ValueError, match="commit"):
        datasets.repository("imagenette", data=tmp_path / "data", download=False)
    assert published.asked == []


def test_a_missing_repository_says_what_to_do(published, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="github"):
        datasets.repository("imagenette", data=tmp_path, download=False)
    with pytest.raises(OSError, match="clone"):
        datasets.repository("imagenette", progress=False)
    with pytest.raises(ValueError, match="imagenet"):
        datasets.repository("imagenet")


def test_repositories_are_fixed_by_a_commit_and_a_digest() -> None:
    for found in _repositories.REPOSITORIES.values():
        assert re.fullmatch("[0-9a-f]{40}", found.commit)
        assert re.fullmatch("[0-9a-f]{64}", found.sha256)
        assert re.fullmatch(r"[\w-]+/[\w-]+", found.address)
