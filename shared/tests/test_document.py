"""Notebooks: what is refused and why, which cells follow from which, and the same page as uvnote's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from notebooks import Machine, listing

from fluxbench.core.errors import SetupError
from fluxbench.notebook.document import load, unsafe_artifact
from fluxbench.notebook.page_markup import refined


def notebook(folder: Path, *cells: str) -> Path:
    """Write a notebook of these cells, each given by its attributes, and return its path."""
    path = folder / "some.md"
    path.write_text("".join(f"```python {cell}\nprint()\n```\n" for cell in cells), encoding="utf-8")
    return path


CELL = "```python id=a\nprint()\n```\n"
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", r"a notebook must be a readable Markdown file, got .*made_up\.md"),
    "prose alone": ("# Prose\n", "must have at least one ```python cell"),
    "nothing": ("", "must have at least one ```python cell"),
    "only a commented cell": ("# ```python id=a\nprint()\n# ```\n", "must have at least one ```python cell"),
    "an id that leaves the folder": (
        CELL.replace("id=a", "id=../up"),
        "id must be letters, digits, - and _, got '../up'",
    ),
    "an id that is hidden": (CELL.replace("id=a", "id=.a"), "id must be letters, digits, - and _, got '.a'"),
    "an id that is markup": (CELL.replace("id=a", "id=<b>"), "id must be letters, digits, - and _, got '<b>'"),
    "an id that ends a script": (CELL.replace("id=a", "id=a');x('"), "id must be letters, digits, - and _"),
    "an empty id": (CELL.replace("id=a", "id="), "id must be letters, digits, - and _, got ''"),
    "two cells of one id": (CELL + CELL, "Duplicate cell ids"),
    "a need that is not there": (CELL.replace("id=a", "id=a needs=b"), "depends on unknown cell 'b'"),
    "an output above": (CELL.replace("id=a", "id=a outputs=../x"), "cell a of made_up.md: an artifact's name must be"),
    "an absolute output": (CELL.replace("id=a", "id=a outputs=/etc/x"), "an artifact's name must be .* got '/etc/x'"),
    "an output that is markup": (CELL.replace("id=a", "id=a outputs=a<b>.svg"), "an artifact's name must be"),
    "an output of uvnote's": (CELL.replace("id=a", "id=a outputs=result.json"), "must not be called 'result.json'"),
    "a theme that is a script": (
        f'---\ntheme: "dark\'; alert(1)//"\n---\n{CELL}',
        "theme of made_up.md must be a word",
    ),
    "a size that is a style": (
        f'---\ncode_font_size: "1px; }} * {{ x"\n---\n{CELL}',
        "code_font_size .* must be a word",
    ),
    "a syntax theme that is not there": (f"---\nsyntax_theme: nosuch\n---\n{CELL}", "syntax_theme .* 'nosuch'"),
    "a style that ends itself": (
        f'---\ncustom_css: "</style><script>"\n---\n{CELL}',
        "custom_css .* must not hold '</'",
    ),
    "a frontmatter that is a list": (f"---\n- title\n---\n{CELL}", "made_up.md is not a notebook that uvnote accepts"),
    "a frontmatter that is a word": (f"---\ntitle\n---\n{CELL}", "made_up.md is not a notebook that uvnote accepts"),
    "a header that is not TOML": (CELL.replace("print()", "# /// script\n# x = [\n# ///"), "must be TOML"),
    "a header without an end": (CELL.replace("print()", "# /// script\n# x = 1"), "must end with a line `# ///`"),
    "a measuring cell without packages": (
        CELL.replace("print()", '# /// script\n# [tool.fluxbench]\n# notebook = "x"\n# ///'),
        "of cell 'a' must list the measured packages, got None",
    ),
    "a package without a version": (
        CELL.replace("print()", '# /// script\n# [tool.fluxbench]\n# notebook = "x"\n# packages = ["torch"]\n# ///'),
        "must have an exact pin such as torch==2.13.0, got 'torch'",
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
def test_a_name_that_would_not_do_in_a_link_is_refused(tmp_path: Path, name: str) -> None:
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


def test_the_descendants_of_a_cell_are_found_however_far_down(tmp_path: Path) -> None:
    document = load(notebook(tmp_path, "id=a", "id=b needs=a", "id=c depends=b", "id=d", "id=e needs=d,c"))
    assert document.descendants({"a"}) == {"a", "b", "c", "e"}
    assert document.descendants({"d"}) == {"d", "e"}


def test_cells_are_in_document_order_and_each_after_those_that_it_needs(tmp_path: Path) -> None:
    document = load(notebook(tmp_path, "id=a needs=c", "id=b", "id=c needs=d", "id=d", "id=e"))
    assert [code.id for code in document.in_order()] == ["b", "d", "c", "a", "e"]


def test_cells_that_a_cycle_holds_up_have_no_place_in_the_order(tmp_path: Path) -> None:
    document = load(notebook(tmp_path, "id=a needs=b", "id=b needs=a", "id=c needs=b", "id=d", "id=e needs=e"))
    assert [code.id for code in document.in_order()] == ["d"]


def test_a_cell_that_needs_one_that_is_commented_out_runs_as_if_it_did_not(tmp_path: Path) -> None:
    path = notebook(tmp_path, "id=b needs=a,c", "id=c")
    path.write_text(f"# ```python id=a\nprint()\n# ```\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    assert [code.id for code in load(path).in_order()] == ["c", "b"]


def test_a_cell_that_is_not_there_brings_the_nearest_name(tmp_path: Path) -> None:
    document = load(notebook(tmp_path, "id=ranking", "id=latency"))
    with pytest.raises(SetupError, match=r"some\.md has no cell 'rankin'; did you mean 'ranking'\?"):
        document.find("rankin")
    with pytest.raises(SetupError, match=r"some\.md has no cell 'zzz'; its cells are ranking, latency"):
        document.find("zzz")


def test_a_document_knows_which_of_its_cells_measure(machine: Machine) -> None:
    document = load(machine.notebook)
    assert [code.id for code in document.cells if document.is_measuring(code)] == ["first", "second"]


# The page.

# Of all that uvnote knows: every attribute, cells commented out both ways, one without an id, both kinds of pictures.
GENERIC = """---
title: Any notebook
author: somebody
theme: light
ui_theme: none
show_widgets: false
syntax_theme: friendly
show_line_numbers: true
collapse_code: true
custom_css: |
  .cell > p { color: red; }
