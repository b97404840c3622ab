"""A cell's PEP 723 header, and which cell of which notebook is running."""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxbench.core.errors import SetupError

# The reference expression of the inline script metadata specification (PEP 723), which fixes this syntax.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_KEYS = ("notebook", "study", "packages", "variants", "measures", "lock", "reads")
_MEASURES = ("variants", "rates", "trials")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A measuring cell, as the `[tool.fluxbench]` table of its header has it."""

    notebook: str
    id: str
    study: str  # a name of `studies.NAMES`, or module:attribute
    packages: tuple[str, ...]  # the measured packages, each with an exact pin
    variants: tuple[str, ...] = ()
    measures: str = "variants"  # "rates": the device's own; "trials": slowed forms of the variants, in several runs
    source_sha256: str
    lock: str | None = None  # the library's own, a file of environment/locks without its .txt


def header(source: str) -> dict[str, Any]:
    """Return a cell's PEP 723 header; empty where it has none. Raises `SetupError` where PEP 723 does not allow it."""
    blocks = [match for match in _BLOCK.finditer(source) if match["type"] == "script"]
    if len(blocks) > 1:
        raise SetupError(f"a cell must have one PEP 723 header, got {len(blocks)}; keep one `# /// script` block")
    if not blocks:
        if "# /// script" in source:
            raise SetupError(
                "a PEP 723 header must end with a line `# ///`, and each line between must begin with `# `"
            )
        return {}
    lines = blocks[0]["content"].splitlines()
    content = "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    try:
        return tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        raise SetupError(
            f"a PEP 723 header must be TOML: {error}; fix the lines between `# /// script` and `# ///`"
        ) from error


def block(source: str) -> str:
    """Return the lines of a cell's PEP 723 header; empty where it has none."""
    return next((f"{match[0]}\n" for match in _BLOCK.finditer(source) if match["type"] == "script"), "")


def tool_table(source: str) -> dict[str, Any] | None:
    """Return the `[tool.fluxbench]` table of a cell's source, or None where it has none. Raises as `header` does."""
    tool = header(source).get("tool")
    table = tool.get("fluxbench") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def is_measuring(source: str) -> bool:
    """Whether a cell measures: its `[tool.fluxbench]` table holds more than `reads`. Raises as `header` does."""
    return bool((tool_table(source) or {}).keys() - {"reads"})


def uses_fluxbench(source: str) -> bool:
    """Whether fluxbench is among the dependencies that a cell's header lists. Raises as `header` does."""
    dependencies = header(source).get("dependencies", [])
    return isinstance(dependencies, list) and any(
        isinstance(requirement, str) and re.fullmatch(r"fluxbench(?![\w.-]).*", requirement.strip())
        for requirement in dependencies
    )


def reads(source: str) -> tuple[str, ...]:
    """Return the other notebooks whose results a showing cell reads, which no `needs=` can name."""
    names = (tool_table(source) or {}).get("reads", [])
    if not isinstance(names, list) or not all(
        isinstance(name, str) and re.fullmatch(r"[\w-]+", name) for name in names
    ):
        raise SetupError(f"reads of a cell must list names of notebooks, got {names!r}")
    return tuple(names)


def parse(source: str, cell_id: str) -> Cell:
    """Return what a measuring cell's header says. Raises `SetupError` where its `[tool.fluxbench]` is not right."""
    table = tool_table(source)
    if table is None:
        raise SetupError(f"cell {cell_id!r} must have a [tool.fluxbench] table in its PEP 723 header, got none")
    notebook, packages, lock = table.get("notebook"), table.get("packages"), table.get("lock")
    variants, measures = table.get("variants", []), table.get("measures", "variants")
    study = table.get("study", notebook)
    if unknown := sorted(table.keys() - _KEYS):
        raise SetupError(f"[tool.fluxbench] of cell {cell_id!r} has no {', '.join(unknown)}; it has {', '.join(_KEYS)}")
    if not isinstance(notebook, str) or not re.fullmatch(r"[\w-]+", notebook):
        raise SetupError(f"[tool.fluxbench] of cell {cell_id!r} must name its notebook, got {notebook!r}")
    if not isinstance(study, str):
        raise SetupError(f"the study of cell {cell_id!r} must be a name or module:attribute, got {study!r}")
    if not isinstance(packages, list) or not packages:
        raise SetupError(f"[tool.fluxbench] of cell {cell_id!r} must list the measured packages, got {packages!r}")
    for package in packages:
        if not isinstance(package, str) or not re.fullmatch(r"[A-Za-z0-9._-]+==[\w.!+-]+", package):
            raise SetupError(f"a measured package must have an exact pin such as torch==2.13.0, got {package!r}")
    if lock is not None and (not isinstance(lock, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", lock)):
        raise SetupError(f"the lock of cell {cell_id!r} must be a name such as flash-attn-2, got {lock!r}")
    if measures not in _MEASURES:
        raise SetupError(f"measures of cell {cell_id!r} must be one of {', '.join(_MEASURES)}, got {measures!r}")
    if not isinstance(variants, list) or not all(isinstance(name, str) for name in variants):
        raise SetupError(f"variants of cell {cell_id!r} must be a list of names, got {variants!r}")
    if bool(variants) != (measures != "rates"):
        raise SetupError(f"cell {cell_id!r} must list variants unless it measures rates, got {variants!r}")
    return Cell(
        notebook=notebook,
        id=cell_id,
        study=study,
        packages=tuple(packages),
        variants=tuple(dict.fromkeys(variants)),
        measures=measures,
        source_sha256=hashlib.sha256(source.encode()).hexdigest(),
        lock=lock,
    )


def current() -> Cell:
    """Return the cell that is running. Raises as `parse` does, and outside of a script."""
    source, cell_id = _running()
    return parse(source, cell_id)


def reads_of_current() -> tuple[str, ...]:
    """Return the other notebooks whose results the running cell reads. Raises as `reads` does."""
    return reads(_running()[0])


def _running() -> tuple[str, str]:
    """Return the source and the id of the cell that is running: the script that Python was started with."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:
        raise SetupError("a cell must be run as a script, got an interactive interpreter")
    return Path(script).read_text(encoding="utf-8"), Path(script).stem
