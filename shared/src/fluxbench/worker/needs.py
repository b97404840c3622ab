"""What a grid's workload takes of a GPU's memory, by arithmetic: by this a process holds workloads together, and waits.

A process that computes one reference of a workload (`Effort.one_reference`) holds that; the inputs of the case, of two
contents and of single calls; slots of twice the cache for calls in succession; and a few outputs. References are stored
in float64, those of gradients in float32 (`correctness.case.stored`). Beside that it needs memory for what comes and
goes in a check and in a call. Without torch: the process that asks divides workloads as the one that measures does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from fluxbench import operations
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Workload

_CACHE_BYTES = 64 << 20  # the last-level cache of a GPU; an H100's has 50 MiB
_SETS = 4  # of inputs, beside the slots: the case's, two contents', and those of single calls
_OUTPUTS = 3  # in the inputs' dtype: of two rows, and of a call that is judged whole
_NO_ROW_FROM_FLOPS = 8 * 10**11  # a call takes a millisecond or more, and is a sample by itself: it has no slots
_FIXED_BYTES = 1_900_000_000  # context, libraries, the tensor that clears the cache, a block of scores in float64


def held_bytes(workload: Workload) -> int:
    """Return what inputs, references, contents and slots of a workload take."""
    inputs, outputs = _elements(workload)
    each = BYTES_PER_ELEMENT[operations.find(workload.operation).attention(workload.shape).dtype]
    stored = 4 if _is_stored_narrow(workload, each) else 8
    slots = max(3, 2 * _CACHE_BYTES // workload.cost.min_bytes + 2)
    if workload.cost.min_flops >= _NO_ROW_FROM_FLOPS:
        slots = 0
    return (_SETS + slots) * inputs * each + outputs * (stored + _OUTPUTS * each)


def passing_bytes(workload: Workload, score_bytes: float) -> int:
    """Return what comes and goes at a workload at most: copies that a check compares, and what a call holds.

    `score_bytes` are those that a call holds for each score. While a reference is made, there are no slots yet.
    """
    call = operations.find(workload.operation).attention(workload.shape)
    scores = call.batch * call.heads * call.seq_len_q * call.seq_len_k
    return 2 * workload.cost.min_bytes + math.ceil(scores * score_bytes)


def of_process(some: Iterable[Workload], score_bytes: Callable[[Workload], float]) -> int:
    """Return what a process needs that holds workloads together; `score_bytes` returns those of its calls."""
    workloads = list(some)
    passing = max((passing_bytes(one, score_bytes(one)) for one in workloads), default=0)
    return _FIXED_BYTES + sum(map(held_bytes, workloads)) + passing


def divided(
    alike: Iterable[Sequence[Workload]], most: float, size: Callable[[Workload], int]
) -> list[tuple[Workload, ...]]:
    """Return workloads in their order in parts of at most `most` bytes, or of one group; a group has one `size`."""
    parts: list[list[Workload]] = []
    held = math.inf
    for some in alike:
        of_these = max(map(size, some))
        held += of_these
        if not parts or held > most:
            parts.append([])
            held = of_these
        parts[-1] += some
    return [tuple(part) for part in parts]


def _elements(workload: Workload) -> tuple[int, int]:
    """Return the elements of the inputs and of the outputs of a call of attention."""
    call = operations.find(workload.operation).attention(workload.shape)
    out = call.batch * call.seq_len_q * call.heads * call.head_dim_v
    of_qkv = call.elements - out
    return (of_qkv + out, of_qkv + out) if call.backward else (of_qkv, out)


def _is_stored_narrow(workload: Workload, each: int) -> bool:
    return operations.find(workload.operation).differentiates and each <= 2
