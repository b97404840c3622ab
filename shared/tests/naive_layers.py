"""Attention layers by the formulas of the papers, and a kernel that computes whatever attention a test gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.operations.layer import split
from fluxbench.operations.protocol import Attention, Tensors
from fluxbench.operations.shapes import AttentionCall

BASE = {"batch": 2, "seq_len": 33, "width": 48, "heads": 4, "kv_heads": 4, "head_dim": 16}
ROTARY = {"latent_dim": 24, "rotary_dim": 8, "value_dim": 16}
SHAPES: dict[str, dict[str, Any]] = {
    "fused": {**BASE, "kind": "fused"},
    "separate": {**BASE, "kind": "separate", "causal": True},
    "grouped": {**BASE, "kind": "grouped", "kv_heads": 2},
    "Qwen3": {**BASE, "kind": "grouped", "kv_heads": 2, "rotary": True, "qk_norm": True, "causal": True},
    "multi-query": {**BASE, "kind": "multi_query", "kv_heads": 1},
    "latent": {**BASE, "kind": "latent", "latent_dim": 24},
    "DeepSeek-V3": {**BASE, "kind": "latent_rotary", **ROTARY, "q_latent_dim": 40, "causal": True},
    "DeepSeek-V2-Lite": {**BASE, "kind": "latent_rotary", **ROTARY},
}


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False) -> torch.Tensor:
    """Return attention by einsum: query head i attends to head i // group of k and v."""
    k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def precise(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Return attention in float32, rounded to the dtype of q."""
    return attention(q.float(), k.float(), v.float(), causal=causal).to(q.dtype)


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def turned(x: torch.Tensor) -> torch.Tensor:
    """Return each pair of channels as a complex number times exp(i position / 10000**(2 j / dim))."""
    tokens, dim = x.shape[1], x.shape[-1]
    angles = torch.outer(torch.arange(tokens).double(), 1e4 ** (-torch.arange(0, dim, 2).double() / dim))
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(-2)


def naive(x: torch.Tensor, w: Mapping[str, torch.Tensor], of: Mapping[str, Any]) -> torch.Tensor:
    """Return y by the formulas of the papers, in the dtype of x."""
    heads, dim = of["heads"], of["head_dim"]

    def through(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.einsum("bti,oi->bto", x, w[name])

    def by_head(x: torch.Tensor, name: str, count: int = heads) -> torch.Tensor:
        return through(x, name).reshape(*x.shape[:2], count, -1)

    if of["kind"] == "fused":
        q, k, v = (through(x, "qkv")[..., i * heads * dim : (i + 1) * heads * dim] for i in range(3))
        q, k, v = (each.reshape(*x.shape[:2], heads, dim) for each in (q, k, v))
    elif of["kind"] == "latent":
        latent = through(x, "down")
        q, k, v = by_head(x, "q"), by_head(latent, "k"), by_head(latent, "v")
    elif of["kind"] == "latent_rotary":
        q = by_head(normed(through(x, "q_down"), w["q_norm"]) if "q_down" in w else x, "q")
        q = torch.cat([q[..., :dim], turned(q[..., dim:])], -1)
        down = through(x, "kv_down")
        latent, shared = down[..., : of["latent_dim"]], turned(down[..., of["latent_dim"] :].unsqueeze(2))
        kv = by_head(normed(latent, w["kv_norm"]), "kv")
        k, v = torch.cat([kv[..., :dim], shared.repeat(1, 1, heads, 1)], -1), kv[..., dim:]
    else:
        q, k, v = by_head(x, "q"), by_head(x, "k", of["kv_heads"]), by_head(x, "v", of["kv_heads"])
    if of.get("qk_norm"):
        q, k = normed(q, w["q_norm"]), normed(k, w["k_norm"])
    if of.get("rotary"):
        q, k = turned(q), turned(k)
    return through(attention(q, k, v, causal=of.get("causal", False)).flatten(2), "o")


def of_naive(inputs: Tensors, of: Mapping[str, Any]) -> Tensors:
    """Return y and all gradients of the formulas, in float64."""
    weights, x, _ = split({name: each.double().requires_grad_() for name, each in inputs.items()})
    y = naive(x, weights, of)
    found = torch.autograd.grad(y, (x, *weights.values()), inputs["dy"].double())
    names = ("dx", *(f"dw_{name}" for name in weights))
    shaped = (found[0], *(each.reshape(1, -1, each.shape[-1]) for each in found[1:]))
    return {"y": y.detach(), **dict(zip(names, shaped, strict=True))}


def inputs_of(of: Mapping[str, Any], seed: int = 0, operation: str = "layer_training") -> Tensors:
    return operations.find(operation).inputs(of, "normal", seed, "cpu")


def case_of(of: Mapping[str, Any], operation: str, seed: int = 0) -> Case:
    workload = operations.workload(operation, "layer", of, group="layer", x=1, x_unit="tokens")
    return Case.make(workload, "normal", seed, torch.device("cpu"))


@dataclass(frozen=True)
class Given:
    """A kernel that is an attention, whatever the call asks for."""

    attend: Callable[..., torch.Tensor]
    compiles = compiles_model = compiles_blocks = False
    diffusers = ""

    def attention(self, call: AttentionCall) -> Attention:
        raise AssertionError("a layer compiles itself whole, and so asks for the attention that is not compiled")

    def eager(self, call: AttentionCall) -> Attention:
        return lambda q, k, v: self.attend(q, k, v, causal=call.causal)

    def in_form(self, call: AttentionCall, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return function
