"""What a call takes of a made-up GPU's memory."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from clocks import ON_CPU

from fluxbench.operations.protocol import Bound
from fluxbench.records.schema import Memory
from fluxbench.timing.memory import CallMemory, memory_of

GPU = torch.device("cuda")
INPUTS = {"a": torch.ones(64, 64), "b": torch.ones(16)}
BLOCK = 512  # bytes by which this allocator reserves


class Allocator:
    """Torch's counters: 1,000 bytes are taken by others."""

    def __init__(self) -> None:
        self.allocated, self.reserved = 1000, 7 * BLOCK  # the cache holds what nobody needs
        self.peaks = [self.allocated, self.reserved]

    def take(self, size: int) -> None:
        self.allocated += size
        self.reserved = max(self.reserved, -(-self.allocated // BLOCK) * BLOCK)
        self.peaks = [max(self.peaks[0], self.allocated), max(self.peaks[1], self.reserved)]

    def empty_cache(self) -> None:
        self.reserved = -(-self.allocated // BLOCK) * BLOCK

    def reset(self, *_: object) -> None:
        self.peaks = [self.allocated, self.reserved]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    of = Allocator()
    answers: dict[str, Callable[..., Any]] = {
        "synchronize": lambda *_: None,
        "empty_cache": of.empty_cache,
        "reset_peak_memory_stats": of.reset,
        "memory_allocated": lambda *_: of.allocated,
        "max_memory_allocated": lambda *_: of.peaks[0],
        "max_memory_reserved": lambda *_: of.peaks[1],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return of


def test_memory_is_that_of_the_call_and_what_the_allocator_takes_for_it(gpu: Allocator) -> None:
    def call(inputs: object) -> dict[str, object]:
        gpu.take(900)  # scores
        gpu.take(-800)  # the output is left
        return {}

    inputs_bytes = 4 * (64 * 64 + 16)
    expected = CallMemory(
        inputs_bytes=inputs_bytes, kept_bytes=0, allocated_bytes=900, reserved_bytes=4 * BLOCK - 1000, call_bytes=900
    )
    assert memory_of(Bound(call), INPUTS, GPU) == expected
    assert memory_of(Bound(call), INPUTS, ON_CPU) is None
    assert memory_of(Bound(lambda inputs: {}), INPUTS, GPU) is None  # a CUDA graph, whose memory was taken before


@pytest.mark.parametrize(("of_forward", "peak"), [(900, 1200), (5000, 5000)])
def test_of_a_backward_pass_the_forward_pass_and_what_it_keeps_are_told_apart(
    gpu: Allocator, of_forward: int, peak: int
) -> None:
    def prepare(inputs: object) -> str:
        gpu.take(of_forward)
        gpu.take(700 - of_forward)  # which is kept
        return "graph"

    def call(prepared: object) -> dict[str, object]:
        assert prepared == "graph"
        gpu.take(500)
        return {}

    found = memory_of(Bound(call, prepare), INPUTS, GPU)
    assert found
    assert (found.kept_bytes, found.call_bytes, found.allocated_bytes) == (700, 500, peak)
    assert found.reserved_bytes >= found.allocated_bytes


@pytest.mark.parametrize(("held", "peak"), [(300, 900), (4000, 4000)])
def test_memory_that_is_held_until_the_next_call_is_prepared_is_of_the_call(
    gpu: Allocator, held: int, peak: int
) -> None:
    gpu.take(held)

    def prepare(inputs: object) -> str:
        gpu.take(-held)
        return "leaves"

    def call(prepared: object) -> dict[str, object]:
        gpu.take(900)
        return {}

    found = memory_of(Bound(call, prepare), INPUTS, GPU)
    assert found
    assert (found.kept_bytes, found.call_bytes, found.allocated_bytes) == (0, 900, peak)
    Memory(**dataclasses.asdict(found))  # raises where its numbers contradict each other


def test_no_garbage_is_collected_while_memory_is_measured(gpu: Allocator) -> None:
    enabled: list[bool] = []

    def step(given: object) -> dict[str, object]:
        enabled.append(gc.isenabled())
        gpu.take(1)
        return {}

    memory_of(Bound(step, step), INPUTS, GPU)
    assert enabled == [False, False]
    assert gc.isenabled()
