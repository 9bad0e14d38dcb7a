"""The documents of a store, such as plan.json and table.csv: plain files whose checksums are in checksums.json."""

from __future__ import annotations

from pathlib import Path

from qipf._common.files import atomic_write
from qipf.study.run.errors import DamagedError, StoreError, damaged, explained
from qipf.study.run.sealed import seal, sha256_of, unseal

CHECKSUMS = "checksums.json"


class Documents:
    """The documents of the store in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, data: str | bytes) -> None:
        """Write a document and its checksum.

        The checksum is written first, and the checksum of the present file stays valid until the next write: a crash
        in between leaves a document that is right.
        """
        data = data.encode() if isinstance(data, str) else data
        try:
            sums = self.checksums()
        except DamagedError:
            sums = {}
        file = self.path / name
        present = sha256_of(file.read_bytes()) if file.is_file() else None
        sums[name] = [sha256_of(data), *(found for found in sums.get(name, ()) if found == present)]
        with explained(self.path):
            atomic_write(self.path / CHECKSUMS, seal(sums))
            atomic_write(file, data)

    def read(self, name: str) -> bytes:
        """The bytes of a document.

        Raises:
            DamagedError: they are not what was written.
            StoreError: there is no such document.
        """
        file = self.path / name
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"{self.path} has no {name}: no benchmark was run in it yet") from None
        if sha256_of(data) not in self.checksums().get(name, ()):
            raise damaged(file, "its checksum does not match its content")
        return data

    def has(self, name: str) -> bool:
        """Whether there is such a document."""
        return (self.path / name).is_file()

    def remove(self, name: str) -> None:
        """Remove a document."""
        with explained(self.path):
            (self.path / name).unlink(missing_ok=True)

    def checksums(self) -> dict[str, list[str]]:
        """The checksums that each document may have.

        Raises:
            DamagedError: the file with the checksums is itself damaged.
        """
        file = self.path / CHECKSUMS
        try:
            return unseal(file.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise damaged(file, str(error)) from None
