"""The verdict where diffusers has no backend for the fastest kernel: which one it has is fastest, and other builds."""

from __future__ import annotations

from typing import Any

import pytest
from sample_records import record

from fluxbench.operations import sets
from fluxbench.records.schema import Record
from fluxbench.report import verdict

STEP = "flux1-2048px-step"
LENGTHS = sets.sets()["flux1-1024px"]
DEFAULT = record("torch_native")
NONE = "Of the {} kernels that diffusers 0.42 calls as they were measured here none is measurably faster than {}."
HUB = (
    "Other builds, which diffusers loads from the Hugging Face hub, and which were not measured here "
    "With the package kernels:"
)
GLUON = record("gluon_flash", sustained_ms=0.7)


def beside(*records: Record) -> list[str]:
    """Return what stands between the lines to install and the fold."""
    shown = [block.text() for block in verdict.blocks(records, "X")]
    [install] = [index for index, text in enumerate(shown) if text.startswith("Install:")]
    return [" ".join(text.split()) for text in shown[install + 1 : -1]]


def step(variant: str, ms: float, **fields: Any) -> Record:
    return record(variant, STEP, ms, ci=0.0005, **fields)


def test_the_fastest_with_a_backend_is_named_with_its_gain_and_lines() -> None:
    slower = record("torch_flash", sustained_ms=0.9)
    words, lines = beside(DEFAULT, GLUON, slower, record("torch_efficient", sustained_ms=0.8))
    assert words == (
        "The fastest with a backend in diffusers 0.42 is Memory-efficient (SDPA), 25% faster than PyTorch's default."
    )
    assert lines == (
        'In diffusers 0.42: Memory-efficient (SDPA): pipe.transformer.set_attention_backend("_native_efficient")'
    )


def test_that_none_with_a_backend_is_faster_is_said_of_those_that_were_measured() -> None:
    default = "PyTorch's default, which diffusers takes by itself"
    assert beside(DEFAULT, GLUON, record("torch_flash")) == [NONE.format(2, default)]
    assert beside(DEFAULT, GLUON) == []


def test_a_kernel_that_diffusers_calls_otherwise_than_it_was_measured_does_not_count() -> None:
    """diffusers copies q, k and v before cuDNN's kernel, and compiles no attention by itself."""
    cudnn = [record("torch_cudnn", sustained_ms=0.8), record("torch_cudnn_copy", sustained_ms=1.2)]
    compiled = record("torch_flash_compile_d", sustained_ms=0.8)
    assert beside(DEFAULT, GLUON, *cudnn, compiled)[0].startswith("Of the 2 kernels that diffusers")


def test_a_kernel_with_a_backend_that_is_the_fastest_has_no_other_beside_it() -> None:
    assert beside(DEFAULT, record("torch_efficient", sustained_ms=0.7), record("torch_flash", sustained_ms=0.8)) == []


def test_other_builds_of_faster_kernels_are_shown_unless_they_were_measured() -> None:
    fa3 = record("flash_attn_3", sustained_ms=0.8, versions={"torch": "2.9.0", "fa3-fwd": "0.0.3"})
    line = '# {} pipe.transformer.set_attention_backend("{}")'
    fa4 = record("flash_attn_4", sustained_ms=0.9)
    assert beside(DEFAULT, GLUON, fa3, fa4) == [
        f"{HUB} {line.format('FlashAttention-3', '_flash_3_hub')} {line.format('FlashAttention-4', 'flash_4_hub')}"
    ]
    assert beside(DEFAULT, GLUON, record("flash_attn_4", sustained_ms=1.1)) == []
    measured = record("hf_flash_attn3", sustained_ms=1.1, versions={"torch": "2.9.0", "kernels": "0.17.2"})
    assert beside(DEFAULT, GLUON, fa3, measured) == [
        NONE.format(2, "PyTorch's default, which diffusers takes by itself")
    ]


@pytest.mark.parametrize("suffix", ["", "_blocks"])
def test_of_a_model_s_step_the_lines_are_those_for_diffusers_in_the_form_of_the_verdict(suffix: str) -> None:
    records = [
        step(f"{name}{suffix}", ms) for name, ms in (("torch_native", 100), ("gluon_flash", 80), ("torch_cudnn", 90))
    ]
    other = [step(f"{name}{'' if suffix else '_blocks'}", 200) for name in ("torch_native", "torch_cudnn")]
    shown = [block.text() for block in verdict.blocks([*records, *other], "X")]
    use, install, beside_it, lines, fold = shown[-5:]
    form = ", blocks compiled" if suffix else ""
    assert use.startswith(f"Use Gluon (fluxbench){form}, in diffusers 0.42:\n")
    assert ("compile_repeated_blocks" in use) == ("compile_repeated_blocks" in lines) == bool(suffix)
    assert 'set_attention_backend("mine")' in use
    assert install.startswith("Install:\n    pip install torch==2.9.0")
    assert f"is cuDNN (SDPA){form}, 11% faster than" in " ".join(beside_it.split())
    assert 'set_attention_backend("_native_cudnn")' in lines
    slower = [
        step(f"{name}{suffix}", ms) for name, ms in (("torch_native", 100), ("gluon_flash", 80), ("torch_cudnn", 120))
    ]
    [none] = [text for text in (block.text() for block in verdict.blocks(slower, "X")) if "none is measurably" in text]
    assert ("which diffusers takes by itself" in none) == (not suffix)  # it compiles nothing by itself
    assert "How to use cuDNN" not in fold
    assert "PyTorch: " not in fold


def test_of_training_the_lines_and_what_to_install_are_shown_and_nothing_of_diffusers() -> None:
    workload = "flux1-1024px-t512-training"
    records = [record(name, workload, ms) for name, ms in (("torch_native", 1.0), ("flash_attn_4", 0.8))]
    shown = [block.text() for block in verdict.blocks(records, "X")][2:]
    assert shown[0].splitlines()[0] == "Use FlashAttention-4:"
    assert shown[1].startswith("Install:\n    pip install torch==2.9.0")
    assert len(shown) == 3
    assert "diffusers" not in "".join(shown)


def test_a_choice_that_is_not_the_first_says_why_and_a_build_without_a_backend_says_so() -> None:
    default = [record("torch_native", workload) for workload in LENGTHS]
    third = [
        record("flash_attn_3", workload, 0.8, versions={"torch": "2.9.0", "fa3-fwd": "0.0.3"}) for workload in LENGTHS
    ]
    fourth = [record("flash_attn_4", workload, 0.9) for workload in LENGTHS[:-1]]
    records = *default, *third, *fourth, record("flash_attn_4", LENGTHS[-1], 0.799)
    use, note, install, *_ = [block.text() for block in verdict.blocks(records, "X")][2:]
    assert use.startswith("Use FlashAttention-3, unbeaten at all lengths:\n")
    added = 'the lines under "How to use FlashAttention-3" add one'
    assert note == f"diffusers 0.42 has no backend for this build; {added}."
    assert install.endswith("pip install torch==2.9.0 fa3-fwd==0.0.3")
