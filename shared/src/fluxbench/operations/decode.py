"""Decoding: one query token for each sequence against a cache of keys and values, contiguous or in pages."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fluxbench.operations import held, math_attention, qkv
from fluxbench.operations.attention import PARTS, AttentionForward
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Cost, Shape

if TYPE_CHECKING:
    import torch

_TABLE_BYTES = 4  # of an entry of the table of pages, int32


class Decode(AttentionForward):
    """Attention of one query token to all `seq_len_k` cached ones; grouped heads share a head of k and v.

    The cache is full. Nothing is masked: the query is the last token. k and v are `[batch, seq_len_k, kv_heads,
    head_dim]`, contiguous. With a `page_size` they are `[pages, page_size, kv_heads, head_dim]`, and `table`, `[batch,
    pages of a sequence]`, int32, says where each page of a sequence lies; pages lie in random order.

    A cache of `held.FROM_BYTES` or more exists once in a process (`operations.held`): contents differ in their queries
    and in their tables. It has normal inputs alone.
    """

    name = "decode"
    parts: Mapping[str, str] = {"gathering": r"(?i)index|gather", **PARTS}

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of attention; of a cache in pages the table is read too."""
        call = self.attention(shape)
        cost = call.forward_cost
        return replace(cost, min_bytes=cost.min_bytes + _TABLE_BYTES * call.batch * call.pages)

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for. Raises `ValueError` where the shape has more queries."""
        call = AttentionCall.of({"seq_len_q": 1, **shape})
        if call.seq_len_q != 1 or call.causal:
            raise ValueError(
                f"decode must have one query and no mask, got seq_len_q {call.seq_len_q} and causal {call.causal}"
            )
        return call

    def holds(self, shape: Shape) -> bool:
        """Whether the cache exists once in a process."""
        call = self.attention(shape)
        cached = call.elements - call.batch * call.heads * (call.head_dim_qk + call.head_dim_v)
        return cached * BYTES_PER_ELEMENT[call.dtype] >= held.FROM_BYTES

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return q, k and v, see `qkv.make`, and `table` of a cache in pages."""
        import torch

        call = self.attention(shape)
        rng = qkv.generator(f"{sorted(shape.items())}", kind, seed, device)
        if self.holds(shape) and kind == self.input_kinds[0]:
            dtype = getattr(torch, call.dtype)
            q = torch.randn(call.batch, 1, call.heads, call.head_dim_qk, generator=rng, device=device).to(dtype)
            k, v = held.normal("cache", [_stored(call, name) for name in "kv"], dtype, device)
            return {"q": q, "k": k, "v": v} | ({"table": _table(call, rng)} if call.page_size else {})
        inputs = qkv.make(call, kind, rng)
        return _in_pages(call, inputs, _table(call, rng)) if call.page_size else inputs

    def rescale(self, shape: Shape, inputs: Tensors, rng: random.Random) -> None:
        """Rescale q, k and v; nothing where the cache exists once."""
        if not held.is_held(inputs["k"]):
            super().rescale(shape, inputs, rng)

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return unfused attention in a dtype, a sequence at a time."""
        import torch

        call = self.attention(shape)
        rows = [
            math_attention.one_query(inputs["q"][entry, 0], *_cached(call, inputs, entry), dtype, precision)
            for entry in range(call.batch)
        ]
        return {"out": torch.stack(rows)[:, None]}

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> Tensors:
        """Return the rows in float64; the one query of each sequence is all that there is."""
        import torch

        return {"out": self.reference(shape, inputs, torch.float64)["out"].index_select(1, positions["out"])}

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a call of the kernel's attention, `attention(q, k, v)`; in pages `attention(q, k, v, table)`."""
        call = self.attention(shape)
        attend = kernel.attention(call)
        names = ("q", "k", "v", "table") if call.page_size else ("q", "k", "v")
        return Bound(lambda tensors: {"out": attend(*(tensors[name] for name in names))})


def _stored(call: AttentionCall, name: str) -> tuple[int, ...]:
    """Return the shape of k or v."""
    first = (call.batch * call.pages, call.page_size) if call.page_size else (call.batch, call.seq_len_k)
    return *first, call.kv_heads, call.head_dim_qk if name == "k" else call.head_dim_v


def _table(call: AttentionCall, rng: torch.Generator) -> torch.Tensor:
    """Return which page holds each part of each sequence, in random order."""
    import torch

    order = torch.randperm(call.batch * call.pages, generator=rng, device=rng.device, dtype=torch.int32)
    return order.view(call.batch, call.pages)


def _in_pages(call: AttentionCall, inputs: Tensors, table: torch.Tensor) -> Tensors:
    """Return the same inputs with k and v in pages; what is beyond the end of a sequence in its last page is zero."""
    from torch.nn.functional import pad

    beyond = call.pages * call.page_size - call.seq_len_k
    found = {"q": inputs["q"]}
    for name in "kv":
        whole = pad(inputs[name], (0, 0, 0, 0, 0, beyond)).view(_stored(call, name))
        found[name] = whole.new_empty(whole.shape).index_copy_(0, table.flatten().long(), whole)
    return {**found, "table": table}


def _cached(call: AttentionCall, inputs: Tensors, entry: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return k and v of one sequence, `[seq_len_k, kv_heads, head_dim]`."""
    if not call.page_size:
        return inputs["k"][entry], inputs["v"][entry]
    pages = inputs["table"][entry].long()
    k, v = (inputs[name].index_select(0, pages).flatten(0, 1)[: call.seq_len_k] for name in "kv")
    return k, v
