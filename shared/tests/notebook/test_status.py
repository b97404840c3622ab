"""What `fluxbench status` prints of results on a machine that has changed since, and that it changes nothing itself."""

from __future__ import annotations

import dataclasses
import fcntl
import json
from typing import Any

import pytest
from fakes import REPOSITORY
from notebooks import ALL, DRIVER, NEWER, Capture, Machine, listing
from sample_records import record

from fluxbench.notebook.status import CellStatus, NotebookStatus, VariantStatus
from fluxbench.notebook.store import Result
from fluxbench.records import files
from fluxbench.records.status import Status

SHOWN = tuple[str, list[str]]


def status(machine: Machine, capsys: Capture) -> dict[str, SHOWN]:
    """Return what `status` prints of each cell: its state and reasons; text and JSON must agree."""
    capsys.readouterr()
    code = machine.command("status", "--json")
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if data["fresh"] else 1)
    assert machine.command("status") == code
    text = " ".join(capsys.readouterr().out.split())
    assert all(f" {reason} " in text for cell in data["cells"] for reason in cell["reasons"])
    return {cell["cell"]: (cell["state"], cell["reasons"]) for cell in data["cells"]}


def test_after_a_build_all_is_fresh_and_before_it_nothing_was_run(machine: Machine, capsys: Capture) -> None:
    assert machine.command("status") == 1
    out = capsys.readouterr().out
    assert "\nnot run: first, second, figure, other\n  it was never run here\n" in out  # one reason for all
    assert out.endswith("\n\n4 of 4 cells are not fresh.\n")
    assert [path.name for path in machine.notebook.parent.iterdir()] == ["made_up.md"]
    machine.build()
    assert machine.command("status") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"made_up.md on NVIDIA Made Up, driver {DRIVER} (target made-up)\n")
    assert out.endswith("\nAll cells are fresh.\n")


def test_the_text_has_cells_that_are_alike_together_and_variants_by_what_they_gave() -> None:
    def cell(
        name: str, state: str, reasons: tuple[str, ...], hour: int | None, **statuses: dict[str, int]
    ) -> CellStatus:
        variants = tuple(VariantStatus(variant=one, state=state, statuses=of) for one, of in statuses.items())
        ran_at = None if hour is None else f"2026-11-29T0{hour}:00:00+00:00"
        return CellStatus(cell=name, state=state, reasons=reasons, ran_at=ran_at, variants=variants)

    changed, needs = ("driver 1 -> 2", "torch 1 -> 2"), ("it needs sdpa, which is stale",)
    cells = (
        cell("answer", "stale", needs, 5),
        cell(
            "sdpa", "stale", changed, 1, math={"PASSED": 3}, cudnn={"UNSUPPORTED": 3}, flash={"PASSED": 3}, efficient={}
        ),
        cell("ranking", "stale", needs, 6),
        cell("flex", "stale", changed, 2, flex={"PASSED": 2, "TIMEOUT": 1}),
        cell("rates", "stale", changed, 3),
        cell("te", "not run", ("it was never run here",), None, te_fused={}),
    )
    found = NotebookStatus(notebook="flux.md", target="h200", device="NVIDIA H200", driver="2", cells=cells)
    assert found.text().splitlines() == [
        "flux.md on NVIDIA H200, driver 2 (target h200)",
        "",
        "stale: sdpa, flex, rates",
        "  driver 1 -> 2",
        "  torch 1 -> 2",
        "      sdpa, 2026-11-29 01:00:00 UTC. math, flash: 3 PASSED; cudnn: 3 UNSUPPORTED; efficient: no record",
        "      flex, 2026-11-29 02:00:00 UTC. flex: 2 PASSED, 1 TIMEOUT",
        "      rates, 2026-11-29 03:00:00 UTC",
        "",
        "not run: te",
        "  it was never run here",
        "      te: te_fused",
        "",
        "stale: answer, ranking",
        "  it needs sdpa, which is stale",
        "      2026-11-29 05:00:00 UTC to 2026-11-29 06:00:00 UTC",
        "",
        "6 of 6 cells are not fresh.",
    ]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"driver": NEWER}, f"driver {DRIVER} -> {NEWER}"),
        (
            {"driver": NEWER, "name": "NVIDIA A100"},  # whose driver is not compared
            "measured on another device: NVIDIA Made Up -> NVIDIA A100",
        ),
    ],
)
def test_a_new_driver_is_all_stale(built: Machine, capsys: Capture, changes: dict[str, str], difference: str) -> None:
    built.has(**changes)
    cells = status(built, capsys)
    assert cells["first"] == ("stale", [difference])
    assert cells["figure"] == ("stale", [difference, "it needs first, which is stale"])
    assert built.build().problems == ()
    assert built.ran() == ALL
    assert set(built.states().values()) == {"fresh"}


