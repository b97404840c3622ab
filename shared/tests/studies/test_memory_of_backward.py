"""Cells of `backward` that run at once fit on an H200, each in the process that checks all kinds of inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fakes import GPU, REPOSITORY

from fluxbench import operations, studies
from fluxbench.core.settings import Settings
from fluxbench.correctness import contents
from fluxbench.operations.workload import Workload
from fluxbench.worker.request import inputs_of

FREE = 139.8 * 2**30  # of an H200
CACHE = 50 << 20
OWN = 9 << 30  # of a process beside these: its context, what references are made of, the calls and the allocator's part
AT_ONCE = 4


def held(workloads: Sequence[Workload], fully: Collection[str], free: float) -> float:
    """Return the bytes that a process holds from its preparation on, where so many are free: see `worker.prepared`."""
    alike: dict[tuple[str, str], list[Workload]] = {}
    for one in workloads:
        alike.setdefault(inputs_of(one), []).append(one)
    used = 0.0
    for whole, *parts in alike.values():
        operation = operations.find(whole.operation)
        call = operation.attention(whole.shape)
        of_q = call.batch * call.seq_len_q * call.heads * call.head_dim_qk
        of_k = call.batch * call.seq_len_k * call.kv_heads * call.head_dim_qk
        inputs, expected = 2 * (2 * of_q + 2 * of_k), 4 * (2 * of_q + 2 * of_k)  # q, k, v, dout; out, dq, dk, dv
        kinds = len(operation.input_kinds) if whole.name in fully else 1
        used += (kinds + 1) * (inputs + expected)
        rotation = max(2, -(-2 * CACHE // whole.cost.min_bytes) + 1)
        fitting = int(contents._MEMORY_SHARE * (free - used) / len(alike) / inputs)
        slots = max(rotation + 1, min(2 * rotation + 4, fitting // 3))
        pool = max(2, min(contents._VARIED_POOL, fitting - slots))
        used += (pool - 1 + 1 + slots + len(parts)) * inputs
    return used


def test_four_processes_that_check_all_kinds_of_gradients_fit_on_a_gpu() -> None:
    study = studies.find("backward")
    together = study.workloads_on(GPU, Settings(root=REPOSITORY, cache=REPOSITORY))
    free = FREE
    for _ in range(AT_ONCE):
        used = held(together, study.effort.fully, free)
        assert used + OWN < free
        free -= used + OWN


def test_what_keeps_all_scores_has_no_length_at_which_these_fill_the_memory() -> None:
    unfused = studies.find("fluxbench.studies.backward:UNFUSED")
    calls = [
        operations.find(one.operation).attention(one.shape)
        for one in unfused.workloads_on(GPU, Settings(root=REPOSITORY, cache=REPOSITORY))
    ]
    scores = max(4 * call.batch * call.heads * call.seq_len_q * call.seq_len_k for call in calls)
    assert scores < 2.2e9 < 4 * 32 * 16384**2  # bytes of one matrix in float32
