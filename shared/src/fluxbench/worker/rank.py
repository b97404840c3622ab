"""A rank other than the first: it takes part in the steps that rank 0 names, a line of JSON each, until these end.

    {"do": "inputs", "name": ..., "like": {...}}                  take the inputs that rank 0 sends, under a name
    {"do": "make", "number": ..., "kernel": ..., "shape": ...}    make a step of a variant's
    {"do": "step", "number": ..., "name": ...}                    take part in one call of it
    {"do": "profile"}                                             reply once the profiler has begun
    {"do": "profiled"}                                            reply with what communication took a call, in ms

A reply is a line too: {"failed": sentence} where a step could not be made or called, and the process goes on. It ends
where it cannot meet the others.
`operations/models/ranks.py` starts it.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from fluxbench import variants
from fluxbench.core.errors import first_sentence
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.shared_step import COMMUNICATION, SharedStep
from fluxbench.operations.sharing import Sharing
from fluxbench.timing.profiler import events_on
from fluxbench.worker.parent import exit_with

# The one all-reduce of a call, at which this rank waits for rank 0, whose host prepares each call. Steps have none.
_BARRIER = r"(?i)all_?reduce"


class Rank:
    """The steps and inputs of one rank."""

    def __init__(self, count: int, device: torch.device, replies: TextIO) -> None:
        self._count, self._device, self._replies = count, device, replies
        self._flag = torch.zeros(1, device=device)
        self._inputs: dict[str, Tensors] = {}
        self._made: dict[int, Callable[[Tensors], torch.Tensor]] = {}
        self._profiler: profile | None = None
        self._calls = 0
        dist.all_reduce(self._flag)

    def take(self, message: dict[str, Any]) -> None:
        """Do what a message says."""
        what: Callable[..., None] = getattr(self, message.pop("do"))
        try:
            what(**message)
        except Exception as error:  # noqa: BLE001 - rank 0 decides what becomes of it
            traceback.print_exc()
            self._reply(failed=first_sentence(error))

    def inputs(self, name: str, like: dict[str, tuple[list[int], str]]) -> None:
        """Take inputs from rank 0."""
        from fluxbench.operations.models import ranks

        has = self._inputs.get(name, {})
        self._inputs[name] = {
            key: has[key] if key in has and list(has[key].shape) == size else self._empty(size, dtype)
            for key, (size, dtype) in like.items()
        }
        ranks.broadcast(self._inputs[name])

    def make(self, number: int, kernel: str, shape: dict[str, Any], ulysses: int, ring: int) -> None:
        """Make a step. What is compiled for it stays, since rank 0 may call it between those of others."""
        from fluxbench.operations.models import ranks
        from fluxbench.operations.models.step import step

        sharing = Sharing(ulysses=ulysses, ring=ring)
        of = ModelShape(**shape)
        self._made[number] = step(variants.find(kernel), of, self._device, sharing)
        ranks.have_same_weights(of, self._device)
        gc.collect()
        gc.freeze()

    def step(self, number: int, name: str) -> None:
        """Take part in a call of a step; of one that could not be made nothing is left to say."""
        if number in self._made:
            self._calls += 1
            dist.all_reduce(self._flag)
            self._made[number](self._inputs[name])

    def profile(self) -> None:
        """Begin to profile."""
        self._wait()
        self._calls = 0
        on_cpu = self._device.type == "cpu"
        self._profiler = profile(activities=[ProfilerActivity.CPU if on_cpu else ProfilerActivity.CUDA])
        self._profiler.start()
        self._reply(profiles=True)

    def profiled(self) -> None:
        """Reply with what communication took a call since."""
        assert self._profiler is not None
        self._wait()
        self._profiler.stop()
        pattern = SharedStep.parts[COMMUNICATION]
        events = events_on(DeviceType.CUDA, self._profiler)
        kernels = (event for event in events if re.search(pattern, event[2]) and not re.search(_BARRIER, event[2]))
        spent_us = sum(end - start for start, end, _ in kernels)
        self._profiler = None
        self._reply(communicated_ms=spent_us / 1e3 / max(1, self._calls))

    def _wait(self) -> None:
        """Wait for the device."""
        if self._device.type != "cpu":
            torch.cuda.synchronize(self._device)

    def _empty(self, size: list[int], dtype: str) -> torch.Tensor:
        return torch.empty(size, dtype=getattr(torch, dtype), device=self._device)

    def _reply(self, **reply: Any) -> None:
        print(json.dumps(reply), file=self._replies, flush=True)


def main(rank: str, count: str, kind: str, meeting: str) -> int:
    """Take messages from stdin until rank 0 closes it or is gone."""
    from fluxbench.operations.models import ranks

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no reply
    exit_with(os.getppid())
    device = torch.device("cpu") if kind == "cpu" else torch.device(kind, int(rank))
    if kind != "cpu":
        torch.cuda.set_device(device)
    with torch.inference_mode(), ranks.threads(device, int(count)):
        try:
            ranks.meet(int(rank), int(count), device, meeting)
            this = Rank(int(count), device, replies)
        except Exception as error:
            print(json.dumps({"failed": first_sentence(error)}), file=replies, flush=True)
            raise
        gc.disable()  # a collection in the midst of a step would let all ranks wait, as in `worker/worker.py`
        for line in sys.stdin:
            this.take(json.loads(line))
    os._exit(0)  # the others may be gone, for whom NCCL would wait


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
