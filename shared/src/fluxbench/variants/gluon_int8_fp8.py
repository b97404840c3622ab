"""Our own forward attention in 8 bits, in Gluon (`fluxbench.kernels.gluon_int8_fp8`), of fluxbench's own version.

Quantized, within the call, in one launch. k loses the mean of 64 of its rows; q goes to int8 with one scale a row, k to
int8 and v to float8 e4m3 with one scale for each 128 rows of a head. Scores are sums of int8 products, exact, and the
maximum is in float32. The weights are float8 e4m3, with codes linear in the logarithm; their sums and their products
with V are added on the tensor cores within 128 keys, and in float32 beyond. The causal mask is aligned to the end.

Runs on NVIDIA GPUs of compute capability 9.0, head_dim 64 and 128, any strides. It needs Triton 3.6 or newer.
"""

from functools import partial

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

HEAD_DIMS = (64, 128)


def load(call: AttentionCall) -> Attention:
    """Return quantization and the kernel, which take [batch, seq_len, heads, head_dim]."""
    from fluxbench.kernels.gluon_int8_fp8 import quantized_forward

    return partial(quantized_forward, causal=call.causal)


VARIANT = _base.Variant(
    name="gluon_int8_fp8",
    label="Gluon int8/fp8 (fluxbench)",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        computes_in=("int8", "float8_e4m3fn"),
        head_dims=HEAD_DIMS,
        minimum=(9, 0),
        majors=(9,),
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
    ),
    refuses=_base.takes_head_dims("fluxbench's 8-bit kernel takes", HEAD_DIMS),
    precision_class="quantized",
    # The same quantization in torch on `qkv.make` at 4,608 tokens and head_dim 128: 0.042 on normal inputs (0.030 of it
    # from q, k and v, 0.030 from the weights, in squares) and 0.002 on flux ones. The rest is for heads that differ.
    quantized_budget_rel_l2=0.05,
    kernel_pattern=r"^quantized_forward_kernel$",
    quantization_pattern=r"^quantize_qkv_kernel$",
    jit=True,
    packages=("torch", "triton"),
)
