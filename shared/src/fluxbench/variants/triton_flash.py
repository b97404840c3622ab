"""Our own flash attention in Triton (`fluxbench.kernels.flash_attention`), of fluxbench's own version.

Exact: matrix products of 16-bit operands, or of float32 ones by IEEE 754, into float32; softmax in float32, in base 2;
the weights, and in the backward pass the gradient of the scores, are rounded to the inputs' dtype before they meet
another matrix. `triton_flash_tf32` multiplies float32 in TF32 instead, on tensor cores. The choice is an argument of
the kernels: torch's own, `torch.set_float32_matmul_precision`, has no effect on them.

Gradients have the same bits each time. Its causal mask is aligned to the end. Runs on NVIDIA GPUs of compute capability
8.0 and newer, head_dim 16, 32, 64 and 128.
"""

from dataclasses import replace
from functools import partial

from fluxbench.operations import precision
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

HEAD_DIMS = (16, 32, 64, 128)


def load(call: AttentionCall, *, tf32: bool = False) -> Attention:
    """Return the kernel, which takes [batch, seq_len, heads, head_dim]; with its gradient where a call asks for it."""
    if call.backward:
        from fluxbench.kernels.flash_attention import attention

        return partial(attention, causal=call.causal, tf32=tf32, forward="triton", backward="triton")
    from fluxbench.kernels.flash_forward import flash_forward

    return partial(flash_forward, causal=call.causal, tf32=tf32)


VARIANT = _base.Variant(
    name="triton_flash",
    label="Triton (fluxbench)",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16", "float32"),
        head_dims=HEAD_DIMS,
        minimum=(8, 0),
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
        backward=_base.YES,
    ),
    refuses=_base.takes_head_dims("fluxbench's Triton kernels take", HEAD_DIMS),
    jit=True,
    kernel_pattern=r"^flash_forward_kernel$",
    backward_kernel_pattern=r"^flash_backward_(delta|keys|queries)_kernel$",
    packages=("torch", "triton"),
)
TF32 = replace(
    VARIANT,
    name="triton_flash_tf32",
    label="Triton TF32 (fluxbench)",
    load=lambda call: load(call, tf32=True),
    capabilities=replace(VARIANT.capabilities, dtypes=("float32",)),
    precision_class=precision.TF32,
)
