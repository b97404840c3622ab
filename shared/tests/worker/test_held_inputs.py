"""A worker on a cache that exists once: right kernels pass, wrong ones do not, and what a kernel wrote is put back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from clocks import small_cache
from fakes import tokens
from workers import ANYWHERE, events_of, failures, register, timed, variant

from fluxbench.operations import held, sets
from fluxbench.operations.attention import AttentionForward
from fluxbench.operations.protocol import Attention, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Shape
from fluxbench.variants import find
from fluxbench.variants._base import YES
from fluxbench.worker.prepared import fills_memory
from fluxbench.worker.request import Request

PAGED = tokens("paged", 96, "decode", seq_len_q=1, heads=4, kv_heads=2, page_size=16)
CONTIGUOUS = tokens("contiguous", 80, "decode", seq_len_q=1, heads=4, kv_heads=2)
PAGES = {"capabilities": dataclasses.replace(ANYWHERE, paged=YES)}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    monkeypatch.setattr(held, "FROM_BYTES", 1)


def seen(monkeypatch: pytest.MonkeyPatch, change: Any, **request: Any) -> list[Any]:
    """Return the events of a worker that measures a kernel made of torch_math, and after it torch_native."""

    def load(call: AttentionCall) -> Attention:
        attend = find("torch_math").variant.load(call)
        return lambda q, k, v, table=None: change(attend, q, k, v, table)

    register(monkeypatch, variant("made_up", load, **PAGES))
    asked = {"variants": ("made_up", "torch_native"), "references": ("torch_math",), "sustained": False, **request}
    return events_of(Request(**{"device": "cpu", "workloads": (PAGED, CONTIGUOUS), **asked}))


def test_right_kernels_are_timed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    events = seen(monkeypatch, lambda attend, q, k, v, table: attend(q, k, v, table))
    assert failures(events) == []
    assert timed(events) == {"made_up", "torch_native", "torch_math"}
    assert not held.exist()


def unpaged(attend: Attention, q: Any, k: Any, v: Any, table: Any) -> Any:
    """Take pages as if they lay in order."""
    if table is None:
        return attend(q, k, v, None)
    return attend(q, k, v, torch.arange(table.numel(), dtype=torch.int32).view(table.shape))


def writing(attend: Attention, q: Any, k: Any, v: Any, table: Any) -> Any:
    out = attend(q, k, v, table)
    k.view(-1)[-1] += 1
    return out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (unpaged, "is over the budget"),
        (lambda attend, q, k, v, table: attend(q, k.roll(1, 1), v, table), "is over the budget"),
        (writing, "the kernel changes its inputs: k"),
    ],
    ids=["pages in order", "keys beside their values", "writes to the cache"],
)
def test_wrong_kernels_are_found_and_the_next_one_gets_the_cache_as_it_was(
    change: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = seen(monkeypatch, change)
    failed = failures(events)
    assert ("made_up", "INCORRECT") in [each[:2] for each in failed]
    assert all(reason in each[2] for each in failed)
    assert timed(events) >= {"torch_native", "torch_math"}
    assert {each[0] for each in failed} == {"made_up"}


def test_which_workloads_may_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    names = ("llama3-8b-decode-b128-131072", "llama3-8b-decode-4096", "decode-model-small-512", "wan-720p")
    assert [fills_memory(sets.by_name()[name]) for name in names] == [True, False, True, False]


class TooLarge(AttentionForward):
    """An operation whose inputs do not fit at one length."""

    name = "too_large"

    def inputs(self, shape: Shape, kind: str, seed: int, device: torch.device | str) -> Tensors:
        if shape["seq_len_k"] == 96:
            raise torch.OutOfMemoryError("Tried to allocate 64.00 GiB. More words.\nand a second line")
        return super().inputs(shape, kind, seed, device)


def test_inputs_that_do_not_fit_cost_their_workload_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (tokens(f"{length}", length, f"{__name__}:TooLarge") for length in (33, 96))
    events = seen(monkeypatch, lambda attend, q, k, v, table: attend(q, k, v), workloads=(small, large))
    reason = "while inputs and reference were made: asked for 64.00 GiB"
    names = ("made_up", "torch_native")
    assert failures(events) == [(name, "OUT_OF_MEMORY", reason) for name in names]
    assert timed(events) == {"torch_math", *names}
