"""FlexAttention with `BACKEND="FLASH"`: FlashAttention-4's kernel where `flex` runs torch's own Triton template.

Exact. Needs the `flash-attn-4` package and a torch that has the option. It is compiled once and called from eager
code, as `flex` is. Runs on compute capability 9.0 or newer.
"""

import importlib

from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base, flex


def load(call: AttentionCall) -> Attention:
    """Return FlexAttention on views in [batch, heads, seq_len, head_dim].

    Raises `ImportError` where this torch has no such option, or FlashAttention-4 is not installed.
    """
    import torch
    from torch.nn.attention import flex_attention

    if "BACKEND" not in getattr(getattr(flex_attention, "FlexKernelOptions", None), "__annotations__", {}):
        raise ImportError(
            f"the FlexAttention of torch {torch.__version__} has no BACKEND option; it needs a newer torch"
        )
    importlib.import_module("flash_attn.cute")
    return flex.load(call, compiled=True, kernel_options={"BACKEND": "FLASH"})


VARIANT = _base.Variant(
    name="flex_flash",
    label="FlexAttention (FA4 kernel)",
    load=load,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        minimum=(9, 0),
        causal=_base.YES,
        gqa=_base.YES,
        backward=_base.YES,
        varlen=_base.DOCUMENTED,  # by a mask over documents
    ),
    kernel_pattern=r"FlashAttentionForward",
    backward_kernel_pattern=r"FlashAttentionBackward",
    compiles=True,
    jit=True,
    packages=("torch", "flash-attn-4", "nvidia-cutlass-dsl"),
)
