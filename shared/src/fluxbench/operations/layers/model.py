"""A step of a whole decoder: a token of each sequence through all layers."""

import torch
from torch.nn.functional import linear, rms_norm, silu

from fluxbench.operations import math_attention
from fluxbench.operations.decode_model import WEIGHT, DecoderShape
from fluxbench.operations.layers.parts import rotate
from fluxbench.operations.protocol import Attention, Tensors

_EPSILON = 1e-5  # of the norms of Llama-3


def step(model: DecoderShape, attention: Attention, tensors: Tensors) -> Tensors:
    """Return `logits` and `kv`, see `DecodeModel`, computed in the dtype of x.

    Weights and caches of another dtype are converted a layer at a time.
    """
    x = tensors["x"]

    def weight(name: str, layer: int | None = None) -> torch.Tensor:
        of = tensors[WEIGHT + name]
        return (of if layer is None else of[layer]).to(x.dtype)

    sizes = [heads * model.head_dim for heads in (model.heads, model.kv_heads, model.kv_heads)]
    new = []
    for layer in range(model.layers):
        normed = rms_norm(x, x.shape[-1:], weight("norm_1", layer), _EPSILON)
        q, k, v = linear(normed, weight("qkv", layer)).split(sizes, dim=-1)
        q, k = (rotate(each.unflatten(-1, (-1, model.head_dim)), tensors["table"]) for each in (q, k))
        new.append(torch.cat((k.flatten(2), v), dim=-1))
        out = attention(q, tensors["k"][layer], tensors["v"][layer])
        x = x + linear(out.flatten(2), weight("o", layer))
        normed = rms_norm(x, x.shape[-1:], weight("norm_2", layer), _EPSILON)
        gate, up = linear(normed, weight("gate_up", layer)).chunk(2, dim=-1)
        x = x + linear(silu(gate) * up, weight("down", layer))
    logits = linear(rms_norm(x, x.shape[-1:], weight("norm"), _EPSILON), weight("head"))
    return {"logits": logits, "kv": torch.cat(new, dim=1)}


def unfused(precision: str) -> Attention:
    """Return unfused attention of one query a sequence, in the dtype of q, a sequence at a time."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        each = zip(q[:, 0], k, v, strict=True)
        return torch.stack([math_attention.one_query(*of, q.dtype, precision) for of in each])[:, None]

    return attend
