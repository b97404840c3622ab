"""What variants declare to be capable of, tried after all was measured."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from fluxbench import variants
from fluxbench.correctness import capabilities
from fluxbench.variants.forms import EAGER
from fluxbench.worker.device_use import DeviceUse


def probe(
    names: Collection[str], right: Collection[str], device: torch.device, use: DeviceUse, emit: Callable[..., None]
) -> None:
    """Try the variants that were right at some workload, and write what came of it."""
    for name in names:
        formed = variants.find(name)
        if device.type == "cpu" and formed.variant.compiles:  # half a minute on two cores
            continue
        if formed.form == EAGER and name in right:
            with use.step("probing", short=True, compiles=True):
                found = capabilities.probe(formed.variant, device, lambda _: emit("probing"))
            emit("probed", variant=name, found=found)
