"""Taking a page into `reports/<target>/`: what lies there then, and that a failure leaves what was published."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from notebooks import ALL, Machine, tree, with_results

from fluxbench.core.errors import SetupError
from fluxbench.notebook.build import Built
from fluxbench.notebook.publish import publish
from fluxbench.records import schema as records


@pytest.fixture
def built(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A page without problems."""
    return with_results(machine, tmp_path_factory).build()


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return tmp_path / "reports"


def test_a_published_page_has_its_records_artifacts_and_cells_beside_it(built: Built, reports: Path) -> None:
    assert publish(built, reports, "made-up") == reports / "made-up" / "made_up.html"
    assert set(tree(reports)) == {
        "made-up/made_up.html",
        "made-up/made_up/records/first.jsonl",
        "made-up/made_up/records/second.jsonl",
        "made-up/made_up/artifacts/figure/figure.svg",
        "made-up/made_up/artifacts/figure/table.csv",
        *(f"made-up/made_up/cells/{name}.py" for name in ALL),
    }


def test_a_summary_lies_beside_the_page_s_records_and_its_link_leads_there(machine: Machine, reports: Path) -> None:
    source = "for name in ('summary.json', 'n.json'):\n    open(name, 'w').write('{}')\n"
    machine.notebook.write_text(f"```python id=a outputs=summary.json,n.json\n{source}```\n", encoding="utf-8")
    page = publish(machine.build(), reports, "made-up")
    assert {"made-up/made_up/summary.json", "made-up/made_up/records/n.json"} <= set(tree(reports))
    assert {"made_up/summary.json", "made_up/records/n.json"} <= set(links(page))


def links(page: Path) -> list[str]:
    return re.findall(r'(?:href|src)="([^"#:]+)"', page.read_text(encoding="utf-8"))


def test_every_link_of_a_published_page_leads_somewhere(built: Built, reports: Path) -> None:
    page = publish(built, reports, "made-up")
    assert {"made_up/records/first.jsonl", "made_up/artifacts/figure/table.csv"} <= set(links(page))
    assert [link for link in links(page) if not (page.parent / link).is_file()] == []


def test_published_records_are_those_of_the_page(built: Built, reports: Path) -> None:
    page = publish(built, reports, "made-up")
    found = [record for path in sorted(page.with_suffix("").glob("records/*.jsonl")) for record in records.read(path)]
    assert found == list(built.records)
    assert len(found) == 2


def test_what_is_published_is_the_last_good_result_of_many(machine: Machine, reports: Path) -> None:
    machine.notebook.write_text("```python id=a\nopen('n.txt', 'w').write('1')\n```\n", encoding="utf-8")
    machine.build()
    machine.rewrite("'1'", "'2'")
    publish(machine.build(), reports, "made-up")
    assert tree(reports)["made-up/made_up/artifacts/a/n.txt"] == "2"


def test_a_page_with_problems_is_not_published_and_what_was_stays(built: Built, reports: Path) -> None:
    publish(built, reports, "made-up")
    before = tree(reports)
    with pytest.raises(SetupError, match="only a page without problems can be published, got: cell x failed"):
        publish(dataclasses.replace(built, problems=("cell x failed",)), reports, "made-up")
    assert tree(reports) == before


def test_publishing_again_replaces_what_was_published(built: Built, reports: Path) -> None:
    page = publish(built, reports, "made-up")
    before = tree(reports)
    (page.with_suffix("") / "artifacts" / "of_an_older_page.csv").touch()
    publish(built, reports, "made-up")
    assert tree(reports) == before


def test_the_page_of_another_notebook_or_target_stays(built: Built, reports: Path) -> None:
    for other in ("made-up/another.html", "made-up/another/records/first.jsonl", "h200/made_up.html"):
        (reports / other).parent.mkdir(parents=True, exist_ok=True)
        (reports / other).write_text("another", encoding="utf-8")
    before = tree(reports)
    publish(built, reports, "made-up")
    assert before.items() <= tree(reports).items()


