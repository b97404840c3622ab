"""The capability table: what is declared, what was verified here and by what, and what failed and why."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from sample_records import make_record

from fluxbench.records.schema import Status
from fluxbench.report.tables.capabilities import capabilities_table, write_capabilities_csv
from fluxbench.variants import REGISTRY
from fluxbench.variants._base import EVERY_FORM, Attention, Capabilities, Variant


def never() -> Attention:
    raise AssertionError("a table calls nothing")


def variant(name: str = "made_up", **declared: Any) -> Variant:
    given = {"dtypes": ("bfloat16", "float16"), "head_dims": (64, 128), "minimum": (8, 0), **declared}
    return Variant(name=name, load=never, forms=EVERY_FORM, capabilities=Capabilities(**given))


def row(text: str, name: str = "made_up") -> list[str]:
    """Return the cells of a variant's row, which stand two blanks apart at least."""
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def flat(text: str) -> str:
    return " ".join(text.split())


FAILED = make_record("made_up", status=Status.UNSUPPORTED)


def test_what_is_declared_and_not_tried_is_marked_so() -> None:
    made = variant(causal=lambda: never(), gqa=True)
    assert row(capabilities_table([made], [FAILED], {})) == [
        *("made_up", "bf16* fp16*", "yes*", "yes*", "64* 128*", "-", "-", "8.0"),
    ]


def test_what_was_tried_and_right_has_no_mark() -> None:
    keys = ("bfloat16", "float16", "head_dim 64", "head_dim 128", "causal", "backward", "varlen")
    made = variant(causal=never, backward=never, varlen=lambda lengths: never())
    found = row(capabilities_table([made], [FAILED], {"made_up": dict.fromkeys(keys, "yes")}))
    assert found == ["made_up", "bf16 fp16", "yes", "-", "64 128", "yes", "yes", "8.0"]


def test_a_measurement_verifies_its_precision_and_head_dim() -> None:
    assert row(capabilities_table([variant()], [make_record("made_up")], {}))[1:5:3] == ["bf16 fp16*", "64* 128"]


def test_a_measurement_of_another_form_verifies_nothing() -> None:
    assert row(capabilities_table([variant()], [make_record("made_up_compile_d")], {}))[1] == "bf16* fp16*"


def test_what_failed_says_why_below_each_reason_once() -> None:
    results = {"float16": "no: half is not built", "head_dim 64": "no: half is not built", "gqa": "wrong: error 0.3"}
    made = [variant(gqa=never), variant("other", gqa=never)]
    records = [FAILED, make_record("other")]
    text = capabilities_table(made, records, {"made_up": results, "other": {"gqa": "wrong: error 0.3"}})
    assert row(text) == ["made_up", "bf16* fp16!", "-", "FAILS", "64! 128*", "-", "-", "8.0"]
    below = flat(text.split("Declared, and not so when it was tried here:")[1])
    assert below == "half is not built made_up: float16, head dim 64 wrong: error 0.3 made_up: gqa; other: gqa"


def test_an_error_says_how_far_over_its_budget_it_is() -> None:
    wrong = "wrong: gradient of q: relative L2 error 4.99e-03 is over the budget 4.92e-03"
    text = capabilities_table([variant()], [FAILED], {"made_up": {"backward": wrong}})
    assert f"{wrong}, 1.01 times the budget made_up: backward" in flat(text)


def test_nothing_failed_says_nothing() -> None:
    assert "not so" not in capabilities_table([variant()], [make_record("made_up")], {})


def test_a_variant_of_which_no_cell_has_records_has_no_row() -> None:
    text = capabilities_table([variant(), variant("other")], [FAILED], {})
    assert "other" not in text
    assert capabilities_table([variant()], [], {}) == "There are no records of a variant that declares what it can do."


def test_narrow_formats_and_a_cpu_are_named() -> None:
    made = variant(dtypes=("float8_e4m3fn", "int8"), minimum=None)
    assert row(capabilities_table([made], [FAILED], {}))[1::6] == ["fp8* int8*", "a CPU will do"]


@pytest.mark.parametrize("declared", [variant for variant in REGISTRY if variant.capabilities], ids=lambda v: v.name)
def test_every_declaration_of_the_registry_has_a_row(declared: Variant) -> None:
    text = capabilities_table(REGISTRY, [make_record(declared.name)], {})
    assert len(row(text, declared.name)) == 8


def test_the_csv_has_a_row_per_capability(tmp_path: Path) -> None:
    made = variant(causal=never)
    results = {"made_up": {"float16": "no: half, or so", "causal": "yes"}}
    write_capabilities_csv([made], [make_record("made_up")], results, tmp_path / "capabilities.csv")
    with (tmp_path / "capabilities.csv").open(encoding="utf-8") as file:
        found = {each["capability"]: (each["declared"], each["here"]) for each in csv.DictReader(file)}
    assert found == {
        **{"bfloat16": ("yes", "yes"), "float16": ("yes", "no: half, or so"), "minimum": ("8.0", "")},
        **{"head_dim 64": ("yes", ""), "head_dim 128": ("yes", "yes"), "causal": ("yes", "yes")},
        **{"gqa": ("no", ""), "backward": ("no", ""), "varlen": ("no", "")},
    }
