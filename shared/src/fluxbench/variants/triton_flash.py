"""Our own flash attention in Triton (`fluxbench.kernels.flash_attention`), of fluxbench's own version.

Exact: matrix products of 16-bit operands into float32, softmax in float32, in base 2; the weights, and in the backward
pass the gradient of the scores, are rounded to the inputs' dtype before they meet another matrix. Gradients have the
same bits each time. Its causal mask is aligned to the end. Runs on NVIDIA GPUs of compute capability 8.0 and newer,
head_dim 64 and 128.
"""

from functools import partial

from fluxbench.device.model import Device
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base

HEAD_DIMS = (64, 128)


def refuses(device: Device, call: AttentionCall) -> str | None:
    """Return why it cannot run although its capabilities do not exclude it, or None."""
    return None if call.head_dim_qk in HEAD_DIMS else f"triton_flash takes head_dim 64 and 128, got {call.head_dim_qk}"


def load(call: AttentionCall) -> Attention:
    """Return the kernel, which takes [batch, seq_len, heads, head_dim]; with its gradient where a call asks for it."""
    if call.backward:
        from fluxbench.kernels.flash_attention import flash_attention

        return partial(flash_attention, causal=call.causal)
    from fluxbench.kernels.flash_forward import flash_forward

    return partial(flash_forward, causal=call.causal)


VARIANT = _base.Variant(
    name="triton_flash",
    label="Triton (fluxbench)",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=HEAD_DIMS,
        minimum=(8, 0),
        causal=_base.YES,
        causal_rectangular=True,
        gqa=_base.YES,
        backward=_base.YES,
    ),
    refuses=refuses,
    jit=True,
    kernel_pattern=r"^flash_forward_kernel$",
    backward_kernel_pattern=r"^flash_backward_(delta|keys|queries)_kernel$",
    packages=("torch", "triton"),
)
