"""What a build that was stopped had measured of a cell, and how the next one goes on."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_workers import ALL_PASSED, WORKER, outcomes, played, requests, when
from fakes import REPOSITORY

from fluxbench.bench import unfinished
from fluxbench.bench.collected import Collected
from fluxbench.bench.unfinished import Unfinished
from fluxbench.core.settings import Settings
from fluxbench.environments.cell import Cell
from fluxbench.records.status import Status

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
STEADY = """
def mean_ms(name):
    return [1.0, 1.0005, 0.9995][process]
"""
Build = Callable[..., Collected]


def stopped_at(step: str, name: str, process: int) -> str:
    """Return a scenario in which the build's time is up when a worker is at a step of a variant."""
    at = f"(step, variant, process) == ({step!r}, {name!r}, {process})"
    return when(at, 'open("time-is-up", "w").close(); time.sleep(60)') + STEADY


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Measure a cell in a folder of its own, as a build does; `depends` is what its result depends on."""
    folders: list[Path] = []

    def build(scenario: str = STEADY, depends: str = "driver 580", **fields: Any) -> Collected:
        folder = tmp_path / f"build-{len(folders)}"
        folder.mkdir()
        folders.append(folder)
        monkeypatch.setattr(Collected, "is_late", lambda self, deadline: (folder / "time-is-up").exists())
        collected = Collected()
        with Unfinished.of(settings(tmp_path), CELL, {"driver": depends}) as kept:
            if kept:
                kept.resume(collected)
            return played(folder, scenario, before=collected, **fields)

    return build


def settings(folder: Path) -> Settings:
    return Settings(root=REPOSITORY, cache=folder / "cache")


def asked(folder: Path) -> list[tuple[int, tuple[str, ...], str]]:
    return [(each.process, each.variants, "".join(each.probe)) for each in requests(folder)]


def test_a_cell_goes_on_after_what_was_timed_when_the_time_was_up(build: Build, tmp_path: Path) -> None:
    first = build(stopped_at("time", "c", 2))
    assert first.cut
    assert {pair: outcome for pair, outcome in outcomes(first).items() if outcome == "TIMEOUT"}.keys() == {
        "c at tiny",
        "c at tinier",
    }
    second = build()
    assert asked(tmp_path / "build-1") == [(2, ("c",), "")]
    assert (outcomes(second), second.cut, set(second.probed)) == (ALL_PASSED, False, {"a", "b", "c"})
    # In the third process the reference was timed beside "c" again: the ratio is of one process.
    assert [trial.worker for trial in second.taken("c", "tiny")] == [1, 2, 4]
    assert [trial.worker for trial in second.taken("b", "tiny")] == [1, 2, 3]
    assert second.beside(second.taken("c", "tiny")[2], "tiny")[0].worker == 4
    # What it had collected before it went on is the same.
    kept = [trial.timed for trial in second.trials][: len(first.trials)]
    assert kept == [trial.timed for trial in first.trials]
    assert second.checked["b", "tiny"] == first.checked["b", "tiny"]


@pytest.mark.parametrize(
    ("step", "left"),
    [("time", [(1, ("b", "c"), "abc"), (2, ("a", "b", "c"), "")]), ("probe", [(2, ("a", "b", "c"), "bc")])],
)
def test_capabilities_that_were_not_tried_are_tried_by_whoever_goes_on(
    build: Build, tmp_path: Path, step: str, left: list[tuple[int, tuple[str, ...], str]]
) -> None:
    build(stopped_at(step, "b", 1))
    second = build()
    assert asked(tmp_path / "build-1") == left
    assert (outcomes(second), set(second.probed)) == (ALL_PASSED, {"a", "b", "c"})


def test_capabilities_whose_trial_took_the_process_down_are_not_tried_again(build: Build, tmp_path: Path) -> None:
    dies = "    if (step, variant) == ('probe', 'b'):\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    build(stopped_at("time", "b", 2).replace(STEADY, dies + STEADY))
    assert set(build().probed) == {"a"}
    assert asked(tmp_path / "build-0")[1:] == [(1, ("a", "b", "c"), "abc"), (2, ("a", "b", "c"), "")]
    assert asked(tmp_path / "build-1") == [(2, ("b", "c"), "")]


def test_it_may_be_stopped_again_and_again(build: Build, tmp_path: Path) -> None:
    for variant, process in (("b", 0), ("c", 0), ("b", 1), ("c", 1), ("b", 2)):
        build(stopped_at("time", variant, process))
    assert outcomes(build()) == ALL_PASSED
    of_builds = [asked(tmp_path / f"build-{number}") for number in range(6)]
    assert [[process for process, *_ in its] for its in of_builds] == [[0], [0], [0, 1], [1], [1, 2], [2]]
    every = ("a", "b", "c")
    assert [its[0][1] for its in of_builds] == [every, every[1:], every[2:], every[1:], every[2:], every[1:]]


def test_what_was_wrong_stays_so_and_a_variant_that_died_anywhere_is_measured_from_the_start(
    build: Build, tmp_path: Path
) -> None:
    scenario = stopped_at("time", "a", 2).replace(
        STEADY,
        """    if (step, variant) == ("check", "b"):
        return "fails"
    if (step, variant, workload, process) == ("check", "c", "tiny", 0):
        os.kill(os.getpid(), signal.SIGKILL)
