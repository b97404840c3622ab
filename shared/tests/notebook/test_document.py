"""Notebooks: what is refused and why, and which cells follow from which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from notebooks import Capture, Machine, listing

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
    "an id that leaves the folder": (
        CELL.replace("id=a", "id=../up"),
        "must be letters, digits, - and _, at most 80 bytes, got '../up'",
    ),
    "an empty id": (CELL.replace("id=a", "id="), "id must be letters, digits, - and _, at most 80 bytes, got ''"),
    "two cells of one id": (CELL + CELL, "Duplicate cell ids"),
    "a need that is not there": (CELL.replace("id=a", "id=a needs=b"), "depends on unknown cell 'b'"),
    "another language": (
        CELL + CELL.replace("python id=a", "pyton id=b"),
        "must begin with ```python, got '```pyton id=b",
    ),
    "python3": (CELL.replace("python", "python3"), "must begin with ```python, got '```python3 id=a"),
    "a space": (CELL + CELL.replace("python id=a", " python id=b"), "must begin with ```python, got '``` python id=b"),
    "another fence": (CELL + "~~~python id=b\n1\n~~~\n", "must begin with ```python, got '~~~python id=b"),
    "after a comment": (
        "# ```python id=c\n1\n# ```\n" + CELL + CELL.replace("python id=a", "pyton id=b"),
        "must begin with ```python, got '```pyton id=b",
    ),
    "in a comment": (CELL + "<!-- ```python id=b output=x -->\n1\n<!-- ``` -->\n", "got 'output=x' in made_up.md:"),
    "no attribute": (CELL.replace("id=a", "id:a"), "got 'id:a' in made_up.md:"),
    "an unknown attribute": (CELL.replace("id=a", "id=a output=x"), "got 'output=x' in made_up.md:"),
    "spaces": (CELL.replace("id=a", "id = a"), "got 'id' in made_up.md:"),
    "an output above": (CELL.replace("id=a", "id=a outputs=../x"), "cell a of made_up.md: an artifact's name must be"),
    "an output of uvnote's": (CELL.replace("id=a", "id=a outputs=result.json"), "must not be called 'result.json'"),
    "an output of ours": (CELL.replace("id=a", "id=a outputs=display.html"), "must not be called 'display.html'"),
    "a theme that is a script": (FRONTMATTER.format('theme: "a; alert(1)//"'), "theme of made_up.md must be a word"),
    "a size that is a style": (FRONTMATTER.format('code_font_size: "1px; }"'), "code_font_size .* must be a word"),
    "a syntax theme that is not there": (FRONTMATTER.format("syntax_theme: nosuch"), "syntax_theme .* 'nosuch'"),
    "a style that ends itself": (FRONTMATTER.format('custom_css: "</style>"'), "custom_css .* must not hold '</'"),
    "a frontmatter that is a list": (FRONTMATTER.format("- title"), "made_up.md is not a notebook that uvnote accepts"),
    "a header that is not TOML": (headed("x = ["), "must be TOML"),
    "a header without an end": (CELL.replace("print()", "# /// script\n# x = 1"), "must end with a line `# ///`"),
    "needs of one variable": (
        "```python id=a-b\n1\n```\n```python id=a_b\n1\n```\n```python id=c needs=a-b,a_b\n1\n```",
        "must not need both 'a-b' and 'a_b'",
    ),
    "another Python": (
        "```python id=a\n# /// script\n# requires-python = '<3.11'\n# ///\n1\n```",
        "requires-python must allow Python 3[.][0-9.]+, which runs the cells, got '<3.11'",
    ),
    "no Python": (
        "```python id=a\n# /// script\n# requires-python = 3\n# ///\n1\n```",
        "requires-python must be version specifiers such as >=3.11, got 3",
    ),
    "a long id": (f"```python id={'a' * 81}\n1\n```", "at most 80 bytes, got 'aaaa"),
    "no packages": (headed("[tool.fluxbench]", 'notebook = "x"'), "must list the measured packages, got None"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_notebook_is_refused(machine: Machine, capsys: Capture, text: str | bytes, sentence: str) -> None:
    machine.notebook.write_bytes(text.encode() if isinstance(text, str) else text)
    before = listing(machine.folder)
    for command in ("build", "status"):
        assert machine.command(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert re.fullmatch(rf"fluxbench: [^\n]*{sentence}[^\n]*\n", err)
    assert listing(machine.folder) == before


@pytest.mark.parametrize("name", ["with space.md", "<b>.md", ".hidden.md", "a'b.md"])
def test_a_name_that_breaks_a_link_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(CELL, encoding="utf-8")
    with pytest.raises(SetupError, match="a notebook's name must be letters, digits"):
        load(tmp_path / name)


@pytest.mark.parametrize("name", ["cells", "artifacts", "a.html", "n" * 81])
def test_a_name_that_is_another_things_on_the_site_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.md").write_text(CELL, encoding="utf-8")
    with pytest.raises(SetupError, match=r"a notebook('s name must be|\b.*must not be called)"):
        load(tmp_path / f"{name}.md")


def test_for_a_notebook_that_is_not_there_those_that_are_there_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("none.md"), Path("notebooks", "none.md")):
        with pytest.raises(SetupError, match=rf"^there is no notebook {path}, nor another in its folder$"):
            load(path)
    Path("notebooks").mkdir()
    for name in ("one", "two"):
        Path("notebooks", f"{name}.md").write_text(CELL, encoding="utf-8")
    for path in (Path("none.md"), Path("notebooks", "none.md"), Path("nowhere", "none.md")):
        with pytest.raises(SetupError, match=rf"^there is no notebook {path}; those of notebooks are one.md, two.md$"):
            load(path)
    with pytest.raises(
        SetupError, match=r"^a notebook must be a readable Markdown file, got notebooks: Is a directory$"
    ):
        load(Path("notebooks"))


def test_a_byte_order_mark_hides_no_frontmatter(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"---\ntitle: Seen\n---\n{CELL}", encoding="utf-8-sig")
    assert load(tmp_path / "a.md").config.title == "Seen"


@pytest.mark.parametrize("name", ["a.svg", "plots/a b.svg", "a@2x.png", "π.csv", "a-b_c+d=e,f.txt"])
def test_an_artifact_may_have_a_plain_name(name: str) -> None:
    assert unsafe_artifact(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/../b", "/a", "a\nb", ".a", "a/.b", 'a".txt', "a'b", "a&b", "a?b", "a#b", "stdout.txt"]
)
def test_an_artifact_may_not_have_a_name_that_is_more_than_a_name(name: str) -> None:
    assert unsafe_artifact(name)


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        (["id=a needs=c", "id=b", "id=c needs=d", "id=d", "id=e"], "bdcae"),
        (["id=a needs=b", "id=b needs=a", "id=c needs=b", "id=d", "id=e needs=e"], "d"),  # without those of a cycle
    ],
)
def test_cells_are_in_order_and_each_after_those_that_it_needs(machine: Machine, cells: list[str], order: str) -> None:
    machine.write(*cells)
    assert "".join(code.id for code in load(machine.notebook).in_order()) == order


def test_the_descendants_of_a_cell_are_found_however_far_down(machine: Machine) -> None:
    machine.write("id=a", "id=b needs=a", "id=c depends=b", "id=d", "id=e needs=d,c")
    document = load(machine.notebook)
    assert document.descendants({"a"}) == {"a", "b", "c", "e"}
    assert document.descendants({"d"}) == {"d", "e"}