code_font_size: 13
---

# Any notebook

Prose with a [link](https://example.org), `code` and

| a | table |
|---|-------|
| 1 | 2     |

```python id=picture outputs=picture.svg,data.csv,missing.txt
from pathlib import Path
Path("picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><text>seen</text></svg>")
Path("data.csv").write_text("a,b")
Path("not-declared.txt").write_text("x")
print("a < b & c")
```

```python id=undeclared deps=numpy,some-package==1.0 collapse-code=true
import sys
from pathlib import Path
Path("photo.png").write_bytes(b"\\x89PNG")
Path("notes.txt").write_text("x")
Path(".hidden").write_text("x")
print("Resolved 3 packages", "Installed 3 packages in 5ms", "a warning", "50%\\r100%", sep="\\n", file=sys.stderr)
```

```python
print("no id")
```

```python id=late depends=early collapsed=true
import os
from pathlib import Path
print(os.environ["UVNOTE_INPUTS"], Path(os.environ["UVNOTE_INPUT_EARLY"], "early.txt").read_text())
```

```python id=early needs=picture,undeclared collapse-output=true
import os, shutil
from pathlib import Path
print(os.environ["UVNOTE_INPUTS"], os.listdir(os.environ["HOME"]), os.environ["PYTHONNOUSERSITE"])
print(Path(os.environ["UVNOTE_INPUT_PICTURE"], "data.csv").read_text())
Path("early.txt").write_text("of early")
```

<!-- ```python id=gone -->
print("never")
<!-- ``` -->

# ```python id=away
print("never")
# ```

```python id=after needs=away
print("runs")
```

```text
A listing that is no cell.
```
"""


@pytest.mark.parametrize("text", [GENERIC, "A cell without anything:\n\n```python\nprint('of early')\n```\n"])
def test_any_notebook_gives_the_page_that_uvnote_gives_in_the_order_of_fluxbench(machine: Machine, text: str) -> None:
    machine.notebook.write_text(text, encoding="utf-8")
    theirs = machine.folder / "uvnote"
    theirs.mkdir()
    copy = shutil.copy(machine.notebook, theirs)
    folders = (machine.folder / "bin", Path(sys.executable).parent, os.environ["PATH"])
    subprocess.run(
        [Path(sys.executable).with_name("uvnote"), "build", copy, "--output", theirs / "site"],
        env={**os.environ, "PATH": os.pathsep.join(map(str, folders))},
        check=True,
        capture_output=True,
    )
    assert machine.build().problems == ()
    page = normalised(refined((theirs / "site" / "made_up.html").read_text(encoding="utf-8"), {}))
    assert "of early" in page  # it did run
    assert normalised(machine.page) == page
    assert below(machine.output) == below(theirs / "site")


def normalised(page: str) -> str:
    """Return a page without what differs from run to run: times, and the order of links, which is a set's."""
    page = re.sub(r"\d+\.\d\ds\b( \| ran [^<]*)?", "TIME", page)
    links = re.compile(r'(?:<a [^>]*class="artifact"[^>]*>[^<]*</a>\n)+')
    return links.sub(lambda found: "".join(sorted(found[0].splitlines(keepends=True))), page)


def below(folder: Path) -> dict[str, bytes]:
    """Return the files beside a page: artifacts and scripts."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".html")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_markup_in_a_title_and_in_packages_is_text_on_the_page(machine: Machine) -> None:
    machine.notebook.write_text(
        '---\ntitle: "<script>alert(1)</script>"\n---\n```python id=a deps=<img/src=x>\nprint("<i>")\n```\n',
        encoding="utf-8",
    )
    assert machine.build().problems == ()
    assert "<title>&lt;script&gt;alert(1)&lt;/script&gt;</title>" in machine.page
    assert "deps: &lt;img/src=x&gt;" in machine.page
    assert "<script>alert" not in machine.page
    assert "<img/src" not in machine.page
    assert "<i>" not in machine.page


def test_an_artifact_whose_name_is_markup_makes_its_cell_fail(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.notebook.write_text("""```python id=a\nopen('"><img src=x>.txt', "w").close()\n```\n""", encoding="utf-8")
    assert machine.command("build") == 1
    *_, sentence = capsys.readouterr().err.splitlines()
    assert sentence.startswith("fluxbench: cell a failed: an artifact's name must be letters, digits and any of")
    assert "<img" not in machine.page
    assert [name for name in below(machine.output) if "img" in name] == []


def test_artifacts_in_folders_are_on_the_page_and_beside_it(machine: Machine) -> None:
    machine.notebook.write_text(
        "```python id=a\nimport os\nos.mkdir('plots')\nopen('plots/a.csv', 'w').write('1')\n```\n", encoding="utf-8"
    )
    assert machine.build().problems == ()
    assert 'href="artifacts/a/plots/a.csv"' in machine.page
    assert (machine.output / "artifacts" / "a" / "plots" / "a.csv").read_text(encoding="utf-8") == "1"