"""
        + STEADY,
    )
    first = build(scenario)
    found = {pair: failed.status for pair, failed in first.failed.items() if pair[0] == "b" or pair == ("c", "tiny")}
    assert found == {
        ("b", "tiny"): Status.INCORRECT, ("b", "tinier"): Status.INCORRECT, ("c", "tiny"): Status.CRASHED,
    }  # fmt: skip
    second = build()
    assert [(process, names) for process, names, _ in asked(tmp_path / "build-1")] == [
        (0, ("c",)), (1, ("c",)), (2, ("a", "c")),
    ]  # fmt: skip
    assert {pair: outcome for pair, outcome in outcomes(second).items() if "b" not in pair.split()} == {
        pair: outcome for pair, outcome in ALL_PASSED.items() if "b" not in pair.split()
    }
    assert {name: failed.status for (name, _), failed in second.failed.items()} == {"b": Status.INCORRECT}


def test_what_lacked_memory_is_known_and_costs_nothing_of_what_was_timed(build: Build, tmp_path: Path) -> None:
    """Of the reference too: at that workload no variant has one, and both are tried again alone."""
    lacks = """    if (step, workload) == ("check", "tinier") and variant in ("a", "b"):
        emit("failed", variant=variant, workload=workload, status="OUT_OF_MEMORY", reason="there is too little")
        return "said"
"""
    fails = 'if before("check", name, workload) == "fails":'
    assert fails in WORKER
    worker = WORKER.replace(fails, 'said = before("check", name, workload)\n                if said == "said":\n'
                            '                    continue\n                if said == "fails":')  # fmt: skip
    first = build(stopped_at("time", "c", 2).replace(STEADY, lacks + STEADY), worker=worker)
    assert {pair for pair, failed in first.failed.items() if "there is too little" in failed.reason} == {
        ("a", "tinier"), ("b", "tinier"),
    }  # fmt: skip
    second = build(STEADY)
    assert asked(tmp_path / "build-1")[0][:2] == (2, ("c",))
    assert {pair: outcome for pair, outcome in outcomes(second).items() if pair.endswith("tiny")} == {
        f"{name} at tiny": "3" for name in "abc"
    }


def test_a_batch_after_the_one_in_which_the_time_was_up_begins_nothing_and_costs_nothing(
    build: Build, tmp_path: Path
) -> None:
    first = build(stopped_at("time", "b", 2))
    kept = (tmp_path / "cache/unfinished/flux-sdpa").glob("*")
    [before] = [path.read_bytes() for path in kept]
    (tmp_path / "next").mkdir()
    played(tmp_path / "next", "", names=("d", "e"), before=first)
    assert asked(tmp_path / "next") == []
    assert {failed.status for (name, _), failed in first.failed.items() if name in "de"} == {Status.TIMEOUT}
    assert [path.read_bytes() for path in (tmp_path / "cache/unfinished/flux-sdpa").glob("*")] == [before]


def test_a_death_is_known_as_soon_as_it_is_kept(build: Build, tmp_path: Path) -> None:
    """Where the build is killed at once after it: no later process goes on with what had died."""
    dies = """    if (step, variant, process) == ("check", "c", 1):
        os.kill(os.getpid(), signal.SIGKILL)
