"""Anyone's table of published figures: which rows cannot be right, and why others are not decidable."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pandas
import pytest
from fakes import REPOSITORY

from fluxbench import audit as of_frames
from fluxbench import cli
from fluxbench.analysis.audit import ours
from fluxbench.analysis.audit.columns import ALIASES, CAUSAL, COMPONENTS, LAYERS, PASSES, UNITS, VALUES
from fluxbench.analysis.audit.finding import Judgement, Kind
from fluxbench.analysis.audit.judge import Audit, Judged, audit
from fluxbench.core.errors import SetupError
from fluxbench.report.audit.text import text, why
from fluxbench.report.audit.words import sentence

HEADER = "gpu,implementation,pass,dtype,batch,seq_len,heads,kv_heads,head_dim,value,unit"
ROW = "H200,x,forward,bfloat16,1,4608,24,24,128"
TIDY = "source,table,gpu,implementation,over,pass,batch,seq_len,heads,kv_heads,head_dim,component,per,model,value,unit"
NOT_STATED = "; possible if it was causal, which is not stated"


def audited(folder: Path, *rows: str, header: str = HEADER, **options: object) -> Audit:
    (folder / "times.csv").write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return audit(folder / "times.csv", **options)  # type: ignore[arg-type]


def tidy(folder: Path, *rows: dict[str, object], **common: object) -> Audit:
    """Audit rows of a document: the fields of `TIDY` that each gives, beside those common to all."""
    shared = {"source": "s", "table": "t", "gpu": "H200", "pass": "forward", "batch": 1, "seq_len": 4608, "heads": 24}
    shared |= {"kv_heads": 24, "head_dim": 128, "unit": "ms", "implementation": "x", **common}
    lines = (",".join(str({**shared, **row}.get(name, "")) for name in TIDY.split(",")) for row in rows)
    return audited(folder, *lines, header=TIDY)


def judgements(table: Audit) -> list[str]:
    return [row.judgement.value for row in table.rows]


def found(table: Audit, kind: Kind) -> list[Judged]:
    return [row for row in table.rows if any(finding.kind is kind for finding in row.findings)]


def impossible_lines(table: Audit) -> list[int]:
    return [row.line for row in table.of(Judgement.IMPOSSIBLE)]


def only_sentence(table: Audit) -> str:
    [finding] = [finding for row in table.rows for finding in row.findings]
    return sentence(finding)


def test_a_row_that_is_too_fast_is_named_with_its_line_and_the_arithmetic(tmp_path: Path) -> None:
    table = audited(tmp_path, "H200,honest,forward,bfloat16,1,4608,24,24,128,0.407,ms", f"{ROW},0.1,ms")
    assert judgements(table) == ["fine", "impossible"]
    reason = "faster than the card can be: 0.1000 ms, but 2.61e+11 FLOP / 1,071 TFLOP/s = 0.244 ms"
    assert only_sentence(table) == f"{reason}; possible if it was causal, which is not stated"
    lines = text(table).splitlines()
    assert lines[0].startswith("line 3: H200, x, forward, bfloat16, batch 1, seq_len 4608, heads 24")
    assert lines[-1] == ("times.csv: 2 rows: 1 impossible, 0 contradictory, 0 implausible, 0 not decidable, 1 fine")


@pytest.mark.parametrize(
    ("too_fast", "possible", "unit"),
    [
        ("243", "244", "us"),
        ("243", "244", "µs"),
        ("0.000243", "0.000244", "s"),
        ("243001", "244001", "ns"),
        ("1072", "1071", "TFLOP/s"),
        ("1071901", "1070401", "GFLOP/s"),
        ("1.072", "1.071", "PFLOP/s"),
    ],
)
def test_any_unit_of_time_or_rate_is_judged(tmp_path: Path, too_fast: str, possible: str, unit: str) -> None:
    table = audited(tmp_path, f"{ROW},{too_fast},{unit}", f"{ROW},{possible},{unit}")
    assert judgements(table) == ["impossible", "fine"]


@pytest.mark.parametrize("column", ["median_ms", "burst_median_ms", "time_ms", "latency_ms", "ms", "tflops", "time_us"])
def test_times_and_rates_have_columns_of_their_own(tmp_path: Path, column: str) -> None:
    value = {"tflops": "1101", "time_us": "240.0"}.get(column, "0.2400")
    assert judgements(audited(tmp_path, f"H200,flux1-1024px-t512,{value}", header=f"gpu,workload,{column}")) == [
        "impossible"
    ]


def test_a_rate_needs_no_shape_and_follows_the_usual_count_of_operations(tmp_path: Path) -> None:
    limits = {"forward": 1071, "backward": 1338, "forward+backward": 1249}
    rows = [f"H200,x,{name},,,,,,,{rate + more},TFLOP/s" for name, rate in limits.items() for more in (0, 3)]
    table = audited(tmp_path, *rows)
    assert impossible_lines(table) == [3, 5, 7]
    assert sentence(table.rows[1].findings[0]) == (
        "faster than the card can be: 1,074 TFLOP/s, but its most is 1,071 TFLOP/s"
        "; possible if it was causal and its operations were computed as not causal"
    )
    doubled = audited(tmp_path, "H200,x,forward,,,,,,,2143,TFLOP/s")
    assert only_sentence(doubled).endswith("TFLOP/s")


@pytest.mark.parametrize(
    ("name", "shortest_ms"), [("forward", 0.2439), ("bwd", 0.4878), ("Forward + Backward", 0.7317), ("fwd+bwd", 0.7317)]
)
def test_a_backward_pass_takes_two_forward_passes(tmp_path: Path, name: str, shortest_ms: float) -> None:
    rows = [f"H200,x,{name},bf16,1,4608,24,24,128,{factor * shortest_ms:.5f},ms" for factor in (0.999, 1.001)]
    assert judgements(audited(tmp_path, *rows)) == ["impossible", "fine"]


@pytest.mark.parametrize(
    ("dtype", "judgement"),
    [
        *((name, "impossible") for name in ("", "bf16", "torch.bfloat16", "float16", "FP16", "half")),
        *((name, "fine") for name in ("float32", "fp32", "float", "tf32")),  # whose rate is not known
    ],
)
def test_a_16_bit_dtype_has_a_rate_and_float32_has_none(tmp_path: Path, dtype: str, judgement: str) -> None:
    assert judgements(audited(tmp_path, f"H200,x,forward,{dtype},1,4608,24,24,128,0.20,ms")) == [judgement]


def test_a_time_that_only_a_causal_call_can_take_says_so(tmp_path: Path) -> None:
    row = "H200,x,forward,bfloat16,1,4608,24,24,128,0.20,ms"
    assert only_sentence(audited(tmp_path, row)).endswith(NOT_STATED)
    assert judgements(audited(tmp_path, row, causal=True)) == ["fine"]
    stated = audited(tmp_path, f"{row},False", f"{row},True", header=f"{HEADER},causal", causal=True)
    assert judgements(stated) == ["impossible", "fine"]
    assert only_sentence(stated).endswith("= 0.244 ms")
    assert only_sentence(audited(tmp_path, row.replace("0.20,", "0.10,"))).endswith(
        "if it was causal, 0.122 ms at the least"
    )


def test_the_bytes_of_all_key_heads_count(tmp_path: Path) -> None:
    grouped = "H200,x,forward,bfloat16,64,64,24,{},128,0.0055,ms"
    table = audited(tmp_path, *(grouped.format(kv_heads) for kv_heads in ("24", "12", "")))
    assert impossible_lines(table) == [2]
    assert "in the cache) bytes / 4,917 GB/s" in only_sentence(table)


@pytest.mark.parametrize(
    ("workload", "possible_ms"), [("flux1-1024px-t512", 0.244), ("llama3-8b-decode-131072", 0.0965)]
)
def test_a_workload_that_is_known_by_name_gives_its_shape(tmp_path: Path, workload: str, possible_ms: float) -> None:
    rows = [f"H200,{workload},{possible_ms - 0.003:.4f}", f"H200,{workload},{possible_ms}"]
    table = audited(tmp_path, *rows, header="gpu,workload,median_ms")
    assert judgements(table) == ["impossible", "fine"]
    assert "causal" not in only_sentence(table)


@pytest.mark.parametrize(
    ("kv_seq_len", "window", "judgement"),
    [("", "", "impossible"), ("1024", "", "fine"), ("4608", "128", "not decidable")],
)
def test_fewer_keys_are_fewer_operations_and_those_of_a_window_are_not_counted(
    tmp_path: Path, kv_seq_len: str, window: str, judgement: str
) -> None:
    header = "gpu,batch,q_seqlen,kv_seqlen,nheads,headdim,causal,window_size,ms"
    assert judgements(audited(tmp_path, f"H200,1,4608,{kv_seq_len},24,128,0,{window},0.060", header=header)) == [
        judgement
    ]


@pytest.mark.parametrize(
    ("implementation", "dtype"), [("x", "fp8"), ("sage", ""), ("flash-attn-3 fp8", ""), ("x", "int8"), ("x", "nvfp4")]
)
def test_a_narrow_format_has_a_rate_of_its_own(tmp_path: Path, implementation: str, dtype: str) -> None:
    row = f"H200,{implementation},forward,{dtype},1,4608,24,24,128"
    assert judgements(audited(tmp_path, f"{row},0.130,ms", f"{row},0.120,ms")) == ["fine", "impossible"]
    of_bytes = f"H200,{implementation},forward,{dtype},64,64,24,24,128,0.0055,ms"  # its inputs may be narrow too
    assert judgements(audited(tmp_path, of_bytes)) == ["fine"]


@pytest.mark.parametrize(
    ("row", "missing"),
    [
        (",x,forward,bfloat16,1,4608,24,24,128,0.1,ms", "the GPU is not stated"),
        ("RX480,x,forward,bfloat16,1,4608,24,24,128,0.1,ms", "the peak of RX480 is not known; give it with --peak"),
        ("H200,x,forward,bfloat16,,4608,,24,128,0.1,ms", "batch and heads are not stated"),
        ("H200,x,forward,bfloat16,1,,24,24,128,0.1,ms", "seq_len is not stated"),
        ("H200,x,,bfloat16,1,4608,24,24,128,0.1,ms", "the pass is not stated"),
        ("H200,x,sideways,bfloat16,1,4608,24,24,128,0.1,ms", "the pass is 'sideways'"),
        (f"{ROW},OOM,ms", "the value is not a positive number: OOM"),
        (f"{ROW},0,ms", "the value is not a positive number: 0"),
        (f"{ROW},-3,ms", "the value is not a positive number: -3"),
        (f"{ROW},inf,ms", "the value is not a positive number: inf"),
        (f"{ROW},400 us,ms", "the value is not a positive number: 400 us"),
        (f"{ROW},12,furlongs", "the unit is not known: furlongs"),
        (f"{ROW},12,", "the unit is not known: none"),
        (f"{ROW},12,GB", "of what the memory is made is not stated"),
        (f"{ROW},55,% of peak", "the rate that the share is of is not beside it"),
        (f"{ROW},2,x", "the times that the speedup is of are not beside it"),
        ("H200,x,forward,complex64,1,4608,24,24,128,0.1,ms", "the dtype is 'complex64'"),
        (
            "H200,x,forward,bfloat16,1.5,4608,24,24,128,0.1,ms",
            "batch is not a whole number up to 1,000,000,000,000: 1.5",
        ),
        ("H200,x,forward,bfloat16,1,4608,24,7,128,0.1,ms", "no shape: workload 'row': heads of an attention must be a"),
    ],
)
def test_a_row_that_is_not_decidable_says_what_is_missing(tmp_path: Path, row: str, missing: str) -> None:
    table = audited(tmp_path, row, row)
    assert judgements(table) == ["not decidable"] * 2
    assert [(reason[: len(missing)], count) for reason, count in table.missing().items()] == [(missing, 2)]
    assert text(table).splitlines()[1].startswith(f"     2  {missing}")


def test_a_row_with_one_bad_figure_is_not_judged_by_its_others(tmp_path: Path) -> None:
    table = audited(tmp_path, "H200,flux1-1024px-t512,0.1,-5", header="gpu,workload,ms,tflops")
    assert (judgements(table), table.rows[0].findings) == (["not decidable"], ())


def test_a_card_that_nobody_knows_is_judged_by_the_peak_that_is_given(tmp_path: Path) -> None:
    row = "RX480,x,forward,bfloat16,1,4608,24,24,128,{},ms"
    table = audited(tmp_path, row.format("2.60"), row.format("2.62"), peak_tflops=100.0)
    assert judgements(table) == ["impossible", "fine"]
    assert judgements(audited(tmp_path, f"{ROW},0.3,ms", peak_tflops=100.0)) == ["fine"]  # the H200 is known


@pytest.mark.parametrize(
    "name",
    [
        *("A100-80GB", "A10G", "H100 PCIe", "H100 SXM", "H100 NVL", "H200", "L4", "L40S", "RTX 3090", "RTX 4090"),
        *("RTX 5090", "B200", "MI300X"),
    ],
)
def test_the_usual_cards_are_known(tmp_path: Path, name: str) -> None:
    assert judgements(audited(tmp_path, f"{name},x,forward,,,,,,,9999,TFLOP/s")) == ["impossible"]


@pytest.mark.parametrize(("is_slice", "judgement"), [(False, "impossible"), (True, "not decidable")])
def test_a_page_s_own_table_is_of_the_page_s_device(tmp_path: Path, is_slice: bool, judgement: str) -> None:
    (tmp_path / "records").mkdir()
    device = {"device": {"name": "NVIDIA H200", "mig": is_slice}}
    (tmp_path / "records/device.json").write_text(json.dumps(device), encoding="utf-8")
    table = audited(tmp_path, "flux1-1024px-t512,x,0.1", header="workload,variant,median_ms")
    assert judgements(table) == [judgement]


def test_every_row_of_our_own_pages_passes() -> None:
    here = ours.read(REPOSITORY / "reports")
    tables = [audit(path, ours=here) for path in sorted((REPOSITORY / "reports").glob("h200/*/artifacts/*/*.csv"))
              if path.stem in ("correctness", "frontier", "latency", "ranking", "throughput")]  # fmt: skip
    assert sum(table.count(Judgement.FINE) for table in tables) > 500
    assert [why(row) for table in tables for row in table.rows if row.findings] == []


@pytest.mark.parametrize("name", ["flash_attention_3", "cudnn_h200", "flash_attention_4"])
def test_tables_of_those_who_write_the_kernels_pass(name: str) -> None:
    table = audit(Path(__file__).parent / "published_tables" / f"{name}.csv", ours=ours.read(REPOSITORY / "reports"))
    assert judgements(table) == ["fine"] * len(table.rows)
    assert len(table.rows) > 5


def test_times_and_rates_that_do_not_belong_together_are_contradictory(tmp_path: Path) -> None:
    table = tidy(tmp_path, {"value": 0.5}, {"value": 522, "unit": "TFLOP/s"}, {"value": 700, "unit": "TFLOP/s"})
    assert judgements(table) == ["fine", "fine", "contradictory"]
    assert only_sentence(table) == "700 TFLOP/s, but its time of 0.500 ms for 2.61e+11 FLOP is 522 TFLOP/s"


@pytest.mark.parametrize(
    ("passes", "tflops", "explains"),
    [
        ("forward", 522 * 2.5, "; counting backward would explain it"),
        ("backward", 522 * 1.4, "; counting forward+backward would explain it"),
        ("backward", 522 / 2.5, "; counting forward would explain it"),
    ],
)
def test_planted_the_rate_of_the_wrong_pass_is_found(tmp_path: Path, passes: str, tflops: float, explains: str) -> None:
    ms = 0.5 if passes == "forward" else 1.25
    row = f"A100,x,{passes},bf16,1,4608,24,24,128,{6 * ms},{tflops / 6:.2f},False"
    header = HEADER.replace("value,unit", "ms,tflops,causal")
    table = audited(tmp_path, row, header=header)
    assert found(table, Kind.TIME_AND_RATE)
    [finding] = [finding for finding in table.rows[0].findings if finding.kind is Kind.TIME_AND_RATE]
    assert sentence(finding).endswith(explains)


def test_planted_microseconds_that_are_called_milliseconds_are_found(tmp_path: Path) -> None:
    table = audited(tmp_path, f"{ROW},407,ms", f"{ROW},40.7,ms")
    assert judgements(table) == ["implausible", "fine"]
    assert only_sentence(table).endswith("float32 needs; a time in microseconds would explain it")
    beside = tidy(tmp_path, {"value": 407.0}, {"value": 641, "unit": "TFLOP/s"})
    assert sentence(found(beside, Kind.TIME_AND_RATE)[0].findings[-1]).endswith("; a factor of 1,000 would explain it")


def test_planted_a_causal_row_without_its_mark_is_found_and_says_what_explains_it(tmp_path: Path) -> None:
    assert only_sentence(audited(tmp_path, f"{ROW},0.23,ms")).endswith(NOT_STATED)


@pytest.mark.parametrize(("first", "second", "expected"), [("2.50", "1.25", "fine"), ("1.25", "2.50", "contradictory")])
def test_planted_swapped_speedups_are_found(tmp_path: Path, first: str, second: str, expected: str) -> None:
    times: list[dict[str, object]] = [
        {"implementation": name, "value": value} for name, value in (("base", 2.0), ("fast", 0.8), ("slow", 1.6))
    ]
    speedups: list[dict[str, object]] = [
        {"implementation": name, "over": "base", "value": value, "unit": "x"}
        for name, value in (("fast", first), ("slow", second))
    ]
    assert judgements(tidy(tmp_path, *times, *speedups)) == ["fine"] * 3 + [expected] * 2


@pytest.mark.parametrize(
    ("value", "unit", "judgement", "binary"),
    [
        ("17.2", "GB", "fine", False),
        ("16.0", "GiB", "fine", False),
        ("16.0", "GB", "fine", True),  # planted: GB for GiB, which the text names
        ("17.2", "GiB", "contradictory", False),  # planted: GiB for GB
        ("8.6", "GB", "contradictory", False),
    ],
)
def test_planted_powers_of_two_for_powers_of_ten_are_found_or_named(
    tmp_path: Path, value: str, unit: str, judgement: str, binary: bool
) -> None:
    cache = {"component": "kv cache", "batch": 64, "seq_len": 32768, "heads": 32, "kv_heads": 32, "head_dim": 64}
    table = tidy(tmp_path, {**cache, "value": value, "unit": unit})
    assert (judgements(table), table.rows[0].binary) == ([judgement], binary)
    assert ("only as powers of two" in text(table)) == binary


def test_a_total_shorter_than_its_parts_is_contradictory(tmp_path: Path) -> None:
    passes = [("forward", 1.0), ("backward", 2.5), ("forward+backward", 3.2)]
    rows: list[dict[str, object]] = [{"pass": name, "value": value} for name, value in passes]
    assert judgements(tidy(tmp_path, *rows)) == ["fine"] * 3
    rows[2]["value"] = 2.3
    assert [row.line for row in found(tidy(tmp_path, *rows), Kind.TOTAL_UNDER_PART)] == [4]
    rows[2]["value"] = 2.54
    assert [row.line for row in found(tidy(tmp_path, *rows), Kind.TOTAL_UNDER_SUM)] == [4]
    rows[1]["value"] = 0.8
    assert [row.line for row in found(tidy(tmp_path, *rows), Kind.BACKWARD_SHORTER)] == [3]


def test_growth_per_token_beyond_the_length_is_contradictory(tmp_path: Path) -> None:
    def rows(power: float) -> list[dict[str, object]]:
        return [{"seq_len": n, "value": f"{(n / 1024) ** power:.4g}", "per": "token"} for n in (1024, 2048, 4096)]

    assert judgements(tidy(tmp_path, *rows(1.0))) == ["fine"] * 3
    assert {row.judgement for row in found(tidy(tmp_path, *rows(2.0)), Kind.PER_TOKEN_GROWTH)} == {
        Judgement.CONTRADICTORY
    }


@pytest.mark.parametrize(("tokens_per_s", "judgement"), [(151, "fine"), (201, "impossible")])
def test_generation_cannot_read_its_weights_faster_than_the_memory(
    tmp_path: Path, tokens_per_s: int, judgement: str
) -> None:
    row: dict[str, object] = {"model": "Llama 2 7B", "pass": "generation", "value": tokens_per_s, "unit": "tokens/s"}
    assert judgements(tidy(tmp_path, row, gpu="A100-80GB")) == [judgement]


def test_a_frame_is_judged_as_its_csv(tmp_path: Path) -> None:
    table = audited(tmp_path, f"{ROW},0.1,ms", f"{ROW},0.4,ms", ",x,forward,,1,4608,24,,128,0.4,ms")
    frame = pandas.read_csv(tmp_path / "times.csv")
    of_frame = of_frames.check(frame)
    assert judgements(of_frame) == judgements(table) == ["impossible", "fine", "not decidable"]
    with pytest.raises(SetupError, match="got no unit"):
        of_frames.check(frame.drop(columns="unit"))


def test_the_command_exits_1_where_a_figure_cannot_be_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "times.csv")
    audited(tmp_path, f"{ROW},0.4,ms")
    assert cli.main(["audit", path]) == 0
    assert "1 row: 0 impossible" in capsys.readouterr().out
    audited(tmp_path, f"{ROW},0.4,ms", f"{ROW},0.20,ms".replace("H200", ""))
    assert cli.main(["audit", path, "--json", "--gpu", "H200"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["counts"]["impossible"], [row["line"] for row in shown["found"]]) == (1, [3])
    assert shown["found"][0]["findings"][0]["values"]["unless_causal"] is True
    assert cli.main(["audit", path, "--gpu", "H200", "--causal"]) == 0
    audited(tmp_path, ",x,forward,,1,4608,24,,128,0.4,ms")
    assert cli.main(["audit", path]) == 1  # nothing could be judged
    assert cli.main(["audit", path, "--gpu", "RX480", "--peak", "2000"]) == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "times.csv must exist"),
        (b"\xff\xfe\x00", "times.csv must be a CSV: "),
        (b"", "its first line must name the columns, got none"),
        (b"H200,x,forward,bfloat16,1,4608,24,24,128,0.4,ms\n", "its first line must name the columns, got H200,x"),
        (b"gpu,speed\nH200,3\n", "a column must give value with unit, or be one of median_ms"),
        (b"gpu,value\nH200,3\n", "a table with value or unit must have both, got no unit"),
        (b"gpu,batch,bs,ms\nH200,1,2,3\n", "one column must give batch, got 'batch' and 'bs'"),
        (b"gpu,ms\nH200,=A1*2\n", "line 2 must hold values, got the formula '=A1*2'; export the values"),
        (b"gpu,median_ms\n" + b"a" * 200_000, "must be a CSV: field larger than field limit"),
        (b"gpu,ms\n" + b"H200,3\n" * 1_000_000, "a table must have at most 100,000 rows, got more; split it"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_sentence_and_nothing_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / "times.csv").write_bytes(content)
    assert cli.main(["audit", str(tmp_path / "times.csv")]) == 2
    captured = capsys.readouterr()
    assert (says in captured.err, captured.out, captured.err.count("\n")) == (True, "", 1)


def test_the_documentation_names_every_column_unit_and_word() -> None:
    text = (REPOSITORY / "docs/audit.md").read_text(encoding="utf-8")
    names = {*ALIASES, *(alias for aliases in ALIASES.values() for alias in aliases), *VALUES, *CAUSAL}
    names |= {*UNITS, *PASSES, *LAYERS, *COMPONENTS} - {"μs", "forward_backward", "fwd_bwd"}  # other spellings
    assert sorted(name for name in names if f"`{name}`" not in text) == []
    documented = {alias.strip(" `") for line in text.splitlines() if line.startswith("| `") and line.count("|") == 5
                  for alias in re.split("[,;]", line.split("|")[2])}  # fmt: skip
    assert documented - {""} <= names


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "times.csv")
    assert cli.main(["audit", str(tmp_path / "times.csv")]) == 2
    assert "got a FIFO where a regular file must be" in capsys.readouterr().err
