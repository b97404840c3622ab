"""A step of a model on a kernel's attention, in the kernel's form, by one process or by several that share it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.config

from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.models import build, dispatch
from fluxbench.operations.protocol import Kernel, Tensors
from fluxbench.operations.sharing import Sharing

_MOST_COMPILED = 256  # of one block: by variant and size
ALONE = Sharing()


def step(
    kernel: Kernel, shape: ModelShape, device: torch.device, sharing: Sharing = ALONE
) -> Callable[[Tensors], torch.Tensor]:
    """Return a step. Each rank that shares it calls it with the whole inputs and gets the whole output.

    With several ranks, torch.distributed must be initialized. Raises `ValueError` where so many cannot share such a
    step, and `NotImplementedError` where diffusers cannot share the kernel's backend.
    """
    if problem := sharing.problem(shape):
        raise ValueError(problem)
    model, settings = build.instance(shape, device), build.settings(shape)
    dispatch.use(model, kernel, shape.call())
    if sharing.ranks > 1:
        _share(model, sharing)
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MOST_COMPILED)
    if kernel.compiles_blocks:
        model.compile_repeated_blocks(fullgraph=True, dynamic=False)
        return lambda tensors: build.run(model, tensors, settings)
    return kernel.in_form(shape.call(), lambda tensors: build.run(model, tensors, settings))


def _share(model: Any, sharing: Sharing) -> None:
    from diffusers import ContextParallelConfig

    if not hasattr(logging.Logger, "warning_once"):  # diffusers 0.42.1 calls it in Wan's steps; transformers adds it
        logging.Logger.warning_once = logging.Logger.debug  # type: ignore[attr-defined]
    config = ContextParallelConfig(ulysses_degree=sharing.ulysses, ring_degree=sharing.ring)
    counted = torch.accelerator.device_count
    if not counted():  # of a CPU, whose ranks diffusers counts modulo this
        torch.accelerator.device_count = lambda: 1
    try:
        model.enable_parallelism(config=config)
    except ValueError as error:
        raise NotImplementedError(f"diffusers cannot share it: {error}") from error
    finally:
        torch.accelerator.device_count = counted
    _place_arguments(model)


def _place_arguments(model: Any) -> None:
    """Tell diffusers' hooks which argument is which: they would ask `inspect`, which torch.compile cannot trace.

    Without it, blocks of which one has such a hook, as Wan's first, could not be compiled in one graph.
    """
    for module in model.modules():
        hooks = getattr(module, "_diffusers_hook", None)
        for hook in hooks.hooks.values() if hooks else ():
            if metadata := getattr(hook, "module_forward_metadata", None):
                names = list(inspect.signature(metadata._cls.forward).parameters)[1:]
                metadata.cached_parameter_indices = {name: place for place, name in enumerate(names)}
