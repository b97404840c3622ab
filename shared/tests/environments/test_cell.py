"""The PEP 723 header of a cell, as a person may write it and as a person may get it wrong."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fluxbench.core.errors import SetupError
from fluxbench.environments import cell
from fluxbench.environments.cell import Cell

GOOD = """\
# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# variants = ["torch_math", "flex", "torch_math"]
# ///
from fluxbench import bench

bench.measure()
"""
THIS = Cell(
    notebook="flux",
    id="sdpa",
    study="flux",
    packages=("torch==2.13.0", "numpy==2.4.6"),
    variants=("torch_math", "flex"),
    measures="variants",
    source_sha256=hashlib.sha256(GOOD.encode()).hexdigest(),
    lock=None,
)


def changed(before: str, now: str) -> str:
    assert before in GOOD
    return GOOD.replace(before, now, 1)


def with_line(line: str) -> str:
    return changed("# packages", f"# {line}\n# packages")


def test_a_good_header_says_what_the_cell_measures() -> None:
    assert cell.parse(GOOD, "sdpa") == THIS


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        (changed("torch==2.13.0", "torch==2.13.0+cpu"), {"packages": ("torch==2.13.0+cpu", "numpy==2.4.6")}),
        (with_line('lock = "flash-attn-2"'), {"lock": "flash-attn-2"}),
        (with_line('study = "laboratory:STUDY"'), {"study": "laboratory:STUDY"}),
        (with_line('measures = "trials"'), {"measures": "trials"}),
        (
            with_line('measures = "rates"').replace('# variants = ["torch_math", "flex", "torch_math"]\n', ""),
            {"measures": "rates", "variants": ()},
        ),
        (f"# /// notes\n# anything at all\n# ///\n\n{GOOD}", {}),
    ],
)
def test_what_a_header_adds_is_read(source: str, fields: dict[str, object]) -> None:
    sha256 = hashlib.sha256(source.encode()).hexdigest()
    assert cell.parse(source, "sdpa") == dataclasses.replace(THIS, source_sha256=sha256, **fields)  # type: ignore[arg-type]


NO_TABLE = ["print(1)\n", "# /// script\n# dependencies = []\n# ///\n", '# /// script\n# [tool.uv]\n# a = "b"\n# ///\n']
SHOWING = '# /// script\n# [tool.fluxbench]\n# reads = ["flux", "layer-2"]\n# ///\n'


@pytest.mark.parametrize("source", NO_TABLE)
def test_a_cell_without_a_table_measures_and_reads_nothing(source: str) -> None:
    assert (cell.tool_table(source), cell.is_measuring(source), cell.reads(source)) == (None, False, ())
    with pytest.raises(SetupError, match=r"cell 'sdpa' must have a \[tool.fluxbench\] table in its PEP 723 header"):
        cell.parse(source, "sdpa")


def test_a_cell_measures_where_it_lists_packages_and_reads_the_notebooks_that_it_names() -> None:
    assert (cell.is_measuring(GOOD), cell.reads(GOOD)) == (True, ())
    assert (cell.is_measuring(SHOWING), cell.reads(SHOWING)) == (False, ("flux", "layer-2"))


@pytest.mark.parametrize("value", ['"flux"', "[1]", '["../flux"]'])
def test_a_list_of_notebooks_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(SetupError, match="reads of a cell must list names of notebooks, got"):
        cell.reads(SHOWING.replace('["flux", "layer-2"]', value))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (changed("# ///\n", ""), "must end with a line `# ///`, and each line between must begin with `# `"),
        (changed("[tool.fluxbench]", "[tool.fluxbench"), "a PEP 723 header must be TOML: .*; fix the lines"),
        (GOOD + GOOD, "must have one PEP 723 header, got 2; keep one"),
        (changed("torch==2.13.0", "torch"), "must have an exact pin such as torch==2.13.0, got 'torch'"),
        (changed("torch==2.13.0", "torch>=2.13"), "must have an exact pin .* got 'torch>=2.13'"),
        (changed("torch==2.13.0", "torch==2.13.0; --index-url x"), "must have an exact pin"),
        (changed('"torch==2.13.0"', "213"), "must have an exact pin .* got 213"),
        (changed('["torch==2.13.0", "numpy==2.4.6"]', "[]"), "must list the measured packages"),
        (changed('["torch==2.13.0", "numpy==2.4.6"]', '"torch"'), "must list the measured packages"),
        (changed('# notebook = "flux"\n', ""), "must name its notebook, got None"),
        (changed('"flux"', '"../flux"'), r"must name its notebook, got '\.\./flux'"),
        (with_line('lock = "../dev"'), r"the lock of cell 'sdpa' must be a name .* '\.\./dev'"),
        (with_line("lock = 2"), "the lock of cell 'sdpa' must be a name such as .*, got 2"),
        (with_line('measures = "time"'), "measures of cell 'sdpa' must be one of variants, rates, trials, got 'time'"),
        (with_line('measures = "rates"'), "must list variants unless it measures rates, got"),
        (changed('["torch_math", "flex", "torch_math"]', "[]"), r"variants unless it measures rates, got \[\]"),
        (changed('["torch_math", "flex", "torch_math"]', "[1]"), r"variants of cell 'sdpa' must be a list of names"),
        (with_line('variant = "flex"'), r"\[tool.fluxbench\] of cell 'sdpa' has no variant; it has notebook, study"),
    ],
)
def test_a_header_that_is_not_right_is_refused_with_a_sentence(source: str, sentence: str) -> None:
    with pytest.raises(SetupError, match=sentence):
        cell.parse(source, "sdpa")


def test_the_running_cell_is_the_script_that_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sdpa.py").write_text(GOOD, encoding="utf-8")
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(SetupError, match="must be run as a script, got an interactive interpreter"):
        cell.current()
    main.__file__ = str(tmp_path / "sdpa.py")
    assert cell.current() == THIS
