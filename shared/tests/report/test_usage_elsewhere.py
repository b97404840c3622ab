"""How to use a variant in diffusers, and what to install: backends that exist, versions that were measured."""

from __future__ import annotations

import inspect
import re
import tomllib
import types
from pathlib import Path
from typing import Any

import libraries
import pytest
import sample_records
import signatures
import torch
from usages import EVERYTHING, NAMES, record, used, with_fa3

from fluxbench import variants
from fluxbench.operations import sets
from fluxbench.report import usage
from fluxbench.variants import hf_kernels

DIFFUSERS = tomllib.loads((Path(__file__).parents[1] / "diffusers_backends.toml").read_text(encoding="utf-8"))
BACKENDS = DIFFUSERS["backends"]


# In diffusers.


class Transformer(torch.nn.Module):  # type: ignore[misc]
    """Takes the backends that diffusers has, and keeps what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def set_attention_backend(self, *positional: Any, **keywords: Any) -> None:
        set_ = signatures.signature("diffusers.models.modeling_utils.ModelMixin.set_attention_backend")
        self.asked.append(BACKENDS[set_.bind(self, *positional, **keywords).arguments["backend"]])

    def compile(self, **options: Any) -> None:
        inspect.signature(torch.compile).bind(None, **options)
        self.asked.append(options)


def set_in_diffusers(lines: str) -> list[Any]:
    transformer, before = Transformer(), torch.get_float32_matmul_precision()
    try:
        exec(lines, {"pipe": types.SimpleNamespace(transformer=transformer)})
    finally:
        torch.set_float32_matmul_precision(before)
    return transformer.asked


WITH = {"torch_flash", "torch_cudnn", "torch_efficient", "torch_math", "torch_native", "flex", "flex_eager", "xformers"}
WITH |= {"flash_attn_2", "flash_attn_3", "torch_fa3", "torch_fa4", "hf_flash_attn2", "hf_flash_attn3"}
WITH |= {"sage_int8_fp16_triton", "sage_int8_fp16_cuda", "sage_int8_fp8_sm90"}


@pytest.mark.parametrize("name", NAMES)
def test_diffusers_has_the_backend_or_it_is_said_that_it_has_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, kernel = used(name, **EVERYTHING), variants.find(name).variant.name
    if not found.diffusers.backend:
        assert kernel not in WITH or name in ("torch_flash_copy", "torch_efficient_copy")
        assert found.diffusers.note.startswith(f"diffusers {usage.DIFFUSERS} ")
        return
    chosen = libraries.FlashInTorch(monkeypatch)
    backend, *compiled = set_in_diffusers(found.diffusers.lines)
    assert chosen.active == {"torch_fa3": "FA3", "torch_fa4": "FA4"}.get(name)
    if needs := backend.get("needs"):
        package, _, oldest = needs.partition(">=")
        assert used(name, **{**EVERYTHING, package: oldest}).diffusers == found.diffusers
        without = {key: version for key, version in EVERYTHING.items() if key != package}
        assert not used(name, **without).diffusers.backend
        assert oldest == "0" or not used(name, **{**EVERYTHING, package: "0.0.1"}).diffusers.backend
    assert ("copies q, k and v" in found.diffusers.note or name.endswith("_copy")) == backend.get("copies", False)
    hub = {"hf_flash_attn2": hf_kernels.FLASH_ATTN_2, "hf_flash_attn3": hf_kernels.FLASH_ATTN_3}.get(name)
    assert backend.get("hub") == (f"{hub} {hf_kernels.VERSIONS[hub]}" if hub else None)
    mode = variants.find(name).form.compile_mode
    asked = [{"dynamic": False, **({"mode": mode} if mode == "max-autotune" else {})}]
    assert compiled == (asked if mode or kernel == "flex" else [])


def test_backends_of_other_builds_that_are_named_exist() -> None:
    assert DIFFUSERS["version"].startswith(f"{usage.DIFFUSERS}.")
    for name in NAMES:
        note = with_fa3(name).diffusers.note
        assert set(re.findall('"([^"]+)"', note)) <= set(BACKENDS)
        assert not (hub := with_fa3(name).hub) or BACKENDS[hub]["hub"]


@pytest.mark.parametrize(
    ("name", "versions", "words"),
    [
        ("flash_attn_3", {"fa3_fwd": "0.0.3"}, "does not find fa3-fwd"),
        ("sage_int8_fp16_triton", {"sageattention": "1.0.6"}, "needs SageAttention 2.1.1 or newer"),
        ("xformers", {"xformers": "0.0.28"}, "needs xFormers 0.0.29 or newer"),
        ("flash_attn_2_compile_d", {"flash_attn": "2.5.9"}, "needs flash-attn 2.6.3 or newer"),
    ],
)
def test_what_diffusers_does_not_take_is_said(name: str, versions: dict[str, str], words: str) -> None:
    found = used(name, **versions)
    assert found.diffusers.backend == ""
    assert words in found.diffusers.note


def test_a_backend_that_diffusers_has_not_is_found() -> None:
    with pytest.raises(KeyError, match="_native_cuddn"):
        set_in_diffusers(used("torch_cudnn").diffusers.lines.replace("cudnn", "cuddn"))


# What to install.


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("torch_cudnn_compile_d", "pip install torch==2.11.0"),
        ("flash_attn_2", "pip install torch==2.11.0\npip install --no-build-isolation flash-attn==2.8.3.post2"),
        ("flex_flash", 'pip install torch==2.11.0 "flash-attn-4[cu13]==4.0.0b36" nvidia-cutlass-dsl==4.8.1'),
        ("triton_flash", "pip install torch==2.11.0 triton==3.6.0\npip install --no-deps ./shared"),
        (
            "te_flash",
            "pip install torch==2.11.0\n"
            'pip install --no-build-isolation "transformer-engine[core-cu13,pytorch]==2.20.2" flash-attn==2.8.3.post2',
        ),
        ("flash_attn_3", "pip install torch==2.11.0"),  # flash-attn-3 is not published
        ("sage_int8_fp16_cuda", "pip install torch==2.11.0 triton==3.6.0"),  # nor is SageAttention 2
    ],
)
def test_the_measured_versions_are_pinned(name: str, install: str) -> None:
    assert used(name, **EVERYTHING).install == install


def test_what_pip_cannot_install_is_said() -> None:
    built = "sageattention 2.2.0 is not published as a package: build it from its source."
    note = used("sage_int8_fp16_cuda", **EVERYTHING).install_note
    assert note == f"Measured with torch 2.11.0+cu130. {built}"
    published = used("sage_int8_fp16_triton", sageattention="1.0.6")
    assert published.install == "pip install torch==2.11.0 sageattention==1.0.6"
    assert with_fa3("flash_attn_3").install == "pip install torch==2.11.0 fa3-fwd==0.0.3"


def test_an_extra_for_cuda_is_left_out_where_its_version_is_unknown() -> None:
    versions = {"torch": "2.11.0", "flash-attn-4": "4.0.0b36"}
    found = usage.of(sample_records.record("flash_attn_4", versions=versions))
    assert found
    assert (found.install, found.install_note) == ("pip install torch==2.11.0 flash-attn-4==4.0.0b36", "")


def test_a_record_without_versions_names_none() -> None:
    found = usage.of(sample_records.record("torch_flash", versions={}))
    assert found
    assert (found.install, found.install_note) == ("", "")


@pytest.mark.parametrize("text", ["2.0; rm -rf /", "2.0\nrm", "$(id)", "2.0 --index-url=x", "git+x"])
def test_nothing_that_a_record_says_gets_into_what_is_copied_but_versions(text: str) -> None:
    names = ("sageattention", "fa3-fwd", "flash-attn", "triton", "cuda", "diffusers")
    for name in NAMES:
        found = usage.of(
            sample_records.record(name, detail=text, versions={"torch": "2.0", **dict.fromkeys(names, text)})
        )
        assert found
        lines = (found.code, found.short, found.diffusers.lines, found.install, found.install_note)
        assert text not in "\n".join(lines)


def test_a_variant_that_is_not_known_here_has_no_lines() -> None:
    assert usage.of(sample_records.record("of_someone_else")) is None
    assert usage.blocks([sample_records.record("of_someone_else")]) == []


def test_lines_without_a_mask_are_not_for_a_causal_attention_or_one_of_fewer_heads_of_k_and_v() -> None:
    workloads = [each for each in sets.by_name().values() if each.operation == "attention"]
    asking = [each for each in workloads if each.shape["causal"] or each.shape["kv_heads"] != each.shape["heads"]]
    assert [usage.of(sample_records.record("torch_native", each)) for each in asking] == [None] * len(asking)
    assert usage.of(sample_records.record("torch_native", next(each for each in workloads if each not in asking)))


def test_each_variant_folds_with_its_lines_in_the_order_of_the_records() -> None:
    records = [record("flash_attn_4", **EVERYTHING), record("torch_cudnn"), record("torch_cudnn", **EVERYTHING)]
    first, second = usage.blocks(records)
    assert first.text().splitlines()[0] == "How to use FlashAttention-4"
    for words in ("    return flash_attn_func(q, k, v)[0]", "only as a build of the Hugging Face hub", "4.0.0b36"):
        assert words in first.text()
    assert '    pipe.transformer.set_attention_backend("_native_cudnn")' in second.text()
    assert "<details" in second.html()
