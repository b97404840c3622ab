"""The record of schema 2: what each field refuses, what must agree, and that what is written is read again."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from sample_records import LAUNCH_BOUND, changed, errors, record, timing

from fluxbench.records.line import parse
from fluxbench.records.schema import Cupti, Flag, Memory, Record, RecordError, Shortage
from fluxbench.records.status import FlagKind, Status

Path = tuple[str | int, ...]
FAILED = [status for status in Status if status is not Status.PASSED]
FULL = record(
    "flex_compile_d",
    burst_ms=0.8,
    flags=(Flag(kind=FlagKind.DISCARDED, regime="burst", value=0.25, detail="throttled"), LAUNCH_BOUND),
    converged={"burst": False, "sustained": True},
    cupti=Cupti(events_ms=0.8, kernels_ms=0.7, span_ms=0.75, parts_ms={"attention": 0.7}),
    memory=Memory(inputs_bytes=40, kept_bytes=5, allocated_bytes=20, reserved_bytes=30, call_bytes=10),
    compile_s=1.5,
    graph_breaks=1,
    detail="split 2",
    fingerprint={"device": "NVIDIA H200", "ecc": True, "cpu_cores": None, "power_limit_w": 700.0},
)
PLACES: list[Path] = [
    *((), ("workload",), ("workload", "cost"), ("errors", "out"), ("timings", "burst"), ("telemetry", "burst")),
    *(("flags", 0), ("cupti",), ("kernels", 0), ("memory",)),
]
NULLABLE = {
    *("reason", "energy_mj", "energy_ci95_mj", "launch_ms", "cupti", "device_s", "peak_memory_bytes", "compile_s"),
    *(
        "memory",
        "graph_breaks",
        "detail",
        "rel_l2",
        "max_abs",
        "mean_abs",
        "mse",
        "cosine",
        "converged",
        "sm_clock_mhz",
    ),
    *("power_w", "temperature_c", "regime", "value", "part", "normal", "flux"),
}
ANY_VALUE = {"device", "ecc", "cpu_cores", "power_limit_w"}  # of a fingerprint
SIGNED = {"cosine", "temperature_c", "value"}


def as_json(of: Record = FULL) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(of.to_json())
    return data


def inside(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def with_value(path: Path, value: object) -> str:
    """Return the full record as JSON with another value in one place."""
    data = copy.deepcopy(as_json())
    inside(data, path[:-1])[path[-1]] = value
    return json.dumps(data)


def leaves(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value that is no object, with its place; of a list the list and its first value."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
        return
    yield path, data
    if isinstance(data, list):
        yield from leaves(data[0], (*path, 0))


LEAVES = [(path, value) for path, value in leaves(as_json()) if path[-1] not in ANY_VALUE and path != ("schema",)]


def wrong_values(path: Path, value: object) -> Iterator[object]:
    """Yield values of another type, or out of range, for a place."""
    yield from ([], {}) if not isinstance(value, list) else ({}, "text")
    if path[-1] not in NULLABLE:
        yield None
    if isinstance(value, str):
        yield 1
    if isinstance(value, bool):
        yield from (1, "true")
    elif isinstance(value, int | float):
        yield from (True, "1", [1.0])
        yield from () if path[-1] in SIGNED else (-1,)
        yield from (0.5,) if isinstance(value, int) and path[-1] not in SIGNED | {"seq_len_q"} else ()


@pytest.mark.parametrize(("path", "value"), LEAVES, ids=lambda it: ".".join(map(str, it)) if type(it) is tuple else "")
def test_a_value_of_another_type_is_refused(path: Path, value: object) -> None:
    for wrong in wrong_values(path, value):
        with pytest.raises(RecordError):
            parse(with_value(path, wrong))


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_a_field_too_many_is_refused_by_name(path: Path) -> None:
    data = as_json()
    inside(data, path)["made_up"] = 1
    with pytest.raises(RecordError, match="made_up"):
        parse(json.dumps(data))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status",), "FINE"),
        (("precision_class",), "fuzzy"),
        (("method_version",), -1),
        (("flags", 0, "kind"), "odd"),
        (("kernels", 0, "share"), 1.01),
        (("timings", "burst", "median_ms"), 0.0),
        (("timings", "burst", "ci95_ms"), [0.8]),
        (("timings", "burst", "samples_ms"), []),
        (("timings", "burst", "samples_ms"), [[0.8], []]),
        (("timings", "burst", "samples_ms"), [0.8]),
        (("timings", "odd"), as_json()["timings"]["burst"]),
        (("memory", "kept_bytes"), 21),
        (("memory", "call_bytes"), 21),
        (("memory", "reserved_bytes"), 19),
        (("workload", "x"), 0),
        (("workload", "ranks"), 0),
        (("workload", "name"), ""),
        (("workload", "shape", "heads"), 25),
        (("workload", "shape", "batch"), True),
        (("workload", "shape", "dtype"), "int4"),
        (("workload", "shape", "colour"), 1),
        (("workload", "cost", "flops"), 1),
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused(path: Path, value: object) -> None:
    with pytest.raises(RecordError, match=r"does not fit schema 2|must"):
        parse(with_value(path, value))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "-" + "9" * 5000])
@pytest.mark.parametrize("path", [("compile_s",), ("peak_memory_bytes",), ("timings", "burst", "median_ms")], ids=str)
def test_a_number_that_is_none_or_has_no_end_is_refused(path: Path, number: str) -> None:
    line = with_value(path, "@").replace('"@"', number)
    with pytest.raises(RecordError):
        parse(line)


@pytest.mark.parametrize(
    "line", ["", "{", "not JSON", "\x00", '{"schema": 2', "1", "[]", "null", '"PASSED"', b"\xff\xfe"]
)
def test_a_line_that_is_no_record_of_this_schema_is_refused(line: str | bytes) -> None:
    with pytest.raises(RecordError):
        parse(line)
    for schema in (0, 3, 2.5, "2", True, None):
        with pytest.raises(RecordError, match="update fluxbench, or measure again" if schema == 3 else None):
            parse(with_value(("schema",), schema))


def test_a_passed_record_alone_has_times_and_errors_and_no_reason() -> None:
    for fields, said in (
        ({"reason": "made up"}, "reason must be null"),
        ({"timings": {}}, "only PASSED may hold a timing, and must"),
        ({"errors": {}}, "record of flex_compile_d at flux1-1024px-t512: a PASSED record must say how"),
    ):
        with pytest.raises(RecordError, match=said):
            changed(FULL, **fields)


def test_memory_is_that_of_inputs_and_call_and_a_shortage_is_of_memory_that_is_out() -> None:
    assert FULL.memory
    assert (FULL.memory.total_bytes, FULL.memory.needed_bytes) == (60, 70)
    lack = Shortage(asked_bytes=5, free_bytes=None, total_bytes=None, own_bytes=None)
    out = record("flex", status=Status.OUT_OF_MEMORY, shortage=lack)
    assert parse(out.to_json()) == out
    with pytest.raises(RecordError, match="only OUT_OF_MEMORY may hold a shortage, got CRASHED"):
        record("flex", status=Status.CRASHED, shortage=lack)


@pytest.mark.parametrize("status", FAILED)
def test_a_failed_record_has_no_times_and_a_reason(status: Status) -> None:
    with pytest.raises(RecordError, match=f"reason must be null exactly when PASSED, got {status}"):
        changed(FULL, status=status)
    with pytest.raises(RecordError, match=f"only PASSED may hold a timing, and must, got {status}"):
        changed(FULL, status=status, reason="made up")
    with pytest.raises(RecordError, match=f"only PASSED may hold energy, got {status}"):
        changed(FULL, status=status, reason="made up", timings={})


@pytest.mark.parametrize(
    "fields",
    [{"ci95_ms": (1.01, 1.02)}, {"ci95_ms": (1.02, 0.98)}, {"ratio_ci95": (0.5, 0.6)}, {"ratio_ci95": (1.1, 2)}],
)
def test_an_interval_holds_its_estimate(fields: dict[str, Any]) -> None:
    [name] = fields
    with pytest.raises(RecordError, match=f"{name} must hold its estimate"):
        timing(1.0, "flex", ratio=1.0, **fields)


def test_what_ranks_and_the_worst_output() -> None:
    assert (FULL.timing, FULL.burst) == (FULL.timings["sustained"], FULL.timings["burst"])
    burst = record(regimes=("burst",))
    assert (burst.timing, burst.sustained) == (burst.burst, None)
    assert record(status=Status.CRASHED).timing is None
    assert FULL.flagged(FlagKind.LAUNCH_BOUND, FlagKind.DISCARDED) == FULL.flags[0]
    assert (FULL.timings["burst"].processes, FULL.timings["burst"].count) == (5, 10)
    outputs = {"dq": errors(0.004, 0.01), "dk": errors(0.003, 0.005), "dv": errors(0.001, 0.006)}
    assert changed(FULL, errors=outputs).rel_l2 == 0.004
    assert changed(FULL, errors={**outputs, "dv": errors(None, 0.006)}).rel_l2 is None
    assert record(status=Status.CRASHED).rel_l2 is None


def test_an_error_is_the_largest_on_the_inputs_that_a_record_is_judged_on() -> None:
    on = {"normal": 0.05, "flux": 0.04, "peaked": 0.2}
    exact = changed(FULL, errors={"out": errors(0.05, rel_l2_by_inputs=on)})
    quantized = changed(exact, precision_class="quantized")
    assert (exact.rel_l2, exact.judged_kinds) == (0.2, ["normal", "flux", "peaked"])
    assert (quantized.rel_l2, quantized.judged_kinds) == (0.05, ["normal", "flux"])
    assert exact.largest_error(["flux"]) == 0.04
    assert changed(FULL, errors={"out": errors(0.004, rel_l2_by_inputs={})}).rel_l2 == 0.004


@pytest.mark.parametrize(("events_ms", "difference"), [(1.1, 0.1), (0.95, 0.0), (1.0, 0.0), (0.9, 0.0), (0.855, -0.05)])
def test_events_differ_from_the_profiler_by_how_far_they_lie_outside(events_ms: float, difference: float) -> None:
    assert Cupti(events_ms=events_ms, kernels_ms=0.9, span_ms=1.0).difference == pytest.approx(difference)


@pytest.mark.parametrize("status", Status)
def test_a_record_comes_back_as_it_was(status: Status) -> None:
    found = record("flex", status=status, compile_s=1.5, reason=None if status is Status.PASSED else "two\nlines")
    assert "\n" not in found.to_json()
    assert parse(found.to_json()) == found
    assert parse(FULL.to_json()) == FULL
