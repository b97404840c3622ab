"""A step of a model on a kernel's attention, in the kernel's form, by one process or by several that share it."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo.config
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

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
        _share(model, device, sharing)
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MOST_COMPILED)
    if kernel.compiles_blocks:
        model.compile_repeated_blocks(fullgraph=True, dynamic=False)
        return lambda tensors: build.run(model, tensors, settings)
    return kernel.in_form(shape.call(), lambda tensors: build.run(model, tensors, settings))


def _share(model: Any, device: torch.device, sharing: Sharing) -> None:
    from diffusers import ContextParallelConfig

    if not hasattr(logging.Logger, "warning_once"):  # diffusers 0.42.1 calls it in Wan's steps; transformers adds it
        logging.Logger.warning_once = logging.Logger.debug  # type: ignore[attr-defined]
    counted = torch.accelerator.device_count
    if not counted():  # of a CPU, whose ranks diffusers counts modulo this
        torch.accelerator.device_count = lambda: 1
    try:
        mesh = _mesh(dist.group.WORLD, device.type, sharing)
        degrees = {"ulysses_degree": sharing.ulysses, "ring_degree": sharing.ring}
        model.enable_parallelism(config=ContextParallelConfig(**degrees, mesh=mesh))
    except ValueError as error:
        raise NotImplementedError(f"diffusers cannot share it: {error}") from error
    finally:
        torch.accelerator.device_count = counted
    _place_arguments(model)


@functools.cache
def _mesh(world: Any, kind: str, sharing: Sharing) -> DeviceMesh:
    """Return the mesh of a way of sharing, which all ranks make together, as diffusers would for each model anew.

    Each has communicators of its own. Compiled graphs name them by number, which must be the same in each process.
    """
    return init_device_mesh(kind, (sharing.ring, sharing.ulysses), mesh_dim_names=("ring", "ulysses"))


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