"""
    first = build(stopped_at("time", "b", 2).replace(STEADY, dies + STEADY))
    assert first.failed["c", "tiny"].status is Status.CRASHED
    [path] = (tmp_path / "cache/unfinished/flux-sdpa").glob("*")
    states = {timed["variant"] for _, timed in json.loads(gzip.decompress(path.read_bytes()))["trials"]}
    assert states == {"a", "b"}


def test_processes_of_other_packages_are_not_kept(build: Build, tmp_path: Path) -> None:
    other = WORKER.replace('"torch": "made up"', '"torch": "made up" if process else "another"')
    assert other != WORKER
    assert build(stopped_at("time", "c", 2), worker=other).others_versions
    assert list((tmp_path / "cache/unfinished/flux-sdpa").iterdir()) == []
    assert not build().others_versions


def test_without_the_reference_of_the_others_nothing_is_kept(build: Build, tmp_path: Path) -> None:
    dies = """    if (step, variant, workload, process) == ("check", "a", "tiny", 1):
        os.kill(os.getpid(), signal.SIGKILL)
"""
    build(stopped_at("time", "c", 2).replace(STEADY, dies + STEADY))
    assert list((tmp_path / "cache/unfinished/flux-sdpa").iterdir()) == []


@pytest.mark.parametrize("damage", ["half", "text", "boot", "old", "depends", "fields"])
def test_where_it_is_damaged_old_or_of_something_else_a_cell_begins_anew(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    build(stopped_at("time", "c", 2))
    [path] = (tmp_path / "cache/unfinished/flux-sdpa").iterdir()
    content = path.read_bytes()
    if damage == "half":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "text":
        path.write_bytes(b"no archive")
    elif damage == "fields":
        state = json.loads(gzip.decompress(content))
        path.write_bytes(gzip.compress(json.dumps({**state, "more": 1}).encode()))
    elif damage == "old":  # since it began, however late it was stopped
        state = json.loads(gzip.decompress(content))
        path.write_bytes(gzip.compress(json.dumps({**state, "since": time.time() - 25 * 3600}).encode()))
    elif damage == "boot":
        other = tmp_path / "boot_id"
        other.write_text("another boot", encoding="ascii")
        monkeypatch.setattr(unfinished, "_BOOT", other)
    second = build(depends="driver 590" if damage == "depends" else "driver 580")
    assert [process for process, *_ in asked(tmp_path / "build-1")] == [0, 1, 2]
    assert (outcomes(second), second.workers) == (ALL_PASSED, 3)


@pytest.mark.parametrize("why", ["in use", "local kernels", "no boot"])
def test_where_another_build_has_it_or_none_can_tell_whether_it_holds_a_cell_begins_anew_and_keeps_nothing(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    build(stopped_at("time", "c", 2))
    [path] = (tmp_path / "cache/unfinished/flux-sdpa").iterdir()
    before = path.read_bytes()
    with contextlib.ExitStack() as stack:
        if why == "in use":
            stack.enter_context(Unfinished.of(settings(tmp_path), CELL, {}))
        elif why == "local kernels":
            monkeypatch.setenv("LOCAL_KERNELS", "owner/name=folder")
        else:
            monkeypatch.setattr(unfinished, "_BOOT", tmp_path / "missing")
        assert outcomes(build()) == ALL_PASSED
    assert [process for process, *_ in asked(tmp_path / "build-1")] == [0, 1, 2]
    assert path.read_bytes() == before


def test_a_full_disk_costs_only_what_the_next_build_could_have_gone_on_with(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(unfinished, "write_bytes", full)
    assert outcomes(build()) == ALL_PASSED
    assert [process for process, *_ in asked(tmp_path / "build-0")] == [0, 1, 2]
