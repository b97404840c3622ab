"""What torch says of memory that is out becomes numbers; and a length beyond all memory costs its own row."""

from __future__ import annotations

import pytest
import torch
from clocks import small_cache
from fakes import TINIER, tokens
from workers import failures, given, honest, timed

from fluxbench.bench.events import Begin, Checked, Failed
from fluxbench.records.status import Status
from fluxbench.worker.failures import Wrong, classify, wrong_of
from fluxbench.worker.request import ALONE, Effort
from fluxbench.worker.shortage import Shortage, shortage_of

GIB = 2**30
# As torch 2.11 says it on an H200 beside another process.
ON_GPU = (
    "CUDA out of memory. Tried to allocate 128.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 97.30 GiB is "
    "free. Process 4242 has 20.00 GiB memory in use. Including non-PyTorch memory, this process has 22.50 GiB memory "
    "in use. Of the allocated memory 21.50 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF"
)
ON_CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "17592186044416 bytes. Error code 12 (Cannot allocate memory)"
)


def test_numbers_of_a_gpu_are_those_that_torch_says() -> None:
    error = torch.OutOfMemoryError(ON_GPU)
    found = shortage_of(error)
    assert found == Shortage(
        asked_bytes=128 * GIB, free_bytes=round(97.3 * GIB), total_bytes=round(139.8 * GIB), own_bytes=round(22.5 * GIB)
    )
    words = "asked for 128.00 GiB with 97.30 of 139.80 GiB free, 22.50 GiB taken by this process"
    assert classify(error) == (Status.OUT_OF_MEMORY, words)
    assert wrong_of(error, "while it was timed: ") == Wrong(Status.OUT_OF_MEMORY, f"while it was timed: {words}", found)


def test_a_cpu_that_has_no_memory_is_out_of_memory_too() -> None:
    found = shortage_of(RuntimeError(ON_CPU))
    assert found is not None
    assert found.asked_bytes == 2**44
    assert found.free_bytes is not None
    assert found.total_bytes is not None
    assert 0 < found.free_bytes < found.total_bytes < found.asked_bytes
    assert classify(RuntimeError(ON_CPU))[0] is Status.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Tried to allocate 5.00 GiB"),  # by a library that says what torch would
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        torch.OutOfMemoryError("CUDA error: out of memory"),  # of the driver, which says no numbers
    ],
)
def test_other_exceptions_have_no_numbers(error: Exception) -> None:
    assert shortage_of(error) is None
    assert (classify(error)[0] is Status.OUT_OF_MEMORY) is isinstance(error, torch.OutOfMemoryError)


@pytest.mark.parametrize("operation", ["attention", "attention_training"])
def test_a_length_that_is_longer_than_all_memory_costs_its_row_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Met for real: q, k and v of 2**40 bytes and more, which no allocation gets."""
    small_cache(monkeypatch)
    endless = tokens("endless", 2**32, operation)
    small = tokens("small", 33, operation)
    seen = given(monkeypatch, honest, workloads=(endless, small), process=1)
    lost = [event for event in seen if isinstance(event, Failed)]
    assert [(event.variant, event.workload, event.status) for event in lost] == [
        (name, "endless", "OUT_OF_MEMORY") for name in ("made_up", "torch_math")
    ]
    assert all(event.reason.startswith("while inputs and reference were made: asked for ") for event in lost)
    assert all(event.shortage and event.shortage.asked_bytes > 2**40 for event in lost)
    assert timed(seen) == {"made_up", "torch_math"}
    assert timed(given(monkeypatch, honest, name="other", workloads=(endless,), process=1)) == set()


def test_alone_workloads_are_prepared_and_measured_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    other = tokens("other", 40)
    seen = given(monkeypatch, honest, workloads=(TINIER, other), effort=Effort(held_bytes=ALONE))
    assert failures(seen) == []
    order = [event.workload for event in seen if isinstance(event, Begin | Checked)]
    assert order == sorted(order, key=("tinier", "other").index)
    assert timed(seen) == {"made_up", "torch_math"}
