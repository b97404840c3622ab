"""What a grid's workload takes of a GPU's memory, by arithmetic: by this a process holds workloads together, and waits.

A process that computes one reference of a workload (`Effort.one_reference`) holds that; the inputs of the case, of two
contents and of single calls; slots of twice the cache for calls in succession; and a few outputs. References are stored
in float64, those of gradients in float32 (`correctness.case.stored`). Beside that it needs memory for what comes and
goes in a check and in a call. Without torch: the process that asks divides workloads as the one that measures does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from fluxbench import operations, variants
from fluxbench.operations.workload import BYTES_PER_ELEMENT, Workload

_CACHE_BYTES = 64 << 20  # the last-level cache of a GPU; an H100's has 50 MiB
_SETS = 4  # of inputs, beside the slots: the case's, two contents', and those of single calls
_OUTPUTS = 3  # in the inputs' dtype: of two rows, and of a call that is judged whole
_LEAST_OF_ROWS = 40 << 20  # that torch's allocator takes for two of them
_NO_ROW_FROM_FLOPS = 8 * 10**11  # a call takes a millisecond or more, and is a sample by itself: it has no slots
# A context with the kernels that it has loaded: 769 MiB after calls of torch's flash, cuDNN and math attention and of
# what judges them, 619 MiB before any (torch 2.11.0+cu130, H100, driver 580.159.04, 2026-11-26: memory in use by
# nvidia-smi, less what torch had reserved).
CONTEXT_BYTES = 769 << 20
_JUDGED_BYTES = 16  # of an element: a copy and its product in float64; of a float32 reference also that in float64
_ROW_BYTES = 4 * 8  # of a row: its error, its norm, and two more that follow from these, in float64
_FIXED_BYTES = 1_900_000_000  # context, libraries, the tensor that clears the cache, a block of scores in float64


def held_bytes(workload: Workload) -> int:
    """Return what inputs, references, contents and slots of a workload take."""
    inputs, outputs = _elements(workload)
    each, stored = _widths(workload)
    slots = max(3, 2 * _CACHE_BYTES // workload.cost.min_bytes + 2)
    if workload.cost.min_flops >= _NO_ROW_FROM_FLOPS:
        slots = 0
    of_rows = max(_OUTPUTS * outputs * each, _LEAST_OF_ROWS)
    return (_SETS + slots) * inputs * each + outputs * stored + of_rows


def passing_bytes(workload: Workload, score_bytes: float) -> int:
    """Return what comes and goes at a workload at most, in a call or as its output is judged.

    `score_bytes` are those that a call holds for each score. While a reference is made, there are no slots yet. An
    output is judged in a check, beside copies of the inputs, or after timed calls, beside whole outputs that are
    derived from the reference; of these the last one is there twice, or a copy of the output and their difference.
    """
    call = operations.find(workload.operation).attention(workload.shape)
    scores = call.batch * call.heads * call.seq_len_q * call.seq_len_k
    of_call = 2 * workload.cost.min_bytes + math.ceil(scores * score_bytes)
    (inputs, outputs), (each, stored) = _elements(workload), _widths(workload)
    one = _largest_output(workload)
    of_rows = _ROW_BYTES * outputs // min(call.head_dim_qk, call.head_dim_v)
    return max(of_call, inputs * each + _JUDGED_BYTES * one + of_rows, (outputs + 2 * one) * stored + of_rows)


def kinds_bytes(workload: Workload) -> int:
    """Return what inputs and references of the other kinds take, and another copy of inputs, where all are checked."""
    (inputs, outputs), (each, stored) = _elements(workload), _widths(workload)
    others = len(operations.find(workload.operation).input_kinds) - 1
    return others * (inputs * each + outputs * stored) + inputs * each


def of_process(
    some: Iterable[Workload], names: Iterable[str], is_full: Callable[[str], bool] = lambda workload: False
) -> int:
    """Return what a process needs that holds workloads together, and measures variants at them.

    `is_full`: whether it checks a workload on all kinds of inputs.
    """
    workloads, of_score = list(some), [variants.find(name).variant.score_bytes for name in names]

    def passing(one: Workload) -> int:
        with_gradients = operations.find(one.operation).differentiates
        return max(passing_bytes(one, each[with_gradients]) for each in of_score)

    of_kinds = sum(kinds_bytes(one) for one in workloads if is_full(one.name))
    return _FIXED_BYTES + of_kinds + sum(map(held_bytes, workloads)) + max(map(passing, workloads), default=0)


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


def _largest_output(workload: Workload) -> int:
    """Return the elements of the largest output of a call of attention."""
    call = operations.find(workload.operation).attention(workload.shape)
    of_out = call.batch * call.seq_len_q * call.heads * call.head_dim_v
    if not call.backward:
        return of_out
    of_q = call.batch * call.seq_len_q * call.heads * call.head_dim_qk
    return max(of_out, of_q, call.batch * call.seq_len_k * call.kv_heads * max(call.head_dim_qk, call.head_dim_v))


def _widths(workload: Workload) -> tuple[int, int]:
    """Return the bytes of an element as calls take it, and as a reference is stored."""
    operation = operations.find(workload.operation)
    each = BYTES_PER_ELEMENT[operation.attention(workload.shape).dtype]
    return each, 4 if operation.differentiates and each <= 2 else 8