def test_what_an_interrupted_publishing_left_is_cleared_away(built: Built, reports: Path) -> None:
    for name in (".made_up.new", ".made_up.old"):
        (reports / "made-up" / name).mkdir(parents=True)
        (reports / "made-up" / name / "half.txt").write_text("half", encoding="utf-8")
    publish(built, reports, "made-up")
    assert [name for name in tree(reports) if "half" in name or "/." in name] == []


def without_a_cell(built: Built) -> None:
    shutil.rmtree(built.document.work / "cells")


def without_a_result(built: Built) -> None:
    shutil.rmtree(built.document.work / "cache")


def without_a_page(built: Built) -> None:
    built.page.unlink()


@pytest.mark.parametrize("damage", [without_a_cell, without_a_result, without_a_page])
def test_a_page_that_cannot_be_copied_leaves_what_was_published(
    built: Built, reports: Path, damage: Callable[[Built], None]
) -> None:
    publish(built, reports, "made-up")
    before = tree(reports)
    damage(built)
    with pytest.raises(SetupError, match="what was published is untouched"):
        publish(built, reports, "made-up")
    assert tree(reports) == before


def test_a_disk_that_is_full_at_the_page_leaves_what_was_published_and_the_next_time_succeeds(
    built: Built, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(built, reports, "made-up")
    before = tree(reports)
    built.page.write_text("another page", encoding="utf-8")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SetupError, match="No space left on device; what was published is untouched"):
            publish(built, reports, "made-up")
    assert tree(reports) == before
    assert publish(built, reports, "made-up").read_text(encoding="utf-8") == "another page"


# The command.


def test_the_command_publishes_under_the_name_of_the_device_and_ends_with_0(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    with_results(machine, tmp_path_factory)
    assert machine.command("publish") == 0
    page = machine.folder / "reports" / "made-up" / "made_up.html"
    assert capsys.readouterr().out == f"\nThe page is {page}\n"
    assert page.is_file()


def test_the_command_publishes_nothing_where_there_is_a_problem_and_ends_with_1(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    with_results(machine, tmp_path_factory).rewrite('bench.show("second")', 'raise SystemExit("no")')
    assert machine.command("publish") == 1
    assert "fluxbench: cell other failed: it ended with exit code 1: no\n" in capsys.readouterr().err
    assert not (machine.folder / "reports").exists()
    assert machine.output.is_dir()  # the page says what is wrong


def test_links_to_artifacts_in_folders_lead_somewhere_too(machine: Machine, reports: Path) -> None:
    machine.rewrite("id=other needs=second", "id=other needs=second outputs=plots/a.svg")
    machine.rewrite('bench.show("second")', 'os.mkdir("plots"); open("plots/a.svg", "w").write("<svg></svg>")')
    page = publish(machine.build(), reports, "made-up")
    assert "made_up/artifacts/other/plots/a.svg" in links(page)
    assert [link for link in links(page) if not (page.parent / link).is_file()] == []


def test_two_cells_that_leave_records_of_one_name_are_refused_and_nothing_is_lost(
    machine: Machine, reports: Path
) -> None:
    publish(machine.build(), reports, "made-up")
    before = tree(reports)
    for name in ("figure needs=first outputs=figure.svg,table.csv", "other needs=second"):
        machine.rewrite(f"id={name}", f"id={name.partition(' outputs')[0]} outputs=data.json")
    machine.rewrite('bench.show("first")', 'open("data.json", "w").write("1")')
    machine.rewrite('bench.show("second")', 'open("data.json", "w").write("2")')
    with pytest.raises(SetupError, match=r"two cells must not leave records of the same name, got 'data.json'"):
        publish(machine.build(), reports, "made-up")
    assert tree(reports) == before


def test_a_published_page_links_to_those_pages_of_the_site_that_are_there(built: Built, reports: Path) -> None:
    assert "../" not in "".join(links(publish(built, reports, "made-up")))
    (reports / "index.html").write_text("the site", encoding="utf-8")
    assert [link for link in links(publish(built, reports, "made-up")) if link.startswith("../")] == ["../index.html"]
