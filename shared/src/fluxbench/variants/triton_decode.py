"""Our own decoding kernel in Triton (`fluxbench.kernels.flash_decode`), of fluxbench's own version.

Exact: matrix products of 16-bit operands into float32, softmax in float32, in base 2; the weights are rounded to the
inputs' dtype before they meet v. Splits of the keys are added up in float32. It takes a contiguous cache and one in
pages of any size. Runs on NVIDIA GPUs of compute capability 8.0 and newer, head_dim 64 and 128.
"""

from functools import partial

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

HEAD_DIMS = (64, 128)


def load(call: AttentionCall) -> Attention:
    """Return the kernel, which takes [batch, seq_len, heads, head_dim], or pages and their table."""
    from fluxbench.kernels.flash_decode import flash_decode

    return partial(flash_decode, seq_len=call.seq_len_k)


VARIANT = _base.Variant(
    name="triton_decode",
    label="Triton decoding (fluxbench)",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"), head_dims=HEAD_DIMS, minimum=(8, 0), gqa=_base.YES, paged=_base.YES
    ),
    refuses=_base.takes_head_dims("triton_decode takes", HEAD_DIMS),
    jit=True,
    kernel_pattern=r"^flash_decode_(sum_)?kernel$",
    packages=("torch", "triton"),
    only_decodes=True,
)
