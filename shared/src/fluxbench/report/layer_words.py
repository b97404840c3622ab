"""A layer in words, for the headings of tables."""

from __future__ import annotations

from fluxbench.operations.layer_shape import FUSED, GROUPED, LATENT, LATENT_ROTARY, MULTI_QUERY, SEPARATE, LayerShape
from fluxbench.operations.workload import Workload

KIND = {
    FUSED: "multi-head, fused QKV",
    SEPARATE: "multi-head, separate Q/K/V",
    GROUPED: "grouped-query",
    MULTI_QUERY: "multi-query",
    LATENT: "multi-head latent, plain",
    LATENT_ROTARY: "multi-head latent, rotary",
}


def sizes(workload: Workload) -> str:
    """Return a layer's sizes: "grouped-query, 32/8 heads of 128, width 4,096, 1 x 4,096 tokens, causal, bfloat16"."""
    layer = LayerShape.of(workload.shape)
    heads = f"{layer.heads}" if layer.kv_heads == layer.heads else f"{layer.heads}/{layer.kv_heads}"
    dims = f"{layer.head_dim}" + (f" + {layer.rotary_dim} rotated" if layer.rotary_dim else "")
    words = [KIND[layer.kind], f"{heads} heads of {dims}", f"width {layer.width:,}"]
    words += [f"latent {layer.latent_dim:,}"] if layer.latent_dim else []
    words += [f"{layer.batch} x {layer.seq_len:,} tokens"]
    words += ["rotary"] * layer.rotary + ["norm of q and k"] * layer.qk_norm + ["causal"] * layer.causal
    return ", ".join([*words, layer.dtype])
