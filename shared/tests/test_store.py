"""What is kept of a cell's runs, which run is served, and what damage costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from notebooks import Machine, listing
from sample_records import make_record

from fluxbench.notebook.document import load
from fluxbench.notebook.store import Result, Store
from fluxbench.records import schema as records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def store_of(folder: Path, name: str = "some") -> Store:
    """Return the store of a notebook as a new process finds it."""
    path = folder / f"{name}.md"
    path.write_text("".join(f"```python id={cell}\n1\n```\n" for cell in ("a", "a-b", "a_1")), encoding="utf-8")
    return Store(load(path))


def add(
    folder: Path,
    cell_id: str = "a",
    *,
    name: str = "some",
    failure: str | None = None,
    text: str = "a result",
    ran_at: str = "2026-11-21T12:00:00+00:00",
) -> Result:
    """Keep one run of a cell, with two artifacts, one of them in a folder."""
    source = folder / "source.txt"
    source.write_text(text, encoding="utf-8")
    return store_of(folder, name).add(
        cell_id,
        artifacts={"artifact.txt": source, "below/it.txt": source},
        stdout="π\r\n<b>",
        stderr="",
        duration_s=1.5,
        failure=failure,
        ran_at=ran_at,
        depends={"driver": "580.65.06"},
        inputs={"b": 3},
    )


def text_of(result: Result | None) -> str:
    assert result
    return (result.folder / "below" / "it.txt").read_text(encoding="utf-8")


def test_a_result_is_read_back_as_it_was_kept(folder: Path) -> None:
    added = add(folder, text="a result")
    assert store_of(folder).latest("a") == added
    assert text_of(added) == "a result"
    assert dict(added.artifacts) == {"artifact.txt": 8, "below/it.txt": 8}


def test_numbers_rise_and_the_last_run_is_served_whatever_the_clock_said(folder: Path) -> None:
    times = ["2026-11-21T12:00:00+00:00", "2020-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00"]
    assert [add(folder, ran_at=ran_at).number for ran_at in times] == [1, 2, 3]
    last = store_of(folder).last_good("a")
    assert last
    assert (last.number, last.ran_at) == (3, "1970-01-01T00:00:00+00:00")


def test_numbers_rise_beyond_their_padding(folder: Path) -> None:
    add(folder).folder.rename(folder / ".uvnote" / "cache" / "some.a.99999")
    assert add(folder).number == 100000
    assert store_of(folder).numbers("a") == [100000, 99999]


def test_earlier_good_results_are_never_removed(folder: Path) -> None:
    for text in "abc":
        add(folder, text=text)
        add(folder, failure="it failed")
    assert [text_of(result) for result in store_of(folder).good("a")] == ["c", "b", "a"]


@pytest.mark.parametrize("failure", [None, "it failed again"])
def test_a_failed_run_is_kept_until_the_next(folder: Path, failure: str | None) -> None:
    good, failed = add(folder), add(folder, failure="it failed")
    assert store_of(folder).latest("a") == failed
    assert store_of(folder).last_good("a") == good
    following = add(folder, failure=failure)
    assert store_of(folder).numbers("a") == [following.number, good.number]
    assert not failed.folder.exists()


def test_a_cell_without_a_run_has_no_result(folder: Path) -> None:
    store = store_of(folder)
    assert (store.numbers("a"), store.latest("a"), store.last_good("a")) == ([], None, None)
    assert not (folder / ".uvnote").exists()


def test_cells_and_notebooks_whose_names_begin_alike_keep_apart(folder: Path) -> None:
    names = [("some", "a"), ("some", "a-b"), ("some", "a_1"), ("some.a", "a"), ("so", "a")]
    for name, cell_id in names:
        add(folder, cell_id, name=name, text=f"{name}/{cell_id}")
    for name, cell_id in names:
        assert text_of(store_of(folder, name).last_good(cell_id)) == f"{name}/{cell_id}"
        assert store_of(folder, name).numbers(cell_id) == [1]


def test_what_is_not_a_run_in_the_folder_is_no_result(folder: Path) -> None:
    add(folder)
    for name in ("0" * 64, "some.a.x", "some.a.1.2", "some.a.", ".some.a.00007.part"):
        (folder / ".uvnote" / "cache" / name).mkdir()
    assert store_of(folder).numbers("a") == [1]


def test_what_a_killed_run_left_half_done_is_cleared_away_and_nothing_else(folder: Path) -> None:
    add(folder)
    before = listing(folder / ".uvnote" / "cache")
    half, other = (folder / ".uvnote" / "cache" / f".{name}.a.00002.part" for name in ("some", "other"))
    for part in (half, other):
        part.mkdir()
        (part / "artifact.txt").write_text("hal", encoding="utf-8")
    store_of(folder).clear_parts()
    assert not half.exists()
    assert other.exists()
    assert listing(folder / ".uvnote" / "cache").keys() - before.keys() == {other.name, f"{other.name}/artifact.txt"}
    assert add(folder).number == 2


# Damage.


def half_a_result(result: Result) -> None:
    text = (result.folder / "result.json").read_text(encoding="utf-8")
    (result.folder / "result.json").write_text(text[: len(text) // 2], encoding="utf-8")


def no_result(result: Result) -> None:
    (result.folder / "result.json").unlink()


def a_result_of_another_kind(result: Result) -> None:
    (result.folder / "result.json").write_text("[1, 2]", encoding="utf-8")


def a_result_without_a_field(result: Result) -> None:
    fields = json.loads((result.folder / "result.json").read_text(encoding="utf-8"))
    del fields["inputs"]
    (result.folder / "result.json").write_text(json.dumps(fields), encoding="utf-8")


def a_result_that_is_not_text(result: Result) -> None:
    (result.folder / "result.json").write_bytes(b"\xff\xfe\x00")


def an_artifact_cut_short(result: Result) -> None:
    name = next(iter(result.artifacts))
    (result.folder / name).write_bytes((result.folder / name).read_bytes()[:-1])


def no_artifact(result: Result) -> None:
    (result.folder / next(iter(result.artifacts))).unlink()


def nothing(result: Result) -> None:
    for path in [*result.folder.rglob("*.*")]:
        path.unlink()


DAMAGE = [
    half_a_result,
    no_result,
    a_result_of_another_kind,
    a_result_without_a_field,
    a_result_that_is_not_text,
    an_artifact_cut_short,
    no_artifact,
    nothing,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_result_is_none_and_the_one_before_is_served(folder: Path, damage: Callable[[Result], None]) -> None:
    before, last = add(folder), add(folder)
    damage(last)
    store = store_of(folder)
    assert store.latest("a") is None
    assert store.last_good("a") == before
    assert add(folder).number == 3


def test_a_cell_whose_last_result_is_damaged_is_stale_and_is_mended_by_running_it(machine: Machine) -> None:
    machine.measures("first", make_record("torch_math", median_ms=3.0))
    machine.build("first")
    machine.measures("first", make_record("torch_math", median_ms=4.0))
    machine.build("first")
    an_artifact_cut_short(machine.good("first"))
    assert machine.states()["first"] == "stale"
    assert machine.reasons("first") == ("its last result is damaged; this is the one before",)
    machine.build("second")  # which draws the page and leaves the damage
    assert "[Not as this machine is now: its last result is damaged; this is the one before." in machine.shown("first")
    assert "torch_math: 3.0 ms" in machine.shown("first")
    machine.build("first")
    assert machine.states()["first"] == "fresh"
    assert "torch_math: 4.0 ms" in machine.shown("first")


def test_a_cell_whose_only_result_is_damaged_counts_as_not_run(machine: Machine) -> None:
    machine.build("first")
    half_a_result(machine.good("first"))
    assert machine.states()["first"] == "not run"
    assert machine.reasons("first") == ("its result is damaged",)


def test_a_result_knows_its_records_and_says_none_of_damaged_ones(machine: Machine) -> None:
    machine.measures("first", make_record("torch_math"), make_record("flex"))
    machine.build("first")
    result = machine.good("first")
    assert [record.variant for record in result.records or ()] == ["torch_math", "flex"]
    assert list(result.records or ()) == records.read(result.folder / "first.jsonl")
    path = result.folder / "first.jsonl"
    path.write_bytes(b"x" * path.stat().st_size)
    assert machine.good("first").records is None
