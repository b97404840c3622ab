"""Records of a cell against the samples that are published beside them: intervals are of all its variants."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import GPU, TINIER, TINY, tokens
from sample_events import READY, REFERENCE, checked, collected, in_blocks, profiled, timed
from sample_records import errors, record

from fluxbench.analysis.verification import times
from fluxbench.analysis.verification.cell import read
from fluxbench.analysis.verification.errors import of_one
from fluxbench.analysis.verification.problem import Kind
from fluxbench.analysis.verification.verify import verify
from fluxbench.bench import recording, samples
from fluxbench.bench.recording import Context
from fluxbench.core.files import write_gzip
from fluxbench.environments.cell import Cell
from fluxbench.operations.workload import Workload
from fluxbench.records import files
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record, RecordError
from fluxbench.records.status import FlagKind
from fluxbench.stats.intervals import medians, quotients

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
OF_TIMES = (Kind.VALUE, Kind.WIDTH, Kind.SAMPLES, Kind.REFERENCE)


def written(folder: Path, told: int = 0) -> list[Record]:
    """Write the samples of two variants, one with a process more, and return the records without those.

    So many of the first processes told which kernels ran.
    """
    events = [checked(name) for name in (REFERENCE, "torch_math")]
    for process in range(4):
        events += [READY, timed(REFERENCE, process, block_ms=(1.0 + 0.004 * process,) * 10)]
        if process < 3:
            events.append(timed("torch_math", process, began=10, block_ms=(2.0 + 0.001 * process,) * 10))
        if process < told:
            events.append(profiled("torch_math"))
    made = recorded(folder, events, [REFERENCE, "torch_math"], [TINY])
    return [msgspec.structs.replace(one, method_version=8) for one in made]


def recorded(
    folder: Path, events: list[dict[str, Any]], names: list[str], workloads: Sequence[Workload]
) -> list[Record]:
    """Write the samples of a cell, and return its records."""
    of = collected(events)
    write_gzip(folder / "sdpa.samples.json.gz", samples.to_json(of))
    context = Context(
        cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="2026-11-22T12:00:00Z", powers={}
    )  # fmt: skip
    return list(recording.of_cell(of, names, workloads, context))


def problems(folder: Path, records: list[Record]) -> list[tuple[Kind, object]]:
    files.write(folder / "sdpa.jsonl", records)
    return [(one.kind, one.values.get("name")) for one in verify([read(folder / "sdpa.jsonl")]) if one.kind in OF_TIMES]


def test_sustained_intervals_follow_from_the_samples_of_the_whole_cell(tmp_path: Path) -> None:
    reference, math = written(tmp_path)
    assert problems(tmp_path, [reference, math]) == []
    timing = math.timings[SUSTAINED]
    low, high = timing.ci95_ms
    for ends in ((low + 1e-3, high), (low, high + 1e-3)):
        edited = {**math.timings, SUSTAINED: msgspec.structs.replace(timing, ci95_ms=ends)}
        lie = msgspec.structs.replace(math, timings=edited)
        assert problems(tmp_path, [reference, lie]) == [(Kind.VALUE, "ci95_ms")]
        older = msgspec.structs.replace(lie, method_version=7)  # whose estimator is gone
        assert problems(tmp_path, [reference, older]) == []


def test_lengths_with_blocks_of_their_own_or_long_turns_have_narrower_intervals_and_a_record_says_so(
    tmp_path: Path,
) -> None:
    halves = {}
    kinds: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "together": lambda event: event,
        "apart": in_blocks,
        "long": lambda event: in_blocks(event, turn_s=1.0),
    }
    for kind, change in kinds.items():
        lengths = {TINY.name: 1.0, TINIER.name: 0.9}
        events = [checked(REFERENCE, one) for one in lengths]
        for process in range(3):
            event = timed(REFERENCE, process, block_ms=(1.0 + 0.004 * process,) * 10, workloads=lengths)
            events += [READY, change(event)]
        every = recorded(tmp_path, events, [REFERENCE], [TINY, TINIER])
        assert problems(tmp_path, every) == []
        timing = every[0].timings[SUSTAINED]
        assert timing.apart
        halves[kind] = timing.ci95_ms[1] - timing.median_ms
        lies = [
            msgspec.structs.replace(
                one, timings={**one.timings, SUSTAINED: msgspec.structs.replace(one.timings[SUSTAINED], apart=False)}
            )
            for one in every
        ]
        assert {of for of, _ in problems(tmp_path, lies)} == (set() if kind == "together" else {Kind.VALUE})
    assert halves["apart"] == halves["long"] < 0.75 * halves["together"]  # 3.2 degrees of freedom in place of two
    mixed = [every[0], lies[1]]
    assert problems(tmp_path, mixed) == [(Kind.VALUE, "apart")]  # all of a cell are by one estimator
    with pytest.raises(RecordError, match="apart must be of means, got a median"):
        msgspec.structs.replace(every[0].timings[BURST], apart=True)


@pytest.mark.parametrize("edit", [{"began_s": 0.001}, {"calls_per_sample": 1000}, {"began_s": []}])
def test_lengths_that_share_a_block_are_not_apart_by_an_edited_time(tmp_path: Path, edit: dict[str, Any]) -> None:
    lengths = {TINY.name: 1.0, TINIER.name: 0.9}
    events = [checked(REFERENCE, one) for one in lengths]
    for process in range(3):
        events += [READY, timed(REFERENCE, process, block_ms=(1.0 + 0.004 * process,) * 10, workloads=lengths)]
    every = recorded(tmp_path, events, [REFERENCE], [TINY, TINIER])
    path = tmp_path / "sdpa.samples.json.gz"
    seen = json.loads(gzip.decompress(path.read_bytes()))
    for one in seen["series"]:
        if one["workload"] == TINIER.name and one["regime"] == SUSTAINED:
            later = edit.get("began_s")
            one |= {"began_s": [round(begin + later, 3) for begin in one["began_s"]]} if later else edit
    write_gzip(path, json.dumps(seen))
    if isinstance(edit.get("began_s"), float):
        assert problems(tmp_path, every) == []  # they are one observation, as before
    else:
        files.write(tmp_path / "sdpa.jsonl", every)
        kinds = {one.kind for one in verify([read(tmp_path / "sdpa.jsonl")])}
        assert (Kind.DAMAGED in kinds) == ("calls_per_sample" in edit)


@pytest.mark.parametrize(
    ("told", "value", "version", "found"),
    [
        (3, None, METHOD_VERSION, []),
        (2, 1, METHOD_VERSION, []),
        (2, None, METHOD_VERSION, [Kind.NO_FLAG]),  # as where a process ran another kernel, and its names were dropped
        (2, 2, METHOD_VERSION, [Kind.FLAG]),
        (3, 1, METHOD_VERSION, [Kind.FLAG]),
        (0, None, METHOD_VERSION, []),  # the study does not ask at this workload
        (2, None, 11, []),  # when the first process had its own in the record alone
    ],
)
def test_processes_that_did_not_tell_which_kernels_ran_are_counted_by_a_flag(
    tmp_path: Path, told: int, value: int | None, version: int, found: list[Kind]
) -> None:
    _, math = written(tmp_path, told)
    flags = () if value is None else (Flag(kind=FlagKind.NOT_PROFILED, value=value),)
    files.write(tmp_path / "sdpa.jsonl", [msgspec.structs.replace(math, method_version=version, flags=flags)])
    cell = read(tmp_path / "sdpa.jsonl")
    seen = [one for one in verify([cell]) if one.values.get("flag") == FlagKind.NOT_PROFILED.value]
    assert [one.kind for one in seen] == found


@pytest.mark.parametrize("winsorized", [True, False])
def test_burst_intervals_follow_from_the_samples_by_the_estimator_that_the_record_names(
    tmp_path: Path, *, winsorized: bool
) -> None:
    reference, math = written(tmp_path)
    timing = math.timings[BURST]
    assert timing.winsorized
    [middle] = medians([timing.samples_ms], winsorized=winsorized)
    [ratio] = medians([quotients(timing.samples_ms, timing.reference_ms)], winsorized=winsorized)
    ends = {"ci95_ms": (middle.low, middle.high), "ratio_ci95": (ratio.low, ratio.high)}
    for edited, found in (
        ({}, []),
        ({"ci95_ms": (middle.low, middle.high + 1e-3)}, [(Kind.VALUE, "ci95_ms")]),
        ({"ratio_ci95": (ratio.low, ratio.high + 1e-3)}, [(Kind.VALUE, "ratio_ci95")]),
    ):
        burst = msgspec.structs.replace(timing, winsorized=winsorized, **{**ends, **edited})
        record = msgspec.structs.replace(math, timings={**math.timings, BURST: burst})
        assert problems(tmp_path, [reference, record]) == found
    with pytest.raises(RecordError, match="winsorized must be of medians"):
        msgspec.structs.replace(math.timings[SUSTAINED], winsorized=True)


def test_the_one_sample_for_which_a_host_was_not_late_is_not_too_short_and_one_beside_right_ones_is(
    tmp_path: Path,
) -> None:
    for last_ms, kinds in (((12.0, 13.0, 0.8), set()), ((0.8, 0.82, 0.05), {Kind.SHORT_SAMPLE})):
        events = [checked(REFERENCE)]
        for process in range(3):
            events += [READY, timed(REFERENCE, process, burst_ms=last_ms if process == 2 else (0.8, 0.81, 0.82))]
        of = collected(events)
        write_gzip(tmp_path / "sdpa.samples.json.gz", samples.to_json(of))
        context = Context(cell=CELL, device=GPU, processes=3, fingerprint={}, measured_at="", powers={})
        files.write(tmp_path / "sdpa.jsonl", recording.of_cell(of, [REFERENCE], [TINY], context))
        found = verify([read(tmp_path / "sdpa.jsonl")])
        assert {one.kind for one in found if one.kind is Kind.SHORT_SAMPLE} == kinds


def test_the_budget_of_float32_grows_with_the_terms_of_a_sum_and_stays_below_that_of_tf32() -> None:
    unit = 2**-24
    for length, budget, found in ((65_536, 500 * unit, []), (256, 500 * unit, [Kind.EXACT_BUDGET]),
                                  (65_536, 2**-12, [Kind.EXACT_BUDGET])):  # fmt: skip
        of = tokens("sums", length, dtype="float32")
        one = record("torch_math", of, errors={"out": errors(budget / 2, budget, mean_abs=0.0, mse=0.0, max_abs=0.0)})
        kinds = [each.kind for each in of_one(one) if each.kind is Kind.EXACT_BUDGET]
        assert kinds == found, (length, budget)


def test_an_error_below_that_of_rounding_is_a_lie_and_the_first_token_of_a_causal_call_is_not_rounded() -> None:
    """Of 64 causal tokens the first has 21% of the squares; of a call that is judged by rows, 30%."""
    by_rows = {"whole_up_to": 64}
    cases: tuple[tuple[float, bool, dict[str, int], bool], ...] = (
        (0.00142, False, {}, True), (0.0015, False, {}, False),
        (0.00125, True, {}, True), (0.00129, True, {}, False),
        (0.00119, True, by_rows, True), (0.00134, True, by_rows, False),
    )  # fmt: skip
    for rel_l2, causal, fingerprint, is_lie in cases:
        of = tokens("long", 64, causal=causal)
        found = {"out": errors(rel_l2, mean_abs=0.0, mse=0.0, max_abs=0.0, cosine=None)}
        one = msgspec.structs.replace(record("torch_math", of, errors=found), fingerprint=fingerprint)
        rules = [str(each.values["rule"]) for each in of_one(one) if each.kind is Kind.ERRORS]
        assert [rule.startswith("rel_l2 must be at least") for rule in rules] == [True] * is_lie, (rel_l2, causal)


def test_processes_with_the_same_samples_are_a_lie_where_these_are_too_many_to_be_equal_by_chance() -> None:
    def copied(*parts: tuple[float, ...]) -> bool:
        burst = msgspec.structs.replace(record("flex").timings[BURST], samples_ms=parts)
        one = msgspec.structs.replace(record("flex"), timings={BURST: burst})
        return Kind.COPIED in {problem.kind for problem in times.of_record(one)}

    own = (1.024, 1.025, 1.026, 1.027, 1.03)
    assert copied(own, own[::-1])  # in whatever order
    assert not copied(own, (*own[:4], 1.031))
    assert not copied(own[:2], own[1::-1])  # events are in steps of 32 ns
    assert not copied((1.024,) * 5, (1.024,) * 5)
