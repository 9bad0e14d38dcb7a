"""Data flows one way: a folder imports those before it and never those after it, and nothing imports in a circle."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import qipf

PACKAGE = Path(qipf.__file__).parent
PROGRAMS = Path(__file__).parent.parent / "benchmarks"
LIBRARY = (
    "_common",
    "arrays",
    "metrics",
    "fields",
    "data",
    "runners",
    "tasks",
    "weights",
    "training",
    "scores",
    "predictive",
    "decisions",
    "deploy",
    "pages",
)
STUDY = ("datasets", "nets", "recipes", "shifts", "plan", "run", "tables", "report", "gallery")
ORDER = (*LIBRARY, *(f"study.{name}" for name in STUDY), "cli")


@cache
def modules() -> dict[str, Path]:
    """Every module of the package but `qipf` itself, by its name without the leading `qipf.`."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return {name: path for name, path in found.items() if name not in ("__init__", "__main__")}


@cache
def imported(path: Path) -> frozenset[str]:
    """The package's modules that a file imports at run time, at its top or inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    known = modules()
    found = set()
    for name in names:
        parts = name.split(".")
        if parts[0] == "qipf":
            inside = ".".join(parts[1:])
            while inside and inside not in known:
                inside = inside.rpartition(".")[0]
            found.add(inside)
    return frozenset(found - {""})


def place(module: str) -> str:
    """The folder of the order that a module lives in."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "study" and len(parts) > 1 else parts[0]


def test_no_module_is_longer_than_600_lines() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()}
    long = {name: lines for name, lines in lengths.items() if lines > 600}
    assert not long, f"does each hold one idea? {long}"


def test_no_two_classes_have_the_same_name() -> None:
    places: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert not several, f"give each thing a name of its own: {several}"


def test_no_file_name_occurs_in_two_folders() -> None:
    """Commands and figures are named as users name them."""
    names = [path.name for name, path in modules().items() if not name.startswith(("cli", "study.gallery"))]
    several = {name for name in names if names.count(name) > 1} - {"__init__.py"}
    assert not several


def test_every_module_has_a_place() -> None:
    assert {place(name) for name in modules()} - {"study"} <= set(ORDER)


def imports() -> list[tuple[str, str]]:
    """Every module with every module that it imports."""
    return [(module, other) for module, path in sorted(modules().items()) for other in sorted(imported(path))]


def test_a_module_imports_only_what_comes_before_it() -> None:
    later = [
        f"{module} imports {other}"
        for module, other in imports()
        if "study" not in (module, other) and ORDER.index(place(other)) > ORDER.index(place(module))
    ]
    assert not later, f"which comes after it: {later}"


def test_private_modules_stay_in_their_folder() -> None:
    foreign = [
        f"{module} imports {other}"
        for module, other in imports()
        if other.rpartition(".")[2].startswith("_")
        and other.rpartition(".")[0] not in (module.rpartition(".")[0], module)
        and other.partition(".")[0] != "_common"
    ]
    assert not foreign, f"which is private to another folder: {foreign}"


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {name: imported(path) - {name} for name, path in modules().items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_programs_import_names_that_exist() -> None:
    """No test runs every program of `benchmarks/`, so a name that was changed could go unnoticed there."""
    missing = []
    for path in sorted(PROGRAMS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "qipf":
                found = importlib.import_module(node.module or "")
                missing += [
                    f"{path.name}: {node.module}.{name.name}" for name in node.names if not _has(found, name.name)
                ]
    assert not missing


def _has(module: ModuleType, name: str) -> bool:
    return hasattr(module, name) or importlib.util.find_spec(f"{module.__name__}.{name}") is not None
