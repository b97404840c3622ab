"""Our own flash attention in Gluon (`fluxbench.kernels.flash_gluon`), of fluxbench's own version.

Exact: matrix products of 16-bit operands into float32; softmax in float32, in base 2; the weights are rounded to the
inputs' dtype before they meet V. Its causal mask is aligned to the end. Its backward pass adds to dq in the order in
which programs end.

`gluon_flash_det`: with `deterministic=True`, dq has a kernel of its own, which adds in a fixed order.

Runs on NVIDIA GPUs of compute capability 9.x, head_dim 64 and 128; addresses and strides must be multiples of 16 bytes.
It needs Triton 3.6 or newer.
"""

from functools import partial

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

HEAD_DIMS = (64, 128)


def load(call: AttentionCall, *, deterministic: bool = False) -> Attention:
    """Return the kernel, which takes [batch, seq_len, heads, head_dim]; with its gradient where a call asks for it."""
    from fluxbench.kernels.flash_gluon import gluon_forward

    if call.backward:
        from fluxbench.kernels.flash_attention import attention

        return partial(attention, causal=call.causal, forward="gluon", backward="gluon", deterministic=deterministic)
    return partial(gluon_forward, causal=call.causal)


VARIANT = _base.Variant(
    name="gluon_flash",
    label="Gluon (fluxbench)",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=HEAD_DIMS,
        minimum=(9, 0),
        majors=(9,),
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
        backward=_base.YES,
    ),
    refuses=_base.takes_head_dims("fluxbench's Gluon kernel takes", HEAD_DIMS),
    jit=True,
    kernel_pattern=r"^gluon_forward_kernel$",
    backward_kernel_pattern=r"^gluon_backward(_rows|_queries|_end)?_kernel$",
    packages=("torch", "triton"),
)
DETERMINISTIC = _base.deterministic(
    VARIANT,
    lambda call: load(call, deterministic=True),
    "Gluon (fluxbench) det.",
)
