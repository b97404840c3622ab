"""What is kept of a cell's runs, which run is used, and what damage costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from notebooks import Machine
from sample_records import record

from fluxbench.notebook.document import load
from fluxbench.notebook.store import Result, Run, Store


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
    good: int | None = None,
) -> Result:
    """Keep one run of a cell, with a display and two artifacts, one of them in a folder."""
    source = folder / "source"
    (source / "below").mkdir(parents=True, exist_ok=True)
    for artifact in ("artifact.txt", "below/it.txt"):
        (source / artifact).write_text(text, encoding="utf-8")
    run = Run(
        success=failure is None,
        stdout="π\r\n<b>",
        stderr="",
        duration=1.5,
        artifacts={},
        failure=failure,
        ran_at=ran_at,
        depends={"driver": "580.65.06", "cores": 2, "ecc": None},
        inputs={"b": 3},
    )
    artifacts = ("artifact.txt", "below/it.txt")
    return store_of(folder, name).add(cell_id, run, source, artifacts, f"<p>π {text}</p>", good)


def text_of(result: Result | None) -> str:
    assert result
    return (result.folder / "below" / "it.txt").read_text(encoding="utf-8")


def test_a_result_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    added = add(tmp_path)
    latest = store_of(tmp_path).latest("a")
    assert latest == added
    assert latest.display == "<p>π a result</p>"
    assert text_of(added) == "a result"
    assert added.run.artifacts == {"artifact.txt": 8, "below/it.txt": 8}
    assert added.run.depends == {"driver": "580.65.06", "cores": 2, "ecc": None}


def test_numbers_rise_and_the_last_run_is_used_whatever_the_clock(tmp_path: Path) -> None:
    times = ["2026-11-21T12:00:00+00:00", "2020-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00"]
    assert [add(tmp_path, ran_at=ran_at).number for ran_at in times] == [1, 2, 3]
    last = store_of(tmp_path).last_good("a")
    assert last
    assert (last.number, last.run.ran_at) == (3, "1970-01-01T00:00:00+00:00")


@pytest.mark.parametrize(("good", "kept"), [(None, "dcba"), (3, "dcb"), (1, "d")])
def test_earlier_good_results_are_kept_or_the_last_of_them(tmp_path: Path, good: int | None, kept: str) -> None:
    for text in "abcd":
        add(tmp_path, text=text, good=good)
        add(tmp_path, failure="it failed", good=good)
    assert "".join(text_of(result) for result in store_of(tmp_path).good("a")) == kept


@pytest.mark.parametrize("failure", [None, "it failed again"])
def test_a_failed_run_is_kept_until_the_next(tmp_path: Path, failure: str | None) -> None:
    good, failed = add(tmp_path), add(tmp_path, failure="it failed")
    assert store_of(tmp_path).latest("a") == failed
    assert store_of(tmp_path).last_good("a") == good
    following = add(tmp_path, failure=failure)
    assert store_of(tmp_path).numbers("a") == [following.number, good.number]
    assert not failed.folder.exists()


@pytest.mark.parametrize("step", ["shutil.copyfileobj", "os.fsync"], ids=["an artifact", "result.json"])
def test_a_run_that_cannot_be_kept_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    before = add(tmp_path)

    def full(*arguments: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(step, full)
        with pytest.raises(OSError, match="No space left") as refused:
            add(tmp_path)
    assert str(refused.value.filename).startswith(str(before.folder.parent))
    assert [path.name for path in before.folder.parent.iterdir()] == [before.folder.name]


def test_cells_and_notebooks_whose_names_begin_alike_are_kept_apart(tmp_path: Path) -> None:
    names = [("some", "a"), ("some", "a-b"), ("some", "a_1"), ("some.a", "a"), ("so", "a")]
    for name, cell_id in names:
        add(tmp_path, cell_id, name=name, text=f"{name}/{cell_id}")
    for name, cell_id in names:
        assert text_of(store_of(tmp_path, name).last_good(cell_id)) == f"{name}/{cell_id}"
        assert store_of(tmp_path, name).numbers(cell_id) == [1]


def test_what_is_not_a_run_is_no_result_and_what_a_killed_run_left_is_cleared_away(tmp_path: Path) -> None:
    add(tmp_path)
    cache = tmp_path / ".uvnote" / "cache"
    others = {"0" * 64, "some.a.x", "some.a.1.2", "some.a.", ".other.a.00002.part"}
    for name in (*others, ".some.a.00007.part"):
        (cache / name).mkdir()
    assert store_of(tmp_path).numbers("a") == [1]
    store_of(tmp_path).clear_parts()
    assert {path.name for path in cache.iterdir()} == {"some.a.00001", *others}
    assert add(tmp_path).number == 2


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Result], None]:
    def damage(result: Result) -> None:
        (result.folder / name).write_bytes(change((result.folder / name).read_bytes()))

    return damage


def without_inputs(content: bytes) -> bytes:
    fields = json.loads(content)
    del fields["inputs"]
    return json.dumps(fields).encode()


DAMAGE: dict[str, Callable[[Result], None]] = {
    "half a result": rewritten("result.json", lambda content: content[: len(content) // 2]),
    "a result without a field": rewritten("result.json", without_inputs),
    "a field of another type": rewritten("result.json", lambda content: content.replace(b"1.5", b'"1.5"')),
    "no result": lambda result: (result.folder / "result.json").unlink(),
    "an artifact cut short": rewritten("artifact.txt", lambda content: content[:-1]),
    "no artifact": lambda result: (result.folder / "below" / "it.txt").unlink(),
    "a display cut short": rewritten("display.html", lambda content: content[:-1]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_result_is_none_and_the_one_before_is_used(tmp_path: Path, damage: Callable[[Result], None]) -> None:
    before, last = add(tmp_path), add(tmp_path)
    damage(last)
    store = store_of(tmp_path)
    assert store.latest("a") is None
    assert store.last_good("a") == before
    assert add(tmp_path).number == 3


def test_a_cell_whose_last_result_is_damaged_is_stale_and_is_mended_by_running_it(machine: Machine) -> None:
    for sustained_ms in (3.0, 4.0):
        machine.measures("first", record("torch_math", sustained_ms=sustained_ms))
        machine.build("first")
    DAMAGE["half a result"](machine.good("first"))
    assert machine.states()["first"] == "stale"
    assert machine.reasons("first") == ("its last result is damaged; this is the one before",)
    machine.build("second")  # which draws the page and leaves the damage
    assert machine.shown("first").startswith("Stale on this machine: its last result is damaged; this is the one ")
    assert "torch_math: 3.0 ms" in machine.shown("first")
    machine.build("first")
    assert machine.states()["first"] == "fresh"
    assert "torch_math: 4.0 ms" in machine.shown("first")
