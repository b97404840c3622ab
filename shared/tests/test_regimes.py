"""Inputs that change and come back, and what a turn finds out about a variant while it is timed."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from workers import QUICK, LikeAGPU, hurry
from wrong import right

from fluxbench.correctness.judging import Case
from fluxbench.correctness.reference import attention
from fluxbench.operations import inputs
from fluxbench.operations.inputs import Fresh, Inputs
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import INPUTS, Status
from fluxbench.timing import regimes as timing
from fluxbench.timing.control_kernel import Sentinel
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants._base import Variant
from fluxbench.worker import trial as regimes
from fluxbench.worker.trial import Shape, Turn

CPU = torch.device("cpu")
SMALL = Workload(name="small", seq_len=48, heads=2, head_dim=64)
SMALLER = Workload(name="smaller", seq_len=33, heads=2, head_dim=64)
GROUPED = Workload(name="grouped", seq_len=40, heads=6, kv_heads=2, head_dim=32)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    hurry(monkeypatch)
    with torch.inference_mode():
        yield


def made(workload: Workload, seed: int = 0, kind: str = "flux") -> Inputs:
    return inputs.make(workload, kind, seed, CPU)


# Inputs that change.


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("workload", [SMALL, GROUPED], ids=lambda workload: workload.name)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_attention_of_changed_inputs_follows_from_the_first_answer(
    workload: Workload, causal: bool, dtype: str, kind: str
) -> None:
    its = made(dataclasses.replace(workload, dtype=dtype), kind=kind)
    first = attention(its, causal=causal).clone()
    fresh = Fresh(its, 0, causal=causal)
    for _ in range(3):
        fresh.change()
        torch.testing.assert_close(attention(its, causal=causal), fresh.changed.of(first), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("workload", [SMALL, GROUPED], ids=lambda workload: workload.name)
def test_every_change_gives_other_contents_at_the_same_addresses(workload: Workload) -> None:
    its = made(workload)
    addresses = [x.data_ptr() for x in its]
    fresh = Fresh(its, 0)
    seen = [tuple(x.clone() for x in its)]
    for _ in range(5):
        fresh.change()
        assert [x.data_ptr() for x in its] == addresses
        assert not any(torch.equal(x, y) for before in seen for x, y in zip(its, before, strict=True))
        seen.append(tuple(x.clone() for x in its))


def test_a_change_multiplies_by_powers_of_two_and_moves_the_tokens() -> None:
    its = made(SMALL)
    first = [x.clone() for x in its]
    fresh = Fresh(its, 0)
    fresh.change()
    for x, before in zip(its, first, strict=True):
        significands = [torch.frexp(y.float().abs())[0].sort(dim=1).values for y in (x, before)]
        assert torch.equal(*significands)
        assert not torch.equal(x.abs(), before.abs())


@pytest.mark.parametrize("causal", [False, True])
def test_no_token_moves_where_a_mask_tells_them_apart(causal: bool) -> None:
    its = made(SMALL)
    significands = [torch.frexp(x.float().abs())[0] for x in its]
    Fresh(its, 0, causal=causal).change()
    stay = [torch.equal(torch.frexp(x.float().abs())[0], before) for x, before in zip(its, significands, strict=True)]
    assert stay == [causal] * 3


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_largest_magnitude_of_a_tensor_is_another_after_every_change_or_two(place: int) -> None:
    its = made(SMALL)
    fresh = Fresh(its, 0)
    seen = [float(its[place].abs().amax())]
    for _ in range(6):
        fresh.change()
        seen.append(float(its[place].abs().amax()))
    assert all(one != other for one, other in itertools.pairwise(seen))


def test_the_maxima_of_rows_are_others_after_a_change() -> None:
    its = made(SMALL)

    def maxima() -> torch.Tensor:
        return torch.einsum("bqhd,bkhd->bhqk", its[0].float(), its[1].float()).amax(-1)

    before = maxima()
    Fresh(its, 0).change()
    assert not torch.allclose(maxima(), before, rtol=0.1)


def test_the_same_seed_changes_inputs_in_the_same_way() -> None:
    one, other = (Fresh(made(SMALL), 7) for _ in range(2))
    one.change()
    other.change()
    assert all(torch.equal(x, y) for x, y in zip(one.inputs, other.inputs, strict=True))


@pytest.mark.parametrize("workload", [SMALL, GROUPED], ids=lambda workload: workload.name)
@pytest.mark.parametrize("changes", [0, 1, 4])
def test_the_first_contents_come_back(workload: Workload, changes: int) -> None:
    its = made(workload)
    first = [x.clone() for x in its]
    fresh = Fresh(its, 0)
    for _ in range(changes):
        fresh.change()
    assert fresh.restore() is None
    assert all(torch.equal(x, y) for x, y in zip(its, first, strict=True))
    assert fresh.changed.shift == 0
    assert torch.equal(fresh.changed.factors, torch.ones_like(fresh.changed.factors))


@pytest.mark.parametrize("changes", [0, 3])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_input_that_a_kernel_changed_is_named_and_put_back(place: int, changes: int) -> None:
    its = made(GROUPED)
    first = [x.clone() for x in its]
    fresh = Fresh(its, 0)
    for _ in range(changes):
        fresh.change()
    its[place].view(-1)[-1] += 1
    assert fresh.restore() == f"the kernel changes its inputs: {'qkv'[place]}"
    assert all(torch.equal(x, y) for x, y in zip(its, first, strict=True))
    assert fresh.restore() is None


# A turn.

Call = Callable[[Inputs], torch.Tensor]
VARIANT = Variant(name="flex", load=right.load)


def shape(workload: Workload = SMALL, count: int = 3) -> Shape:
    sets = [made(workload, seed, "normal") for seed in range(count)]
    return Shape(workload, sets, Case.of(sets[-1], causal=False), 0)


def honest(given: Inputs) -> torch.Tensor:
    return right.attention_of(*given)


def turn(
    shapes: dict[str, Shape],
    call: Call | None,
    *,
    sentinel: Sentinel | None = None,
    seed: int = 0,
    anchor: Turn | None = None,
    stopwatch: Stopwatch | None = None,
) -> Turn:
    """Return the turn of a variant beside an honest reference; None: that of the reference."""
    calls = dict.fromkeys(shapes, call or honest)
    return Turn(
        "flex" if call else "torch_flash",
        VARIANT,
        calls,
        ("torch_flash", dict.fromkeys(shapes, honest)),
        shapes,
        sentinel,
        stopwatch or Stopwatch(CPU),
        QUICK,
        random.Random(seed),
        anchor,
    )


def through(its: Turn) -> dict[str, tuple[Status, str]]:
    """Return what disqualifies a variant after both regimes."""
    its.burst()
    its.sustain()
    its.check()
    return its.wrong


def test_an_honest_kernel_goes_through_both_regimes() -> None:
    shapes = {each.name: shape(each) for each in (SMALL, SMALLER)}
    its = turn(shapes, lambda given: honest(given))
    burst, block = its.burst(), its.sustain()
    its.check()
    assert its.wrong == {}
    for name in shapes:
        assert len(burst["samples_ms"][name]) == len(burst["reference_ms"][name]) == len(burst["times"]) == 2
        assert len(block["samples_ms"][name]) == len(block["windows"]) == block["lead"] + 2
    assert (burst["sentinel_ms"], its.clocks()) == ([], {})  # on a CPU no profiler is asked


def test_the_reference_in_its_own_turn_is_its_own_measure() -> None:
    its = turn({"small": shape()}, None)
    burst = its.burst()
    assert burst["samples_ms"] == burst["reference_ms"]
    assert through(its) == {}


def fixed(right_answer: bool) -> Sentinel:
    return Sentinel(description="made up", call=lambda: torch.ones(1), is_right=lambda out: right_answer)


@pytest.mark.parametrize(("is_right", "count"), [(True, 2), (False, 0)])
def test_a_sentinel_that_turns_wrong_loses_its_samples_alone(is_right: bool, count: int) -> None:
    its = turn({"small": shape()}, honest, sentinel=fixed(is_right))
    assert len(its.burst()["sentinel_ms"]) == count
    assert through(its) == {}


def test_the_inputs_are_as_they_were_after_a_turn() -> None:
    its = {"small": shape()}
    before = [[x.clone() for x in each] for each in its["small"].rotation]
    through(turn(its, honest))
    for each, kept in zip(its["small"].rotation, before, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(each, kept, strict=True))


def when(chosen: Callable[[int], bool], otherwise: Call) -> Call:
    """Return an honest call that is another one at the calls of these numbers, from 0."""
    count = iter(range(1_000_000))

    def call(given: Inputs) -> torch.Tensor:
        return otherwise(given) if chosen(next(count)) else honest(given)

    return call


@pytest.mark.parametrize("on_cpu", [True, False])
def test_in_burst_a_variant_never_gets_what_it_has_seen(on_cpu: bool) -> None:
    seen: list[tuple[torch.Tensor, ...]] = []

    def remembers(given: Inputs) -> torch.Tensor:
        seen.append(tuple(x.clone() for x in given))
        return honest(given)

    turn({"small": shape()}, remembers, stopwatch=Stopwatch(CPU) if on_cpu else LikeAGPU()).burst()
    *warm, first, second = seen  # the last two are those of two rounds
    assert len(warm) == 1 if on_cpu else 2
    for one, other in [(first, second), *itertools.product(warm, (first, second))]:
        assert not any(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def test_the_output_that_is_judged_after_a_block_is_of_contents_that_are_new() -> None:
    seen: list[tuple[torch.Tensor, ...]] = []

    def remembers(given: Inputs) -> torch.Tensor:
        seen.append(tuple(x.clone() for x in given))
        return honest(given)

    its = turn({"small": shape()}, remembers)
    its.burst()
    its.sustain()
    *before, last = seen
    for earlier in before:
        assert not any(torch.equal(x, y) for x, y in zip(earlier, last, strict=True))


def zeros(given: Inputs) -> torch.Tensor:
    return torch.zeros_like(given[0])


# Of a turn with `QUICK`: a warm call, two rounds of burst, three windows of the block, one call that is checked.
@pytest.mark.parametrize(
    "chosen",
    [lambda index: True, lambda index: index in (1, 2), lambda index: index >= 6, lambda index: index >= 3],
    ids=["always", "in burst", "after the block", "from the block on"],
)
def test_a_wrong_output_in_either_regime_is_found(chosen: Callable[[int], bool]) -> None:
    status, reason = through(turn({"small": shape()}, when(chosen, zeros)))["small"]
    assert status is Status.INCORRECT
    assert reason.startswith("right when checked, wrong when timed: relative L2 error")


def test_which_round_s_output_is_judged_cannot_be_foreseen() -> None:
    wrong_in_the_first = [
        bool(through(turn({"small": shape(count=2)}, when(lambda index: index == 1, zeros), seed=seed)))
        for seed in range(8)
    ]
    assert set(wrong_in_the_first) == {True, False}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_inputs_that_are_changed_while_timed_are_found_and_put_back(place: int) -> None:
    its = {"small": shape()}
    first = its["small"].rotation[0][place].clone()

    def spoils(given: Inputs) -> torch.Tensor:
        out = honest(given)
        if given[0] is its["small"].rotation[0][0]:  # a set of which no output is judged
            given[place].mul_(2)
        return out

    assert through(turn(its, spoils))["small"] == (
        Status.INCORRECT,
        f"right when checked, wrong when timed: the kernel changes its inputs: {'qkv'[place]}",
    )
    assert torch.equal(its["small"].rotation[0][place], first)
    assert through(turn(its, honest)) == {}


Times = tuple[float, float]  # of a call on new inputs and on repeated ones, ms


def taken(monkeypatch: pytest.MonkeyPatch, own: Times, reference: Times | None) -> dict[str, tuple[Status, str]]:
    """Return what is said of an honest kernel with these times, after a reference with those."""
    new_ms, repeated_ms = 1.0, 1.0

    def burst(*arguments: Any) -> Any:
        found = timing.burst(*arguments)
        reference_ms = reference[0] if reference else new_ms
        samples_ms = {key: reference_ms if key[0] == "torch_flash" else new_ms for key in found.samples_ms}
        return dataclasses.replace(found, samples_ms={key: [ms, 2 * ms] for key, ms in samples_ms.items()})

    def sustain(*arguments: Any) -> Any:
        found = timing.sustain(*arguments)
        samples_ms = [*[new_ms] * found.lead, *[repeated_ms] * (len(found.windows) - found.lead)]
        return dataclasses.replace(found, samples_ms={"small": samples_ms})

    monkeypatch.setattr(regimes, "burst", burst)
    monkeypatch.setattr(regimes, "sustain", sustain)
    its = {"small": shape()}
    anchor = turn(its, None)
    if reference:
        new_ms, repeated_ms = reference
        assert through(anchor) == {}
    new_ms, repeated_ms = own
    return through(turn(its, honest, anchor=anchor))


@pytest.mark.parametrize("reference", [(8.0, 8.0), (8.0, 16.0), None])
def test_repeated_inputs_that_are_far_faster_than_new_ones_are_work_that_was_skipped(
    monkeypatch: pytest.MonkeyPatch, reference: Times | None
) -> None:
    assert taken(monkeypatch, (10.0, 2.0), reference)["small"] == (
        Status.ERROR,
        "skips work on inputs that it has seen: 2 ms a call on repeated inputs, 10 ms on new ones",
    )


@pytest.mark.parametrize("repeated_ms", [2.5, 9.0, 10.0, 14.0])
def test_repeated_inputs_may_be_somewhat_faster(monkeypatch: pytest.MonkeyPatch, repeated_ms: float) -> None:
    assert taken(monkeypatch, (10.0, repeated_ms), (8.0, 8.0)) == {}


@pytest.mark.parametrize(("repeated_ms", "skips"), [(0.04, False), (0.009, True)])
def test_where_the_reference_is_far_faster_too_a_kernel_may_be(
    monkeypatch: pytest.MonkeyPatch, repeated_ms: float, skips: bool
) -> None:
    assert bool(taken(monkeypatch, (20.0, 100 * repeated_ms), (30.0, 6.0))) == skips


@pytest.mark.parametrize(("kept_share", "skips"), [(0.0, False), (0.5, True)])
def test_side_by_side_a_call_that_leaves_out_half_of_its_work_on_what_it_knows_is_found(
    kept_share: float, skips: bool
) -> None:
    known: list[int] = []

    def keeps(given: Inputs) -> torch.Tensor:
        version = sum(x._version for x in given)
        time.sleep(0.004 * (1 - kept_share * (version in known)))
        known[:] = [version]
        return honest(given)

    with torch.inference_mode(False):  # tensors of which torch counts the versions
        its = turn({"small": shape()}, keeps, stopwatch=LikeAGPU())
        its.burst()
        its.repeat()
        its.check()
    assert bool(its.wrong) == skips
    if skips:
        status, reason = its.wrong["small"]
        assert status is Status.ERROR
        assert re.search(r"skips work on inputs that it has seen: a call on repeated inputs takes [4-7]\d%", reason)


def test_on_a_gpu_an_output_from_the_midst_of_a_block_is_judged() -> None:
    its = turn({"small": shape()}, honest, stopwatch=LikeAGPU())
    its.burst()
    calls = itertools.count()  # two in each of three windows, and one on contents that are new
    its.calls = {"small": lambda given: zeros(given) if next(calls) < 6 else honest(given)}
    its.sustain()
    its.check()
    assert its.wrong["small"][0] is Status.INCORRECT


def test_one_wrong_workload_costs_no_other() -> None:
    shapes = {each.name: shape(each) for each in (SMALL, SMALLER)}
    its = turn(shapes, honest)
    its.calls["smaller"] = zeros
    assert set(through(its)) == {"smaller"}


# How many inputs, and sleep.


@pytest.mark.parametrize("seq_len", [128, 512, 1152, 4608, 16_896])
def test_the_inputs_of_a_gpu_exceed_twice_its_cache(monkeypatch: pytest.MonkeyPatch, seq_len: int) -> None:
    monkeypatch.setattr(regimes, "last_level_cache_bytes", lambda device: 50 << 20)
    workload = Workload(name="made-up", seq_len=seq_len, heads=24)
    count = regimes.how_many_inputs(workload, torch.device("cuda"))
    assert count >= 2
    assert (count - 1) * workload.min_bytes >= 100 << 20  # between two calls on the same ones


def test_a_cpu_has_two_sets_of_inputs() -> None:
    assert regimes.how_many_inputs(SMALL, CPU) == 2


def test_a_machine_that_slept_says_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_BOOTTIME: 1000.0, time.CLOCK_MONOTONIC: 940.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clocks[clock])
    assert regimes.slept_s() == 60.0


def test_a_system_that_does_not_say_whether_it_slept_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert regimes.slept_s() == 0.0
