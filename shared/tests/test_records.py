"""The record: what it must hold, what it may not, and how it survives a file, a newer schema and a full disk."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import make_record

from fluxbench.operations.workloads import Workload
from fluxbench.records import schema as records
from fluxbench.records.schema import Kernel, Record, RecordError, Status, from_json

FAILED = [status for status in Status if status is not Status.PASSED]
# docs: the fixed schema. Published records hold these names, so none may change without another schema number.
FIELDS = {
    "": {
        *("schema", "notebook", "cell", "variant", "workload", "status", "reason", "correctness", "timing", "burst"),
        *("telemetry", "energy_mj", "peak_memory_bytes", "compile_s", "graph_breaks", "kernels", "versions"),
        *("fingerprint", "measured_at", "burst_telemetry", "energy_ci95_mj", "launch_ms", "second_clock", "device_s"),
        *("marks", "detail"),
    },
    "workload": {"name", "batch", "seq_len", "heads", "kv_heads", "head_dim", "dtype", "causal", "pass"},
    "correctness": {
        *("rel_l2", "max_abs", "mean_abs", "mse", "cosine", "nan_count", "budget_rel_l2", "precision_class"),
        "rel_l2_by_inputs",
    },
    "timing": {
        *("regime", "median_ms", "ci95_ms", "processes", "samples_ms", "ratio", "ratio_ci95", "reference_variant"),
        *("split", "set_aside", "precise"),
    },
    "telemetry": {"sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons"},
    "second_clock": {"events_ms", "kernels_ms", "span_ms", "parts_ms"},
}
FIELDS |= {"burst": FIELDS["timing"], "burst_telemetry": FIELDS["telemetry"]}
# What the first records of this schema do not have, by part.
ADDED = {
    "": {"burst_telemetry", "energy_ci95_mj", "launch_ms", "second_clock", "device_s", "marks", "detail"},
    "correctness": {"rel_l2_by_inputs"},
    "timing": {"split", "set_aside", "precise"},
    "burst": {"split", "set_aside", "precise"},
    "second_clock": {"parts_ms"},
}


def as_json(record: Record) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(record.to_json())
    return data


@pytest.mark.parametrize("part", FIELDS)
def test_the_json_has_the_fixed_field_names(part: str) -> None:
    data = as_json(make_record())
    assert set(data[part] if part else data) == FIELDS[part]


def test_the_json_names_its_schema_and_the_direction_of_its_pass() -> None:
    data = as_json(make_record())
    assert (data["schema"], data["workload"]["pass"]) == (1, "forward")


def test_a_kernel_has_a_name_and_a_share() -> None:
    assert set(as_json(make_record())["kernels"][0]) == {"name", "share", "part"}


def test_the_statuses_are_the_fixed_ones() -> None:
    names = "PASSED INCORRECT UNSUPPORTED UNAVAILABLE OUT_OF_MEMORY TIMEOUT CRASHED ERROR"
    assert [status.value for status in Status] == names.split()


def test_a_record_is_one_line() -> None:
    assert "\n" not in make_record(status=Status.ERROR, reason="two\nlines").to_json()


# What a record may hold.


@pytest.mark.parametrize("status", FAILED)
def test_only_a_passed_record_may_hold_times(status: Status) -> None:
    passed = make_record()
    with pytest.raises(RecordError, match="only PASSED may hold a timing"):
        dataclasses.replace(passed, status=status, reason="made up")


@pytest.mark.parametrize("field", ["burst", "energy_mj"])
@pytest.mark.parametrize("status", FAILED)
def test_only_a_passed_record_may_hold_what_was_seen_while_timing(status: Status, field: str) -> None:
    failed = make_record(status=status)
    with pytest.raises(RecordError, match="only PASSED may hold burst times or energy"):
        dataclasses.replace(failed, **{field: getattr(make_record(), field)})


def test_a_passed_record_must_hold_times() -> None:
    with pytest.raises(RecordError, match="only PASSED may hold a timing, and must"):
        dataclasses.replace(make_record(), timing=None)


def test_a_passed_record_must_say_how_its_output_was_checked() -> None:
    with pytest.raises(RecordError, match="must say how its output was checked"):
        dataclasses.replace(make_record(), correctness=None)


def test_a_passed_record_has_no_reason() -> None:
    with pytest.raises(RecordError, match="reason must be null exactly when PASSED"):
        dataclasses.replace(make_record(), reason="made up")


@pytest.mark.parametrize("status", FAILED)
def test_a_record_that_did_not_pass_has_a_reason(status: Status) -> None:
    with pytest.raises(RecordError, match=f"reason must be null exactly when PASSED, got {status}"):
        dataclasses.replace(make_record(status=status), reason=None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"processes": 3}, "equally many samples from each process, got 10 from 3"),
        ({"processes": 0}, "equally many samples from each process"),
        ({"samples_ms": ()}, "equally many samples from each process"),
        ({"ci95_ms": (1.01, 1.02)}, r"ci95_ms must hold its estimate, got \[1.01, 1.02\] around 1.0"),
        ({"ci95_ms": (1.02, 0.98)}, "ci95_ms must hold its estimate"),
        ({"ratio_ci95": (0.5, 0.6)}, "ratio_ci95 must hold its estimate"),
        ({"median_ms": math.nan}, "finite and positive"),
        ({"median_ms": 0.0}, "finite and positive"),
        ({"ratio": math.inf}, "finite and positive"),
        ({"samples_ms": (1.0,) * 9 + (math.nan,)}, "finite and positive"),
        ({"samples_ms": (1.0,) * 9 + (-1.0,)}, "finite and positive"),
        ({"ci95_ms": (math.nan, 1.0)}, "finite and positive"),
    ],
)
def test_times_that_cannot_be_are_refused_by_name(changes: dict[str, Any], sentence: str) -> None:
    record = make_record()
    assert record.timing is not None
    timing = dataclasses.replace(record.timing, **changes)
    with pytest.raises(RecordError, match=rf"record of torch_flash at flux1-1024px-t512: .*{sentence}"):
        dataclasses.replace(record, timing=timing)


def test_a_number_that_json_has_no_word_for_is_never_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dataclasses.replace(make_record(), compile_s=math.nan).to_json()


# There and back.


@pytest.mark.parametrize("status", Status)
def test_a_record_comes_back_as_it_was(status: Status) -> None:
    record = make_record("flex", status=status, compile_s=1.5, graph_breaks=0)
    assert from_json(record.to_json()) == record


@given(
    reason=st.text(min_size=1),
    kernels=st.lists(st.builds(Kernel, name=st.text(), share=st.floats(0, 1)), max_size=3),
    workload=st.builds(
        Workload,
        name=st.text(min_size=1).map(lambda name: f"made up {name}"),
        seq_len=st.integers(1, 10**6),
        heads=st.sampled_from([24, 48]),
        kv_heads=st.sampled_from([None, 1, 8, 24]),
        causal=st.booleans(),
        dtype=st.sampled_from(["bfloat16", "float16", "float32"]),
        direction=st.sampled_from(["forward", "backward", "forward_backward"]),
    ),
    fingerprint=st.dictionaries(st.text(), st.one_of(st.none(), st.booleans(), st.integers(), st.text()), max_size=4),
)
def test_whatever_a_record_says_comes_back_as_it_was(
    reason: str, kernels: list[Kernel], workload: Workload, fingerprint: dict[str, Any]
) -> None:
    record = dataclasses.replace(
        make_record(status=Status.ERROR),
        reason=reason,
        kernels=tuple(kernels),
        workload=workload,
        fingerprint=fingerprint,
    )
    assert from_json(record.to_json()) == record


def test_a_file_of_records_comes_back_as_it_was(tmp_path: Path) -> None:
    found = [make_record(), make_record("flex", status=Status.CRASHED, reason="ünlucky")]
    records.write(tmp_path / "a.jsonl", found)
    assert records.read(tmp_path / "a.jsonl") == found


# Damaged.


def without(data: dict[str, Any], *path: str) -> dict[str, Any]:
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return data


def test_a_record_from_before_there_were_two_regimes_is_read() -> None:
    data = {key: value for key, value in as_json(make_record()).items() if key not in ADDED[""]} | {"burst": None}
    data["timing"] = {key: value for key, value in data["timing"].items() if key not in ADDED["timing"]}
    found = from_json(json.dumps(data))
    assert found.timing is not None
    assert (found.burst, found.second_clock, found.burst_telemetry, found.launch_ms, found.marks) == (*[None] * 4, ())
    assert (found.timing.split, found.timing.set_aside, found.timing.precise) == ((), 0, None)
    assert [len(part) for part in found.timing.by_process] == [2] * 5


def test_a_record_from_before_both_kinds_of_inputs_were_kept_is_read() -> None:
    found = from_json(json.dumps(without(as_json(make_record()), "correctness", "rel_l2_by_inputs")))
    assert found.correctness
    assert (found.correctness.rel_l2, found.correctness.rel_l2_by_inputs) == (0.003, {})


@pytest.mark.parametrize("by_inputs", [{}, {"normal": 0.1, "flux": None}, {"<b>": 1}])
def test_the_errors_on_each_kind_of_inputs_come_back_as_they_were(by_inputs: dict[str, float | None]) -> None:
    record = make_record()
    assert record.correctness
    checked = dataclasses.replace(record.correctness, rel_l2_by_inputs=by_inputs)
    found = from_json(dataclasses.replace(record, correctness=checked).to_json())
    assert found.correctness == checked


@pytest.mark.parametrize("value", [None, [], 0.1, {"flux": "0.1"}, {"flux": True}, {"flux": [0.1]}, {"flux": math.nan}])
def test_errors_by_kind_of_inputs_that_cannot_be_are_refused(value: object) -> None:
    data = as_json(make_record())
    data["correctness"]["rel_l2_by_inputs"] = value
    with pytest.raises(RecordError, match="rel_l2_by_inputs must be an object, each value a finite number or null"):
        from_json(json.dumps(data))


@pytest.mark.parametrize("split", [(1, 2, 3, 4), (3, 1, 2, 2, 3), (10,), (4, 3, 3, 0, 0)])
def test_a_split_must_name_the_samples_of_each_process(split: tuple[int, ...]) -> None:
    record = make_record()
    assert record.timing is not None
    timing = dataclasses.replace(record.timing, split=split)
    with pytest.raises(RecordError, match=r"split must name the samples of each process, got .* of 10"):
        dataclasses.replace(record, timing=timing)


def test_samples_are_told_apart_by_the_split() -> None:
    record = make_record()
    assert record.timing is not None
    timing = dataclasses.replace(record.timing, samples_ms=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), split=(1, 2, 1, 1, 1))
    assert timing.by_process == ((1.0,), (2.0, 3.0), (4.0,), (5.0,), (6.0,))
    assert from_json(dataclasses.replace(record, timing=timing).to_json()).timing == timing


@pytest.mark.parametrize("part", FIELDS)
def test_a_record_that_lacks_a_field_is_refused(part: str) -> None:
    for field in sorted(FIELDS[part] - ADDED.get(part, set()) - {"throttle_reasons", "schema"}):
        path = (part, field) if part else (field,)
        if path[-1] in ("batch", "kv_heads", "head_dim", "dtype", "causal"):
            continue
        if not part and field in ("energy_mj", "peak_memory_bytes", "compile_s", "graph_breaks", "versions"):
            continue
        if not part and field == "fingerprint":
            continue
        with pytest.raises(RecordError, match="does not fit schema 1"):
            from_json(json.dumps(without(as_json(make_record()), *path)))


@pytest.mark.parametrize("part", FIELDS)
def test_a_record_with_a_field_too_many_is_refused(part: str) -> None:
    data = as_json(make_record())
    (data[part] if part else data)["made_up"] = 1
    with pytest.raises(RecordError, match=r"does not fit schema 1: .*made_up"):
        from_json(json.dumps(data))


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_a_record_of_another_schema_is_refused_with_what_to_do(schema: object) -> None:
    with pytest.raises(RecordError, match="schema of a record must be 1; update fluxbench, or measure again"):
        from_json(json.dumps({**as_json(make_record()), "schema": schema}))


@pytest.mark.parametrize("line", ["", "{", "not JSON", "\x00", '{"schema": 1'])
def test_a_line_that_is_not_json_is_refused(line: str) -> None:
    with pytest.raises(RecordError, match="must be one JSON object a line"):
        from_json(line)


@pytest.mark.parametrize("line", ["1", "[]", "null", '"PASSED"'])
def test_a_line_that_is_no_object_is_refused(line: str) -> None:
    with pytest.raises(RecordError, match="must be a JSON object"):
        from_json(line)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status",), "FINE"),
        (("workload", "seq_len"), -1),
        (("workload", "seq_len"), "4608"),
        (("workload", "dtype"), "int4"),
        (("workload", "pass"), "sideways"),
        (("workload",), None),
        (("workload",), []),
        (("timing", "samples_ms"), []),
        (("timing", "samples_ms"), None),
        (("timing", "median_ms"), "fast"),
        (("timing", "ci95_ms"), [1.0]),
        (("timing",), 1),
        (("kernels",), None),
        (("kernels",), [1]),
    ],
)
def test_a_value_that_cannot_be_is_refused(path: tuple[str, ...], value: object) -> None:
    data = as_json(make_record())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(RecordError):
        from_json(json.dumps(data))


@given(st.data())
def test_no_cut_of_a_record_is_taken_for_one(data: st.DataObject) -> None:
    line = make_record().to_json()
    with pytest.raises(RecordError):
        from_json(line[: data.draw(st.integers(0, len(line) - 1))])


def test_half_a_file_is_refused_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "sdpa.jsonl"
    records.write(path, [make_record(), make_record("flex")])
    path.write_text(path.read_text(encoding="utf-8")[:-200], encoding="utf-8")
    with pytest.raises(RecordError, match=r"^sdpa.jsonl, line 2: a record must be one JSON object a line"):
        records.read(path)


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "sdpa.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match=r"^sdpa.jsonl"):
        records.read(path)


# A full disk.


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sdpa.jsonl"
    records.write(path, [make_record()])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        records.write(path, [make_record("flex")])
    assert [record.variant for record in records.read(path)] == ["torch_flash"]


def test_a_file_that_may_grow_no_further_leaves_the_old_one_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "sdpa.jsonl"
    path.write_text("what was there\n", encoding="utf-8")
    code = (
        "import resource, sys; from pathlib import Path; from fluxbench import records\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n    records.write_text(Path(sys.argv[1]), 'x' * 10_000)\n"
        "except OSError:\n    print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"
    assert {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()} == {"sdpa.jsonl": "what was there\n"}


def test_a_record_that_cannot_be_written_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "sdpa.jsonl"
    records.write(path, [make_record()])
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.write(path, [make_record("flex"), dataclasses.replace(make_record(), compile_s=math.nan)])
    assert [record.variant for record in records.read(path)] == ["torch_flash"]
