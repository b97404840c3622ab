"""Which variant is timed beside the others, and what is taken of one that is not a variant of the cell."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from clocks import small_cache
from fakes import TINIER, TINY
from workers import (
    QUICK,
    Load,
    events_of,
    failures,
    given,
    honest,
    raising,
    register,
    timed,
    trials,
    variant,
    wrapped,
)  # fmt: skip

from fluxbench.bench.events import Failed
from fluxbench.operations.protocol import Attention
from fluxbench.worker.request import Request
from fluxbench.worker.trial import Trial


@pytest.mark.parametrize("names", [("torch_native",), ("torch_math",)])
def test_calls_are_repeated_of_the_cell_s_own_variants_alone(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    seen: list[str] = []

    def note(trial: Trial) -> dict[str, float]:
        seen.append(trial.name)
        return {}

    small_cache(monkeypatch)
    monkeypatch.setattr(Trial, "repeat", note)
    asked = Request(device="cpu", workloads=(TINIER,), variants=names, references=("torch_math",), sustained=False)
    events_of(asked, QUICK)
    assert seen == [names[0]]


def test_a_reference_that_was_wrong_in_the_first_process_is_not_taken_for_a_right_one_in_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(monkeypatch, variant("reference", wrapped(lambda attend, inputs: attend(*inputs) * 2)))
    request: Any = {"variants": ("made_up", "reference"), "references": ("reference", "torch_math")}
    first = given(monkeypatch, honest, **request)
    wrong = tuple((one.variant, one.workload) for one in first if isinstance(one, Failed))
    assert set(wrong) == {("reference", "tiny")}
    later = given(monkeypatch, honest, **request, process=1, skip=wrong, clocks=wrong)
    for seen in (first, later):
        assert {one.reference for one in trials(seen)} == {"torch_math"}


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("right", [0, 1, 5])  # of the reference's calls at one workload: none, its check, its checks
def test_a_reference_whose_output_is_wrong_is_a_clock_nevertheless(
    monkeypatch: pytest.MonkeyPatch, process: int, right: int
) -> None:
    calls = itertools.count()

    def change(attend: Attention, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        is_right = inputs[0].shape[1] != 96 or next(calls) < right
        return attend(*inputs) * (1 if is_right else 2)

    register(monkeypatch, variant("reference", wrapped(change)))
    request: Any = {"variants": ("made_up", "reference"), "references": ("reference",), "workloads": (TINY, TINIER)}
    for earlier in ((), (("reference", "tiny"),)):  # where an earlier process found it wrong it serves again
        seen = given(monkeypatch, honest, **request, process=process, skip=earlier, clocks=earlier)
        assert {(one.variant, one.workload, one.status) for one in seen if isinstance(one, Failed)} == {
            ("reference", "tiny", "INCORRECT")
        }
        assert {(one.variant, one.reference, one.workloads) for one in trials(seen)} == {
            ("reference", "reference", ("tiny", "tinier")),
            ("made_up", "reference", ("tiny", "tinier")),
        }


def test_what_an_earlier_process_found_wrong_is_not_timed_as_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = (("torch_math", "tiny"),)
    seen = given(monkeypatch, honest, references=("torch_native", "torch_math"), skip=wrong, clocks=wrong)
    assert {(one.variant, one.reference) for one in trials(seen)} == {
        ("torch_native", "torch_native"), ("made_up", "torch_native"),
    }  # fmt: skip


def test_where_the_reference_cannot_run_another_one_or_a_variant_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others keep their times there, each beside a reference that is named."""

    def at_most(tokens: int) -> Load:
        def change(attend: Attention, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
            if TINIER.shape["seq_len_q"] != inputs[0].shape[1] > tokens:
                raise torch.OutOfMemoryError("out of memory")
            return attend(*inputs)

        return wrapped(change)

    register(monkeypatch, variant("reference", at_most(64)))
    request: Any = {"variants": ("made_up", "right"), "workloads": (TINY, TINIER)}
    register(monkeypatch, variant("right"))
    skip = (("torch_math", "tinier"),)
    for others, instead in (((), "made_up"), (("torch_math",), "torch_math")):
        seen = given(monkeypatch, honest, references=("reference", *others), skip=skip, **request)
        found = {(one.variant, workload): one.reference for one in trials(seen) for workload in one.workloads}
        assert {pair: name for pair, name in found.items() if pair[1] == "tinier"} == {
            (name, "tinier"): "reference" for name in ("reference", *request["variants"])
        }
        assert {pair: name for pair, name in found.items() if pair[1] == "tiny"} == {
            (name, "tiny"): instead for name in {instead, *request["variants"]}
        }


def test_where_nothing_runs_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, variant("reference", raising(RuntimeError("no"))))
    request: Any = {"variants": ("made_up",), "references": ("reference",)}
    seen = given(monkeypatch, raising(RuntimeError("nor")), **request)
    assert (timed(seen), {name for name, *_ in failures(seen)}) == (set(), {"reference", "made_up"})
