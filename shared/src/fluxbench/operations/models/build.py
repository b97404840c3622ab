"""A model with random weights: as many instances as are needed, which share one set of weights and compute alike."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor

from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.models.families import FAMILIES
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.qkv import generator

_SEED = 0  # of all weights: a model of one shape has the same ones in every process
# Of the weights that scale q and k after their norm. The scores' standard deviation is its square, 2.6, so that a query
# has its weight on some 10 keys and not evenly on all, whose mean would hide what an attention does wrong.
SHARPNESS = 1.6
# Sets of weights, which the blocks of a kind get in turn: FLUX.1's 57 take 24 GB, and these 5 GB, so that processes of
# several cells fit on one card. A step reads as much memory: a block's own weights are 0.3 or 0.7 GB, and no cache
# holds them until the same ones are read again, 2 GB later.
SETS = {"transformer_blocks": 4, "single_transformer_blocks": 8}
_OF_QUERY_AND_KEY = ("norm_q", "norm_k", "norm_added_q", "norm_added_k")
_NOT_NOISE = 0.1  # size of the noise on a norm's weights, which are around 1, and of biases


def instance(shape: ModelShape, device: torch.device) -> nn.Module:
    """Return a new instance of the model on a device, on the weights that all instances of its shape share."""
    family = FAMILIES[shape.model]
    with torch.device("meta"):
        model = family.make(shape).eval().requires_grad_(False)
    model.load_state_dict(weights(shape.weights, device), assign=True)
    if family.rotary:
        name, rotary = family.rotary(shape)
        model.set_submodule(name, rotary.to(device))
    return model


@functools.lru_cache(maxsize=4)
def weights(of: tuple[tuple[str, Any], ...], device: torch.device) -> Tensors:
    """Return the weights by name of a model, `ModelShape.weights`: normal noise over the square root of their inputs.

    They are in the model's dtype, but for those that diffusers keeps in float32 where it loads the model. Blocks beyond
    the first `SETS` have those of earlier ones.
    """
    shape = ModelShape(**dict(of), height=1, width=1, text_tokens=1)
    with torch.device("meta"):
        model = FAMILIES[shape.model].make(shape)
    rng = generator(f"{of}", "weights", _SEED, device)
    wide = getattr(model, "_keep_in_fp32_modules", None) or ()
    made: dict[str, torch.Tensor] = {}
    for name, like in model.state_dict().items():
        if (first := _first_with(name)) in made:
            made[name] = made[first]
            continue
        weight = noise(name, like, rng)
        made[name] = weight if set(wide) & {*name.split(".")} else weight.to(getattr(torch, shape.dtype))
    return made


def _first_with(name: str) -> str:
    """Return the name of the same weight in the first block that has its set."""
    kind, _, rest = name.partition(".")
    number, _, parameter = rest.partition(".")
    return f"{kind}.{int(number) % SETS[kind]}.{parameter}" if kind in SETS else name


def noise(name: str, like: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Return a weight of the shape of another, float32: noise over the square root of its inputs, of a norm around 1.

    `name` is that of the module's parameter.
    """
    *owners, last = name.split(".")
    weight = torch.randn(like.shape, generator=rng, device=rng.device)
    if weight.ndim > 1:
        return weight.mul_(weight[0].numel() ** -0.5)
    if last == "weight":  # of a norm
        return weight.mul_(_NOT_NOISE).add_(1.0).mul_(SHARPNESS if owners[-1] in _OF_QUERY_AND_KEY else 1.0)
    return weight.mul_(_NOT_NOISE)


def bits(tensors: Tensors) -> torch.Tensor:
    """Return the sum of the bits of each tensor as whole numbers, `[tensors]`, int64: equal where all bits are."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [x.contiguous().view(whole[x.element_size()]).sum(dtype=torch.int64) for x in tensors.values()]
    return torch.stack(sums)


def inputs(shape: ModelShape, rng: torch.Generator) -> Tensors:
    """Return the tensors of a step by argument: noise in the model's dtype, and what is the same in every step."""
    family, dtype = FAMILIES[shape.model], getattr(torch, shape.dtype)
    noise = {
        name: torch.randn(of, generator=rng, device=rng.device).to(dtype) for name, of in family.noise(shape).items()
    }
    return {**noise, **{name: x.to(rng.device) for name, x in family.others(shape).items()}}


def run(model: Any, tensors: Tensors, settings: Mapping[str, Any]) -> torch.Tensor:
    """Return the output of a step as tokens, `[1, image_tokens, channels]`."""
    out: torch.Tensor = model(**tensors, **settings, return_dict=False)[0]
    if isinstance(out, AsyncCollectiveTensor):  # of a step that several ranks share
        out = out.wait()
    return out if out.ndim == 3 else out.flatten(2).transpose(1, 2).contiguous()  # of Wan: channels first


def settings(shape: ModelShape) -> Mapping[str, Any]:
    """Return the arguments of a step that are no tensors."""
    return FAMILIES[shape.model].settings(shape)


def widen(model: nn.Module) -> None:
    """Make a model compute in float32 on the weights that it has: each module's are widened while it runs."""

    def begin(module: nn.Module, _: Any) -> None:
        kept[module] = dict(module._parameters)
        for name, parameter in kept[module].items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(parameter.float(), requires_grad=False)

    def end(module: nn.Module, _: Any, __: Any) -> None:
        module._parameters.update(kept.pop(module))

    kept: dict[nn.Module, dict[str, Any]] = {}
    for module in model.modules():
        if module._parameters:
            module.register_forward_pre_hook(begin)
            module.register_forward_hook(end, always_call=True)


@contextlib.contextmanager
def tensor_float_32() -> Iterator[None]:
    """Allow TF32 products on a GPU in this context.

    Weights of 16 bits are exact in TF32; what enters beside them keeps 11 bits of its significand.
    """
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    kept = getattr(matmul, "fp32_precision", None)  # None of an older torch
    matmul.allow_tf32 = True
    try:
        yield
    finally:
        matmul.allow_tf32 = before
        # That leaves "ieee" in the place of "none": the same products, but another key in the caches of torch's
        # compiler than that of a process which loads its references and makes none.
        if kept is not None:
            matmul.fp32_precision = kept
