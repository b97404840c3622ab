"""FlexAttention with `BACKEND="FLASH"`: FlashAttention-4's kernel where `flex` runs torch's own Triton template.

Exact. Needs the `flash-attn-4` package and a torch that has the option. It is compiled once and called from eager
code, as `flex` is. Runs on compute capability 9.0 or newer.
"""

import importlib
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.workloads import Workload
from fluxbench.variants import _base


def supports(device: Device, workload: Workload) -> str | None:
    """Say why it cannot run, or None."""
    return _base.needs(device, workload, minimum=(9, 0), dtypes=("bfloat16", "float16"))


def load(*, causal: bool = False, **options: object) -> _base.Attention:
    """Return FlexAttention on views in [batch, heads, seq_len, head_dim]; `options` are its own keywords.

    Raises `ImportError` where this torch has no such option, or FlashAttention-4 is not installed.
    """
    import torch
    from torch.nn.attention import flex_attention as flex

    if "BACKEND" not in getattr(getattr(flex, "FlexKernelOptions", None), "__annotations__", {}):
        raise ImportError(
            f"the FlexAttention of torch {torch.__version__} has no BACKEND option; it needs a newer torch"
        )
    importlib.import_module("flash_attn.cute")
    kernel = torch.compile(flex.flex_attention, fullgraph=True, dynamic=False)
    options["kernel_options"] = {"BACKEND": "FLASH"}

    def attend(q: Any, k: Any, v: Any) -> Any:
        if causal:
            options["block_mask"] = flex.create_block_mask(
                lambda b, h, q_index, k_index: q_index >= k_index, None, None, q.shape[1], k.shape[1], q.device
            )
        return kernel(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options).transpose(1, 2).contiguous()

    return attend


VARIANT = _base.Variant(
    name="flex_flash",
    load=load,
    supports=supports,
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16"),
        head_dims=_base.HEAD_DIMS,
        minimum=(9, 0),
        causal=lambda: load(causal=True),
        gqa=lambda: load(enable_gqa=True),
        backward=load,
        varlen=True,  # by a mask over documents
    ),
    kernel_pattern=r"FlashAttentionForward",
    compiles=True,
    jit=True,
    packages=("torch", "flash-attn-4", "nvidia-cutlass-dsl"),
)
