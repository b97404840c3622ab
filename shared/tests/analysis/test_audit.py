"""Anyone's table of published figures: which rows cannot be right, and why others are not decidable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from audits import CONDITIONAL, HEADER, NOT_STATED, ROW, audited, judgements, only_sentence
from fakes import REPOSITORY

from fluxbench.analysis.audit import ours
from fluxbench.analysis.audit.finding import Judgement
from fluxbench.analysis.audit.judge import Audit, audit
from fluxbench.operations import sets
from fluxbench.report.audit.text import text, to_json, why
from fluxbench.report.audit.words import sentence


def of_an_h200(folder: Path, *, mig: bool = False) -> None:
    """Make a folder that of a page, whose device is an H200 or a slice of one."""
    (folder / "records").mkdir()
    device = {"device": {"name": "NVIDIA H200", "mig": mig}}
    (folder / "records/device.json").write_text(json.dumps(device), encoding="utf-8")


def impossible_lines(table: Audit) -> list[int]:
    return [row.line for row in table.of(Judgement.IMPOSSIBLE)]


def test_a_row_that_is_too_fast_is_named_with_its_line_and_the_arithmetic(tmp_path: Path) -> None:
    table = audited(tmp_path, "H200,honest,forward,bfloat16,1,4608,24,24,128,0.407,ms", f"{ROW},0.1,ms")
    assert judgements(table) == ["fine", CONDITIONAL]
    reason = "faster than the card can be: 0.1000 ms, but 2.61e+11 FLOP / 1,071 TFLOP/s = 0.244 ms"
    assert only_sentence(table) == f"{reason}{NOT_STATED}"
    lines = text(table).splitlines()
    assert lines[0].startswith("line 3: H200, x, forward, bfloat16, batch 1, seq_len 4608, heads 24")
    counts = f"0 impossible, 0 contradictory, 1 {CONDITIONAL}, 0 implausible, 0 not decidable, 1 fine"
    assert lines[-1] == f"times.csv: 2 rows: {counts}"


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
    assert judgements(table) == [CONDITIONAL, "fine"]


@pytest.mark.parametrize("column", ["median_ms", "burst_median_ms", "time_ms", "latency_ms", "ms", "tflops", "time_us"])
def test_times_and_rates_have_columns_of_their_own(tmp_path: Path, column: str) -> None:
    value = {"tflops": "1101", "time_us": "240.0"}.get(column, "0.2400")
    assert judgements(audited(tmp_path, f"H200,flux1-1024px-t512,{value}", header=f"gpu,workload,{column}")) == [
        "impossible"
    ]


def test_a_rate_needs_no_shape_and_follows_the_usual_count_of_operations(tmp_path: Path) -> None:
    limits = {"forward": 1071, "backward": 1338, "forward+backward": 1249}
    rows = [f"H200,x,{name},bf16,,,,,,{rate + more},TFLOP/s" for name, rate in limits.items() for more in (0, 3)]
    table = audited(tmp_path, *rows)
    assert judgements(table) == ["fine", CONDITIONAL] * 3
    assert sentence(table.rows[1].findings[0]) == (
        f"faster than the card can be: 1,074 TFLOP/s, but its most is 1,071 TFLOP/s{NOT_STATED}"
    )
    doubled = audited(tmp_path, "H200,x,forward,bf16,,,,,,2143,TFLOP/s")
    assert (judgements(doubled), only_sentence(doubled)[-7:]) == (["impossible"], "TFLOP/s")


@pytest.mark.parametrize(
    ("name", "shortest_ms"), [("forward", 0.2439), ("bwd", 0.4878), ("Forward + Backward", 0.7317), ("fwd+bwd", 0.7317)]
)
def test_a_backward_pass_takes_two_forward_passes(tmp_path: Path, name: str, shortest_ms: float) -> None:
    rows = [f"H200,x,{name},bf16,1,4608,24,24,128,{factor * shortest_ms:.5f},ms" for factor in (0.999, 1.001)]
    assert judgements(audited(tmp_path, *rows)) == [CONDITIONAL, "fine"]


@pytest.mark.parametrize(
    ("dtype", "judgement"),
    [
        *((name, CONDITIONAL) for name in ("", "bf16", "torch.bfloat16", "float16", "FP16", "half")),
        *((name, "fine") for name in ("float32", "fp32", "float", "tf32")),  # whose rate is not known
    ],
)
def test_a_16_bit_dtype_has_a_rate_and_float32_has_none(tmp_path: Path, dtype: str, judgement: str) -> None:
    assert judgements(audited(tmp_path, f"H200,x,forward,{dtype},1,4608,24,24,128,0.20,ms")) == [judgement]


@pytest.mark.parametrize(
    ("ms", "stated", "judgement", "assumed"),
    [  # 0.244 ms at the least in 16 bits, half of it if causal, and half again if narrow
        ("0.20", "bf16,", CONDITIONAL, "the call was not causal"),
        ("0.20", ",False", CONDITIONAL, "it computed in 16 bits"),
        ("0.20", ",", CONDITIONAL, "the call was not causal and it computed in 16 bits"),
        ("0.10", ",", CONDITIONAL, "either the call was not causal or it computed in 16 bits"),
        ("0.20", "bf16,False", "impossible", ""),
        ("0.10", "bf16,", "impossible", ""),
        ("0.05", ",", "impossible", ""),
    ],
)
def test_a_time_is_impossible_only_by_every_mask_and_precision_that_its_row_leaves_open(
    tmp_path: Path, ms: str, stated: str, judgement: str, assumed: str
) -> None:
    row, header = f"H200,1,4608,24,24,128,{ms},{stated}", "gpu,batch,seq_len,heads,kv_heads,head_dim,ms,dtype,causal"
    table = audited(tmp_path, row, header=header)
    assert (judgements(table), table.rows[0].findings[0].assumed) == ([judgement], assumed)


def test_a_time_that_only_a_causal_call_can_take_says_so(tmp_path: Path) -> None:
    row = "H200,x,forward,bfloat16,1,4608,24,24,128,0.20,ms"
    assert only_sentence(audited(tmp_path, row)).endswith(NOT_STATED)
    assert judgements(audited(tmp_path, row, causal=True)) == ["fine"]
    stated = audited(tmp_path, f"{row},False", f"{row},True", header=f"{HEADER},causal", causal=True)
    assert judgements(stated) == ["impossible", "fine"]
    assert only_sentence(stated).endswith("= 0.244 ms")
    assert only_sentence(audited(tmp_path, row.replace("0.20,", "0.10,"))).endswith(
        "= 0.244 ms, or 0.122 ms if it was causal"
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
    assert judgements(audited(tmp_path, f"{row},0.130,ms", f"{row},0.120,ms")) == ["fine", CONDITIONAL]
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
        (f"{ROW},1,234.5,ms", "it has more cells than there are columns: ms"),
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
    assert [*json.loads(to_json(table))["not_decidable_lines"].values()] == [[2, 3]]


def test_a_row_with_one_bad_figure_is_not_judged_by_its_others(tmp_path: Path) -> None:
    table = audited(tmp_path, "H200,flux1-1024px-t512,0.1,-5", header="gpu,workload,ms,tflops")
    assert (judgements(table), table.rows[0].findings) == (["not decidable"], ())


def test_a_card_that_nobody_knows_is_judged_by_the_peak_that_is_given(tmp_path: Path) -> None:
    row = "RX480,x,forward,bfloat16,1,4608,24,24,128,{},ms"
    table = audited(tmp_path, row.format("2.60"), row.format("2.62"), peak_tflops=100.0)
    assert judgements(table) == [CONDITIONAL, "fine"]
    assert judgements(audited(tmp_path, f"{ROW},0.3,ms", peak_tflops=100.0)) == ["fine"]  # the H200 is known


@pytest.mark.parametrize(
    "name",
    [
        *("A100-80GB", "A10G", "H100 PCIe", "H100 SXM", "H100 NVL", "H200", "L4", "L40S", "RTX 3090", "RTX 4090"),
        *("RTX 5090", "B200", "MI300X"),
    ],
)
def test_the_usual_cards_are_known(tmp_path: Path, name: str) -> None:
    assert judgements(audited(tmp_path, f"{name},x,forward,bf16,,,,,,9999,TFLOP/s")) == ["impossible"]


@pytest.mark.parametrize(("is_slice", "judgement"), [(False, "impossible"), (True, "not decidable")])
def test_a_page_s_own_table_is_of_the_page_s_device(tmp_path: Path, is_slice: bool, judgement: str) -> None:
    of_an_h200(tmp_path, mig=is_slice)
    table = audited(tmp_path, "flux1-1024px-t512,x,0.1", header="workload,variant,median_ms")
    assert judgements(table) == [judgement]


@pytest.mark.parametrize(("name", "factor"), [("", 1.0), ("-backward", 2.5), ("-training", 3.5)])
def test_a_workload_of_ours_by_its_name_alone_has_the_operations_of_its_passes(
    tmp_path: Path, name: str, factor: float
) -> None:
    of_an_h200(tmp_path)
    tflops = 4 * 24 * 4608**2 * 128 * factor / 1e9  # in 1 ms
    rows = [f"flux1-1024px-t512{name},x,1.0,{share * tflops}" for share in (1, 0.5)]
    table = audited(tmp_path, *rows, header="workload,variant,median_ms,tflops")
    assert judgements(table) == ["fine", "contradictory"]


def test_a_layer_of_ours_has_the_operations_of_its_projections_too(tmp_path: Path) -> None:
    of_an_h200(tmp_path)
    tflops = sets.by_name()["llama3-8b-layer-training"].cost.flops / 1e9  # in 1 ms
    rows = [f"llama3-8b-layer-training,x,{ms},{tflops / ms}" for ms in (0.5, 4.0)]
    table = audited(tmp_path, *rows, header="workload,variant,median_ms,tflops")
    assert judgements(table) == ["impossible", "fine"]


def test_every_row_of_our_own_pages_passes() -> None:
    here = ours.read(REPOSITORY / "reports")
    judged = ("correctness", "frontier", "latency", "ranking", "throughput")
    tables = [audit(path, ours=here) for path in sorted((REPOSITORY / "reports").glob("h200/*/artifacts/*/*.csv"))
              if path.stem in judged and "gb_s" not in path.read_text(encoding="utf-8").partition("\n")[0]]  # fmt: skip
    assert sum(table.count(Judgement.FINE) for table in tables) > 500
    assert [why(row) for table in tables for row in table.rows if row.findings] == []


def test_operations_of_one_table_may_have_columns_of_their_own_for_one_thing(tmp_path: Path) -> None:
    rows = "gpu,pass,dtype,batch,seqlen,heads,head_dim_qk,head_dim,ms\n"
    shape = "H100 SXM,forward,bfloat16,4,4096,16"
    path = tmp_path / "table.csv"
    path.write_text(f"{rows}{shape},128,,0.5\n{shape},,128,0.5\n{shape},128,,0.005\n{shape},,128,0.005\n", "utf-8")
    assert judgements(audit(path)) == ["fine", "fine", "impossible", "impossible"]


@pytest.mark.parametrize("name", ["flash_attention_3", "cudnn_h200", "flash_attention_4"])
def test_tables_of_those_who_write_the_kernels_pass(name: str) -> None:
    table = audit(Path(__file__).parent / "published_tables" / f"{name}.csv", ours=ours.read(REPOSITORY / "reports"))
    assert judgements(table) == ["fine"] * len(table.rows)
    assert len(table.rows) > 5
