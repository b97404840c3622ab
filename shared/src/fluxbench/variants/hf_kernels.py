"""Attention kernels of the Hugging Face hub, as their publisher kernels-community builds them.

FlashAttention-2 and -3 are exact. SageAttention quantizes q and k to int8 within the call, and v to float8 (e4m3) on
compute capability 8.9 and newer. Versions and calls: the repositories' own build.toml and Python sources.
"""

from typing import Any

from fluxbench.device.model import Device
from fluxbench.kernels import hub
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

FLASH_ATTN_2 = "kernels-community/flash-attn2"
FLASH_ATTN_3 = "kernels-community/flash-attn3"
SAGE = "kernels-community/sage-attention"
VERSIONS = {FLASH_ATTN_2: 3, FLASH_ATTN_3: 1, SAGE: 2}  # as in shared/pyproject.toml
_DTYPES = ("bfloat16", "float16")
_NOTE = "a build of kernels-community on the Hugging Face hub"
_SAGE_RUNS_ON = ((8, 0), (8, 9), (9, 0), (12, 0))  # its `sageattn` refuses every other capability


def load_flash_attn(call: AttentionCall, repository: str) -> Attention:
    """Return `flash_attn_func` of a repository, which takes [batch, seq_len, heads, head_dim]."""
    function = hub.load(repository, VERSIONS[repository]).flash_attn_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        return function(q, k, v, causal=call.causal)

    return attend


def load_sage(call: AttentionCall) -> Attention:
    """Return `sageattn`, which calls [batch, seq_len, heads, head_dim] NHD."""
    function = hub.load(SAGE, VERSIONS[SAGE]).sageattn

    def attend(q: Any, k: Any, v: Any) -> Any:
        return function(q, k, v, tensor_layout="NHD", is_causal=call.causal)

    return attend


def refuses_sage(device: Device, call: AttentionCall) -> str | None:
    """Return why SageAttention cannot run although its capabilities do not exclude it, or None."""
    if device.compute_capability not in _SAGE_RUNS_ON:
        return f"has kernels for compute capability 8.0, 8.9, 9.0 and 12.0 only; {device.name} has another"
    return None


def _flash_attn_can(*majors: int) -> _base.Capabilities:
    return _base.Capabilities(
        dtypes=_DTYPES,
        minimum=(8, 0),
        majors=majors or None,
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
        backward=_base.YES,
        varlen=_base.DOCUMENTED,
    )


VARIANT = _base.Variant(
    name="hf_flash_attn2",
    label="FlashAttention-2 (HF hub)",
    load=lambda call: load_flash_attn(call, FLASH_ATTN_2),
    capabilities=_flash_attn_can(),
    kernel_pattern=r"\bflash::flash_fwd",  # torch's own has another namespace, pytorch_flash
    backward_kernel_pattern=r"\bflash::flash_bwd",
    detail=lambda: hub.loaded(FLASH_ATTN_2),
    note=_NOTE,
    packages=("torch", "kernels"),
)
FLASH_3 = _base.Variant(
    name="hf_flash_attn3",
    label="FlashAttention-3 (HF hub)",
    load=lambda call: load_flash_attn(call, FLASH_ATTN_3),
    capabilities=_flash_attn_can(8, 9),
    kernel_pattern=r"FlashAttnFwdSm",
    backward_kernel_pattern=r"FlashAttnBwdSm",
    detail=lambda: hub.loaded(FLASH_ATTN_3),
    note=_NOTE,
    packages=("torch", "kernels"),
)
SAGE_ATTENTION = _base.Variant(
    name="hf_sage",
    label="SageAttention (HF hub)",
    load=load_sage,
    capabilities=_base.Capabilities(
        dtypes=_DTYPES,
        computes_in=("int8", "float8_e4m3fn"),
        head_dims=(64, 96, 128),
        minimum=(8, 0),
        causal=_base.YES,
        gqa=_base.YES,
    ),
    refuses=refuses_sage,
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
