"""FlashAttention-3, by its own `flash_attn_interface` or, where that is not installed, by `fa3-fwd`.

`fa3-fwd` is a third party's rebuild of the forward pass alone, without float16. The eager form calls the library as a
user does; a compiled form calls it as one operator of our own, whose fake says what comes out, and so is one graph.

- `flash_attn_3`: exact; probabilities are rounded to the inputs' dtype before the second product.
- `flash_attn_3_fp8`: quantized; q, k and v are cast to float8_e4m3fn within the call, with one scale for each head of
  k and v (and for the query heads that share it), and the library rounds the probabilities to float8 as well.

Runs on compute capability 9.x.
"""

import functools
import importlib
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(9, 0), majors=(9,), dtypes=("bfloat16",))


@functools.cache
def _interface() -> Any:
    try:
        return importlib.import_module("flash_attn_interface")
    except ModuleNotFoundError:
        return importlib.import_module("fa3_fwd_interface")


def _only_output(result: Any) -> Any:
    """Return the output alone: some versions return `(out, lse)`."""
    return result[0] if isinstance(result, tuple) else result


@functools.cache  # an operator is defined once in a process
def load(*, quantized: bool = False, causal: bool = False) -> _base.Attention:
    """Return `flash_attn_func`, which takes [batch, seq_len, heads, head_dim], on 16 bits or on float8."""
    import torch

    flash_attn_func = _interface().flash_attn_func

    def call(q: Any, k: Any, v: Any, **descales: Any) -> Any:
        return _only_output(flash_attn_func(q, k, v, causal=causal, **descales))

    def attend_in_float8(q: Any, k: Any, v: Any) -> Any:
        (q, k, v), (q_descale, k_descale, v_descale) = quantize_per_head(q, k, v, groups=k.shape[2])
        # Each descale is [batch, kv_heads], that of the queries too.
        return call(q, k, v, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)

    attention: Any = call
    if quantized:
        from fluxbench.kernels.float8 import quantize_per_head

        attention = attend_in_float8
    operator = torch.library.custom_op(
        f"fluxbench::flash_attn_3{'_fp8' * quantized}{'_causal' * causal}",
        attention,
        mutates_args=(),
        schema="(Tensor q, Tensor k, Tensor v) -> Tensor",
    )
    operator.register_fake(lambda q, k, v: q.new_empty(q.shape))

    def attend(q: Any, k: Any, v: Any) -> Any:
        return operator(q, k, v) if torch.compiler.is_compiling() else attention(q, k, v)

    return attend


def load_varlen(lengths: tuple[int, ...]) -> _base.Attention:
    """Return attention within each of several sequences, which lie one after the other."""
    flash_attn_varlen_func = _interface().flash_attn_varlen_func

    def attend(q: Any, k: Any, v: Any) -> Any:
        bounds, longest = _base.bounds(lengths, q.device), max(lengths)
        return _only_output(flash_attn_varlen_func(q[0], k[0], v[0], bounds, bounds, longest, longest))[None]

    return attend


NOTE = "by fa3-fwd, a third party's rebuild, where flash_attn_interface is not installed"
VARIANT = _base.Variant(
    name="flash_attn_3",
    load=load,
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16",),
        head_dims=_base.HEAD_DIMS,
        minimum=(9, 0),
        causal=lambda: load(causal=True),
        gqa=load,
        varlen=load_varlen,
    ),
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
    kernel_pattern=r"FlashAttnFwdSm90",
    detail=lambda: str(_interface().__name__),
    note=NOTE,
    packages=("torch", "flash-attn-3", "fa3-fwd"),
)
FLOAT8 = _base.Variant(
    name="flash_attn_3_fp8",
    load=lambda: load(quantized=True),
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("float8_e4m3fn",),
        head_dims=_base.HEAD_DIMS,
        minimum=(9, 0),
        causal=lambda: load(quantized=True, causal=True),
        gqa=lambda: load(quantized=True),
        varlen=True,
    ),
    forms=(_base.Form.EAGER, _base.Form.COMPILE_DEFAULT, _base.Form.COMPILE_MAX_AUTOTUNE),
    precision_class="quantized",
    # Rounding q, k, v and the probabilities to the nearest float8, and nothing else, makes 0.051 to 0.053 on normal
    # inputs and 0.004 to 0.009 on Flux-like ones (emulated in float32 at 640 to 4,608 tokens; of the former 0.038 come
    # from q and k, 0.026 from v, 0.024 from the probabilities, in squares). The rest is for the tensor cores' sums.
    quantized_budget_rel_l2=0.06,
    kernel_pattern=r"FlashAttnFwdSm90.*float_e4m3",
    quantization_pattern=r"quantize_per_head",
    jit=True,
    detail=lambda: str(_interface().__name__),
    note=NOTE,
    packages=("torch", "triton", "flash-attn-3", "fa3-fwd"),
)
