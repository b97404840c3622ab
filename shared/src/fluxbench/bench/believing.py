"""Whether times can be believed: decided here, from what workers report, and only where two processes agree.

A process shares a busy machine with others, so one alone that looks odd decides nothing, unless it is the only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import median

from fluxbench.bench.collected import Collected, Trial
from fluxbench.bench.events import BlockSamples
from fluxbench.bench.series import ProcessSeries
from fluxbench.operations.layer import PROJECTIONS
from fluxbench.operations.model_step import PRODUCTS
from fluxbench.records.schema import BURST, SUSTAINED, Flag, KernelShare
from fluxbench.records.status import FlagKind
from fluxbench.variants._base import ATTENTION, TOP_KERNELS
from fluxbench.worker.request import LAUNCHING_FROM

_AGREE = 2  # processes
_REPEATED_FROM = 0.95  # of a call on repeated contents over one on new ones, side by side on a GPU
# A sustained call over a burst one, where the reference's is no less. Of 905 published on H100s and H200s (2026-11-28)
# the least is 0.873 (`triton_flash` in `scaling`, whose burst times are of few rounds), of 264 of an H200's Flux page
# 0.973. Two events (up to 2.9 us) and a code that is not in the instruction cache are in the burst time alone: of 0.1
# ms a few percent. So what is under 0.8 has left out some of its work.
_SUSTAINED_FROM = 0.8
# Of a call that is as long as its launch on a GPU, by this share or more, both times are the host's: a right one of
# diffusers took 0.784 of its burst time on an H200's host (2026-11-26), beside other programs there.
_LAUNCHED_FROM = 0.6
_GPU_FROM_MS = 0.1  # of two calls that are shorter, one is by chance 5% shorter than the other, too
_CPU_SUSTAINED_FROM = 0.25  # other programs take their part of one regime and not of the other
# A shorter call on a CPU tells nothing by it, as other programs take whole milliseconds from it: one of 0.05 ms took 6
# in each of two processes, beside three programs on 2 cores (2026-11-30).
_CPU_FROM_MS = 10.0
_BUSY_FROM = 0.7  # of the wall time of sustained windows in calls: 0.84 to 0.99 on the published H200 page
_SPIN_S = 0.02  # after a call, of OpenMP's threads: 10 ms on 2 cores (2026-11-30), up to 19 on a busy machine
_NAME = 80  # characters of a kernel's name in a sentence
_ASIDE = 0.5  # of a call's processor time
_ASIDE_FROM_MS = 25.0  # OpenMP's threads spin for a while after each parallel part: up to 19 ms on a busy machine


@dataclass(frozen=True)
class Doubt:
    """Why the times of a variant at a workload are not believed."""

    reason: str
    flag: Flag


def doubt(collected: Collected, taken: Sequence[ProcessSeries], workload: str, *, on_gpu: bool) -> Doubt | None:
    """Return why these processes' times of a variant at a workload are not believed, or None."""
    rules = (_repeated(each, workload) for each in taken), (_sustained(each, workload, on_gpu) for each in taken)
    windows = (_windows(each, workload, on_gpu) for each in taken)
    threads = (_threads(each, collected, workload) for each in taken)
    for found in (*rules, windows, threads):
        told = [each for each in found if each is not None]
        doubts = [each for each in told if isinstance(each, Doubt)]
        if doubts and len(doubts) >= min(_AGREE, len(told)):
            return doubts[0]
    return None


def another_kernel(first: Sequence[KernelShare], ran: Sequence[str]) -> str | None:
    """Return which kernel ran in the first process and which in another one, if these are two, or None.

    `first` are the largest kernels of a call in the first process, with those of the attention, and `ran` the names
    of all in another one, largest first. Which of several short ones seems to be the largest is chance. So the largest
    of the first call and of its attention must be among those that ran, and the largest of these among the first call's
    unless more than those that are kept may have run there.

    Of a call that has matrix products beside its attention, as a layer has, the attention alone is compared. cuBLAS
    chooses the products' kernels in each process, and which of a layer's many kernels seems to be the largest depends
    on who else uses the device.
    """
    if not first or not ran:
        return None
    known = sorted(first, key=lambda each: -each.share)
    attention = [each.name for each in known if each.part == ATTENTION][:1]
    has_products = any(each.part in (PROJECTIONS, PRODUCTS) for each in known)
    largest = [] if has_products else [known[0].name]
    if missing := next((name for name in (*attention, *largest) if name not in ran), None):
        return f"{missing[:_NAME]} ran in the first process, {ran[0][:_NAME]}"
    is_known = has_products or len(known) >= TOP_KERNELS or ran[0] in {each.name for each in known}
    return None if is_known else f"{ran[0][:_NAME]} did not run in the first process, and did"


# Each of these returns a doubt, False where there is none, or None where a process tells nothing.
_Found = Doubt | bool | None


def _repeated(each: ProcessSeries, workload: str) -> _Found:
    share = each.trial.timed.repeated_over_new.get(workload)
    if share is None or median(each.burst.samples_ms) < _GPU_FROM_MS:
        return None
    said = f"skips work on inputs that it has seen: a call on repeated inputs takes {share:.0%} of one on new inputs"
    return share < _REPEATED_FROM and Doubt(said, Flag(kind=FlagKind.SKIPS_WORK, regime=BURST, value=share))


