"""A model's step that several GPUs of one host share, by diffusers' context parallelism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fluxbench.device.model import Device
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.model_step import PARTS, ModelStep
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Bound, Kernel, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.sharing import SHARED_BY, Sharing, model_of
from fluxbench.operations.workload import Cost, Shape

if TYPE_CHECKING:
    import torch

COMMUNICATION, WAITING = "communication", "waiting"  # parts of a call; the latter follows from all ranks' first


class SharedStep:
    """A step as `ModelStep`, by `ulysses * ring` ranks; the shape also says how many GPUs the host must have.

    Each rank gets the whole inputs before a call, and returns the whole output. A call begins with a barrier on the
    device, which is in its time. The process that measures is rank 0; the others start at its first call of more than
    one rank.
    """

    name = "shared_step"
    input_kinds: tuple[str, ...] = ModelStep.input_kinds
    parts: Mapping[str, str] = {COMMUNICATION: r"(?i)nccl", **PARTS}
    differentiates = False
    is_deep = True

    def __init__(self) -> None:
        self._alone = ModelStep()

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a step, of all ranks together."""
        return self._alone.cost(model_of(shape))

    def attention(self, shape: Shape) -> AttentionCall:
        """Return the attention that a kernel is asked for, of all ranks together."""
        sharing_of(shape)
        return self._alone.attention(model_of(shape))

    def refuses(self, shape: Shape, device: Device) -> str | None:
        """Return why ranks cannot share such a step on a host, or None. A CPU has a core for each rank."""
        needed = int(shape["gpus"])
        cpu = device.kind == "cpu"
        have, what = (device.cores or 1, "core") if cpu else (device.count, "GPU")
        if needed > have:
            return f"needs {needed} {what}s in one host; this one has {have}"
        return sharing_of(shape).problem(ModelShape.of(model_of(shape)))

    def case_of(self, shape: Shape) -> tuple[str, Shape]:
        """Return the operation and shape whose inputs and references these are."""
        return self._alone.name, model_of(shape)

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        """Return the inputs of the same step on one GPU."""
        return self._alone.inputs(model_of(shape), kind, seed, device)

    def rescale(self, shape: Shape, inputs: Tensors, rng: Any) -> None:
        """Do nothing, see `ModelStep`."""

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        """Return the output of the same step on one GPU, see `ModelStep`."""
        return self._alone.reference(model_of(shape), inputs, dtype, precision)

    def reference_at(self, shape: Shape, inputs: Tensors, positions: Tensors) -> None:
        """Return None, see `ModelStep`."""
        return None

    def bind(self, kernel: Kernel, shape: Shape) -> Bound:
        """Return a step that the ranks share; what is prepared of it are inputs that all ranks have."""
        of, sharing = ModelShape.of(model_of(shape)), sharing_of(shape)
        if sharing.ranks == 1:
            # Launched by the host, as the steps that are shared, which no CUDA graph is captured of.
            return replace(self._alone.bind(kernel, model_of(shape)), captured=False)
        from fluxbench.operations.models import ranks

        made: list[Callable[[ranks.Sent], torch.Tensor]] = []

        def prepare(tensors: Tensors) -> ranks.Sent:
            return ranks.others(sharing.ranks, tensors["hidden_states"].device).send(tensors)

        def call(sent: ranks.Sent) -> Tensors:
            if not made:
                made.append(sent.ranks.shared(kernel, of, sharing))
            return {"out": made[0](sent)}

        return Bound(call, prepare, captured=False, idle=True, others=ranks.profiled_others(sharing.ranks))


def sharing_of(shape: Shape) -> Sharing:
    """Return how many ranks share a step, and how. Raises `ValueError` where the shape does not say it."""
    if missing := [name for name in SHARED_BY if type(shape.get(name)) is not int]:
        raise ValueError(f"a shared step must have whole numbers of {', '.join(missing)}")
    return Sharing(ulysses=int(shape["ulysses"]), ring=int(shape["ring"]))
