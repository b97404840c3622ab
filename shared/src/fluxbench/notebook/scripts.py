"""The scripts of a notebook's cells as uvnote writes them, and how uv runs them: in one environment where they can.

uv makes an environment for each script by its path. Cells that use fluxbench and ask for the same packages are run by
one launcher, a script with their header, and so in one environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import locale
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from uvnote.executor import create_cell_script
from uvnote.parser import CodeCell

from fluxbench.core.files import write_text
from fluxbench.environments import cell
from fluxbench.notebook.document import Document

_LOCALE, _LAUNCHERS = threading.Lock(), threading.Lock()  # the locale is the whole process's, a launcher several cells'
_LAUNCH = """
import runpy, sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def source(code: CodeCell) -> str:
    """Return a cell's script as uvnote writes it, below a header of its `deps=`."""
    with tempfile.TemporaryDirectory(prefix="fluxbench-script-") as name, _in_utf8():
        text: str = create_cell_script(code, Path(name)).read_text(encoding="utf-8")
        return text


def write(code: CodeCell, document: Document) -> Path:
    """Write a cell's script and return its path. Raises `OSError`."""
    return _write(document.scripts / f"{code.id}.py", source(code))


def launcher(code: CodeCell, document: Document) -> Path | None:
    """Write what runs the script that it is given in a cell's environment; None where the cell shares none.

    Cells with the same header, but for what fluxbench itself reads of it, have one launcher. Raises `OSError`.
    """
    if code.deps or not cell.uses_fluxbench(code.code):
        return None
    asked = cell.header(code.code)
    tools = {name: table for name, table in asked.get("tool", {}).items() if name != "fluxbench"}
    held = json.dumps({**asked, "tool": tools, "launch": _LAUNCH}, sort_keys=True, default=str)
    key = hashlib.sha256(held.encode()).hexdigest()[:12]
    path = document.scripts / f"_environment.{key}.py"  # no cell has such an id
    with _LAUNCHERS:
        return path.resolve() if path.is_file() else _write(path, cell.block(code.code) + _LAUNCH)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path.resolve()


@contextlib.contextmanager
def _in_utf8() -> Iterator[None]:
    """Let uvnote write UTF-8 whatever the locale: it opens files without an encoding."""
    with _LOCALE:
        before = locale.setlocale(locale.LC_CTYPE)
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        try:
            yield
        finally:
            locale.setlocale(locale.LC_CTYPE, before)
