"""The source of a user's module, with that of the modules beside it that it imports."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from qipf.study.run.digests import file_digest

_INSTALLED = {"site-packages", "dist-packages"}


def module_digest(name: str, source: Path) -> str:
    """A digest of a module's source file and of the files of the same folder that it imports, directly or not.

    Imports are found by reading, not by running: those inside functions count, and those that are made by
    `importlib.import_module` do not. Of an installed module only files of the same package count.

    Args:
        name: the dotted name of the module.
        source: its file.
    """
    files = imported_files(name, source)
    if len(files) == 1:
        return file_digest(source)
    found = hashlib.sha256()
    for module, file in sorted(files.items()):
        found.update(f"{module} {file_digest(file)}\n".encode())
    return found.hexdigest()


def imported_files(name: str, source: Path) -> dict[str, Path]:
    """The module itself and what it imports from its own folder, by dotted name."""
    source = source.resolve()
    package = source.name == "__init__.py"
    root = source.parents[name.count(".") + package]
    top = name.partition(".")[0] if _INSTALLED & set(root.parts) else None
    found, waiting = {name: source}, [name]
    while waiting:
        module = waiting.pop()
        for wanted in _imports(module, found[module]):
            if top is not None and wanted.partition(".")[0] != top:
                continue
            for part in _with_parents(wanted):
                file = _file(root, part)
                if file is not None and part not in found:
                    found[part] = file
                    waiting.append(part)
    return found


def _imports(module: str, file: Path) -> Iterator[str]:
    """The dotted names that a file may import; `from a import b` may mean the module a.b."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # compiled, or not Python
        return
    here = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            if start:
                yield start
            yield from (f"{start}.{alias.name}" if start else alias.name for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _file(root: Path, name: str) -> Path | None:
    place = root.joinpath(*name.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)
