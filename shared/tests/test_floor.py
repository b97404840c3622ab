"""What no device can do is said with the arithmetic, and what any device might do is let through."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fluxbench import cli
from fluxbench.analysis.audit import TableCheck, check_table
from fluxbench.device.detection import Device
from fluxbench.device.peaks import by_name
from fluxbench.operations.roofline import faster_than_possible, shortest_ms
from fluxbench.operations.workloads import BY_NAME, Workload
from fluxbench.records import schema as records

REPORTS = Path(__file__).resolve().parents[2] / "reports"
H200 = Device(kind="cuda", name="NVIDIA H200", sm_clock_max_mhz=1980, memory_clock_max_mhz=3201)
LONGEST = BY_NAME["flux1-1024px-t512"]
SHORT = Workload(name="short", seq_len=64, heads=24, batch=64)  # more bytes than operations
HEADER = "gpu,implementation,pass,dtype,batch,seq_len,heads,kv_heads,head_dim,value,unit"


def floor_ms(workload: Workload, gpu: str = "H200", precision: str = "bf16") -> float:
    rates = by_name(gpu)
    assert rates is not None
    floor = shortest_ms(workload, rates, precision)
    assert floor is not None
    return floor.ms


def checked(folder: Path, *rows: str, header: str = HEADER, **options: object) -> TableCheck:
    path = folder / "times.csv"
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return check_table(path, **options)  # type: ignore[arg-type]


def test_a_time_that_is_too_short_is_refused_with_the_arithmetic() -> None:
    assert faster_than_possible(0.1, LONGEST, H200, "exact") == (
        "faster than the device can be: 0.1 ms measured, but 2.61e+11 FLOP / 1,071 TFLOP/s = 0.244 ms"
    )


def test_a_time_that_the_data_sheet_forbids_and_the_highest_clock_allows_is_not_refused() -> None:
    by_data_sheet_ms = LONGEST.flops / 989.5e12 * 1e3
    assert floor_ms(LONGEST) < 0.95 * by_data_sheet_ms
    assert faster_than_possible(0.95 * by_data_sheet_ms, LONGEST, H200, "exact") is None


def test_the_devices_own_clock_counts_where_it_is_known() -> None:
    slow = dataclasses.replace(H200, sm_clock_max_mhz=990)
    assert "/ 535 TFLOP/s = 0.487 ms" in str(faster_than_possible(0.3, LONGEST, slow, "exact"))
    unknown = dataclasses.replace(H200, sm_clock_max_mhz=None)
    assert faster_than_possible(0.3, LONGEST, unknown, "exact") is None


def test_a_quantized_kernel_may_be_twice_as_fast_on_hopper() -> None:
    assert faster_than_possible(0.13, LONGEST, H200, "quantized") is None
    assert "2,141 TFLOP/s = 0.122 ms" in str(faster_than_possible(0.12, LONGEST, H200, "quantized"))


def test_four_bits_may_be_four_times_as_fast_on_ampere() -> None:
    assert floor_ms(LONGEST, "A100-80GB", "fp8") == pytest.approx(floor_ms(LONGEST, "A100-80GB") / 4)


def test_a_geforce_may_use_16_bit_accumulators_at_twice_the_rate() -> None:
    card = by_name("RTX 4090")
    assert card is not None
    assert floor_ms(LONGEST, "RTX 4090") < LONGEST.flops / (2 * card.bf16_tflops) / 1e9


def test_where_bytes_take_longer_than_operations_they_are_the_floor() -> None:
    ms = (SHORT.min_bytes - 60 * 2**20) / 4916.7 / 1e6
    assert floor_ms(SHORT) == pytest.approx(ms, rel=1e-3)
    assert "in the cache) bytes / 4,917 GB/s" in str(faster_than_possible(0.9 * ms, SHORT, H200, "exact"))


def test_what_fits_into_the_cache_is_held_to_its_operations_alone() -> None:
    small = dataclasses.replace(SHORT, batch=1)
    assert floor_ms(small) == pytest.approx(small.flops / 1070.5 / 1e9, rel=1e-3)


def test_in_float32_the_bytes_alone_count() -> None:
    wide = dataclasses.replace(LONGEST, dtype="float32")
    assert floor_ms(wide) == pytest.approx((wide.min_bytes - 60 * 2**20) / 4916.7 / 1e6, rel=1e-3)
    assert faster_than_possible(0.001, dataclasses.replace(SHORT, batch=1, dtype="float32"), H200, "exact") is None


@pytest.mark.parametrize(("direction", "passes"), [("backward", 2), ("forward_backward", 3)])
def test_a_backward_pass_that_recomputes_nothing_is_two_forward_passes(direction: str, passes: int) -> None:
    assert floor_ms(dataclasses.replace(LONGEST, direction=direction)) == pytest.approx(passes * floor_ms(LONGEST))


def test_a_causal_call_may_take_half_as_long() -> None:
    assert floor_ms(dataclasses.replace(LONGEST, causal=True)) == pytest.approx(floor_ms(LONGEST) / 2)


@pytest.mark.parametrize(
    "device",
    [
        Device(kind="cpu", name="AMD EPYC"),
        Device(kind="cuda", name="NVIDIA H300", sm_clock_max_mhz=1980),
        dataclasses.replace(H200, mig=True),
        Device(kind="rocm", name="AMD Instinct MI300X"),
    ],
)
def test_a_device_whose_rates_are_not_known_is_held_to_nothing(device: Device) -> None:
    assert faster_than_possible(1e-9, LONGEST, device, "exact") is None


def test_every_published_time_of_the_h200_is_possible() -> None:
    found = [
        record for path in sorted((REPORTS / "h200/flux/records").glob("*.jsonl")) for record in records.read(path)
    ]
    passed = [record for record in found if record.timing and record.correctness]
    assert len(passed) > 100
    for record in passed:
        assert record.timing is not None
        assert record.correctness is not None
        kind = record.correctness.precision_class
        assert faster_than_possible(record.timing.median_ms, record.workload, H200, kind) is None


WITHOUT_TIMES = ("capabilities", "energy", "kernels", "parts")
TABLES = [path for path in (REPORTS / "h200/flux/artifacts").glob("*/*.csv") if path.stem not in WITHOUT_TIMES]


@pytest.mark.parametrize("path", sorted(TABLES), ids=lambda path: path.stem)
def test_every_published_table_of_the_h200_is_checked_and_possible(path: Path) -> None:
    found = check_table(path)  # its device is in the page's device.json
    assert found.checked > 0
    assert found.impossible == ()


def test_a_row_that_is_too_fast_is_named_with_its_line_and_the_arithmetic(tmp_path: Path) -> None:
    found = checked(
        tmp_path,
        "H200,honest,forward,bfloat16,1,4608,24,24,128,0.407,ms",
        "H200,made up,forward,bfloat16,1,4608,24,24,128,0.1,ms",
    )
    assert found.checked == 2
    assert [(row.line, row.what) for row in found.impossible] == [(3, "H200, made up, forward")]
    assert found.impossible[0].reason == faster_than_possible(0.1, LONGEST, H200, "exact")
    assert "rows checked: 2; faster than the device can be: 1" in found.text()


@pytest.mark.parametrize(("value", "unit"), [("100", "us"), ("0.0001", "s"), ("100000", "ns"), ("2609", "TFLOP/s")])
def test_any_unit_of_time_or_rate_is_checked(tmp_path: Path, value: str, unit: str) -> None:
    assert len(checked(tmp_path, f"H200,x,forward,bfloat16,1,4608,24,24,128,{value},{unit}").impossible) == 1


def test_a_rate_needs_no_shape(tmp_path: Path) -> None:
    found = checked(
        tmp_path, "H100-80GB,a,forward,,8,4096,,,,740,TFLOP/s", "H100-80GB,b,forward,,8,4096,,,,2200,TFLOP/s"
    )
    assert found.checked == 2
    assert [row.line for row in found.impossible] == [3]


def test_a_time_that_only_a_causal_call_can_take_is_refused_and_says_so(tmp_path: Path) -> None:
    row = "H200,x,forward,bfloat16,1,4608,24,24,128,0.2,ms"
    assert checked(tmp_path, row).impossible[0].reason.endswith("; possible if it was causal, which is not stated")
    assert checked(tmp_path, row, causal=True).impossible == ()
    stated = checked(tmp_path, f"{row},False", header=f"{HEADER},causal")
    assert stated.impossible[0].reason.endswith("= 0.244 ms")


@pytest.mark.parametrize(
    ("implementation", "dtype"), [("x", "fp8"), ("sage", ""), ("flash-attn-3 fp8", ""), ("x", "int8")]
)
def test_a_narrow_format_is_held_to_its_own_rate(tmp_path: Path, implementation: str, dtype: str) -> None:
    row = f"H200,{implementation},forward,{dtype},1,4608,24,24,128"
    assert [row.line for row in checked(tmp_path, f"{row},0.13,ms", f"{row},0.12,ms").impossible] == [3]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (",x,forward,bfloat16,1,4608,24,24,128,0.1,ms", "the GPU is not stated"),
        ("MI300X,x,forward,bfloat16,1,4608,24,24,128,0.1,ms", "the rates of MI300X are not known"),
        ("H200,x,forward,bfloat16,1,4608,,24,128,0.1,ms", "heads is not stated"),
        ("H200,x,forward,bfloat16,,4608,24,24,128,0.1,ms", "batch is not stated"),
        ("H200,x,,bfloat16,1,4608,24,24,128,0.1,ms", "the pass is not stated"),
        ("H200,x,forward,bfloat16,1,4608,24,24,128,OOM,ms", "the value is not a positive number: OOM"),
        ("H200,x,forward,bfloat16,1,4608,24,24,128,0,ms", "the value is not a positive number: 0"),
        ("H200,x,forward,bfloat16,1,4608,24,24,128,12,GB", "neither a time nor a rate: GB"),
        ("H200,x,forward,complex64,1,4608,24,24,128,0.1,ms", "the dtype is 'complex64'"),
        ("H200,x,forward,bfloat16,1,4608,24,7,128,0.1,ms", "no shape: heads of workload 'row' must be a multiple of"),
    ],
)
def test_a_row_that_cannot_be_checked_is_counted_with_the_reason(tmp_path: Path, row: str, why: str) -> None:
    found = checked(tmp_path, row)
    assert (found.checked, found.impossible) == (0, ())
    assert [reason.startswith(why) for reason in found.not_checked] == [True]
    assert list(found.not_checked.values()) == [1]


def test_the_card_may_be_given_where_the_table_does_not_say_it(tmp_path: Path) -> None:
    row = ",x,forward,bfloat16,1,4608,24,24,128,0.1,ms"
    assert len(checked(tmp_path, row, gpu="H200").impossible) == 1


def test_a_table_of_a_mig_slice_is_not_held_to_the_whole_card(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    device = {"device": {"name": "NVIDIA H200", "mig": True}}
    (tmp_path / "records/device.json").write_text(json.dumps(device), encoding="utf-8")
    found = checked(tmp_path, "flux1-1024px-t512,x,0.1", header="workload,variant,median_ms")
    assert found.not_checked == {"the rates of NVIDIA H200 MIG are not known": 1}


def test_the_command_prints_the_rows_and_exits_1_where_one_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    possible, not_so = (f"H200,x,forward,bfloat16,1,4608,24,24,128,{ms},ms" for ms in (0.4, 0.1))
    checked(tmp_path, possible)
    assert cli.main(["floor", str(tmp_path / "times.csv")]) == 0
    assert "faster than the device can be: 0" in capsys.readouterr().out
    checked(tmp_path, possible, not_so)
    assert cli.main(["floor", str(tmp_path / "times.csv"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["impossible"][0]["line"] == 3


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_table_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "times.csv").write_bytes(content)
    assert cli.main(["floor", str(tmp_path / "times.csv")]) == 2
    assert "must be a CSV" in capsys.readouterr().err
