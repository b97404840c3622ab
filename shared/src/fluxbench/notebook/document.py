"""A notebook on disk, as uvnote parses it: its cells, their order, and a refusal of what would leave its folder."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pygments.styles import get_style_by_name
from uvnote.parser import CodeCell, DocumentConfig, parse_markdown, validate_cells

from fluxbench.core.errors import SetupError
from fluxbench.environments import cell

_SAFE_NAME = re.compile(r"\w[\w .+@=,-]*")
LONGEST_NAME = 250  # bytes of an artifact's name with its folders: file systems allow 255, and `.gz` may be added
_LONGEST_ID = 80  # bytes of a cell's id and of a notebook's name, which are joined into names of folders
# What uvnote reads of a cell's first line; it ignores all else, and shows a block of another language as it is.
_ATTRIBUTES = {"id", "deps", "needs", "depends", "outputs", "collapse-code", "collapse-output", "collapsed"}
# The first or last line of a block, which uvnote also reads in a comment: `# ```python`, `<!-- ```python -->`.
_FENCE = re.compile(r"\s*(?:#+\s*|<!--\s*)?(?P<first>(?:```|~~~).*?)(?:-->)?\s*")
_OTHERS = ("artifacts", "cells")  # folders of uvnote's own site, which it removes
# Files that lie beside the artifacts of a result: uvnote's own and those of `notebook.store`.
_RESERVED = {"result.json", "result.json.part", "display.html", "stdout.txt", "stderr.txt"}


@dataclass(frozen=True, kw_only=True)
class Document:
    """A parsed notebook. `cells` are those that run; uvnote shows commented ones and never runs them."""

    path: Path
    text: str
    config: DocumentConfig  # the frontmatter
    cells: tuple[CodeCell, ...]
    commented: tuple[CodeCell, ...] = ()
    work_name: str = ".uvnote"  # as uvnote has it

    @property
    def work(self) -> Path:
        """Where the notebook's scripts and results are kept: beside it, as headers have paths relative to scripts."""
        return self.path.parent / self.work_name

    @property
    def scripts(self) -> Path:
        """Where the cells' scripts are: as deep as uvnote has them, and not where it writes them while we read."""
        return self.work / f"{self.path.stem}.cells"

    def is_measuring(self, code: CodeCell) -> bool:
        """Whether a cell measures, by its header."""
        return cell.is_measuring(code.code)

    def find(self, cell_id: str) -> CodeCell:
        """Return the cell of this id. Raises `SetupError` with the nearest id."""
        for code in self.cells:
            if code.id == cell_id:
                return code
        ids = [code.id for code in self.cells]
        near = difflib.get_close_matches(cell_id, ids, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"its cells are {', '.join(ids)}"
        raise SetupError(f"{self.path.name} has no cell {cell_id!r}; {hint}")

    def descendants(self, ids: Iterable[str]) -> set[str]:
        """Return these cells and every cell that needs one of them, however far down."""
        descendants = set(ids)
        while more := {code.id for code in self.cells if code.id not in descendants and descendants & set(code.needs)}:
            descendants |= more
        return descendants

    def in_order(self) -> list[CodeCell]:
        """Return the cells in document order, each after those that it needs; without those that a cycle holds up."""
        ahead, order, done = list(self.cells), [], set[str]()
        while ready := next((code for code in ahead if done >= set(code.needs)), None):
            ahead.remove(ready)
            order.append(ready)
            done.add(ready.id)
        return order


def load(path: Path) -> Document:
    """Parse a notebook.

    Raises `SetupError` where it is missing, is not one, a cell's header is not right, or an id, an output or the
    frontmatter would leave its folder or inject markup into the page.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # uvnote finds no frontmatter behind a byte order mark
        config, cells = parse_markdown(text)
        validate_cells(cells)
    except FileNotFoundError as error:
        raise SetupError(_missing(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SetupError(f"a notebook must be a readable Markdown file, got {path}: {why}") from error
    except (AttributeError, TypeError, ValueError, RecursionError) as error:  # of a frontmatter that is no mapping
        sentence = " ".join(f"{path.name} is not a notebook that uvnote accepts: {error}".split())
        raise SetupError(sentence) from error
    if not re.fullmatch(r"\w[\w.-]*", path.stem) or _is_long(path.stem):
        raise SetupError(
            f"a notebook's name must be letters, digits, ., - and _, at most {_LONGEST_ID} bytes, got {path.name!r}"
        )
    if path.stem in _OTHERS or path.stem.endswith(".html"):  # its folder on the site would be another thing's
        raise SetupError(f"a notebook must not be called {path.name!r}; rename it")
    _check_first_lines(text, path.name)
    if not any(not code.commented for code in cells):
        raise SetupError(f"a notebook must have at least one ```python cell, got none in {path}")
    for code in cells:
        if not re.fullmatch(r"[A-Za-z0-9][\w-]*", code.id) or _is_long(code.id):
            raise SetupError(
                f"a cell's id must be letters, digits, - and _, at most {_LONGEST_ID} bytes, got {code.id!r} in "
                f"{path.name}"
            )
        _check_needs(code, path.name)
        for output in code.outputs:
            if reason := unsafe_artifact(output):
                raise SetupError(f"cell {code.id} of {path.name}: {reason}")
        _check_header(code, path.name)
    commented = {code.id for code in cells if code.commented}  # which uvnote lets be needed, and takes for run
    return Document(
        path=path.absolute(),  # cells run elsewhere
        text=text,
        config=_checked(config, path.name),
        cells=tuple(
            dataclasses.replace(code, needs=[need for need in code.needs if need not in commented])
            for code in cells
            if not code.commented
        ),
        commented=tuple(code for code in cells if code.commented),
    )


def unsafe_artifact(name: str) -> str | None:
    """Say why an artifact must not have this name, or None: names become paths and links of the page."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or not all(_SAFE_NAME.fullmatch(part) for part in parts):
        return f"an artifact's name must be letters, digits and any of ' .+@=,-_', got {name!r}"
    if len(name.encode()) > LONGEST_NAME:
        return f"an artifact's name must be at most {LONGEST_NAME} bytes long, got {name[:40]!r}..."
    if name in _RESERVED:
        return f"an artifact must not be called {name!r}, which is kept beside the artifacts; choose another name"
    return None


def input_variable(need: str) -> str:
    """Return the variable in which uvnote gives a cell the folder of a cell that it needs."""
    return "UVNOTE_INPUT_" + "".join(letter.upper() if letter.isalnum() else "_" for letter in need)


def attributes_sha256(code: CodeCell) -> str:
    """Return the hash of what a cell's first line asks for besides its needs."""
    return hashlib.sha256(repr((sorted(code.deps), sorted(code.outputs))).encode()).hexdigest()[:12]


def _missing(path: Path) -> str:
    """Say that a notebook is not there, and which are: beside it, in `notebooks` beside it, or here."""
    for folder in (path.parent / "notebooks", path.parent, Path("notebooks")):
        if names := sorted(other.name for other in folder.glob("*.md")):
            return f"there is no notebook {path}; those of {folder} are {', '.join(names)}"
    return f"there is no notebook {path}, nor another in its folder"


def _is_long(name: str) -> bool:
    return len(name.encode()) > _LONGEST_ID


def _check_first_lines(text: str, name: str) -> None:
    """Raise `SetupError` where the first line of what is to be a cell is misspelled: uvnote would not run it."""
    is_inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not (fence := _FENCE.fullmatch(line)):
            continue
        is_inside = not is_inside
        first, *words = fence["first"].split() or [""]
        attributes = [word.partition("=")[0] for word in words]
        if not is_inside or not (first == "```python" or _ATTRIBUTES & {*attributes}):
            continue
        if first != "```python":
            shown = fence["first"].strip()
            raise SetupError(f"the first line of a cell must begin with ```python, got {shown!r} in {name}:{number}")
        if unknown := [word for word in words if "=" not in word or word.partition("=")[0] not in _ATTRIBUTES]:
            raise SetupError(
                f"the first line of a cell must have only {', '.join(f'{each}=' for each in sorted(_ATTRIBUTES))}, "
                f"got {unknown[0]!r} in {name}:{number}"
            )


def _check_needs(code: CodeCell, name: str) -> None:
    by_variable: dict[str, str] = {}
    for need in code.needs:
        if (other := by_variable.setdefault(input_variable(need), need)) != need:
            raise SetupError(
                f"cell {code.id} of {name} must not need both {other!r} and {need!r}, because uvnote passes both "
                f"folders in the one variable {input_variable(need)}; rename one of the two cells"
            )


def _check_header(code: CodeCell, name: str) -> None:
    try:
        if not code.commented:
            _check_python(code)
        if not code.commented and cell.is_measuring(code.code):
            cell.parse(code.code, code.id)
        elif not code.commented:
            cell.reads(code.code)
    except SetupError as error:
        raise SetupError(f"cell {code.id} of {name}: {error}") from error


def _check_python(code: CodeCell) -> None:
    """Raise `SetupError` where a cell's header asks for another Python than this one, which runs all cells."""
    wanted = cell.header(code.code).get("requires-python", "")
    this = platform.python_version()
    try:
        allowed = SpecifierSet(wanted).contains(this, prereleases=True)
    except (InvalidSpecifier, TypeError, AttributeError) as error:
        raise SetupError(f"requires-python must be version specifiers such as >=3.11, got {wanted!r}") from error
    if not allowed:
        raise SetupError(f"requires-python must allow Python {this}, which runs the cells, got {wanted!r}")


def _checked(config: DocumentConfig, name: str) -> DocumentConfig:
    """Return the frontmatter, once none of its fields can break the page's style sheet."""
    for field in ("theme", "syntax_theme", "code_font_size"):
        value = getattr(config, field)
        if value is not None and not re.fullmatch(r"[\w.% -]+", str(value)):
            raise SetupError(f"{field} of {name} must be a word, a number or a CSS size, got {str(value)!r}")
    try:
        get_style_by_name(str(config.syntax_theme))
    except ValueError as error:
        raise SetupError(f"syntax_theme of {name} must be a style of Pygments, got {config.syntax_theme!r}") from error
    if "</" in str(config.custom_css):
        raise SetupError(f"custom_css of {name} must not hold '</', which would end the page's style sheet")
    return config
