"""Notebooks: what is refused and why, and which cells follow from which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from notebooks import Machine, listing

from fluxbench.core.errors import SetupError
from fluxbench.notebook.document import load, unsafe_artifact

CELL = "```python id=a\nprint()\n```\n"
FRONTMATTER = "---\n{}\n---\n" + CELL


def headed(*lines: str) -> str:
    """Return a cell with these lines in its header."""
    return CELL.replace("print()", "\n".join(("# /// script", *(f"# {line}" for line in lines), "# ///")))


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", r"a notebook must be a readable Markdown file, got .*made_up\.md"),
    "prose alone": ("# Prose\n", "must have at least one ```python cell"),
    "only a commented cell": ("# ```python id=a\nprint()\n# ```\n", "must have at least one ```python cell"),
    "an id that leaves the folder": (
        CELL.replace("id=a", "id=../up"),
        "id must be letters, digits, - and _, got '../up'",
    ),
    "an id that is hidden": (CELL.replace("id=a", "id=.a"), "id must be letters, digits, - and _, got '.a'"),
    "an id that is markup": (CELL.replace("id=a", "id=<b>"), "id must be letters, digits, - and _, got '<b>'"),
    "an empty id": (CELL.replace("id=a", "id="), "id must be letters, digits, - and _, got ''"),
    "two cells of one id": (CELL + CELL, "Duplicate cell ids"),
    "a need that is not there": (CELL.replace("id=a", "id=a needs=b"), "depends on unknown cell 'b'"),
    "an output above": (CELL.replace("id=a", "id=a outputs=../x"), "cell a of made_up.md: an artifact's name must be"),
    "an output that is markup": (CELL.replace("id=a", "id=a outputs=a<b>.svg"), "an artifact's name must be"),
    "an output of uvnote's": (CELL.replace("id=a", "id=a outputs=result.json"), "must not be called 'result.json'"),
    "an output of ours": (CELL.replace("id=a", "id=a outputs=display.html"), "must not be called 'display.html'"),
    "a theme that is a script": (
        FRONTMATTER.format('theme: "dark\'; alert(1)//"'),
        "theme of made_up.md must be a word",
    ),
    "a size that is a style": (FRONTMATTER.format('code_font_size: "1px; }"'), "code_font_size .* must be a word"),
    "a syntax theme that is not there": (FRONTMATTER.format("syntax_theme: nosuch"), "syntax_theme .* 'nosuch'"),
    "a style that ends itself": (
        FRONTMATTER.format('custom_css: "</style><script>"'),
        "custom_css .* must not hold '</'",
    ),
    "a frontmatter that is a list": (FRONTMATTER.format("- title"), "made_up.md is not a notebook that uvnote accepts"),
    "a header that is not TOML": (headed("x = ["), "must be TOML"),
    "a header without an end": (CELL.replace("print()", "# /// script\n# x = 1"), "must end with a line `# ///`"),
    "a measuring cell without packages": (
        headed("[tool.fluxbench]", 'notebook = "x"'),
        "of cell 'a' must list the measured packages, got None",
    ),
    "a showing cell that reads a path": (
        headed("[tool.fluxbench]", 'reads = ["../flux"]'),
        "reads of a cell must list names of notebooks, got",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_notebook_is_refused_with_one_sentence_and_nothing_is_changed(
    machine: Machine, capsys: pytest.CaptureFixture[str], text: str | bytes, sentence: str
) -> None:
    machine.notebook.write_bytes(text.encode() if isinstance(text, str) else text)
    before = listing(machine.folder)
    for command in ("build", "status"):
        assert machine.command(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert re.fullmatch(rf"fluxbench: [^\n]*{sentence}[^\n]*\n", err)
    assert listing(machine.folder) == before


@pytest.mark.parametrize("name", ["missing.md", "."])
def test_a_notebook_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError, match="a notebook must be a readable Markdown file, got "):
        load(tmp_path / name)


@pytest.mark.parametrize("name", ["with space.md", "<b>.md", ".hidden.md", "a'b.md"])
def test_a_name_that_breaks_a_link_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(CELL, encoding="utf-8")
    with pytest.raises(SetupError, match="a notebook's name must be letters, digits"):
        load(tmp_path / name)


@pytest.mark.parametrize("name", ["a.svg", "plots/a b.svg", "a@2x.png", "π.csv", "a-b_c+d=e,f.txt"])
def test_an_artifact_may_have_a_plain_name(name: str) -> None:
    assert unsafe_artifact(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/../b", "/a", "a\nb", ".a", "a/.b", 'a".txt', "a'b", "a&b", "a?b", "a#b", "stdout.txt"]
)
def test_an_artifact_may_not_have_a_name_that_is_more_than_a_name(name: str) -> None:
    assert unsafe_artifact(name)


# What follows from what.


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        (["id=a needs=c", "id=b", "id=c needs=d", "id=d", "id=e"], "bdcae"),
        (["id=a needs=b", "id=b needs=a", "id=c needs=b", "id=d", "id=e needs=e"], "d"),
    ],
    ids=["in the order of needs", "without those of a cycle"],
)
def test_cells_are_in_document_order_and_each_after_those_that_it_needs(
    machine: Machine, cells: list[str], order: str
) -> None:
    machine.write(*cells)
    assert "".join(code.id for code in load(machine.notebook).in_order()) == order


def test_the_descendants_of_a_cell_are_found_however_far_down(machine: Machine) -> None:
    machine.write("id=a", "id=b needs=a", "id=c depends=b", "id=d", "id=e needs=d,c")
    document = load(machine.notebook)
    assert document.descendants({"a"}) == {"a", "b", "c", "e"}
    assert document.descendants({"d"}) == {"d", "e"}


def test_a_need_of_a_cell_that_is_commented_out_does_not_count(machine: Machine) -> None:
    machine.write("id=b needs=a,c", "id=c")
    machine.notebook.write_text(f"# {CELL}{machine.notebook.read_text(encoding='utf-8')}", encoding="utf-8")
    document = load(machine.notebook)
    assert [code.id for code in document.in_order()] == ["c", "b"]
    assert [code.id for code in document.commented] == ["a"]


def test_an_unknown_cell_brings_the_nearest_name(machine: Machine) -> None:
    document = load(machine.notebook)
    with pytest.raises(SetupError, match=r"made_up\.md has no cell 'secnd'; did you mean 'second'\?"):
        document.find("secnd")
    with pytest.raises(SetupError, match=r"made_up\.md has no cell 'zzz'; its cells are first, second, figure, other"):
        document.find("zzz")


def test_a_document_knows_which_of_its_cells_measure(machine: Machine) -> None:
    machine.rewrite('import os, sys\nsys.path.insert(0, os.environ["LABORATORY"])\nimport bench\nbench.show("second")',
                    '# /// script\n# [tool.fluxbench]\n# reads = ["flux"]\n# ///')  # fmt: skip
    document = load(machine.notebook)
    assert [code.id for code in document.cells if document.is_measuring(code)] == ["first", "second"]
