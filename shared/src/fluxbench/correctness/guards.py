"""What keeps a wrong kernel from looking right: poisoned memory, and inputs that must stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fluxbench.correctness.case import Case
from fluxbench.correctness.questions import Question, answers, known
from fluxbench.operations import held
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


def overwritten(outputs: Mapping[str, object], held_still: Mapping[str, object]) -> str | None:
    """Return why a kernel is wrong that gives memory of an earlier call's outputs, which are still held; or None."""
    taken = {x.untyped_storage().data_ptr() for x in held_still.values() if isinstance(x, torch.Tensor)}
    names = [
        name
        for name, x in outputs.items()
        if isinstance(x, torch.Tensor) and x.numel() and x.untyped_storage().data_ptr() in taken
    ]
    return f"the next call overwrites its outputs, which are still held: {', '.join(names)}" if names else None


def keep(inputs: Tensors) -> Tensors:
    """Return what `restore` takes: copies, and of inputs that exist once in a process a sum of their bits."""
    return {name: held.sum_of_bits(x) if held.is_held(x) else x.clone() for name, x in inputs.items()}


def restore(inputs: Tensors, kept: Tensors) -> str | None:
    """Put back what a call changed of its inputs, which the next variant gets; return why it is wrong, or None."""
    return answers([changes_of(inputs, kept)])[0]


def changes_of(inputs: Tensors, kept: Tensors) -> Question[str | None]:
    """Ask for what `restore` returns, whose answer puts back what a call changed."""
    now = {name: held.sum_of_bits(x) if held.is_held(x) else x for name, x in inputs.items()}
    reshaped = [name for name, x in now.items() if x.shape != kept[name].shape]
    rest = [name for name in now if name not in reshaped]
    differ = [(now[name] != kept[name]).any() for name in rest]

    def answer(numbers: Sequence[float]) -> str | None:
        changed = reshaped + [name for name, other in zip(rest, numbers, strict=True) if other]
        for name in changed:
            if held.is_held(inputs[name]):
                held.fill_again(inputs[name])
            else:
                inputs[name].copy_(kept[name])
        return f"the kernel changes its inputs: {', '.join(changed)}" if changed else None

    return Question(torch.stack(differ).double(), answer) if differ else known(answer(()))
