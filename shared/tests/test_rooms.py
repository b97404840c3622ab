"""The import rule of docs/architecture.md, and the sizes of files."""

from __future__ import annotations

import ast
import functools
import statistics
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fluxbench"
# A room imports only from rooms before it.
ROOMS = (
    *("core", "device", "operations", "kernels", "variants", "records", "stats", "correctness", "timing", "worker"),
    *("environments", "studies", "bench", "analysis", "report", "notebook", "site", "fleet"),
)
BESIDE = 5  # modules beside the rooms, at most
TORCH = {"operations", "kernels", "variants", "correctness", "timing", "worker"}  # rooms that may import it
LAZY = {"operations", "variants"}  # of these, the ones that processes without torch use: inside functions alone
# Torch modules, which operations import inside functions.
LOADED_BY_WORKERS = (Path("operations/layers"), Path("operations/models"))
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


@functools.cache
def imported(path: Path, *, lazy: bool) -> frozenset[str]:
    """Return the dotted names that a module imports; with `lazy` those inside functions too."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    hidden = {id(node) for block in guarded for node in ast.walk(block)}
    if not lazy:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        hidden |= {id(node) for function in functions for node in ast.walk(function)}
    names = set()
    for node in ast.walk(tree):
        if id(node) in hidden and not (lazy and node in guarded):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def room_of(name: str) -> str | None:
    """Return the room that a dotted name of this package lies in, None for what stands beside the rooms."""
    parts = name.split(".")
    return parts[1] if parts[0] == "fluxbench" and len(parts) > 1 and parts[1] in ROOMS else None


@pytest.mark.parametrize("path", [path for path in MODULES if len(path.parts) > 1], ids=str)
def test_a_room_imports_only_from_rooms_before_it(path: Path) -> None:
    own = ROOMS.index(path.parts[0])
    names = imported(path, lazy=True)
    late = [name for name in names if (room := room_of(name)) and ROOMS.index(room) > own]
    beside = [name for name in names if name.startswith("fluxbench.") and room_of(name) is None]
    assert not late
    assert not beside


def test_every_folder_is_a_room() -> None:
    folders = {path.parts[0] for path in MODULES if len(path.parts) > 1}
    assert folders == set(ROOMS)
    assert len([path for path in MODULES if len(path.parts) == 1]) <= BESIDE


def test_no_modules_import_one_another_in_a_circle() -> None:
    names = {".".join(("fluxbench", *path.with_suffix("").parts)).removesuffix(".__init__"): path for path in MODULES}
    graph = {
        name: {each if each in names else each.rpartition(".")[0] for each in imported(path, lazy=False)}
        for name, path in names.items()
    }
    while leaves := [name for name, needs in graph.items() if not needs & graph.keys()]:
        for name in leaves:
            del graph[name]
    assert not graph


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_torch_is_imported_where_it_belongs(path: Path) -> None:
    room = path.parts[0]
    lazily, at_once = (
        any(name.split(".")[0] == "torch" for name in imported(path, lazy=lazy)) for lazy in (True, False)
    )
    assert not lazily or room in TORCH
    assert not at_once or room not in LAZY or path.parent in LOADED_BY_WORKERS


def test_modules_of_torch_are_imported_inside_functions_alone() -> None:
    prefixes = tuple(f"fluxbench.{'.'.join(folder.parts)}" for folder in LOADED_BY_WORKERS)
    others = [path for path in MODULES if path.parent not in LOADED_BY_WORKERS]
    assert not [path for path in others if any(name.startswith(prefixes) for name in imported(path, lazy=False))]


def test_files_are_short() -> None:
    lengths = {path: len((PACKAGE / path).read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert statistics.median(lengths.values()) <= 120
    unexplained = [
        str(path)
        for path, length in lengths.items()
        if length > 300 and "Past 300 lines because" not in (PACKAGE / path).read_text(encoding="utf-8")
    ]
    assert not unexplained
