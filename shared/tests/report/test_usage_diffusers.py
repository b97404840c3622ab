"""The lines for diffusers, by diffusers itself on a small Flux transformer: only where it is installed."""

from __future__ import annotations

import inspect
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from small_flux import flux, forward
from usages import EVERYTHING, NAMES, used

from fluxbench import variants

diffusers = pytest.importorskip("diffusers")
DISPATCH = pytest.importorskip("diffusers.models.attention_dispatch")
RECORDED = tomllib.loads((Path(__file__).parents[1] / "diffusers_backends.toml").read_text(encoding="utf-8"))
ON_A_CPU = ["torch_flash", "torch_math", "torch_native", "flex_eager"]
NEEDS_A_GPU = ["torch_cudnn", "torch_efficient"]
LINES = {name: found.diffusers.lines for name in NAMES if (found := used(name, **EVERYTHING)).diffusers.backend}


def set_backend(name: str) -> Any:
    """Run a variant's lines and return the transformer."""
    transformer = flux()
    exec(LINES[name], {"pipe": types.SimpleNamespace(transformer=transformer)})
    return transformer


def test_the_recorded_backends_are_those_of_diffusers() -> None:
    assert diffusers.__version__ == RECORDED["version"]
    for name, recorded in RECORDED["backends"].items():
        backend = DISPATCH.AttentionBackendName(name)
        source = inspect.getsource(DISPATCH._AttentionBackendRegistry._backends[backend])
        assert (".contiguous() for x in (query, key, value)" in source) == recorded.get("copies", False)
        hub = DISPATCH._HUB_KERNELS_REGISTRY.get(backend)
        assert recorded.get("hub") == (f"{hub.repo_id} {hub.version}" if hub else None)
    requirements = inspect.getsource(DISPATCH._check_attention_backend_requirements)
    for package, oldest in (("flash-attn", "FLASH"), ("sageattention", "SAGE"), ("xformers", "XFORMERS")):
        version = getattr(DISPATCH, f"_REQUIRED_{oldest}_VERSION")
        assert f"{package}>={version}" in {each.get("needs") for each in RECORDED["backends"].values()}
        assert f"{package}>=" in requirements


@pytest.mark.parametrize("name", ON_A_CPU)
def test_a_flux_transformer_computes_the_same_on_this_backend(name: str) -> None:
    torch.testing.assert_close(forward(set_backend(name)), forward(flux()), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NEEDS_A_GPU)
def test_torch_refuses_the_backends_that_need_a_gpu(name: str) -> None:
    transformer = set_backend(name)
    with pytest.raises(RuntimeError, match="No viable backend"):
        forward(transformer)


@pytest.mark.parametrize("name", [name for name in LINES if variants.find(name).variant.name in [*ON_A_CPU, "flex"]])
def test_the_lines_are_taken(name: str) -> None:
    backend = DISPATCH.AttentionBackendName(LINES[name].split('set_attention_backend("')[1].split('"')[0])
    transformer = set_backend(name)
    assert {
        module.processor._attention_backend for module in transformer.modules() if hasattr(module, "processor")
    } == {backend}
    assert (transformer._compiled_call_impl is not None) == (".compile(" in LINES[name])


@pytest.mark.parametrize("name", ["flash_attn_2", "flash_attn_3", "xformers", "sage_int8_fp16_cuda"])
def test_diffusers_asks_for_the_package_of_a_library(name: str) -> None:
    with pytest.raises(RuntimeError, match="missing package or the version is too old"):
        set_backend(name)


def test_a_backend_that_it_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of the following"):
        flux().set_attention_backend("_native_cuddn")
