"""The capability table: what is declared, what was verified here and by what, and what failed and why."""

from __future__ import annotations

from typing import Literal

import pytest
from sample_records import record, results
from tabled import bullets, cells, table_of

from fluxbench import variants
from fluxbench.bench.events import ProbeResult
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.report.results import Results
from fluxbench.report.tables.capabilities import blocks, rows

CAUSAL, GROUPED = "llama3-8b-4096", "llama3-8b-decode-512"


def outcome(status: Literal["yes", "wrong", "no"] = "yes", reason: str | None = None, *over: float) -> ProbeResult:
    rel_l2, budget = over or (None, None)
    return ProbeResult(status=status, reason=reason, rel_l2=rel_l2, budget=budget)


def of(*records: Record, **tried: ProbeResult) -> Results:
    """Return results in which the first record's variant was tried; `head_dim_64` stands for "head_dim 64"."""
    keys = {key.replace("head_dim_", "head_dim "): value for key, value in tried.items()}
    return results(*records, capabilities={records[0].kernel: keys})


def row(found: Results, name: str) -> dict[str, str]:
    return cells(table_of(blocks(found)), name)


def failed(name: str) -> Record:
    return record(name, status=Status.UNSUPPORTED)


def test_what_is_declared_and_not_tried_has_a_star() -> None:
    assert row(of(failed("torch_cudnn")), "torch_cudnn") == {
        **{"variant": "torch_cudnn", "precision": "bf16* fp16*", "causal": "yes*", "GQA": "yes*"},
        **{"head dims": "64* 96* 128* 192* 256*", "backward": "yes*", "varlen": "-", "needs": "8.0"},
    }


def test_what_was_tried_and_right_has_no_sign_and_what_failed_one() -> None:
    tried = {"float16": outcome(), "causal": outcome(), "gqa": outcome("no", "not today"), "head_dim_64": outcome()}
    found = row(of(failed("torch_cudnn"), **tried, head_dim_256=outcome("wrong", "odd")), "torch_cudnn")
    assert (found["precision"], found["causal"], found["GQA"]) == ("bf16* fp16", "yes", "FAILS")
    assert found["head dims"] == "64 96* 128* 192* 256!"


@pytest.mark.parametrize(
    ("workload", "verified"),
    [
        ("flux1-1024px-t512", {"precision": "bf16 fp16*", "head dims": "64* 96* 128 192* 256*"}),
        (CAUSAL, {"causal": "yes", "GQA": "yes", "backward": "yes*"}),
        (f"{CAUSAL}-backward", {"causal": "yes", "GQA": "yes", "backward": "yes"}),
        (GROUPED, {"causal": "yes*", "GQA": "yes", "backward": "yes*"}),
    ],
)
def test_a_measurement_verifies_what_it_asked_for(workload: str, verified: dict[str, str]) -> None:
    found = row(of(record("torch_cudnn", workload)), "torch_cudnn")
    assert {head: found[head] for head in verified} == verified


def test_a_measurement_of_another_form_or_one_that_failed_verifies_nothing() -> None:
    assert row(of(record("flex_compile_d")), "flex")["precision"].split()[0] == "bf16*"
    assert row(of(record("torch_cudnn", status=Status.INCORRECT)), "torch_cudnn")["precision"] == "bf16* fp16*"
    tried = of(record("torch_cudnn"), bfloat16=outcome("wrong", "odd"))  # which counts more
    assert row(tried, "torch_cudnn")["precision"] == "bf16! fp16*"


def test_quantized_formats_and_a_cpu_are_named() -> None:
    found = results(failed("sage_int8_fp16_triton"), failed("torch_flash"))
    assert row(found, "sage_int8_fp16_triton")["precision"] == "int8*"
    assert row(found, "torch_flash")["needs"] == "any, also a CPU"


def test_why_something_failed_is_said_once_with_how_far_it_is_over_its_budget() -> None:
    over = "relative L2 error 4.99e-03 is over the budget 4.92e-03"
    wrong = {"gqa": outcome("wrong", over, 4.99e-3, 4.92e-3), "causal": outcome("wrong", "NaN"), "varlen": outcome()}
    tried = {
        "torch_cudnn": {"gqa": outcome("no", "not built"), "head_dim 64": outcome("no", "not built")},
        "flex": wrong,
        "torch_math": {"causal": outcome("no", "not built")},
    }
    found = results(*(failed(name) for name in tried), capabilities=tried)
    assert sorted(bullets(blocks(found), "Declared, but failed here:")) == [
        ("not built", "torch_cudnn: gqa, head dim 64; torch_math: causal"),
        ("wrong: NaN", "flex: causal"),
        (f"wrong: {over}, 1.01 times the budget", "flex: gqa"),
    ]


@pytest.mark.parametrize("name", [variant.name for variant in variants.REGISTRY])
def test_every_declaration_of_the_registry_has_a_row(name: str) -> None:
    found = row(of(failed(name)), name)
    assert found["precision"].endswith("*")
    assert found["needs"]


def test_the_csv_has_a_row_per_capability() -> None:
    tried = {"float16": outcome("no", "half, or so"), "causal": outcome(), "gqa": outcome("wrong", "odd")}
    found = of(record("torch_cudnn"), **tried)
    header, *body = rows(found)
    assert header == ("variant", "capability", "declared", "here")
    assert {key: (declared, here) for _, key, declared, here in body} == {
        **{"bfloat16": ("yes", "yes"), "float16": ("yes", "no: half, or so"), "minimum": ("8.0", None)},
        **{f"head_dim {size}": ("yes", "yes" if size == 128 else None) for size in (64, 96, 128, 192, 256)},
        **{"causal": ("yes", "yes"), "gqa": ("yes", "wrong: odd"), "backward": ("yes", None), "varlen": ("no", None)},
    }
    *_, last = rows(of(failed("torch_flash")))
    assert last == ("torch_flash", "minimum", None, None)
