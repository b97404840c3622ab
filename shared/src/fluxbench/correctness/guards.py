"""What keeps a wrong kernel from looking right: poisoned memory, and inputs that must stay as they are."""

from __future__ import annotations

import torch

from fluxbench.correctness.case import Case
from fluxbench.operations.protocol import Tensors


def poison(case: Case) -> None:
    """Fill memory that a caching allocator is about to hand out for the outputs with NaN.

    So an element that is never written shows. The CPU's allocator returns large blocks to the system, where they come
    back as zeros: there it shows as an error instead.
    """
    device = next(iter(case.inputs.values())).device
    sizes = [size for size in case.sizes.values() for _ in range(2)]
    blocks = [torch.full(size, float("nan"), dtype=case.dtype, device=device) for size in sizes]
    del blocks


def restore(inputs: Tensors, kept: Tensors) -> str | None:
    """Put back what a call changed of its inputs, which the next variant gets; return why it is wrong, or None."""
    changed = [name for name, x in inputs.items() if not x.equal(kept[name])]
    for name in changed:
        inputs[name].copy_(kept[name])
    return f"the kernel changes its inputs: {', '.join(changed)}" if changed else None
