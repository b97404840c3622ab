"""FlexAttention (torch.nn.attention.flex_attention), without a score modification.

`flex` compiles flex_attention itself and is called from eager code, as its documentation prescribes; the compiled forms
compile the whole call. `flex_dynamic` is compiled once for all batches and lengths of a head_dim and a number of heads
(`dynamic=True`; FlexAttention itself keeps these two), once more for lengths under 128, and declared for GPUs alone.
`flex_eager` leaves the compilation out and so runs no fused kernel at all: what one gets by forgetting it. Exact. The
causal mask is a block mask, made once, as documented, and one query has such a mask too. Runs on compute capability 8.0
or newer and, where a C++ compiler is installed, on a CPU.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fluxbench.device.model import Device
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.variants import _base, forms


def refuses(device: Device, call: AttentionCall) -> str | None:
    """Return why it cannot run although its capabilities do not exclude it, or None."""
    return "FlexAttention has no backward pass on a CPU" if call.backward and device.kind == "cpu" else None


def load(
    call: AttentionCall, *, compiled: bool, dynamic: bool = False, kernel_options: Mapping[str, str] | None = None
) -> Attention:
    """Return FlexAttention on views in [batch, heads, seq_len, head_dim]; `kernel_options` are its own."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    kernel: Any = flex_attention
    if compiled:
        kernel = forms.compile_for_many_lengths(flex_attention, fullgraph=True, dynamic=dynamic)
    options: dict[str, Any] = {"kernel_options": dict(kernel_options)} if kernel_options else {}
    options |= {"enable_gqa": True} if call.grouped else {}
    ahead = call.seq_len_k - call.seq_len_q  # aligned to the end: the last query sees all keys

    # One query sees all keys, as the last one of a causal mask does. Without the blocks of a mask, torch's kernel
    # (2.11 to 2.13) leaves all keys of a sequence to the first of the programs that split them.
    is_masked = call.causal or call.seq_len_q == 1

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def make_mask(device: torch.device) -> bool:
        """Make the mask, when a graph is traced too."""
        if "block_mask" not in options:
            options["block_mask"] = create_block_mask(
                lambda batch, head, q, k: q + ahead >= k, None, None, call.seq_len_q, call.seq_len_k, device
            )
        return True

    def attend(q: Any, k: Any, v: Any) -> Any:
        if is_masked:
            make_mask(q.device)
        return kernel(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options).transpose(1, 2).contiguous()

    return attend


_CAPABILITIES = _base.Capabilities(
    dtypes=("bfloat16", "float16", "float32"),
    minimum=(8, 0),
    cpu=True,
    causal=_base.YES,
    causal_rectangular=True,
    gqa=_base.YES,
    backward=_base.YES,
    varlen=_base.DOCUMENTED,  # by a mask over documents
    paged=_base.DOCUMENTED,  # by its PagedAttention, which is experimental
    separate_head_dims=True,
)
VARIANT = _base.Variant(
    name="flex",
    label="FlexAttention",
    diffusers="flex",
    load=lambda call: load(call, compiled=True),
    capabilities=_CAPABILITIES,
    refuses=refuses,
    forms=forms.COMPILED,
    kernel_pattern=r"triton_.*flex",
    backward_kernel_pattern=r"triton_.*flex",
    compiles=True,
)
DYNAMIC = dataclasses.replace(
    VARIANT,
    name="flex_dynamic",
    label="FlexAttention (dynamic)",
    diffusers="",
    load=lambda call: load(call, compiled=True, dynamic=True),
    capabilities=dataclasses.replace(_CAPABILITIES, cpu=False),
    forms=(forms.EAGER,),
)
UNFUSED = _base.Variant(
    name="flex_eager",
    label="FlexAttention (not compiled)",
    holds_scores=True,
    diffusers="flex",
    load=lambda call: load(call, compiled=False),
    capabilities=_CAPABILITIES,
    refuses=refuses,
)
