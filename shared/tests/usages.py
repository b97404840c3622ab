"""How to use a variant whose record names made-up versions, and its library where there is none."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import kernels
import libraries
import pytest
import sample_records
import torch

from fluxbench import kernels as own_kernels
from fluxbench import variants
from fluxbench.kernels import gluon_int8_fp8, hub
from fluxbench.records.schema import Record
from fluxbench.report import usage
from fluxbench.report.usage import Usage

NAMES = [  # of a forward pass
    name
    for name in variants.NAMES
    if not (variants.find(name).variant.deterministic_of or variants.find(name).variant.only_decodes)
]
VERSIONS = {"torch": "2.11.0+cu130", "cuda": "13.0", "python": "3.12.3"}
# What was measured where every variant's library is there.
EVERYTHING = {
    "flash-attn": "2.8.3.post2", "flash-attn-3": "3.0.0", "flash-attn-4": "4.0.0b36", "kernels": "0.17.2",
    "nvidia-cudnn-frontend": "1.32.0", "nvidia-cutlass-dsl": "4.8.1", "quack-kernels": "0.6.5", "triton": "3.6.0",
    "sageattention": "2.2.0", "transformer-engine": "2.20.2", "xformers": "0.0.35",
}  # fmt: skip
SDPA = {
    "torch_flash": "flash_sdp_enabled",
    "torch_cudnn": "cudnn_sdp_enabled",
    "torch_efficient": "mem_efficient_sdp_enabled",
    "torch_efficient_tf32": "mem_efficient_sdp_enabled",
    "torch_math": "math_sdp_enabled",
}


def record(name: str, **versions: str) -> Record:
    return sample_records.record(name, versions={**VERSIONS, **versions})


def used(name: str, **versions: str) -> Usage:
    found = usage.of(record(name, **{key.replace("_", "-"): value for key, value in versions.items()}))
    assert found
    return found


def with_fa3(name: str) -> Usage:
    """Return the usage of a variant where fa3-fwd was measured."""
    return used(name, fa3_fwd="0.0.3")


def install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a variant's library be there, on the CPU; of torch's backends the one that is chosen alone."""
    for module in [each for each in sys.modules if each.startswith("fa3_fwd_interface")]:
        monkeypatch.delitem(sys.modules, module)
    if name in SDPA:
        real = torch.nn.functional.scaled_dot_product_attention

        def on_any(*tensors: Any) -> Any:
            on = {enabled for enabled in SDPA.values() if getattr(torch.backends.cuda, enabled)()}
            assert on == {SDPA[name]}
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return real(*tensors)

        monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", on_any)
    elif name.startswith("triton_flash") or name in ("gluon_flash", "hf_local_flash"):
        real = inspect.signature(own_kernels.attention)

        def bound(*args: Any, **options: Any) -> Any:
            given = real.bind(*args, **options).arguments
            assert given.pop("tf32", False) == (name == "triton_flash_tf32")
            assert given.pop("forward", None) == {"triton_flash": "triton", "gluon_flash": "gluon"}.get(name)
            return libraries.attention(*given.values())

        monkeypatch.setattr(own_kernels, "attention", bound)
        repository = {Path("build/fluxbench-attention"): own_kernels}
        monkeypatch.setattr(kernels, "get_local_kernel", lambda repo_path: repository[repo_path])
    elif name == "gluon_int8_fp8":
        one_call = inspect.signature(gluon_int8_fp8.quantized_forward)
        monkeypatch.setattr(
            gluon_int8_fp8,
            "quantized_forward",
            lambda *args, **options: libraries.attention(*one_call.bind(*args, **options).arguments.values()),
        )
    elif name.startswith("hf_"):
        signature = inspect.signature(kernels.get_kernel)
        libraries.install_hub(monkeypatch)
        load = hub.load
        monkeypatch.setattr(kernels, "get_kernel", lambda *args, **given: load(**_hub(signature, args, given)))
    elif name in libraries.FAKES:
        libraries.FAKES[name](monkeypatch)


def _hub(signature: inspect.Signature, args: Any, given: Any) -> dict[str, Any]:
    asked = signature.bind(*args, **given).arguments
    assert set(asked) == {"repo_id", "version"}
    return {"repository": asked["repo_id"], "version": asked["version"]}
