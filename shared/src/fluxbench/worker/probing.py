"""What variants declare to be capable of, tried after all was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

import torch

from fluxbench import variants
from fluxbench.correctness import capabilities
from fluxbench.variants.forms import EAGER
from fluxbench.worker.compiling import forget_compiled
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.request import Request


def probe(
    request: Request, right: Collection[str], device: torch.device, use: DeviceUse, emit: Callable[..., None]
) -> None:
    """Try the variants that were right at some workload, here or in another process, and write what came of it.

    Each attempt is a step. What was compiled for calls that were timed is forgotten before.
    """
    forget_compiled(request.variants)

    @contextlib.contextmanager
    def attempt(_: str) -> Iterator[None]:
        with use.step("probing", short=True, compiles=True):
            emit("probing")
            yield

    for name in request.probe:
        formed = variants.find(name)
        if device.type == "cpu" and formed.variant.compiles:  # half a minute on two cores
            continue
        if formed.form == EAGER and (name in right or name not in request.variants):
            emit("probed", variant=name, found=capabilities.probe(formed.variant, device, attempt))
