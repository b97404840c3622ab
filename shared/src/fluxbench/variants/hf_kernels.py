"""Attention kernels of the Hugging Face hub, as their publisher kernels-community builds them.

FlashAttention-2 and -3 are exact. SageAttention quantizes q and k to int8 within the call, and v to float8 (e4m3) on
compute capability 8.9 and newer. Versions and calls: the repositories' own build.toml and Python sources.
"""

import functools
from typing import Any

from fluxbench.device.model import Device
from fluxbench.kernels import hub
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base

FLASH_ATTN_2 = "kernels-community/flash-attn2"
FLASH_ATTN_3 = "kernels-community/flash-attn3"
SAGE = "kernels-community/sage-attention"
VERSIONS = {FLASH_ATTN_2: 3, FLASH_ATTN_3: 1, SAGE: 2}  # as in shared/pyproject.toml
_DTYPES = ("bfloat16", "float16")
_NOTE = "a build of kernels-community on the Hugging Face hub"


def _flash_attn(repository: str, *, causal: bool = False) -> _base.Attention:
    function = hub.load(repository, VERSIONS[repository]).flash_attn_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        return function(q, k, v, causal=causal)

    return attend


def _sage(*, causal: bool = False) -> _base.Attention:
    function = hub.load(SAGE, VERSIONS[SAGE]).sageattn

    def attend(q: Any, k: Any, v: Any) -> Any:
        return function(q, k, v, tensor_layout="NHD", is_causal=causal)

    return attend


def _flash_attn_can(repository: str) -> _base.Capabilities:
    return _base.Capabilities(
        dtypes=_DTYPES,
        head_dims=_base.HEAD_DIMS,
        minimum=(8, 0),
        causal=lambda: _flash_attn(repository, causal=True),
        gqa=lambda: _flash_attn(repository),
        backward=lambda: _flash_attn(repository),
        varlen=True,
    )


def _sage_supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None: its `sageattn` refuses every capability but these four."""
    if why := _base.needs(device, workload, minimum=(8, 0), dtypes=_DTYPES):
        return why
    if device.compute_capability not in ((8, 0), (8, 9), (9, 0), (12, 0)):
        return f"has kernels for compute capability 8.0, 8.9, 9.0 and 12.0 only; {device.name} has another"
    return f"needs head_dim of 128 or less, got {workload.head_dim}" if workload.head_dim > 128 else None


VARIANT = _base.Variant(
    name="hf_flash_attn2",
    load=lambda: _flash_attn(FLASH_ATTN_2),
    supports=functools.partial(_base.needs, minimum=(8, 0), dtypes=_DTYPES),
    capabilities=_flash_attn_can(FLASH_ATTN_2),
    kernel_pattern=r"\bflash::flash_fwd",  # torch's own has another namespace, pytorch_flash
    detail=lambda: hub.loaded(FLASH_ATTN_2),
    note=_NOTE,
    packages=("torch", "kernels"),
)
FLASH_3 = _base.Variant(
    name="hf_flash_attn3",
    load=lambda: _flash_attn(FLASH_ATTN_3),
    supports=functools.partial(_base.needs, minimum=(8, 0), majors=(8, 9), dtypes=_DTYPES),
    capabilities=_flash_attn_can(FLASH_ATTN_3),
    kernel_pattern=r"FlashAttnFwdSm",
    detail=lambda: hub.loaded(FLASH_ATTN_3),
    note=_NOTE,
    packages=("torch", "kernels"),
)
SAGE_ATTENTION = _base.Variant(
    name="hf_sage",
    load=_sage,
    supports=_sage_supports,
    capabilities=_base.Capabilities(
        dtypes=("int8", "float8_e4m3fn"),
        head_dims=(64, 96, 128),
        minimum=(8, 0),
        causal=lambda: _sage(causal=True),
        gqa=_sage,
    ),
    precision_class="quantized",
    # Rounding to e4m3, three bits of mantissa, is off by 2.6% (rms); of weights and v together 3.6%, int8 scores beside
    # that. Outliers make it worse: two and a half times as much is taken for right.
    quantized_budget_rel_l2=0.09,
    kernel_pattern=r"qk_int8?_sv_f(8|16)",
    quantization_pattern=r"(?i)quant|SubMean|TransposePadPermute|MeanScale|MeanOps|CUDAFunctor_add",
    jit=True,  # Triton quantizes q and k
    detail=lambda: hub.loaded(SAGE),
    note=_NOTE,
    packages=("torch", "kernels"),
)
