"""Findings in words: what each kind says, how many are shown, and where they link to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from planted import EQUAL, LENGTHS, at, kernel, page
from sample_records import changed, record, results

from fluxbench.analysis.findings.finding import Case, Finding, Kind, Part
from fluxbench.records.schema import KernelShare, Record
from fluxbench.report import tables
from fluxbench.report.blocks import Bullets, Fold
from fluxbench.report.findings import SHOWN, blocks, sentence
from fluxbench.stats.intervals import Estimate

NOTEBOOK = Path(__file__).resolve().parents[3] / "notebooks" / "flux.md"
BY_X = {workload.x: workload for workload in LENGTHS}


def case(variant: str, value: float, against: str = "", *lengths: int, second: float = 0.0, **fields: Any) -> Case:
    """Return a case whose ratios are known to 1%; at the longest text where no length is given."""
    ratios = [Estimate(ratio, 0.99 * ratio, 1.01 * ratio) for ratio in (value, second) if ratio]
    found = {"workloads": tuple(BY_X[x] for x in lengths or (512,)), "value": ratios[0], "weight": 0.1, **fields}
    return Case(variant=variant, against=against, second=ratios[1] if second else None, **found)


def part(name: str, share: float) -> Part:
    return Part(name=name, ms=share, call_ms=1.0)


SENTENCES: list[tuple[Kind, list[Case], dict[str, Any], str]] = [
    (
        Kind.FALLS_OFF,
        [case("torch_cudnn", 1.133, "", 320, 448), case("torch_native", 1.13, "", 320, 448)],
        {"multiple": 128},
        "cuDNN (SDPA) takes 13% longer per operation at 320 and 448 text tokens than at neighbouring lengths: "
        "4,416 and 4,544 tokens, not multiples of 128.",
    ),
    (
        Kind.FALLS_OFF,
        [case("torch_cudnn", 1.061, "", 320)],
        {},
        "cuDNN (SDPA) takes 6.1% longer per operation at 320 text tokens than at neighbouring lengths.",
    ),
    (
        Kind.SLOWER_COMPILED,
        [
            case("torch_cudnn_compile_ma", 1.15, "torch_cudnn", part=part("copies", 0.15)),
            case("flash_attn_3_compile_ma", 1.14, "flash_attn_3", part=part("copies", 0.15)),
            case("torch_efficient_compile_ma", 1.041, "torch_efficient", part=part("copies", 0.04)),
        ],
        {"form": "compile_ma"},
        "torch.compile's max-autotune makes cuDNN (SDPA) 15% slower, and 2 others by 4.1 to 14%: it copies the inputs "
        "into its CUDA graph's buffers.",
    ),
    (
        Kind.SLOWER_COMPILED,
        [case("flash_attn_3_compile_d", 1.2, "flash_attn_3", part=part("copies", 0.15))],
        {"form": "compile_d"},
        "torch.compile makes FlashAttention-3 20% slower: most of the difference is copies.",
    ),
    (
        Kind.SLOWER_COMPILED,
        [case("flash_attn_3_compile_d", 1.2, "flash_attn_3")],
        {"form": "compile_d"},
        "torch.compile makes FlashAttention-3 20% slower.",
    ),
    (
        Kind.COPIES,
        [case("torch_cudnn_copy", 1.3, "torch_cudnn"), case("torch_flash_copy", 1.17, "torch_flash")],
        {},
        "Copying q, k and v to another layout makes cuDNN (SDPA) 30% slower, and 1 other by 17%.",
    ),
    (
        Kind.REGIMES,
        [
            case("torch_flash", 1 / 1.015, "sage_int8_fp16_triton", 448, second=1.032),
            case("torch_flash", 1 / 1.014, "sage_int8_fp16_triton", 320, second=1.033),
        ],
        {},
        "FlashAttention-2 (SDPA) is 1.4 to 1.5% faster than SageAttention int8 (Triton) in single calls, but 3.2 to "
        "3.3% slower under sustained load, at 320 and 448 text tokens.",
    ),
    (
        Kind.REGIMES,
        [
            case("gluon_flash", 1 / 1.13, "gluon_int8_fp8", 512, second=1.03),
            case("flash_attn_4", 1 / 1.06, "gluon_int8_fp8", 448, second=1.08),
            case("flash_attn_3", 1 / 1.08, "gluon_int8_fp8", 512, second=1.05),
            case("flash_attn_3", 1 / 1.09, "gluon_int8_fp8", 448, second=1.05),
        ],
        {},
        "Gluon (fluxbench) is 13% faster than Gluon int8/fp8 (fluxbench) in single calls, but 3.0% slower under "
        "sustained load, at 512 text tokens; 2 other kernels change places with Gluon int8/fp8 (fluxbench) too.",
    ),
    (
        Kind.QUANTIZING,
        [
            case("cudnn_frontend_fp8", 1.06, "flash_attn_3", 128, part=part("quantization", 0.18)),
            case("cudnn_frontend_fp8", 0.999, "flash_attn_3", 384, part=part("quantization", 0.16)),
        ],
        {},
        "Under sustained load cuDNN Frontend float8 is "
        "not measurably faster than FlashAttention-3 at 128 and 384 text tokens: quantizing "
        "takes 16 to 18% of its call.",
    ),
    (
        Kind.QUANTIZING,
        [
            case("cudnn_frontend_fp8", 1.06, "flash_attn_3", 128, part=part("quantization", 0.18)),
            case("cudnn_frontend_fp8", 0.999, "flash_attn_4", 384, part=part("quantization", 0.18)),
        ],
        {},
        "Under sustained load cuDNN Frontend float8 is "
        "not measurably faster than the exact kernel that is fastest in burst at 128 and 384 "
        "text tokens: quantizing takes 18% of its call.",
    ),
    (
        Kind.QUANTIZING,
        [
            case("cudnn_frontend_fp8", 1.088, "flash_attn_3", 128, part=part("quantization", 0.18), slower=True),
            case("cudnn_frontend_fp8", 1.032, "flash_attn_4", 448, part=part("quantization", 0.18), slower=True),
        ],
        {},
        "Under sustained load cuDNN Frontend float8 is "
        "3.2 to 8.8% slower than the exact kernel that is fastest in burst at 128 and 448 "
        "text tokens: quantizing takes 18% of its call.",
    ),
    (
        Kind.QUANTIZING,
        [
            case("cudnn_frontend_fp8", 1.06, "flash_attn_3", 128, part=part("quantization", 0.18), slower=True),
            case("cudnn_frontend_fp8", 0.999, "flash_attn_3", 384, part=part("quantization", 0.18)),
        ],
        {},
        "Under sustained load cuDNN Frontend float8 is "
        "6.0% slower than FlashAttention-3 at 128 text tokens, and not measurably faster at "
        "384 text tokens: quantizing takes 18% of its call.",
    ),
    (
        Kind.ENERGY,
        [case("flash_attn_2", 1.177, "sage_int8_fp16_triton", second=0.958)],
        {},
        "FlashAttention-2 is 4.4% faster than SageAttention int8 (Triton), but takes 18% more energy a call.",
    ),
    (
        Kind.LAUNCH_BOUND,
        [case("te_fused_compile_ma", 2.54, waited=(2, 3))],
        {},
        "Transformer Engine (cuDNN), max-autotune is launch-bound: the GPU waited for the host in 2 of 3 processes; "
        "back to back, a call takes 2.5 times as long as in burst.",
    ),
    (
        Kind.LAUNCH_BOUND,
        [case("flash_attn_3_fp8_compile_d", 1.3), case("mine", 1.2)],
        {},
        "FlashAttention-3 float8, compiled takes 1.3 times as long where the host launches it as in a CUDA graph; so "
        "does 1 other, by less.",
    ),
]


@pytest.mark.parametrize(("kind", "cases", "fields", "words"), SENTENCES)
def test_each_kind_has_a_sentence(kind: Kind, cases: list[Case], fields: dict[str, Any], words: str) -> None:
    assert sentence(Finding(kind=kind, cases=tuple(cases), cell="latency", **fields)) == words


def test_there_is_a_sentence_for_every_kind() -> None:
    assert {kind for kind, *_ in SENTENCES} == set(Kind)


def falls_off(*variants: str) -> list[Record]:
    """Return the records of kernels that fall off at two lengths, each with a kernel of its own."""
    return [
        changed(one, kernels=(KernelShare(name=variant, share=1.0),))
        for variant in variants
        for one in kernel(variant, at({320: 1.12, 448: 1.12}))
    ]


def test_findings_link_to_cells_that_the_notebook_has() -> None:
    planted = [
        kernel("torch_cudnn", at({320: 1.12, 448: 1.12})),
        kernel("torch_cudnn_copy", 1.4),
        kernel("flash_attn_3", 0.93, 0.9),
        kernel("flash_attn_4", 0.9, 0.93, launch_ms=0.72),
    ]
    [bullets] = blocks(results(*page(*planted).records))
    assert isinstance(bullets, Bullets)
    cells = set(re.findall(r"^```python id=(\w+)", NOTEBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert dict(bullets.links).keys() == {"cell-latency", "cell-parts", "cell-flash_attn_4"}
    assert dict(bullets.links)["cell-latency"] == "latency figure"
    assert {to.removeprefix("cell-") for to, _ in bullets.links} | {"energy", "kernels"} <= cells


def test_at_most_eight_are_shown_and_the_rest_folds() -> None:
    names = (*EQUAL, "flex", "te_flash", "te_fused")
    shown = blocks(results(*falls_off(*names)))
    first, fold = shown
    assert isinstance(first, Bullets)
    assert isinstance(fold, Fold)
    assert (len(first.items), len(names)) == (SHOWN, SHOWN + 2)
    assert fold.title == "2 more findings"
    rows = tables.find("findings").rows
    assert rows is not None
    header, *lines = rows(results(*falls_off(*names)))
    assert [line[header.index("folded")] for line in lines] == [0] * SHOWN + [1] * 2


def test_the_ids_and_intervals_of_a_finding_stand_below_it() -> None:
    names = ("torch_flash", "torch_cudnn", "flash_attn_2", "flash_attn_4")
    forms = [kernel(f"{name}_compile_ma", 1.3, parts={"copies": 0.2}) for name in names]
    [bullets] = blocks(results(*page(*forms).records))
    assert isinstance(bullets, Bullets)
    [(_, of)] = bullets.items
    assert re.fullmatch(
        r"(\w+_compile_ma / \w+: 1\.\d+ \[1\.\d+, 1\.\d+\]; ){3}1 more in findings\.csv",
        of,
    )


def test_without_findings_the_page_says_so() -> None:
    [nothing] = blocks(results(record(), record("flex")))
    assert nothing.text() == "No findings (flux1-1024px): the intervals support none of those that are looked for."
    assert [block.text() for block in blocks(results())] == ["There are no records."]


def test_the_csv_has_a_row_for_each_case_with_its_numbers() -> None:
    forms = [kernel(f"{name}_copy", 1.3, parts={"copies": 0.25}) for name in ("torch_flash", "torch_cudnn")]
    rows = tables.find("findings").rows
    assert rows is not None
    header, *values = rows(results(*page(*forms).records))
    lines = [dict(zip(map(str, header), row, strict=True)) for row in values]
    assert {line["variant"] for line in lines} == {"torch_flash_copy", "torch_cudnn_copy"}
    for line in lines:
        assert (line["kind"], line["workloads"], line["part"], line["cell"]) == (
            *("copies", "flux1-1024px-t512"),
            *("copies", "parts"),
        )
        assert 1.28 < float(str(line["ratio_low"])) < 1.3 < float(str(line["ratio_high"])) < 1.32
        assert line["part_ms"] == pytest.approx(0.25 * float(str(line["call_ms"])))
        assert (line["second_ratio"], line["multiple_tokens"], line["folded"]) == (None, None, 0)
