"""What a notebook's cell says of itself: its PEP 723 header, and which cell of which notebook it is."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxbench.core.settings import SetupError

# The reference expression of the inline script metadata specification (PEP 723), which fixes this syntax.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A measuring cell, as its source says."""

    notebook: str
    id: str
    packages: tuple[str, ...]  # the measured packages, each with an exact pin
    source_sha256: str
    lock: str | None = None  # the library's own, a file of environment/locks without its .txt


def tool_table(source: str) -> dict[str, Any] | None:
    """Return the `[tool.fluxbench]` table of a cell's source, or None where it has none.

    Raises `SetupError` where the header is not what PEP 723 asks for.
    """
    blocks = [match for match in _BLOCK.finditer(source) if match["type"] == "script"]
    if len(blocks) > 1:
        raise SetupError(f"a cell must have one PEP 723 header, got {len(blocks)}; keep one `# /// script` block")
    if not blocks:
        if "# /// script" in source:
            raise SetupError(
                "a PEP 723 header must end with a line `# ///`, and each line between must begin with `# `"
            )
        return None
    lines = blocks[0]["content"].splitlines()
    content = "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
    try:
        header = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise SetupError(
            f"a PEP 723 header must be TOML: {error}; mend the lines between `# /// script` and `# ///`"
        ) from error
    tool = header.get("tool")
    table = tool.get("fluxbench") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def parse(source: str, cell_id: str) -> Cell:
    """Return what a measuring cell's source says. Raises `SetupError` where its `[tool.fluxbench]` is not right."""
    table = tool_table(source)
    if table is None:
        raise SetupError(f"cell {cell_id!r} must have a [tool.fluxbench] table in its PEP 723 header, got none")
    notebook, packages, lock = table.get("notebook"), table.get("packages"), table.get("lock")
    if not isinstance(notebook, str) or not re.fullmatch(r"[\w-]+", notebook):
        raise SetupError(f"[tool.fluxbench] of cell {cell_id!r} must name its notebook, got {notebook!r}")
    if not isinstance(packages, list) or not packages:
        raise SetupError(f"[tool.fluxbench] of cell {cell_id!r} must list the measured packages, got {packages!r}")
    for package in packages:
        if not isinstance(package, str) or not re.fullmatch(r"[A-Za-z0-9._-]+==[\w.!+-]+", package):
            raise SetupError(f"a measured package must have an exact pin such as torch==2.13.0, got {package!r}")
    if lock is not None and (not isinstance(lock, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", lock)):
        raise SetupError(f"the lock of cell {cell_id!r} must be a name such as flash-attn-2, got {lock!r}")
    digest = hashlib.sha256(source.encode()).hexdigest()
    return Cell(notebook=notebook, id=cell_id, packages=tuple(packages), source_sha256=digest, lock=lock)


def calls(source: str, function: str) -> bool:
    """Whether a cell calls a function, as it is written: `certificate_trials.measure`."""
    return any(ast.unparse(call.func) == function for call in _calls(source))


def _calls(source: str) -> list[ast.Call]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def measured(source: str) -> tuple[str, ...]:
    """Return the variants that a cell's `bench.measure(...)` names, in order; none where it has no such call."""
    return tuple(
        value.value
        for call in _calls(source)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "measure"
        for argument in call.args
        for value in ast.walk(argument)
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def current() -> Cell:
    """Return the cell that is running: the script that Python was started with."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:
        raise SetupError("a measurement must be started from a cell's script, got an interactive interpreter")
    return parse(Path(script).read_text(encoding="utf-8"), Path(script).stem)