def _sustained(each: ProcessSeries, workload: str, on_gpu: bool) -> _Found:
    if each.sustained is None or each.anchor is None:
        return None
    shortest = median if on_gpu else min  # other programs only make a call longer
    new_ms, beside_ms = shortest(each.burst.samples_ms), shortest(each.beside_ms)
    if new_ms < (_GPU_FROM_MS if on_gpu else _CPU_FROM_MS):
        return None
    repeated_ms, reference_ms = median(each.sustained.ranked()), median(each.anchor.ranked())
    usual = min(1.0, reference_ms / beside_ms)  # over 1 where clocks fall, or where its launch takes longer than it
    least = _SUSTAINED_FROM if on_gpu else _CPU_SUSTAINED_FROM
    is_tried = workload in each.trial.timed.repeated_over_new  # side by side, whatever the host does
    launch_ms = each.trial.rounds.launch_ms[workload]
    is_launching = on_gpu and not is_tried and launch_ms >= LAUNCHING_FROM * new_ms
    of_device_ms, held_up = new_ms, ""
    replayed = [block for block in each.trial.blocks_at(workload) if block.replayed]
    if on_gpu and not is_tried and replayed:
        if is_launching:
            return None  # the device's time against the host's
        if not any(block.led for block in replayed):  # of long calls, one of which has no spin before it
            of_device_ms -= launch_ms  # at least: what is launched ends no later than this after its launch
            held_up = f", {launch_ms:.4g} of them launching,"
    elif is_launching:
        least = _LAUNCHED_FROM
    if repeated_ms >= least * usual * of_device_ms:
        return False
    said = f"skips work on inputs that it has seen: {repeated_ms:.4g} ms a call on repeated inputs, {new_ms:.4g} ms"
    flag = Flag(kind=FlagKind.SKIPS_WORK, regime=SUSTAINED, value=repeated_ms / new_ms)
    return Doubt(f"{said}{held_up} on new ones; of the reference {reference_ms:.4g} and {beside_ms:.4g} ms", flag)


def _windows(each: ProcessSeries, workload: str, on_gpu: bool) -> _Found:
    # Of all workloads of a block, whose windows are taken in turn; what has burst times alone has the others' windows.
    if not (blocks := each.trial.blocks_at(workload) or each.trial.timed.blocks):
        return None
    in_calls_s = sum(map(sum, (_in_calls_s(block, on_gpu) for block in blocks)))
    if not each.trial.is_reference:  # on a CPU it is called in the same windows
        in_calls_s += sum(
            block.calls[workload] * sum(its) / 1e3 for block in blocks for workload, its in block.reference_ms.items()
        )
    wall_s = sum(end - begin for block in blocks for begin, end in block.windows)
    if in_calls_s >= _BUSY_FROM * (wall_s - (0.0 if on_gpu else sum(map(_spins_s, blocks)))):
        return False
    said = f"works outside of its calls: {in_calls_s:.3g} s in calls of windows that lasted {wall_s:.3g} s"
    aside = Flag(kind=FlagKind.WORKS_ASIDE, regime=SUSTAINED, value=wall_s / max(in_calls_s, 1e-9) - 1)
    return Doubt(said, aside)


def _spins_s(block: BlockSamples) -> float:
    """Return for how long a CPU's threads may have been waited for before calls that are a turn by themselves."""
    alone = [name for name, count in block.calls.items() if count == 1]
    waits = sum(len(of[name]) for of in (block.samples_ms, block.reference_ms) if of for name in alone)
    return _SPIN_S * waits


def _in_calls_s(block: BlockSamples, on_gpu: bool) -> Iterator[float]:
    """Yield the seconds of each window's calls: the timed ones, and on a GPU what is before them.

    That is a call at each workload in turn, and before graphs always at one, of the least memory: the shortest at most,
    or one of another block; or replays of the first graph.
    """
    samples, counts = block.samples_ms, block.calls
    for index, in_turn in zip(range(len(block.windows)), cycle(samples), strict=False):
        first_ms = block.lead_ms or 0.0
        if on_gpu and block.led and block.lead_ms is None:
            first_ms = min(its[index] for its in samples.values()) if block.replayed else samples[in_turn][index]
        yield (sum(counts[workload] * samples[workload][index] for workload in samples) + first_ms) / 1e3


def _threads(each: ProcessSeries, collected: Collected, workload: str) -> _Found:
    reference = _reference(each.trial, collected, workload)
    if reference is None or each.trial.is_reference:
        return None
    call_ms = median(reference.rounds.processor.call_cpu_ms[workload])  # type: ignore[union-attr]
    own_ms, usual_ms = (_aside_ms(trial, workload) for trial in (each.trial, reference))
    if own_ms - usual_ms <= max(_ASIDE_FROM_MS, _ASIDE * call_ms):
        return False
    said = f"works outside of its calls: other threads took {own_ms:.4g} ms before a call, {usual_ms:.4g} ms beside"
    flag = Flag(kind=FlagKind.WORKS_ASIDE, regime=BURST, value=(own_ms - usual_ms) / call_ms)
    return Doubt(f"{said} the reference, whose call takes {call_ms:.4g} ms of all threads", flag)


def _reference(trial: Trial, collected: Collected, workload: str) -> Trial | None:
    """Return the reference's own burst trial in the same worker, where processor time is known."""
    for other in collected.trials:
        rounds = other.timed.burst
        if other.worker == trial.worker and other.is_reference and rounds and rounds.processor:
            return other if workload in rounds.samples_ms and trial.rounds.processor else None
    return None


def _aside_ms(trial: Trial, workload: str) -> float:
    """Return the processor time of other threads in a rest and before a call."""
    processor = trial.rounds.processor
    assert processor is not None
    return median(processor.resting_ms) + median(processor.others_ms[workload])
