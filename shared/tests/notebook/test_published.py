"""A showing cell is stale once published records change that it reads, and not once its own page is published."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from notebooks import Machine
from sample_records import record

from fluxbench.notebook.publish import publish
from fluxbench.records import files

USES = '# /// script\n# dependencies = ["fluxbench"]\n# ///'
READS = USES.removesuffix("///") + 'tool.fluxbench.reads = ["flux"]\n# ///'
CHANGED = ("the published records that it reads changed",)


@pytest.fixture
def gathering(machine: Machine) -> Machine:
    """A built notebook of two measuring cells, one that gathers their records, and one that draws what it gathered."""
    build(machine, {"results needs=first,second": USES, "drawn needs=results": USES})
    assert set(machine.states().values()) == {"fresh"}
    return machine


def build(machine: Machine, cells: dict[str, str]) -> None:
    """Build the notebook of the machine with other showing cells, by their first lines."""
    text = machine.notebook.read_text(encoding="utf-8").partition("```python id=figure")[0]
    text += "\n".join(f"```python id={first}\n{code}\n```\n" for first, code in cells.items())
    machine.notebook.write_text(text, encoding="utf-8")
    machine.build()


def write(machine: Machine, place: str, ms: float = 1.0) -> Path:
    """Publish a record at a place below the reports."""
    path = machine.folder / "reports" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, [record("flex", sustained_ms=ms)])
    return path


@pytest.mark.parametrize("folder", ["records", "history/2026-01-21T104512Z"])
def test_what_gathers_records_is_stale_once_those_of_its_page_change_here_or_in_its_history(
    gathering: Machine, folder: str
) -> None:
    path = write(gathering, f"made-up/made_up/{folder}/flex.jsonl")
    assert gathering.reasons("results") == CHANGED
    assert gathering.reasons("drawn") == ("it needs results, which is stale",)
    gathering.build()
    assert set(gathering.states().values()) == {"fresh"}
    (path.parent / "flex.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert set(gathering.states().values()) == {"fresh"}  # the same records, compressed
    write(gathering, f"made-up/made_up/{folder}/flex.jsonl", ms=2.0)
    assert gathering.states() == {"first": "fresh", "second": "fresh", "results": "stale", "drawn": "stale"}


@pytest.mark.parametrize(
    "place", ["h200/made_up/records/a.jsonl", "made-up/flux/records/a.jsonl", "made-up/made_up/records/a.samples.json"]
)
def test_what_is_published_of_another_device_or_notebook_or_not_read_makes_nothing_stale(
    gathering: Machine, place: str
) -> None:
    write(gathering, place)
    assert set(gathering.states().values()) == {"fresh"}


def test_publishing_a_page_and_the_next_one_makes_nothing_stale(gathering: Machine) -> None:
    for ms in (1.0, 2.0, 3.0):
        gathering.measures("first", record("torch_math", sustained_ms=ms))
        publish(gathering.build("first"), gathering.folder / "reports", "made-up")
        assert set(gathering.states().values()) == {"fresh"}
    assert len(list((gathering.folder / "reports").glob("made-up/made_up/history/*/first.jsonl.gz"))) == 2


def test_a_cell_that_reads_another_notebook_depends_on_what_is_published_of_it(machine: Machine) -> None:
    build(machine, {"reads": READS, "other": USES})
    write(machine, "made-up/flux/records/flex.jsonl")
    assert (machine.reasons("reads"), machine.states()["other"]) == (CHANGED, "fresh")


def test_where_nothing_is_measured_all_published_records_are_read(machine: Machine) -> None:
    machine.write(f"id=audit: {USES}", "id=other")
    machine.build()
    write(machine, "h200/flux/history/1/flex.jsonl")
    assert machine.states() == {"audit": "fresh", "other": "fresh"}
    write(machine, "h200/flux/records/flex.jsonl")
    assert machine.states() == {"audit": "stale", "other": "fresh"}
