"""Anyone's table of times or rates: which rows are impossible, and why others are not checked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes import REPOSITORY

from fluxbench import cli
from fluxbench.analysis.audit.judge import Audit, audit

HEADER = "gpu,implementation,pass,dtype,batch,seq_len,heads,kv_heads,head_dim,value,unit"
ROW = "H200,x,forward,bfloat16,1,4608,24,24,128"
NOT_STATED = "; possible if it was causal, which is not stated"


def audited(folder: Path, *rows: str, header: str = HEADER, **options: object) -> Audit:
    (folder / "times.csv").write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return audit(folder / "times.csv", **options)  # type: ignore[arg-type]


def test_a_row_that_is_too_fast_is_named_with_its_line_and_the_arithmetic(tmp_path: Path) -> None:
    table = audited(tmp_path, "H200,honest,forward,bfloat16,1,4608,24,24,128,0.407,ms", f"{ROW},0.1,ms")
    reason = "faster than the device can be: 0.1 ms measured, but 2.61e+11 FLOP / 1,071 TFLOP/s = 0.244 ms"
    assert [(reading.line, reading.what, reading.reason) for reading in table.impossible] == [
        (3, "H200, x, forward", reason)
    ]
    assert (
        table.text() == f"line 3: H200, x, forward: {reason}\ntimes.csv: rows checked: 2; impossible: 1; not checked: 0"
    )


@pytest.mark.parametrize(
    ("just_too_fast", "possible", "unit"),
    [
        ("243", "244", "us"),
        ("243", "244", "µs"),
        ("0.000243", "0.000244", "s"),
        ("243000", "244000", "ns"),
        ("1071", "1070", "TFLOP/s"),
        ("1071000", "1070000", "GFLOP/s"),
        ("1.071", "1.07", "PFLOP/s"),
    ],
)
def test_any_unit_of_time_or_rate_is_checked(tmp_path: Path, just_too_fast: str, possible: str, unit: str) -> None:
    table = audited(tmp_path, f"{ROW},{just_too_fast},{unit}", f"{ROW},{possible},{unit}")
    assert ([reading.line for reading in table.impossible], table.checked) == ([2], 2)


@pytest.mark.parametrize("column", ["median_ms", "burst_median_ms", "time_ms", "latency_ms", "ms", "tflops"])
def test_times_have_columns_of_their_own_and_stand_before_rates(tmp_path: Path, column: str) -> None:
    value = "1100" if column == "tflops" else "0.24"
    header = f"gpu,workload,{column}" + ("" if column == "tflops" else ",tflops")
    rows = f"H200,flux1-1024px-t512,{value}" + ("" if column == "tflops" else ",9999")
    table = audited(tmp_path, rows, header=header)
    assert len(table.impossible) == 1
    assert (" ms measured" in table.impossible[0].reason) == (column != "tflops")


def test_a_rate_needs_no_shape_and_follows_the_usual_count_of_operations(tmp_path: Path) -> None:
    limits = {"forward": 1070, "backward": 1338, "forward+backward": 1248}
    rows = [f"H200,x,{name},,,,,,,{rate + more},TFLOP/s" for name, rate in limits.items() for more in (0, 1)]
    table = audited(tmp_path, *rows)
    assert [reading.line for reading in table.impossible] == [3, 5, 7]
    assert table.impossible[0].reason == (
        "faster than the device can be: 1,071 TFLOP/s measured, but its most is 1,071 TFLOP/s"
        "; possible if it was causal and its operations were computed as not causal"
    )
    doubled = audited(tmp_path, "H200,x,forward,,,,,,,2142,TFLOP/s")
    assert doubled.impossible[0].reason.endswith("TFLOP/s")


@pytest.mark.parametrize(
    ("name", "shortest_ms"), [("forward", 0.2439), ("bwd", 0.4878), ("Forward + Backward", 0.7317), ("fwd+bwd", 0.7317)]
)
def test_a_backward_pass_takes_two_forward_passes(tmp_path: Path, name: str, shortest_ms: float) -> None:
    rows = [f"H200,x,{name},bf16,1,4608,24,24,128,{factor * shortest_ms},ms" for factor in (0.999, 1.001)]
    assert [reading.line for reading in audited(tmp_path, *rows).impossible] == [2]


@pytest.mark.parametrize(
    ("dtype", "impossible"),
    [
        *((name, 1) for name in ("", "bf16", "torch.bfloat16", "float16", "FP16", "half")),
        *((name, 0) for name in ("float32", "fp32", "float", "tf32")),  # whose rate is not known
    ],
)
def test_a_16_bit_dtype_has_a_rate_and_float32_has_none(tmp_path: Path, dtype: str, impossible: int) -> None:
    table = audited(tmp_path, f"H200,x,forward,{dtype},1,4608,24,24,128,0.2,ms")
    assert (table.checked, len(table.impossible)) == (1, impossible)


def test_a_time_that_only_a_causal_call_can_take_is_refused_and_says_so(tmp_path: Path) -> None:
    row = "H200,x,forward,bfloat16,1,4608,24,24,128,0.2,ms"
    assert audited(tmp_path, row).impossible[0].reason.endswith(NOT_STATED)
    assert audited(tmp_path, row, causal=True).impossible == ()
    stated = audited(tmp_path, f"{row},False", f"{row},True", header=f"{HEADER},causal", causal=True)
    assert [(reading.line, reading.reason[-10:]) for reading in stated.impossible] == [(2, "= 0.244 ms")]
    assert audited(tmp_path, row.replace("0.2,", "0.1,")).impossible[0].reason.endswith("= 0.244 ms")


def test_a_mask_that_is_neither_stated_nor_denied_is_not_checked(tmp_path: Path) -> None:
    row = "H200,x,forward,bfloat16,1,4608,24,24,128,0.2,ms,lower-right"
    table = audited(tmp_path, row, header=f"{HEADER},causal")
    assert table.not_checked == {"causal is 'lower-right', neither true nor false": 1}
    (tmp_path / "table.csv").write_text(f"{HEADER},causal\n{row}\n", encoding="utf-8")
    assert cli.main(["audit", str(tmp_path / "table.csv")]) == 1  # nothing was checked


def test_the_bytes_of_all_key_heads_count(tmp_path: Path) -> None:
    grouped = "H200,x,forward,bfloat16,64,64,24,{},128,0.0055,ms"
    table = audited(tmp_path, *(grouped.format(kv_heads) for kv_heads in ("24", "12", "")))
    assert [reading.line for reading in table.impossible] == [2]
    assert "in the cache) bytes / 4,917 GB/s" in table.impossible[0].reason


@pytest.mark.parametrize(
    ("workload", "possible_ms"), [("flux1-1024px-t512", 0.244), ("llama3-8b-decode-131072", 0.0965)]
)
def test_a_workload_that_is_known_by_name_gives_its_shape(tmp_path: Path, workload: str, possible_ms: float) -> None:
    rows = [f"H200,{workload},{possible_ms - 0.003}", f"H200,{workload},{possible_ms}"]
    table = audited(tmp_path, *rows, header="gpu,workload,median_ms")
    assert [reading.line for reading in table.impossible] == [2]
    assert "causal" not in table.impossible[0].reason


def test_a_known_backward_workload_is_held_to_its_own_operations(tmp_path: Path) -> None:
    header = "gpu,workload,median_ms"
    assert len(audited(tmp_path, "H200,flux1-1024px-t512-backward,0.48", header=header).impossible) == 1


@pytest.mark.parametrize(
    ("implementation", "dtype"), [("x", "fp8"), ("sage", ""), ("flash-attn-3 fp8", ""), ("x", "int8"), ("x", "nvfp4")]
)
def test_a_narrow_format_has_a_rate_of_its_own(tmp_path: Path, implementation: str, dtype: str) -> None:
    row = f"H200,{implementation},forward,{dtype},1,4608,24,24,128"
    assert [reading.line for reading in audited(tmp_path, f"{row},0.13,ms", f"{row},0.12,ms").impossible] == [3]
    of_bytes = f"H200,{implementation},forward,{dtype},64,64,24,24,128,0.0055,ms"  # its inputs may be narrow too
    assert audited(tmp_path, of_bytes).impossible == ()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (",x,forward,bfloat16,1,4608,24,24,128,0.1,ms", "the GPU is not stated"),
        ("MI300X,x,forward,bfloat16,1,4608,24,24,128,0.1,ms", "the rates of MI300X are not known"),
        ("H200,x,forward,bfloat16,1,4608,,24,128,0.1,ms", "heads is not stated"),
        ("H200,x,forward,bfloat16,,4608,24,24,128,0.1,ms", "batch is not stated"),
        ("H200,x,forward,bfloat16,1,,24,24,128,0.1,ms", "seq_len is not stated"),
        ("H200,x,forward,bfloat16,1,4608,24,24,,0.1,ms", "head_dim is not stated"),
        ("H200,x,,bfloat16,1,4608,24,24,128,0.1,ms", "the pass is not stated"),
        ("H200,x,sideways,bfloat16,1,4608,24,24,128,0.1,ms", "the pass is 'sideways'"),
        (
            "H200,x,forward,bfloat16,1e300,4608,24,24,128,0.1,ms",
            "batch is not a whole number up to 1,000,000,000,000: 1e",
        ),
        (
            "H200,x,forward,bfloat16,1.5,4608,24,24,128,0.1,ms",
            "batch is not a whole number up to 1,000,000,000,000: 1.5",
        ),
        ("H200,x,forward,bfloat16,-1,4608,24,24,128,0.1,ms", "the value is not a positive number: -1"),
        (f"{ROW},{'a' * 9999},ms", "the value is not a positive number: aaa"),
        (f"{ROW},OOM,ms", "the value is not a positive number: OOM"),
        (f"{ROW},0,ms", "the value is not a positive number: 0"),
        (f"{ROW},inf,ms", "the value is not a positive number: inf"),
        (f"{ROW},12,GB", "neither a time nor a rate: GB"),
        (f"{ROW},12,", "neither a time nor a rate: no unit"),
        ("H200,x,forward,complex64,1,4608,24,24,128,0.1,ms", "the dtype is 'complex64'"),
        ("H200,x,forward,bfloat16,1,4608,24,7,128,0.1,ms", "no shape: workload 'row': heads of an attention must be a"),
    ],
)
def test_a_row_that_cannot_be_checked_is_counted_with_the_reason(tmp_path: Path, row: str, why: str) -> None:
    table = audited(tmp_path, row, row)
    assert (table.checked, table.impossible) == (0, ())
    assert [(reason[: len(why)], count) for reason, count in table.not_checked.items()] == [(why, 2)]
    assert table.text().splitlines()[0] == "times.csv: rows checked: 0; impossible: 0; not checked: 2"
    assert table.text().splitlines()[1].startswith(f"     2  {why}")


@pytest.mark.parametrize(
    ("row", "why"), [(",0.1,", "of no workload"), ("x,,CRASHED", "no time: CRASHED"), ("x,,", "no time")]
)
def test_a_row_of_a_page_without_a_time_is_not_checked(tmp_path: Path, row: str, why: str) -> None:
    assert audited(tmp_path, row, header="workload,median_ms,status").not_checked == {why: 1}


def test_the_card_may_be_given_where_the_table_does_not_state_it(tmp_path: Path) -> None:
    row = ",x,forward,bfloat16,1,4608,24,24,128,0.1,ms"
    assert len(audited(tmp_path, row, gpu="H200").impossible) == 1
    assert audited(tmp_path, f"H100,{row[1:]}", gpu="MI300X").checked == 1


@pytest.mark.parametrize(
    ("is_slice", "not_checked"), [(False, {}), (True, {"the rates of NVIDIA H200 MIG are not known": 1})]
)
def test_a_page_s_own_table_is_of_the_page_s_device(
    tmp_path: Path, is_slice: bool, not_checked: dict[str, int]
) -> None:
    (tmp_path / "records").mkdir()
    device = {"device": {"name": "NVIDIA H200", "mig": is_slice}}
    (tmp_path / "records/device.json").write_text(json.dumps(device), encoding="utf-8")
    table = audited(tmp_path, "flux1-1024px-t512,x,0.1", header="workload,variant,median_ms")
    assert (table.not_checked, len(table.impossible)) == (not_checked, 0 if is_slice else 1)


def test_all_published_times_of_the_h200_are_possible() -> None:
    tables = [audit(path) for path in (REPOSITORY / "reports/h200/flux/artifacts").glob("*/*.csv")]
    assert sum(table.checked for table in tables) > 500
    assert [table.impossible for table in tables if table.impossible] == []


def test_the_command_prints_the_rows_and_exits_1_where_one_is_impossible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "times.csv")
    audited(tmp_path, f"{ROW},0.4,ms")
    assert cli.main(["audit", path]) == 0
    assert "rows checked: 1; impossible: 0" in capsys.readouterr().out
    audited(tmp_path, f"{ROW},0.4,ms", f"{ROW},0.2,ms".replace("H200", ""))
    assert cli.main(["audit", path, "--json", "--gpu", "H200"]) == 1
    assert [reading["line"] for reading in json.loads(capsys.readouterr().out)["impossible"]] == [3]
    assert cli.main(["audit", path, "--gpu", "H200", "--causal"]) == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "times.csv must exist"),
        (b"\xff\xfe\x00", "times.csv must be a CSV: "),
        (b"", "its first line must name the columns, got none"),
        (
            b"H200,x,forward,bfloat16,1,4608,24,24,128,0.4,ms\n",
            "its first line must name the columns, got H200,x,forward",
        ),
        (b"gpu,median_ms\n" + b"a" * 200_000, "must be a CSV: field larger than field limit"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "times.csv").write_bytes(content)
    assert cli.main(["audit", str(tmp_path / "times.csv")]) == 2
    assert says in capsys.readouterr().err


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "times.csv")
    assert cli.main(["audit", str(tmp_path / "times.csv")]) == 2
    assert "got a FIFO where a regular file must be" in capsys.readouterr().err
