"""The PEP 723 header of a cell, as a person may write it and as a person may get it wrong."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from fakes import REPOSITORY
from uvnote.parser import parse_markdown

from fluxbench.core.errors import SetupError
from fluxbench.environments import cell

GOOD = """\
# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# ///
from fluxbench.bench import measuring as bench

bench.measure("torch_math")
"""


def test_a_good_header_says_its_notebook_and_its_packages() -> None:
    found = cell.parse(GOOD, "sdpa")
    assert (found.notebook, found.id, found.packages) == ("flux", "sdpa", ("torch==2.13.0", "numpy==2.4.6"))


def test_a_cell_is_known_by_the_hash_of_its_source() -> None:
    assert cell.parse(GOOD, "sdpa").source_sha256 == hashlib.sha256(GOOD.encode()).hexdigest()


def test_a_local_build_is_an_exact_pin() -> None:
    assert cell.parse(GOOD.replace("torch==2.13.0", "torch==2.13.0+cpu"), "sdpa").packages[0] == "torch==2.13.0+cpu"


def test_a_library_s_own_lock_is_named_or_there_is_none() -> None:
    assert cell.parse(GOOD, "sdpa").lock is None
    assert (
        cell.parse(GOOD.replace("# ///\nfrom", '# lock = "flash-attn-2"\n# ///\nfrom'), "sdpa").lock == "flash-attn-2"
    )


def test_another_block_of_metadata_is_left_alone() -> None:
    other = "# /// notes\n# anything at all\n# ///\n\n"
    assert cell.parse(other + GOOD, "sdpa").notebook == "flux"


@pytest.mark.parametrize(
    "source",
    ["print(1)\n", "# /// script\n# dependencies = []\n# ///\n", '# /// script\n# [tool.uv]\n# a = "b"\n# ///\n'],
)
def test_a_cell_without_a_table_measures_nothing(source: str) -> None:
    assert cell.tool_table(source) is None


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("print(1)\n", r"cell 'sdpa' must have a \[tool.fluxbench\] table in its PEP 723 header, got none"),
        (GOOD.replace("# ///\n", ""), "must end with a line `# ///`, and each line between must begin with `# `"),
        (GOOD.replace("# notebook", "notebook"), "each line between must begin with `# `"),
        (GOOD.replace("[tool.fluxbench]", "[tool.fluxbench"), "a PEP 723 header must be TOML: .*; mend the lines"),
        (GOOD + GOOD, "must have one PEP 723 header, got 2; keep one"),
        (GOOD.replace("torch==2.13.0", "torch"), "must have an exact pin such as torch==2.13.0, got 'torch'"),
        (GOOD.replace("torch==2.13.0", "torch>=2.13"), "must have an exact pin .* got 'torch>=2.13'"),
        (GOOD.replace("torch==2.13.0", "torch==2.*"), "must have an exact pin"),
        (GOOD.replace('"torch==2.13.0"', "213"), "must have an exact pin .* got 213"),
        (GOOD.replace("torch==2.13.0", "torch==2.13.0; --index-url x"), "must have an exact pin"),
        (GOOD.replace('# notebook = "flux"\n', ""), "must name its notebook, got None"),
        (GOOD.replace('"flux"', '"../flux"'), "must name its notebook, got '../flux'"),
        (
            GOOD.replace("# ///\nfrom", '# lock = "../dev"\n# ///\nfrom'),
            r"the lock of cell 'sdpa' must be a name .* '../dev'",
        ),
        (
            GOOD.replace("# ///\nfrom", "# lock = 2\n# ///\nfrom"),
            "the lock of cell 'sdpa' must be a name such as .*, got 2",
        ),
        (GOOD.replace('["torch==2.13.0", "numpy==2.4.6"]', "[]"), "must list the measured packages"),
        (GOOD.replace('["torch==2.13.0", "numpy==2.4.6"]', '"torch"'), "must list the measured packages"),
    ],
)
def test_a_header_that_is_not_right_is_refused_with_a_sentence(source: str, sentence: str) -> None:
    with pytest.raises(SetupError, match=sentence):
        cell.parse(source, "sdpa")


def test_the_running_cell_is_the_script_that_python_was_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "sdpa.py"
    script.write_text(GOOD, encoding="utf-8")
    main = ModuleType("__main__")
    main.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert cell.current() == cell.parse(GOOD, "sdpa")


MANY = """
bench.measure(
    "torch_flash",
    *("torch_math", "torch_native"),
    *(
        "flex",
        "flex_eager",
    ),
    "triton_flash",
)
print("torch_cudnn")
bench.measure("torch_efficient")
"""


def test_a_cell_measures_what_it_names_in_order_whether_plain_or_in_a_splat() -> None:
    assert cell.measured(MANY) == (
        *("torch_flash", "torch_math", "torch_native", "flex", "flex_eager", "triton_flash", "torch_efficient"),
    )


@pytest.mark.parametrize(
    "source",
    ["", "print('torch_math')", "bench.ceilings()", "bench.measure()", "show.table('torch_math')", "bench.measure(7)"],
)
def test_a_cell_without_the_call_measures_no_variant(source: str) -> None:
    assert cell.measured(source) == ()


@pytest.mark.parametrize("source", ['bench.measure("torch_math"', 'bench.measure("torch_math")\n  x', "def"])
def test_a_cell_that_is_no_python_measures_no_variant(source: str) -> None:
    assert cell.measured(source) == ()


@pytest.mark.parametrize(
    ("source", "called"),
    [
        ("a.b()", True),
        ("x = 1\nprint(a.b(1))", True),
        ("a.c()", False),
        ("b()", False),
        ("a.b", False),
        ("a.b(", False),
    ],
)
def test_whether_a_cell_calls_a_function_is_read_off_its_source(source: str, called: bool) -> None:
    assert cell.calls(source, "a.b") is called


def test_the_header_of_a_cell_takes_nothing_from_what_it_measures() -> None:
    assert cell.measured(GOOD) == ("torch_math",)


def test_an_interactive_interpreter_is_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.raises(SetupError, match="must be started from a cell's script, got an interactive interpreter"):
        cell.current()


@pytest.mark.parametrize("notebook", sorted((REPOSITORY / "notebooks").glob("*.md")), ids=lambda path: path.stem)
def test_every_measuring_cell_of_a_notebook_fits_on_a_screen(notebook: Path) -> None:
    codes = [code for code in parse_markdown(notebook.read_text(encoding="utf-8"))[1] if cell.tool_table(code.code)]
    bodies = {code.id: code.code.rpartition("# ///\n")[2].splitlines() for code in codes}
    assert bodies
    assert {name: len(lines) for name, lines in bodies.items() if len(lines) > 20} == {}
    assert {name for name, lines in bodies.items() if any("def " in line or "for " in line for line in lines)} == set()
