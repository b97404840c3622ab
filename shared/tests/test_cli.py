"""The command line: exit codes, sentences, and what it loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from notebooks import Capture, Machine, listing

from fluxbench import cli
from fluxbench.core.files import write_text
from fluxbench.records import files
from fluxbench.records.schema import SUSTAINED, Flag, Record
from fluxbench.records.status import FlagKind

NO_ENERGY = Flag(kind=FlagKind.NO_ENERGY, regime=SUSTAINED)
PUBLISHED = Path(__file__).resolve().parents[2] / "reports" / "h200" / "flux" / "records"


def fill(folder: str, slower: float, method_version: int | None = None, **facts: str) -> None:
    """Write a published folder with one cell's records, as they would be of a slower device."""
    path = Path(folder, "flux", "records")
    path.mkdir(parents=True)
    made = [_slower(one, slower) for one in files.read(PUBLISHED / "triton.jsonl")]
    made = [
        replace(
            one,
            method_version=one.method_version if method_version is None else method_version,
            fingerprint={**one.fingerprint, **facts},
            versions={**one.versions, "driver": facts.get("driver", one.versions["driver"])},
        )
        for one in made
    ]
    files.write(path / "triton.jsonl", made)


def _slower(of: Record, by: float) -> Record:
    timings = {
        regime: replace(
            timing,
            median_ms=timing.median_ms * by,
            ci95_ms=tuple(end * by for end in timing.ci95_ms),
            samples_ms=tuple(tuple(sample * by for sample in part) for part in timing.samples_ms),
        )
        for regime, timing in of.timings.items()
    }
    return replace(of, timings=timings, energy_mj=None, energy_ci95_mj=None, flags=(NO_ENERGY, *of.flags))


def test_a_build_names_the_page_and_each_problem(machine: Machine, capsys: Capture) -> None:
    machine.write("id=a")
    assert machine.command("build") == 0
    out, err = capsys.readouterr()
    assert out == f"\nThe page is {machine.output / 'made_up.html'}\n"
    assert err.splitlines()[0] == "cell a will run: it was never run here"
    machine.write("id=a: raise SystemExit(3)", "id=b needs=a")
    assert machine.command("build") == 1
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "fluxbench: cell a failed: it ended with exit code 3",
        "fluxbench: cell b was not run: it needs a, which failed",
    ]


@pytest.mark.parametrize("command", [["build"], ["publish"], ["status"], ["status", "--json"], ["rerun", "first"]])
def test_a_command_that_cannot_begin_changes_nothing(machine: Machine, capsys: Capture, command: list[str]) -> None:
    before = listing(machine.folder)
    name, *rest = command
    assert cli.main([name, str(machine.folder / "missing.md"), *rest]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    there = f"those of {machine.notebook.parent} are made_up.md"
    assert err == f"fluxbench: there is no notebook {machine.folder / 'missing.md'}; {there}\n"
    assert listing(machine.folder) == before


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_folders_are_compared_and_what_differs_is_printed(here: Path, capsys: Capture) -> None:
    fill("before", 1.0)
    fill("afterwards", 2.0, driver="999.9")
    assert cli.main(["diff", "before", "afterwards"]) == 0
    out = capsys.readouterr().out
    assert " -> 999.9" in out
    assert "slower" in out
    assert cli.main(["diff", "before", "afterwards", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["change"]["verdict"] == "slower"


@pytest.mark.parametrize(
    ("changes", "after", "reason"),
    [
        ({"device": "NVIDIA A100"}, "afterwards", "Nothing was compared: they were measured on different devices: "),
        ({"method_version": 99}, "afterwards", "Nothing was compared: they were not measured in the same way: "),
        ({}, "nowhere", "a report must be the folder of a published page"),
        ({}, "before@x", "the revision of 'before' must be in its history, which is empty, or known to git, got 'x'"),
    ],
)
def test_what_is_not_comparable_is_refused(
    here: Path, changes: dict[str, Any], after: str, reason: str, capsys: Capture
) -> None:
    fill("before", 1.0)
    fill("afterwards", 2.0, **changes)
    assert cli.main(["diff", "before", after]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"fluxbench: {reason}")


def test_an_impossible_time_ends_the_audit_with_1_and_no_table_with_2(here: Path, capsys: Capture) -> None:
    head = "gpu,batch,seq_len,heads,head_dim,dtype,median_ms\n"
    write_text(here / "possible.csv", f"{head}NVIDIA H200,1,4096,24,128,bfloat16,2.0\n")
    write_text(here / "impossible.csv", f"{head}NVIDIA H200,1,4096,24,128,bfloat16,0.001\n")
    (here / "picture.csv").write_bytes(b"\x89PNG\r\n\xff\xfe")
    assert cli.main(["audit", "possible.csv"]) == 0
    counts = "0 impossible, 0 contradictory, 0 wrong under an assumption, 0 implausible, 0 not decidable, 1 fine"
    assert capsys.readouterr().out == f"possible.csv: 1 row: {counts}\n"
    assert cli.main(["audit", "impossible.csv", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["found"][0]["line"] == 2
    for name, rule in (("picture.csv", "be a CSV: "), ("missing.csv", "exist, got No such file or directory; ")):
        assert cli.main(["audit", name]) == 2
        assert capsys.readouterr().err.startswith(f"fluxbench: {name} must {rule}")
