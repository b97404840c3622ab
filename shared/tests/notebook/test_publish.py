"""Taking a page into `reports/<target>/`: what lies there then, and what a failure leaves."""

from __future__ import annotations

import dataclasses
import gzip
import re
from pathlib import Path

import pytest
from notebooks import ALL, Capture, Machine, tree, with_results

from fluxbench.core.errors import SetupError
from fluxbench.notebook.build import Built
from fluxbench.notebook.publish import publish, target_of
from fluxbench.records import files


@pytest.fixture
def built_page(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A page without problems."""
    return with_results(machine, tmp_path_factory).build()


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return tmp_path / "reports"


def links(page: Path) -> list[str]:
    return re.findall(r'(?:href|src)="([^"#:]+)"', page.read_text(encoding="utf-8"))


def test_a_published_page_has_its_records_artifacts_and_cells_beside_it(built_page: Built, reports: Path) -> None:
    page = publish(built_page, reports, "made-up")
    assert page == reports / "made-up" / "made_up.html"
    assert set(tree(reports)) == {
        "made-up/made_up.html",
        "made-up/made_up/records/first.jsonl",
        "made-up/made_up/records/second.jsonl",
        "made-up/made_up/artifacts/figure/figure.svg",
        "made-up/made_up/artifacts/figure/table.csv",
        *(f"made-up/made_up/cells/{name}.py" for name in ALL),
    }
    published = [each for path in files.paths(page.with_suffix("") / "records") for each in files.read(path)]
    assert published == list(built_page.records)
    assert "drawn torch_math" in page.read_text(encoding="utf-8")
    assert {"made_up/records/first.jsonl", "made_up/artifacts/figure/table.csv"} <= set(links(page))
    assert [link for link in links(page) if not (page.parent / link).is_file()] == []


@pytest.mark.parametrize(
    ("artifact", "place"),
    [
        ("a.jsonl", "records/a.jsonl"),
        ("a.samples.json.gz", "records/a.samples.json.gz"),
        ("a.control.json", "records/a.control.json"),
        ("trials.json", "records/trials.json.gz"),
        ("summary.json", "summary.json"),
        ("plots/a.svg", "artifacts/a/plots/a.svg"),
        ("results.jsonl", None),
        ("earlier.jsonl", None),
        ("results.json", None),
    ],
)
def test_each_kind_of_artifact_has_its_place(machine: Machine, reports: Path, artifact: str, place: str | None) -> None:
    machine.write(f"id=a outputs={artifact}: import os; os.mkdir('plots'); open('{artifact}', 'w').write('text')")
    page = publish(machine.build(), reports, "made-up")
    others = {"cells/a.py"}
    assert set(tree(page.with_suffix(""))) - others == ({place} if place else set())
    assert set(links(page)) == {"made_up/cells/a.py", *([f"made_up/{place}"] if place else [])}
    if place and place != f"records/{artifact}.gz":
        assert (page.with_suffix("") / place).read_text(encoding="utf-8") == "text"
    elif place:
        assert gzip.decompress((page.with_suffix("") / place).read_bytes()) == b"text"


def test_many_records_are_published_compressed(machine: Machine, reports: Path) -> None:
    machine.write(f"id=a outputs=a.jsonl: open('a.jsonl', 'w').write('x' * {1 << 20})")
    page = publish(machine.build(), reports, "made-up")
    assert set(links(page)) == {"made_up/cells/a.py", "made_up/records/a.jsonl.gz"}
    [path] = (page.with_suffix("") / "records").iterdir()
    assert gzip.decompress(path.read_bytes()) == b"x" * (1 << 20)
    assert files.of_cell(path.parent, "a") == path


def test_two_cells_that_leave_records_of_one_name_are_refused(machine: Machine, reports: Path) -> None:
    machine.write(*(f"id={name} outputs=data.json: open('data.json', 'w').write('{name}')" for name in "ab"))
    with pytest.raises(SetupError, match=r"two cells must not leave records of the same name, got 'data.json'"):
        publish(machine.build(), reports, "made-up")
    assert tree(reports) == {}


def test_publishing_again_replaces_this_notebook_of_this_target_alone(built_page: Built, reports: Path) -> None:
    for other in ("made-up/another.html", "made-up/another/records/first.jsonl", "h200/made_up.html"):
        (reports / other).parent.mkdir(parents=True, exist_ok=True)
        (reports / other).write_text("another", encoding="utf-8")
    page = publish(built_page, reports, "made-up")
    assert "../" not in "".join(links(page))
    before = tree(reports)
    (page.with_suffix("") / "artifacts" / "of_an_older_page.csv").touch()
    for name in (".made_up.new", ".made_up.old"):  # an interrupted publishing left them
        (reports / "made-up" / name).mkdir(parents=True)
        (reports / "made-up" / name / "half.txt").write_text("half", encoding="utf-8")
    publish(built_page, reports, "made-up")
    assert tree(reports) == before
    (reports / "index.html").write_text("the site", encoding="utf-8")  # a page is linked to once it is there
    publish(built_page, reports, "made-up")
    assert [link for link in links(page) if link.startswith("../")] == ["../index.html"]
    assert '"../index.html#card-made-up"' in page.read_text(encoding="utf-8")


def test_a_page_with_problems_is_not_published(built_page: Built, reports: Path) -> None:
    with pytest.raises(SetupError, match="only a page without problems can be published, got: cell x failed"):
        publish(dataclasses.replace(built_page, problems=("cell x failed",)), reports, "made-up")
    assert not reports.exists()


@pytest.mark.parametrize("step", ["shutil.copy2", "os.fsync"])
def test_a_full_disk_leaves_what_was_published(
    built_page: Built, reports: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    publish(built_page, reports, "made-up")
    before = tree(reports)

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(step, full)
        with pytest.raises(OSError, match="no room"):
            publish(built_page, reports, "made-up")
    assert tree(reports) == before
    publish(built_page, reports, "made-up")
    assert tree(reports) == before


def test_the_command_publishes_or_says_why_not(built: Machine, capsys: Capture) -> None:
    built.rewrite('bench.show("second")', 'raise SystemExit(0 if os.environ.get("FINE") else "no")')
    assert built.command("publish") == 1
    err = capsys.readouterr().err
    assert "fluxbench: cell other failed: it ended with exit code 1: no\n" in err
    assert err.endswith("fluxbench: nothing was published, since the page has problems\n")
    assert not (built.folder / "reports").exists()
    built.monkeypatch.setenv("FINE", "1")
    assert built.command("publish") == 0
    page = built.folder / "reports" / "made-up" / "made_up.html"
    assert capsys.readouterr().out == f"\nThe page is {page}\n"
    assert page.is_file()


def test_a_notebook_that_measures_nothing_has_a_folder_of_its_own(built_page: Built, machine: Machine) -> None:
    assert target_of(built_page) == built_page.target.name
    machine.notebook.write_text("# Alone\n\n```python id=alone\nprint(1)\n```\n", encoding="utf-8")
    assert target_of(machine.build()) == "published"
