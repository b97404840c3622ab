"""SageAttention: q and k in int8, by the library's own kernels.

Quantized, within the call: k loses its mean over the sequence, q and k go to int8 block by block, and the second
product is of float16 (`sage_int8_fp16_*`) or of float8 e4m3 weights and values (`sage_int8_fp8_sm90`). 1.0.6, whose
kernels are Triton's, is the published package; the CUDA kernels of 2.x are built from its source.

The kernel of 1.0.6 does not mask the keys that fill up its last block of 64: where the length is no multiple of 64,
they count among the weights, and the output is too small (by 5% at 353 tokens of normal inputs, by less at more). It
refuses such lengths.
"""

from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

HEAD_DIMS = (64, 96, 128)
KEYS_OF_A_BLOCK = 64
_PUBLISHED = "install sageattention==1.0.6"
_BUILT = "SageAttention 2.x is not published as a package, build it from its source"
refuses = _base.takes_head_dims("SageAttention takes", HEAD_DIMS)


def refuses_triton(device: Device, call: AttentionCall) -> str | None:
    """Return why the Triton kernel does not run, or None: it is wrong where the last block of keys is not whole."""
    if call.seq_len_k % KEYS_OF_A_BLOCK and not call.lengths:
        return f"SageAttention 1.0.6 is right for multiples of {KEYS_OF_A_BLOCK} keys alone, got {call.seq_len_k}"
    return refuses(device, call)


def refuses_cuda(device: Device, call: AttentionCall) -> str | None:
    """Return the same of the CUDA kernel with float16 values, which `sageattn` of 2.x passes over on 8.6."""
    if device.compute_capability == (8, 6):
        return "SageAttention 2.x runs its Triton kernel on compute capability 8.6: sage_int8_fp16_triton"
    return refuses(device, call)


def load(call: AttentionCall, functions: tuple[str, ...], remedy: str) -> Attention:
    """Return the first of these functions that there is, on `[batch, seq_len, heads, head_dim]`, which they call NHD.

    1.0.6 takes the mean off its caller's k, in place: here that is done to a new tensor, as 2.x does it.
    """
    attention = _first(functions, remedy)

    def attend(q: Any, k: Any, v: Any) -> Any:
        k = k - k.mean(dim=1, keepdim=True)
        return attention(q, k, v, tensor_layout="NHD", is_causal=call.causal, smooth_k=False)

    return attend


def load_triton(call: AttentionCall) -> Attention:
    """Return the Triton kernel. `sageattn` of 2.x chooses among its kernels, of which this one is Triton's."""
    if not call.lengths:
        return load(call, ("sageattn_qk_int8_pv_fp16_triton", "sageattn"), _PUBLISHED)
    attention = _first(("sageattn_varlen",), _PUBLISHED)

    def attend_to_each(q: Any, k: Any, v: Any) -> Any:
        k = k - k.mean(dim=1, keepdim=True)
        lengths = _base.varlen(call, q.device)
        return attention(q[0], k[0], v[0], **lengths, is_causal=call.causal, smooth_k=False)[None]

    return attend_to_each


def _first(functions: tuple[str, ...], remedy: str) -> Any:
    try:
        import sageattention
    except ImportError as error:
        raise ImportError(f"{remedy}: {error}") from error
    present = [getattr(sageattention, function) for function in functions if hasattr(sageattention, function)]
    if not present:
        raise ImportError(f"{remedy}: the sageattention that is here has no {functions[0]}")
    return present[0]


def _capabilities(
    minimum: tuple[int, int] = (8, 0), majors: tuple[int, ...] | None = None, varlen: _base.Support = _base.NO
) -> _base.Capabilities:
    return _base.Capabilities(
        dtypes=("bfloat16", "float16"),
        computes_in=("int8",),
        head_dims=HEAD_DIMS,
        minimum=minimum,
        majors=majors,
        causal=_base.YES,
        gqa=_base.YES,
        varlen=varlen,
    )


_SMOOTHING = "MeanOps|CUDAFunctor_add"  # torch's kernels for k less its mean

# The budgets: twice the relative L2 error of the same quantization emulated in float32 on `inputs.make`, at 4608 tokens
# and head_dim 128. With float16 weights and values it is 0.0135 on normal inputs and 0.0018 on flux ones; with float8
# ones, 0.0396 and 0.0030. The Triton kernels of 1.0.6 in Triton's interpreter give 0.0130 on 256 normal tokens.
VARIANT = _base.Variant(
    name="sage_int8_fp16_triton",
    label="SageAttention int8 (Triton)",
    diffusers="_sage_qk_int8_pv_fp16_triton",
    load=load_triton,
    capabilities=_capabilities(varlen=_base.YES),
    refuses=refuses_triton,
    precision_class="quantized",
    quantized_budget_rel_l2=0.027,
    kernel_pattern=r"^_attn_fwd$",
    quantization_pattern=rf"quant_per_block_int8|{_SMOOTHING}",
    jit=True,
    packages=("torch", "triton", "sageattention"),
)
CUDA = _base.Variant(
    name="sage_int8_fp16_cuda",
    label="SageAttention int8 (CUDA)",
    diffusers="_sage_qk_int8_pv_fp16_cuda",
    load=lambda call: load(call, ("sageattn_qk_int8_pv_fp16_cuda",), _BUILT),
    capabilities=_capabilities(),
    refuses=refuses_cuda,
    precision_class="quantized",
    quantized_budget_rel_l2=0.027,
    kernel_pattern=r"qk_int_sv_f16_attn",
    quantization_pattern=rf"quant_\w+_per_thread_int8|{_SMOOTHING}",
    jit=True,
    packages=("torch", "triton", "sageattention"),
)
SM90 = _base.Variant(
    name="sage_int8_fp8_sm90",
    label="SageAttention int8+float8",
    diffusers="_sage_qk_int8_pv_fp8_cuda_sm90",
    load=lambda call: load(call, ("sageattn_qk_int8_pv_fp8_cuda_sm90",), _BUILT),
    capabilities=_capabilities(minimum=(9, 0), majors=(9,)),
    refuses=refuses,
    precision_class="quantized",
    quantized_budget_rel_l2=0.08,
    kernel_pattern=r"qk_int8_sv_f8_attn",
    quantization_pattern=rf"quant_\w+_per_thread_int8|MeanScale|TransposePadPermute|{_SMOOTHING}",
    jit=True,
    packages=("torch", "triton", "sageattention"),
)
