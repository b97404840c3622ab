"""FlashAttention-3, by its own `flash_attn_interface` or, where that is not installed, by `fa3-fwd`.

`fa3-fwd` is a third party's rebuild of the forward pass alone, without float16. The causal mask is aligned to the end.
The eager form calls the library as a user does; a compiled form calls it as one operator of our own, whose fake says
what comes out, and so is one graph.

- `flash_attn_3`: exact; probabilities are rounded to the inputs' dtype before the second product.
- `flash_attn_3_kvcache`: exact; decoding by `flash_attn_with_kvcache`, on a contiguous cache or one in pages; `fa3-fwd`
  was built without pages.
- `flash_attn_3_fp8`: quantized; q, k and v are cast to float8_e4m3fn within the call, with one scale for each head of
  k and v (and for the query heads that share it), and the library rounds the probabilities to float8 as well.

Runs on compute capability 9.x.
"""

import functools
import importlib
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base, forms


def load(call: AttentionCall) -> Attention:
    """Return `flash_attn_func`, which takes [batch, seq_len, heads, head_dim], on 16 bits.

    Raises `ImportError` for a backward pass by the rebuild, which has none.
    """
    if call.backward and (name := interface().__name__) != "flash_attn_interface":
        raise ImportError(f"{name} has no backward pass; install flash_attn_interface, which has one")
    return _load_varlen(call) if call.lengths else load_once(quantized=False, causal=call.causal)


def refuses(_: Device, call: AttentionCall) -> str | None:
    """Return why it does not take the two head_dims of a call, or None; by the library's own message."""
    of_qk, of_v = call.head_dim_qk, call.head_dim_v
    if of_qk == of_v or (of_qk <= 64 and of_v <= 512) or (128 < of_qk <= 192 and 96 < of_v <= 128):
        return None
    return (
        "flash_attn_3 takes another head_dim of v where that of q and k is up to 64 and of v up to 512, or where they "
        f"are over 128 to 192 and over 96 to 128, got {of_qk} and {of_v}"
    )


def load_float8(call: AttentionCall) -> Attention:
    """Return quantization to float8 and `flash_attn_func`."""
    return load_once(quantized=True, causal=call.causal)


def load_decoding(call: AttentionCall) -> Attention:
    """Return `flash_attn_with_kvcache`; the lengths of the sequences are on the device already."""
    flash_attn_with_kvcache = interface().flash_attn_with_kvcache

    def attend(q: Any, k: Any, v: Any, table: Any = None) -> Any:
        lengths = _base.cached_lengths(call.batch, call.seq_len_k, q.device)
        return flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table)

    return attend


@functools.cache
def interface() -> Any:
    """Return the library's module, or else the rebuild's."""
    try:
        return importlib.import_module("flash_attn_interface")
    except ModuleNotFoundError:
        return importlib.import_module("fa3_fwd_interface")


@functools.cache  # an operator is defined once in a process
def load_once(*, quantized: bool, causal: bool) -> Attention:
    """Return attention in 16 bits or in float8, and define the operator of its compiled form."""
    import torch

    flash_attn_func = interface().flash_attn_func

    def attend_in_16_bits(q: Any, k: Any, v: Any, **descales: Any) -> Any:
        return _base.only_output(flash_attn_func(q, k, v, causal=causal, **descales))

    def attend_in_float8(q: Any, k: Any, v: Any) -> Any:
        (q, k, v), (q_descale, k_descale, v_descale) = quantize_per_head(q, k, v, groups=k.shape[2])
        # Each descale is [batch, kv_heads], that of the queries too.
        return attend_in_16_bits(q, k, v, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)

    attention: Any = attend_in_16_bits
    if quantized:
        from fluxbench.kernels.float8 import quantize_per_head

        attention = attend_in_float8
    operator = torch.library.custom_op(
        f"fluxbench::flash_attn_3{'_fp8' * quantized}{'_causal' * causal}",
        attention,
        mutates_args=(),
        schema="(Tensor q, Tensor k, Tensor v) -> Tensor",
    )
    operator.register_fake(lambda q, k, v: q.new_empty((*q.shape[:3], v.shape[3])))

    def attend(q: Any, k: Any, v: Any) -> Any:
        return operator(q, k, v) if torch.compiler.is_compiling() else attention(q, k, v)

    return attend


def _load_varlen(call: AttentionCall) -> Attention:
    flash_attn_varlen_func = interface().flash_attn_varlen_func

    def attend_to_each(q: Any, k: Any, v: Any) -> Any:
        out = flash_attn_varlen_func(q[0], k[0], v[0], **_base.varlen(call, q.device), causal=call.causal)
        return _base.only_output(out)[None]

    return attend_to_each


NOTE = "by fa3-fwd, a third party's rebuild, where flash_attn_interface is not installed"
VARIANT = _base.Variant(
    name="flash_attn_3",
    label="FlashAttention-3",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16",),
        minimum=(9, 0),
        majors=(9,),
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
        backward=_base.YES,  # of flash_attn_interface
        varlen=_base.YES,
        separate_head_dims=True,
    ),
    refuses=refuses,
    forms=forms.COMPILED,
    kernel_pattern=r"FlashAttnFwdSm90",
    backward_kernel_pattern=r"FlashAttnBwdSm90",
    detail=lambda: str(interface().__name__),
    note=NOTE,
    packages=("torch", "flash-attn-3", "fa3-fwd"),
)
KV_CACHE = _base.Variant(
    name="flash_attn_3_kvcache",
    label="FlashAttention-3 KV cache",
    load=load_decoding,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16",), minimum=(9, 0), majors=(9,), gqa=_base.YES, varlen=_base.DOCUMENTED, paged=_base.YES
    ),
    kernel_pattern=r"FlashAttnFwdSm90",
    detail=lambda: str(interface().__name__),
    note=NOTE,
    packages=("torch", "flash-attn-3", "fa3-fwd"),
    only_decodes=True,
)
FLOAT8 = _base.Variant(
    name="flash_attn_3_fp8",
    label="FlashAttention-3 float8",
    load=load_float8,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16",),
        computes_in=("float8_e4m3fn",),
        minimum=(9, 0),
        majors=(9,),
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
        varlen=_base.DOCUMENTED,
    ),
    forms=forms.COMPILED,
    precision_class="quantized",
    # Rounding q, k, v and the probabilities to the nearest float8, and nothing else, makes 0.051 to 0.053 on normal
    # inputs and 0.004 to 0.009 on Flux-like ones (emulated in float32 at 640 to 4,608 tokens; of the former 0.038 come
    # from q and k, 0.026 from v, 0.024 from the probabilities, in squares). The rest is for the tensor cores' sums.
    quantized_budget_rel_l2=0.06,
    kernel_pattern=r"FlashAttnFwdSm90.*float_e4m3",
    quantization_pattern=r"quantize_per_head",
    jit=True,
    detail=lambda: str(interface().__name__),
    note=NOTE,
    packages=("torch", "triton", "flash-attn-3", "fa3-fwd"),
)
