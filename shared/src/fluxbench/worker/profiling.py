"""Which kernels the timed calls of a process run, and what these take, by torch's profiler: after its last time.

CUPTI, which tells the profiler of kernels, stays in a process that was profiled, and the host then takes longer to
launch a call (https://github.com/pytorch/pytorch/issues/144455): 14 us for 10 on an H200 (torch 2.11, 2026-11-29). So
nothing is profiled before a call that is timed.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping

import torch

from fluxbench import operations, variants
from fluxbench.correctness.content import fresh_inputs
from fluxbench.operations import held
from fluxbench.operations.protocol import Bound, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Workload
from fluxbench.records.status import Status
from fluxbench.timing.profiler import PROFILED_CALLS, KernelTimes, Profile, profile_call, times_of_bound
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants.forms import FormedVariant
from fluxbench.worker.checking import make, parts_of_kernels
from fluxbench.worker.compiling import forget_compiled
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.failures import Wrong, is_fatal
from fluxbench.worker.prepared import release
from fluxbench.worker.request import Request
from fluxbench.worker.state import ProcessState
from fluxbench.worker.succession import may_follow_others
from fluxbench.worker.taking import without_collections

_OF_LONG = ((0.2, 2), (0.8, 1))  # seconds from which calls at all workloads are profiled fewer times


class Profiling:
    """Profiles what one worker has timed. `emit` writes an event, `fail` that a variant failed at a workload."""

    def __init__(
        self,
        request: Request,
        device: torch.device,
        use: DeviceUse,
        emit: Callable[..., None],
        fail: Callable[[str, str, Wrong], None],
    ) -> None:
        self._request, self._device, self._use, self._emit, self._fail = request, device, use, emit, fail
        # By variant and workload; None: it is built again. What this process timed before it died comes first.
        self._timed: dict[str, dict[str, Bound | None]] = {}
        for name, workload in request.untold:
            self._timed.setdefault(name, {})[workload] = None
        self._in_rows = {pair for pair in request.untold if request.rows.get(pair[0], {}).get(pair[1])}
        self._rest_s = 0.0

    def was_timed(self, name: str, calls: Mapping[str, Bound], in_rows: Collection[str]) -> None:
        """Note calls that were timed and are to be profiled, by workload, and at which workloads they are in rows.

        They are kept where what was compiled for them is not forgotten, and models do not keep their weights.
        """
        keeps = self._request.effort.grid and self._request.effort.one_reference
        keeps |= self._request.in_succession and may_follow_others(variants.find(name))
        for workload, bound in calls.items():
            self._timed.setdefault(name, {})[workload] = bound if keeps else None
        self._in_rows |= {(name, workload) for workload in in_rows}

    def run(self, stopwatch: Callable[[], Stopwatch], rest_s: float) -> None:
        """Profile all that was timed, at the workloads that are held at once, then at the next ones.

        `rest_s`: for how long at least the device rests before kernels are timed, which others may have loaded. A
        process that dies here has lost no time.
        """
        if not self._timed:
            return
        self._emit("profiling")
        self._rest_s = rest_s
        with self._use.step("preparing", short=True):
            watch = stopwatch()
        for part in self._request.held_together:
            asked = {one.name: one for one in part if any(one.name in calls for calls in self._timed.values())}
            if asked:
                self._profile_at(asked, watch)
            held.release()
            release(keeps=self._request.effort.one_reference)

    def _profile_at(self, workloads: Mapping[str, Workload], stopwatch: Stopwatch) -> None:
        inputs: dict[str, Tensors] = {}
        with self._use.step("preparing", short=True):
            for workload in sorted(workloads.values(), key=lambda one: -one.cost.min_bytes):  # as `prepare` does
                self._use.pause()
                with _as_far_as_it_goes(stopwatch):
                    inputs[workload.name] = fresh_inputs(workload, self._device)
        for name, calls in self._timed.items():
            some = {workload: bound for workload, bound in calls.items() if workload in inputs}
            self._profile(name, some, workloads, inputs, stopwatch)
            if None in some.values():
                forget_compiled([name])

    def _profile(
        self,
        name: str,
        calls: Mapping[str, Bound | None],
        workloads: Mapping[str, Workload],
        inputs: Mapping[str, Tensors],
        stopwatch: Stopwatch,
    ) -> None:
        """Profile a variant at some workloads, and write what was seen; in the first process also what kernels take."""
        formed, state = variants.find(name), ProcessState(self._device)
        bounds: dict[str, Bound] = {}
        seen: dict[str, Profile] = {}
        times: Mapping[str, KernelTimes] = {}
        for workload, kept in calls.items():
            with _as_far_as_it_goes(stopwatch), self._use.step("checking", short=True, compiles=True):
                bound = kept or make(formed, workloads[workload], inputs[workload])
                for _ in range(formed.first_calls if kept else 0):  # what was compiled for it may be forgotten
                    bound(inputs[workload])
                parts = parts_of_kernels(formed, workloads[workload])
                seen[workload] = profile_call(bound, inputs[workload], self._device, parts)[1]
                bounds[workload] = bound
        if not self._request.process:
            with _as_far_as_it_goes(stopwatch):
                # Of rows of calls the profiler sees no gaps between calls.
                single = {one: bound for one, bound in bounds.items() if (name, one) not in self._in_rows}
                call_s = sum(seen[workload].wall_ms for workload in single) / 1e3
                times = self._times(formed, single, call_s, workloads, inputs, stopwatch) if single else {}
        state.restore()
        for workload, profile in seen.items():
            found = {"kernels": profile.kernels, "names": profile.names, "times": times.get(workload)}
            self._emit("profiled", variant=name, workload=workload, **found)
            pattern = formed.variant.pattern(_asked(workloads[workload]))
            if profile.kernels and pattern and not any(re.search(pattern, one["name"]) for one in profile.kernels):
                reason = f"another kernel ran in place of {formed.variant.name}: {profile.kernels[0]['name']}"
                self._fail(name, workload, Wrong(Status.ERROR, reason))

    def _times(
        self,
        formed: FormedVariant,
        calls: Mapping[str, Bound],
        call_s: float,
        workloads: Mapping[str, Workload],
        inputs: Mapping[str, Tensors],
        stopwatch: Stopwatch,
    ) -> Mapping[str, KernelTimes]:
        """Return what kernels take, by workload, after a rest; `call_s`: about how long all calls take together."""
        repeats = min([PROFILED_CALLS, *(times for from_s, times in _OF_LONG if call_s >= from_s)])
        apart = [name for name, bound in calls.items() if _asked(workloads[name]).retain_graph or bound.others]
        parts = parts_of_kernels(formed, workloads[next(iter(calls))])
        with self._use.step("measuring", short=False), without_collections():
            return times_of_bound(calls, inputs, stopwatch, parts, repeats, apart, self._rest_s)


def _asked(workload: Workload) -> AttentionCall:
    return operations.find(workload.operation).attention(workload.shape)


@contextlib.contextmanager
def _as_far_as_it_goes(stopwatch: Stopwatch) -> Iterator[None]:
    """Pass over what cannot be profiled, which its record says. Raises what leaves the process no device."""
    try:
        yield
    except Exception as error:
        if is_fatal(error):
            raise
        traceback.print_exc()
        stopwatch.discard()
