"""What `fluxbench status` says of results on a machine that has changed since, and that it changes nothing itself."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from notebooks import ALL, DRIVER, NEWER, Machine, listing, nvml
from sample_records import make_record

from fluxbench.notebook.status import status as status_of
from fluxbench.records import fingerprint
from fluxbench.records.schema import Status


def test_after_a_build_all_is_fresh_and_the_exit_code_is_0(built: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert built.command("status") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"made_up.md on NVIDIA Made Up, driver {DRIVER} (target made-up)\n")
    assert out.endswith("\nAll is fresh.\n")


def test_before_a_build_nothing_was_run_and_the_exit_code_is_1(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert machine.command("status") == 1
    out = capsys.readouterr().out
    assert out.count("it was never run here") == 4
    assert "4 of 4 cells are not fresh." in out


def test_variants_are_listed_with_their_cells_state_and_what_became_of_them(machine: Machine) -> None:
    machine.rewrite('bench.measure("torch_math")', 'bench.measure("torch_math", "flex", "triton_flash")')
    machine.measures(
        "first",
        make_record("torch_math"),
        make_record("torch_math", "flux1-1024px-t128"),
        make_record("flex", status=Status.UNSUPPORTED),
    )
    machine.build("first")
    (first, *_) = status_of(machine.notebook, machine.settings).cells
    assert [(each.variant, each.state, each.statuses) for each in first.variants] == [
        ("torch_math", "fresh", {"PASSED": 2}),
        ("flex", "fresh", {"UNSUPPORTED": 1}),
        ("triton_flash", "fresh", {}),
    ]


# What differs, and how it is said.


def said(machine: Machine, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, list[str]]]:
    """Return what `status` prints of each cell: its state and reasons; the JSON must say the same."""
    code = machine.command("status", "--json")
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if data["fresh"] else 1)
    assert machine.command("status") == code
    text = capsys.readouterr().out
    for each in data["cells"]:
        assert all(f"    {reason}\n" in text for reason in each["reasons"])
    return {each["cell"]: (each["state"], each["reasons"]) for each in data["cells"]}


def test_a_new_driver_makes_every_cell_stale(built: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    built.driver(NEWER)
    found = said(built, capsys)
    difference = f"driver {DRIVER} -> {NEWER}"
    assert found["first"] == ("stale", [difference])
    assert found["figure"] == ("stale", [difference, "it needs first, which is stale"])
    assert [state for state, _ in found.values()] == ["stale"] * 4


def test_another_device_is_named_once_and_its_driver_is_not_compared(
    built: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml(monkeypatch, driver=NEWER, name="NVIDIA H200")
    _, reasons = said(built, capsys)["first"]
    assert reasons[0] == "measured on another device: NVIDIA Made Up -> NVIDIA H200"
    assert [reason for reason in reasons if "driver" in reason] == []


def test_another_version_of_a_measured_package_is_named(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.measures("first", make_record("torch_math"), marks={"package.torch": "2.11.0"})
    machine.build("first")
    assert said(machine, capsys)["first"] == ("stale", ["torch 2.11.0 -> 2.13.0"])


def copied_package(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the package whose files are hashed from then on in place of those that run."""
    copy = machine.folder / "fluxbench"
    shutil.copytree(Path(fingerprint.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "_PACKAGE_ROOT", copy)
    return copy


@pytest.mark.parametrize("file", ["timing.py", "correctness.py", "kernels/sentinel.fatbin", "variants/torch_math.py"])
def test_measuring_code_that_changed_is_named(
    built: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    path = copied_package(built, monkeypatch) / file
    path.write_bytes(path.read_bytes() + b"\n")
    found = said(built, capsys)
    assert found["first"] == ("stale", [f"{file} changed"])
    assert found["figure"] == ("stale", ["it needs first, which is stale"])


def test_code_of_another_variant_leaves_a_cell_fresh(
    built: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied_package(built, monkeypatch) / "variants" / "triton_flash.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert said(built, capsys)["first"] == ("fresh", [])


def test_showing_code_that_changed_makes_what_it_draws_stale_and_no_measurement(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.rewrite('bench.show("first")', 'bench.show("first")  # as fluxbench does')
    copy = copied_package(machine, monkeypatch)
    machine.build("first")
    assert {state for state, _ in said(machine, capsys).values()} == {"fresh", "not run"}
    (copy / "tables.py").write_text("# another", encoding="utf-8")
    found = said(machine, capsys)
    assert found["first"] == ("fresh", [])
    assert found["figure"] == ("stale", ["tables.py changed"])
    (copy / "worker.py").write_text("# another", encoding="utf-8")
    found = said(machine, capsys)
    assert found["first"] == ("stale", ["worker.py changed"])
    assert found["figure"] == ("stale", ["tables.py changed", "it needs first, which is stale"])


def test_a_cell_that_changed_is_stale_and_so_is_what_needs_it(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    built.rewrite('bench.measure("torch_math")', 'bench.measure("torch_math")  # as before')
    found = said(built, capsys)
    assert found["first"] == ("stale", ["the cell's source changed"])
    assert found["figure"] == ("stale", ["it needs first, which is stale"])
    assert found["second"] == found["other"] == ("fresh", [])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("outputs=figure.svg,table.csv", "outputs=figure.svg", "the cell's first line changed"),
        ("needs=first outputs", "needs=first deps=numpy outputs", "the cell's first line changed"),
        ("needs=first", "needs=first,second", "it now needs second"),
        ("needs=first", "", "it no longer needs first"),
    ],
)
def test_a_first_line_that_asks_for_something_else_makes_its_cell_stale(
    built: Machine, capsys: pytest.CaptureFixture[str], old: str, new: str, reason: str
) -> None:
    built.rewrite(old, new)
    assert said(built, capsys)["figure"] == ("stale", [reason])


def test_the_order_of_outputs_and_what_is_collapsed_change_no_result(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    built.rewrite("outputs=figure.svg,table.csv", "outputs=table.csv,figure.svg collapse-code=true")
    assert said(built, capsys)["figure"] == ("fresh", [])


def test_other_workloads_make_measurements_stale(built: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    built.set(workloads=("flux1-512px",))
    state, (reason,) = said(built, capsys)["first"]
    assert state == "stale"
    assert reason.startswith("workloads flux1-1024px-t128 flux1-1024px-t256 ")
    assert " -> flux1-512px-t128 " in reason


def test_a_lock_beside_the_notebook_counts_as_it_does_for_uv(
    built: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = built.notebook.with_name("uv.lock")
    lock.write_text("version = 1\n", encoding="utf-8")
    assert said(built, capsys)["figure"][0] == "stale"
    built.build("figure")
    assert said(built, capsys)["figure"] == ("fresh", [])
    lock.write_text("version = 2\n", encoding="utf-8")
    assert said(built, capsys)["figure"] == ("stale", ["lock uv.lock changed"])


@pytest.mark.parametrize(("text", "reason"), [("", "its records are missing"), ("half", "its records are damaged")])
def test_a_measurement_without_whole_records_is_stale(
    built: Machine, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    folder = built.good("first").folder
    (folder / "first.jsonl").write_text(text, encoding="utf-8")
    fields = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    fields["artifacts"]["first.jsonl"] = len(text)
    (folder / "result.json").write_text(json.dumps(fields), encoding="utf-8")
    assert said(built, capsys)["first"] == ("stale", [reason])


def test_a_cell_whose_last_run_failed_says_so_with_its_own_sentence(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.rewrite('bench.measure("torch_math")', 'raise SystemExit("fluxbench: the GPU is on fire")')
    machine.build()
    found = said(machine, capsys)
    assert found["first"] == ("failed", ["its last run failed: the GPU is on fire"])
    assert found["figure"] == ("not run", ["it was never run here"])


def test_cells_of_a_cycle_say_so(built: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    built.rewrite("```python id=first outputs", "```python id=first needs=figure outputs")
    reason = "it needs cells that need it, or one that does"
    found = said(built, capsys)
    assert found["first"] == found["figure"] == ("stale", [reason])
    assert found["other"] == ("fresh", [])


RETRIED = {Status.UNAVAILABLE, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.CRASHED, Status.ERROR}


def test_a_variant_that_failed_in_a_way_that_may_pass_is_to_be_tried_again_and_no_other(machine: Machine) -> None:
    machine.rewrite("id=figure needs=first", "id=figure")
    for status in Status:
        machine.measures("first", make_record("torch_math"), make_record("flex", status=status))
        machine.build("first")
        if status in RETRIED:
            assert machine.states()["first"] == "to be tried again"
            assert machine.reasons("first") == (f"what failed may pass the next time: flex {status}",)
        else:
            assert machine.states()["first"] == "fresh"


# What cannot be asked, and what asking changes.


def test_a_notebook_that_is_not_there_ends_with_2_and_one_sentence(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.notebook.unlink()
    assert machine.command("status", "--json") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fluxbench: a notebook must be a readable Markdown file, got ")
    assert err.count("\n") == 1


def test_a_workload_that_is_not_known_ends_with_2(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.set(workloads=("flux1-1025px",))
    assert machine.command("status") == 2
    assert "did you mean 'flux1-1024px'?" in capsys.readouterr().err


@pytest.mark.parametrize("driver", [DRIVER, NEWER])
def test_asking_writes_nothing_and_starts_no_process(
    built: Machine, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    built.driver(driver)
    monkeypatch.delenv("UV")  # which is not even looked for

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"a process was started: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("os.fork", refuse)
    monkeypatch.setattr("os.posix_spawn", refuse)
    before = listing(built.folder)
    assert built.command("status") == (0 if driver == DRIVER else 1)
    assert built.command("status", "--json") == (0 if driver == DRIVER else 1)
    assert listing(built.folder) == before


def test_asking_before_the_first_build_makes_no_folder(machine: Machine) -> None:
    assert machine.command("status") == 1
    assert [path.name for path in machine.notebook.parent.iterdir()] == ["made_up.md"]


def test_asking_while_a_build_runs_is_answered(built: Machine) -> None:
    lock = built.notebook.parent / ".uvnote" / "fluxbench.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert built.states() == dict.fromkeys(ALL, "fresh")
        assert built.command("status") == 0