def test_a_chosen_torch_is_stale_and_says_what_it_brings(built: Machine, capsys: Capture) -> None:
    built.settings = dataclasses.replace(built.settings, torch="2.15.0")
    state, reasons = status(built, capsys)["first"]
    assert state == "stale"
    assert reasons[2:] == ["triton 3.7.1 -> 3.9.0", "torch 2.13.0 -> 2.15.0"]
    assert [reason.split()[0] for reason in reasons[:2]] == ["nvidia-cublas", "nvidia-cudnn-cu13"]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"package.torch": "2.11.0"}, "torch 2.11.0 -> 2.13.0"),
        ({"workloads": "some"}, "workloads some -> flux1-1024px-t128 "),
        ({"cell": "1234"}, "the cell's source changed"),
    ],
)
def test_another_measurement_says_so(machine: Machine, capsys: Capture, facts: dict[str, str], reason: str) -> None:
    machine.measures("first", record("torch_math"), facts=facts)
    machine.build("first")
    state, (found,) = status(machine, capsys)["first"]
    assert state == "stale"
    assert found.startswith(reason)


def test_code_that_changes_while_a_cell_measures_leaves_no_fresh_result(built: Machine, capsys: Capture) -> None:
    path = built.good("first").folder / "result.json"
    text = path.read_text(encoding="utf-8").replace(f'"driver": "{DRIVER}"', '"driver": "570.1"')
    path.write_text(text, encoding="utf-8")
    assert status(built, capsys)["first"] == ("stale", [f"while it ran, driver 570.1 -> {DRIVER}"])


def test_code_that_changed_makes_stale_what_shows_by_it_and_nothing_else(machine: Machine) -> None:
    machine.write('id=shows: # /// script\n# dependencies = ["fluxbench"]\n# ///', "id=prints")
    machine.build()
    assert machine.states() == {"shows": "fresh", "prints": "fresh"}
    path = machine.good("shows").folder / "result.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    code = {key for key in fields["depends"] if key.startswith("code.")}
    assert {"code.report", "code.analysis"} < code
    assert not {"code.worker", "code.timing", "code.notebook"} & code
    assert not any(key.startswith("code.") for key in machine.good("prints").run.depends)
    fields["depends"]["code.report"] = "0123"
    path.write_text(json.dumps(fields), encoding="utf-8")
    assert machine.states() == {"shows": "stale", "prints": "fresh"}
    assert machine.reasons("shows") == ("report changed",)


@pytest.mark.parametrize(
    ("old", "new", "reasons"),
    [
        ("outputs=figure.svg,table.csv", "outputs=figure.svg", ["the cell's first line changed"]),
        ("needs=first outputs", "needs=first deps=numpy outputs", ["the cell's first line changed"]),
        ("needs=first", "needs=first,second", ["it now needs second"]),
        ("needs=first", "", ["it no longer needs first"]),
        ("outputs=figure.svg,table.csv", "outputs=table.csv,figure.svg collapse-code=true", []),
        ('bench.show("first")', 'bench.show("first")  # as before', ["the cell's source changed"]),
    ],
)
def test_a_changed_cell_may_be_stale(built: Machine, capsys: Capture, old: str, new: str, reasons: list[str]) -> None:
    built.rewrite(old, new)
    assert status(built, capsys)["figure"] == ("stale" if reasons else "fresh", reasons)


def test_a_lock_beside_the_notebook_counts_as_it_does_for_uv(built: Machine, capsys: Capture) -> None:
    lock = built.notebook.with_name("uv.lock")
    lock.write_text("version = 1\n", encoding="utf-8")
    assert status(built, capsys)["figure"][0] == "stale"
    built.build("figure")
    assert status(built, capsys)["figure"] == ("fresh", [])
    lock.write_text("version = 2\n", encoding="utf-8")
    assert status(built, capsys)["figure"] == ("stale", ["lock uv.lock changed"])


def test_a_cell_that_reads_a_notebook_depends_on_its_last_good_results(built: Machine, capsys: Capture) -> None:
    own = built.notebook
    built.notebook = own.with_name("reader.md")
    built.write('id=a: # /// script\n# [tool.fluxbench]\n# reads = ["made_up", "missing"]\n# ///')
    built.build()
    reader, built.notebook = built.notebook, own
    built.build("figure")
    built.notebook = reader
    assert status(built, capsys)["a"] == ("fresh", [])
    built.notebook = own
    built.build("first")
    built.notebook = reader
    second = "made_up.second.00001"
    reason = f"results of other notebooks made_up.first.00001, {second} -> made_up.first.00002, {second}"
    assert status(built, capsys)["a"] == ("stale", [reason])


