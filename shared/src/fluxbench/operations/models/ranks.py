"""The other processes that share a step with this one, which is rank 0: each is a rank on a device of its own.

They are fresh interpreters that run `worker/rank.py` and take messages, a line of JSON each. If one dies, or fails
where this process does not, all are ended, and this process with them: it would wait for the others forever.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from fluxbench.core import cores
from fluxbench.core.errors import first_sentence
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.models import build
from fluxbench.operations.models.step import step
from fluxbench.operations.protocol import Kernel, Tensors
from fluxbench.operations.sharing import Sharing

SERVER = "fluxbench.worker.rank"
# A fabric without multicast must not be asked for it.
WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
_GRACE_S = 60.0  # from the failure of one rank until the others have met the same one, if they do
_POLL_S = 0.02


@dataclass(frozen=True)
class Sent:
    """Inputs of a step that all ranks have, under a name."""

    ranks: Ranks
    name: str
    inputs: Tensors


@functools.cache
def others(count: int, device: torch.device) -> Ranks:
    """Return the other ranks of so many, which are started at the first call of this. One number of ranks a process.

    Raises `ValueError` where this process shares steps with another number of ranks already.
    """
    if dist.is_initialized():
        raise ValueError(f"a process shares steps with one number of ranks, got {dist.get_world_size()} and {count}")
    return Ranks(count, device)


def profiled_others(count: int) -> Callable[[torch.device], AbstractContextManager[list[float]]]:
    """Return what profiles the other ranks of so many, see `Ranks.profiled`."""
    return lambda device: others(count, device).profiled()


class Ranks:
    """The ranks 1 to `count - 1`."""

    def __init__(self, count: int, device: torch.device, ended: Callable[[str], None] | None = None) -> None:
        """Start them and meet them. `ended` gets the sentence once a rank has died and all others are ended."""
        os.environ.update(WITHOUT_MULTICAST)
        self.device = device
        self._count, self._ended = count, ended or _end_this_process
        self._failed: dict[int, str] = {}
        self._replies: queue.Queue[dict[str, Any]] = queue.Queue()
        self._is_over, self._ending = False, threading.Lock()
        self._steps = 0
        self._folder = tempfile.TemporaryDirectory(prefix="fluxbench-ranks-")  # where groups of ranks meet, later too
        meeting = f"file://{self._folder.name}/meeting"
        self._processes = {rank: _start(rank, count, device, meeting) for rank in range(1, count)}
        for rank, process in self._processes.items():
            threading.Thread(target=self._listen, args=(rank, process), daemon=True).start()
        try:
            meet(0, count, device, meeting)
            self._flag = torch.zeros(1, device=device)
            self._begin_together()
        except Exception as error:
            self._end(0, first_sentence(error))
            raise

    @property
    def pids(self) -> list[int]:
        """The processes of the other ranks."""
        return [process.pid for process in self._processes.values()]

    def send(self, inputs: Tensors) -> Sent:
        """Give all ranks these inputs, under a name that the same tensors always have."""
        name = "-".join(str(x.data_ptr()) for x in inputs.values())
        like = {key: (list(x.shape), str(x.dtype).removeprefix("torch.")) for key, x in inputs.items()}
        self._tell(do="inputs", name=name, like=like)
        broadcast(inputs)
        return Sent(self, name, inputs)

    def shared(self, kernel: Kernel, shape: ModelShape, sharing: Sharing) -> Callable[[Sent], torch.Tensor]:
        """Return a step that all ranks share, made by each of them: the others find a variant by its name."""
        number, self._steps = self._steps, self._steps + 1
        made: list[Callable[[Tensors], torch.Tensor]] = []

        def call(sent: Sent) -> torch.Tensor:
            if not made:
                degrees = {"ulysses": sharing.ulysses, "ring": sharing.ring}
                self._tell(do="make", number=number, kernel=getattr(kernel, "name", ""), shape=vars(shape), **degrees)
                made.append(step(kernel, shape, self.device, sharing))
                have_same_weights(shape, self.device)
            self._tell(do="step", number=number, name=sent.name)
            self._begin_together()
            with threads(self.device, self._count):
                return made[0](sent.inputs)

        return lambda sent: self._all_or_none(call, sent)

    @contextlib.contextmanager
    def profiled(self) -> Iterator[list[float]]:
        """Profile the other ranks meanwhile; what is yielded is then filled, see `protocol.Bound.others`.

        A profiler takes up to seconds to begin: all have begun before the first call, which would wait for them.
        """
        found: list[float] = []
        self._tell(do="profile")
        for _ in self._processes:
            self._replies.get(timeout=_GRACE_S)
        try:
            yield found
        finally:
            self._tell(do="profiled")
            replies = [self._replies.get(timeout=_GRACE_S) for _ in self._processes]
        found += [reply["communicated_ms"] for reply in replies]

    def close(self) -> None:
        """End the ranks, which have done all."""
        self._is_over = True
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _tell(self, **message: Any) -> None:
        line = json.dumps(message) + "\n"
        for process in self._processes.values():
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):  # it died, and whoever listens to it ends all
                process.stdin.write(line)
                process.stdin.flush()

    def _begin_together(self) -> None:
        dist.all_reduce(self._flag)

    def _all_or_none(self, call: Callable[[Sent], torch.Tensor], sent: Sent) -> torch.Tensor:
        try:
            return call(sent)
        except Exception as error:
            until = time.monotonic() + _GRACE_S
            while len(self._failed) < len(self._processes) and time.monotonic() < until:
                time.sleep(_POLL_S)
            if len(self._failed) < len(self._processes):  # some wait for this one
                self._end(0, first_sentence(error))
            self._failed.clear()
            if "return_lse" in str(error):  # by which diffusers asks for the scores' log-sum-exp
                raise NotImplementedError("ring attention needs the log-sum-exp, which this backend lacks") from error
            raise

    def _listen(self, rank: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        for line in process.stdout:
            reply = json.loads(line)
            if "failed" not in reply:
                self._replies.put(reply)
                continue
            self._failed[rank] = reply["failed"]
            timer = threading.Timer(_GRACE_S, self._end_if_alone, (rank, reply["failed"]))
            timer.daemon = True
            timer.start()
        code = process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = f": {self._failed[rank]}" if rank in self._failed else ""
        self._end(rank, f"it ended with {how}{said}")

    def _end_if_alone(self, rank: int, reason: str) -> None:
        if self._failed.get(rank) is reason:  # this process has not failed with it, and it is no later one
            self._end(rank, reason)

    def _end(self, rank: int, reason: str) -> None:
        with self._ending:
            if self._is_over:
                return
            self.close()
            self._ended(f"rank {rank} of {self._count} failed, so the others were ended: {reason}")


def meet(rank: int, count: int, device: torch.device, meeting: str) -> None:
    """Initialize torch.distributed: NCCL on GPUs, gloo on a CPU."""
    backend = "gloo" if device.type == "cpu" else "nccl"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=count)


def broadcast(tensors: Tensors) -> None:
    """Send what rank 0 has to all, bit by bit, in the order of the stream."""
    for name in sorted(tensors):
        dist.broadcast(tensors[name].view(torch.uint8), 0)


def have_same_weights(shape: ModelShape, device: torch.device) -> None:
    """Raise `ValueError` in all ranks where one made other weights of a model than another, by a bit."""
    most = build.bits(build.weights(shape.weights, device))
    least = most.clone()
    dist.all_reduce(most, dist.ReduceOp.MAX)
    dist.all_reduce(least, dist.ReduceOp.MIN)
    if not torch.equal(most, least):
        raise ValueError(
            "all ranks must make the same weights from a seed, got others in one; are their GPUs the same?"
        )


@contextlib.contextmanager
def threads(device: torch.device, count: int) -> Iterator[None]:
    """Divide a CPU's threads by the ranks for a step."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(max(1, cores.available() // count))
    try:
        yield
    finally:
        if device.type == "cpu":
            torch.set_num_threads(before)


def _start(rank: int, count: int, device: torch.device, meeting: str) -> subprocess.Popen[str]:
    arguments = (str(rank), str(count), device.type, meeting)
    return subprocess.Popen(
        [sys.executable, "-m", SERVER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _end_this_process(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
    os._exit(1)
