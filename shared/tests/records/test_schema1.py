"""Records of schema 1, of which many are published, read as records of schema 2."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from published import BY_METHOD, REPORTS, schema1

from fluxbench.operations import sets
from fluxbench.records import files
from fluxbench.records.line import parse
from fluxbench.records.schema import Flag, RecordError
from fluxbench.records.status import FlagKind

HISTORY = (path for folder in REPORTS.glob("*/*/history/*") for path in files.paths(folder))
FILES = sorted(path for path in HISTORY if json.loads(files.read_bytes(path).splitlines()[0])["schema"] == 1)
OLD = schema1()


def read(**fields: Any) -> Any:
    """Return the record that a published one of schema 1 would be with other fields."""
    return parse(json.dumps({**copy.deepcopy(OLD), **fields}))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-5]}-{path.parts[-2]}-{path.stem}")
def test_every_published_record_is_read_and_comes_back_from_schema_2(path: Path) -> None:
    lines = files.read_bytes(path).splitlines()
    found = files.read(path)
    assert len(found) == len(lines)
    for line, record in zip(lines, found, strict=True):
        old = json.loads(line)
        assert parse(record.to_json()) == record
        assert (record.variant, record.status, record.reason) == (old["variant"], old["status"], old["reason"])
        assert record.workload == sets.by_name()[old["workload"]["name"]]
        noted = [flag for flag in record.flags if flag.kind not in (FlagKind.FASTER_THAN_ROOFLINE, FlagKind.SKIPS_WORK)]
        assert len(noted) == len(old.get("marks", ()))
        for regime, timing in (("burst", old.get("burst")), ("sustained", old["timing"])):
            if timing:
                new = record.timings[regime]
                assert [x for part in new.samples_ms for x in part] == timing["samples_ms"]
                assert new.processes == timing["processes"]
                said = [new.median_ms, list(new.ci95_ms), new.ratio]
                assert said == [timing[key] for key in ("median_ms", "ci95_ms", "ratio")]


def test_the_fields_that_moved_hold_what_they_held() -> None:
    for version, folder in BY_METHOD.items():  # which follows from the hashes of the code
        for path in files.paths(folder):
            assert {record.method_version for record in files.read(path)} == {version}
    new = read()
    assert (new.kernel, new.form, new.precision_class) == ("torch_cudnn", "eager", "exact")
    assert new.errors["out"].rel_l2 == OLD["correctness"]["rel_l2"]
    assert new.errors["out"].budget_rel_l2 == OLD["correctness"]["budget_rel_l2"]
    assert new.errors["out"].rel_l2_by_inputs == OLD["correctness"]["rel_l2_by_inputs"]
    for regime, key, telemetry in (("burst", "burst", "burst_telemetry"), ("sustained", "timing", "telemetry")):
        assert new.timings[regime].discarded == OLD[key]["set_aside"]
        assert new.timings[regime].converged is OLD[key]["precise"]
        assert new.timings[regime].reference_variant == OLD[key]["reference_variant"]
        assert new.telemetry[regime].power_w == OLD[telemetry]["power_w"]
    assert new.cupti.span_ms == OLD["second_clock"]["span_ms"]
    assert (read(compile_s=-0.01).compile_s, read(compile_s=None).compile_s) == (0.0, None)
    for variant, kernel, form in (
        ("torch_flash_copy", "torch_flash", "copy"),
        ("torch_flash_compile_d", "torch_flash", "compile_d"),
        ("flex_compile_ma", "flex", "compile_ma"),
        ("flex_eager", "flex_eager", "eager"),
    ):
        assert (read(variant=variant).kernel, read(variant=variant).form) == (kernel, form)
    for name in ("energy_mj", "launch_ms", "device_s", "peak_memory_bytes", "compile_s", "versions", "fingerprint"):
        assert getattr(new, name) == OLD[name]


@pytest.mark.parametrize(
    ("mark", "flag"),
    [
        ("its speed did not settle in 2 of 3 processes", Flag(kind=FlagKind.NOT_SETTLED, regime="sustained", value=2)),
        ("its speed did not settle in all processes", Flag(kind=FlagKind.NOT_SETTLED, regime="sustained", value=3)),
        (
            "burst: 10% of the samples were out of the regime (throttled), not ranked",
            Flag(kind=FlagKind.DISCARDED, regime="burst", detail="throttled"),
        ),
        (
            "sustained: most samples were out of the regime (cold), counted all the same: they are most",
            Flag(kind=FlagKind.KEPT_OUT_OF_REGIME, regime="sustained", detail="cold"),
        ),
        ("the two clocks differ by -1.5%", Flag(kind=FlagKind.CUPTI_DIFFERS, regime="burst", value=-0.015)),
        ("no second clock: the profiler recorded no kernels", Flag(kind=FlagKind.NO_CUPTI, regime="burst")),
        (
            "sustained: the host was hardly ahead of the device in 1 of 3 processes: launching is what was timed",
            Flag(kind=FlagKind.LAUNCH_BOUND, regime="sustained", value=1),
        ),
        (
            "its ratio leaves out 2 of 3 processes, in which another variant was the reference",
            Flag(kind=FlagKind.OTHER_REFERENCE, value=2),
        ),
        ("the machine slept for 1.5 s during the measurement", Flag(kind=FlagKind.SLEPT, value=1.5)),
        ("clock, power and temperature are unknown: no driver", Flag(kind=FlagKind.NO_TELEMETRY)),
        ("energy is unknown: too coarse", Flag(kind=FlagKind.NO_ENERGY, regime="sustained")),
        ("another process used the device: python", Flag(kind=FlagKind.SHARED_DEVICE, detail="python")),
    ],
    ids=lambda it: it.kind if isinstance(it, Flag) else "",
)
def test_a_mark_becomes_a_flag(mark: str, flag: Flag) -> None:
    assert read(marks=[mark]).flags == (flag,)


def test_an_error_that_cannot_be_believed_has_a_flag() -> None:
    empty = {"timing": None, "burst": None, "energy_mj": None, "energy_ci95_mj": None}
    for reason, kind in (
        ("burst: 0.001 ms is faster than the device can be", FlagKind.FASTER_THAN_ROOFLINE),
        ("skips work on inputs that it has seen: 0.1 ms a call", FlagKind.SKIPS_WORK),
    ):
        assert read(status="ERROR", reason=reason, **empty).flagged(kind)
        assert read(status="CRASHED", reason=reason, **empty).flags == ()


def test_a_record_from_before_there_were_two_regimes_is_read() -> None:
    old = schema1(method=1)
    new = parse(json.dumps(old))
    assert (new.burst, new.timing, new.cupti, new.flags) == (None, new.sustained, None, ())
    processes = old["timing"]["processes"]
    lengths = [len(old["timing"]["samples_ms"]) // processes] * processes
    assert [len(part) for part in new.timings["sustained"].samples_ms] == lengths
    assert new.timings["sustained"].converged is None


def test_samples_are_split_by_process_and_shapes_are_kept() -> None:
    burst = {**OLD["burst"], "samples_ms": [0.4] * 6, "processes": 3, "split": [1, 2, 3]}
    assert [len(part) for part in read(burst=burst).timings["burst"].samples_ms] == [1, 2, 3]
    for split in ([1, 2], [1, 2, 4], [7, -1, 0]):
        with pytest.raises(RecordError):
            read(burst={**burst, "split": split})
    new = read(workload={**OLD["workload"], "heads": 48, "kv_heads": 48}).workload
    assert (new.name, new.shape["heads"]) == (OLD["workload"]["name"], 48)
    assert new.cost.flops == 2 * sets.by_name()[new.name].cost.flops


def test_group_and_x_of_an_unknown_workload_follow_from_its_name() -> None:
    shape = {**OLD["workload"], "name": "mine-t64", "seq_len": 96, "heads": 2, "kv_heads": 1, "head_dim": 64}
    new = read(workload=shape).workload
    assert (new.operation, new.group, new.x, new.x_unit) == ("attention", "mine", 64, "text tokens")
    assert (new.shape["seq_len_q"], new.shape["kv_heads"], new.shape["head_dim_v"]) == (96, 1, 64)
    plain = read(workload={**shape, "name": "mine", "pass": "backward"}).workload
    assert (plain.operation, plain.group, plain.x, plain.x_unit) == ("attention_backward", "mine", 96, "tokens")
    with pytest.raises(RecordError, match="pass must be forward or backward, got 'sideways'"):
        read(workload={**shape, "pass": "sideways"})


@pytest.mark.parametrize(
    "fields",
    [
        *({"made_up": 1}, {"status": "FINE"}, {"workload": None}, {"timing": 1}, {"kernels": None}, {"marks": 1}),
        *({"marks": ["a mark that nothing wrote"]}, {"marks": [""]}),
        *({"versions": None}, {"fingerprint": []}, {"variant": ["a"]}, {"measured_at": 1}, {"correctness": None}),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        read(**fields)