@pytest.mark.parametrize("already", [False, True])
def test_a_cell_that_was_edited_to_use_fluxbench_is_of_no_older_fluxbench(machine: Machine, already: bool) -> None:
    cells = [f"id=a: # /// script\n# dependencies = [{each}]\n# ///\nprint()" for each in ("", '"fluxbench"')]
    machine.write(cells[already])
    machine.build()
    machine.write(cells[not already])
    assert machine.reasons("a") == ("the cell's source changed",)


def replace_artifact(result: Result, name: str, content: bytes) -> None:
    """Let a result hold something else, as if its cell had left it."""
    (result.folder / name).write_bytes(content)
    fields = json.loads((result.folder / "result.json").read_text(encoding="utf-8"))
    fields["artifacts"][name] = len(content)
    (result.folder / "result.json").write_text(json.dumps(fields), encoding="utf-8")


def test_a_result_of_an_older_fluxbench_is_stale_and_no_error(built: Machine, capsys: Capture) -> None:
    old = REPOSITORY / "reports" / "h200" / "flux" / "history" / "2026-11-21T110103Z"
    result = built.good("first")
    [path] = [path for path in files.paths(old) if files.cell_of(path) == "flex"]
    line = files.read_bytes(path).splitlines()[0]
    replace_artifact(result, "first.jsonl", line + b"\n")
    state, reasons = status(built, capsys)["first"]
    assert state == "stale"
    assert reasons[-1] == "measured by an older fluxbench"
    assert built.build("second").problems == ()  # the page shows it


@pytest.mark.parametrize("outcome", Status)
def test_only_failures_that_may_pass_the_next_time_are_retryable(machine: Machine, outcome: Status) -> None:
    beside = Status.UNSUPPORTED if outcome is Status.UNAVAILABLE else Status.PASSED
    machine.measures("first", record("torch_math", status=beside), record("flex", status=outcome))
    machine.build("first")
    if outcome in (Status.PASSED, Status.INCORRECT, Status.UNSUPPORTED):
        assert machine.states()["first"] == "fresh"
    else:
        assert machine.states()["first"] == "retryable"
        assert machine.reasons("first") == (f"its failures are retryable: flex {outcome}",)


def test_a_library_that_an_environment_lacks_is_not_looked_for_again_beside_variants_that_passed(
    machine: Machine,
) -> None:
    machine.measures("first", record("torch_math"), record("flex", status=Status.UNAVAILABLE))
    machine.build("first")
    assert machine.states()["first"] == "fresh"


@pytest.mark.parametrize("measures", ["rates", "trials"])
@pytest.mark.parametrize(
    ("rest", "state", "reasons"),
    [
        ({}, "fresh", ()),
        ({"reason": "no uv"}, "retryable", ("its failures are retryable: no uv",)),
        ({"fingerprint": {"driver": DRIVER, "code.timing": "1"}}, "stale", None),
    ],
)
def test_a_cell_without_records(
    machine: Machine, measures: str, rest: dict[str, Any], state: str, reasons: tuple[str, ...] | None
) -> None:
    variants = "" if measures == "rates" else '\n# variants = ["torch_flash"]'
    machine.rewrite('variants = ["torch_math"]', f'measures = "{measures}"{variants}')
    machine.rewrite("outputs=first.jsonl,first.control.json", f"outputs={measures}.json")
    left = f"""open("{measures}.json", "w").write('{{"made_up": 1}}')"""
    machine.rewrite("bench.measure()\n```\n\n```python id=second", f"{left}\n```\n\n```python id=second")
    machine.build("first")
    assert machine.reasons("first") == ("its records are missing",)
    result = machine.good("first")
    depends = {key: value for key, value in result.run.depends.items() if key != "attributes"}
    replace_artifact(result, f"{measures}.json", json.dumps({"fingerprint": depends, **rest}).encode())
    assert machine.states()["first"] == state
    assert reasons is None or machine.reasons("first") == reasons


@pytest.mark.parametrize("driver", [DRIVER, NEWER])
def test_asking_writes_and_starts_nothing(built: Machine, monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    built.has(driver=driver)
    monkeypatch.delenv("UV")  # which is not even looked for

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"a process was started: {arguments}")

    for name in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        monkeypatch.setattr(name, refuse)
    before = listing(built.folder)
    with (built.notebook.parent / ".uvnote" / "fluxbench.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert built.command("status") == (0 if driver == DRIVER else 1)
    assert listing(built.folder) == before
