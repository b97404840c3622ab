"""A language model with random weights, which all instances of it share, and a step of its training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.adamw import adamw  # the class imports torch._dynamo, which takes seconds

from fluxbench.operations.language_shape import LanguageShape
from fluxbench.operations.layers.language import Language
from fluxbench.operations.models.build import SHARPNESS, noise
from fluxbench.operations.protocol import Attention, Kernel, Tensors
from fluxbench.operations.qkv import generator
from fluxbench.operations.shapes import AttentionCall

_SEED = 0  # of all weights: a model of one shape has the same ones in every process
_SHARPENED = ("q", "k")  # projections whose output is larger, see `build.SHARPNESS`
_KEPT = 4  # models whose weights stay
Of = tuple[tuple[str, Any], ...]  # of `LanguageShape.weights`


def instance(shape: LanguageShape, attention: Attention, device: torch.device, *, trains: bool = False) -> Language:
    """Return a new instance of the model on the weights that all share; `trains`: which have gradients."""
    model = _empty(shape.weights, attention)
    model.requires_grad_(trains)
    own = trained(shape.weights, device) if trains else weights(shape.weights, device)
    model.load_state_dict(own, assign=True, strict=not shape.ties_head)
    if shape.ties_head:
        model.head.weight = model.embedding.weight
    return model


@functools.lru_cache(maxsize=_KEPT)
def weights(of: Of, device: torch.device) -> Tensors:
    """Return the weights by name of a model, `LanguageShape.weights`, as `build.noise` makes them, in its dtype."""
    shape = _shape(of)
    rng = generator(f"{of}", "weights", _SEED, device)
    made = {}
    for name, like in _empty(of, None).named_parameters():
        weight, owner = noise(name, like, rng), name.split(".")[-2]
        if owner in _SHARPENED:
            weight.mul_(SHARPNESS)
        elif owner == "qkv":
            weight[: 2 * len(weight) // 3].mul_(SHARPNESS)
        made[name] = weight.to(getattr(torch, shape.dtype))
    if shape.ties_head:
        del made["head.weight"]
    return made


@functools.lru_cache(maxsize=_KEPT)
def trained(of: Of, device: torch.device) -> dict[str, nn.Parameter]:
    """Return the weights by name as parameters, the same ones for all instances that train."""
    return {name: nn.Parameter(weight) for name, weight in weights(of, device).items()}


@functools.lru_cache(maxsize=_KEPT)
def moments(of: Of, device: torch.device) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """Return AdamW's first and second moment of each weight, in its dtype, and how many steps it has taken."""
    own = list(weights(of, device).values())
    first, second = ([torch.zeros_like(weight) for weight in own] for _ in range(2))
    return first, second, [torch.zeros((), device=device) for _ in own]


def formed(
    kernel: Kernel, shape: LanguageShape, call: AttentionCall, device: torch.device, *, trains: bool = False
) -> tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]:
    """Return a model's embedding of tokens, and what takes these to logits in the kernel's form."""
    model = instance(shape, kernel.eager(call), device, trains=trains)
    return model.embed, kernel.in_form(call, model)


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next tokens, in float32."""
    return cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def gradients(
    loss: torch.Tensor, x: torch.Tensor, parameters: Iterable[nn.Parameter], *, retain_graph: bool = False
) -> list[torch.Tensor]:
    """Return the gradients of the embedded tokens and of all weights.

    Raises `NotImplementedError` where the attention has none.
    """
    found = torch.autograd.grad(loss, (x, *parameters), retain_graph=retain_graph, allow_unused=True)
    if any(gradient is None for gradient in found):
        raise NotImplementedError("its output has no gradient with respect to q, k and v")
    return list(found)


def update(of: Of, device: torch.device, found: list[torch.Tensor]) -> None:
    """Take a step of torch's fused AdamW with the gradients of all weights, in the order of `trained`.

    The learning rate is 0: it reads and writes all that it would, and the weights stay as they are.
    """
    first, second, steps = moments(of, device)
    with torch.no_grad():
        adamw(
            list(trained(of, device).values()), found, first, second, [], steps, fused=True, lr=0.0,
            beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


def _empty(of: Of, attention: Attention | None) -> Language:
    """Return the model without weights."""
    with torch.device("meta"):
        return Language(_shape(of), attention)  # type: ignore[arg-type]


def _shape(of: Of) -> LanguageShape:
    return LanguageShape(**dict(of), batch=1, seq_len=1)
