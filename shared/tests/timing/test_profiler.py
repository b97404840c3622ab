"""What a profiler's events become: shares of a call on a CPU, and times of kernels of a made-up GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from clocks import ON_CPU, recorded_event, recording
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from fluxbench import operations, variants
from fluxbench.operations import sets
from fluxbench.operations.protocol import Bound
from fluxbench.timing import profiler
from fluxbench.timing.profiler import CompileCounters, KernelTimes, kernel_times, profile_call, with_waiting
from fluxbench.variants import _base

GPU = torch.device("cuda")
INPUTS = {"a": torch.ones(64, 64)}


def test_on_a_cpu_a_call_is_split_into_torch_s_operators_without_its_preparation() -> None:
    bound = Bound(lambda a: {"out": a @ a}, lambda inputs: torch.softmax(inputs["a"], dim=0))
    out, seen = profile_call(bound, INPUTS, ON_CPU, lambda name: "attention")
    assert torch.equal(out["out"], torch.full((64, 64), 1 / 64))
    names = [kernel["name"] for kernel in seen.kernels]
    shares = [kernel["share"] for kernel in seen.kernels]
    assert "aten::mm" in names
    assert not any("softmax" in name for name in names)
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=0.01)
    assert {kernel["part"] for kernel in seen.kernels} == {None}
    assert 0 < seen.profiler_ms <= seen.wall_ms


def test_what_the_profiler_recorded_is_what_torch_makes_of_it() -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        INPUTS["a"] @ INPUTS["a"] + 1
    raw = profiler.events_on(DeviceType.CPU, profiled)
    without = cast("profile", SimpleNamespace(profiler=None, events=profiled.events))  # as if a version had no raw ones
    of_torch = profiler.events_on(DeviceType.CPU, without)
    assert {name for _, _, name in raw} >= {"aten::mm", "aten::add"}
    ours, torchs = (sorted((name, end - start) for start, end, name in found) for found in (raw, of_torch))
    assert [name for name, _ in ours] == [name for name, _ in torchs]
    assert [us for _, us in ours] == pytest.approx([us for _, us in torchs], abs=0.01)  # torch subtracts floats


# A made-up GPU.

Kernel = tuple[str, float, float]  # name, begin and end in microseconds


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """The kernels that the profiler is to have recorded."""
    kernels: list[Kernel] = []

    @contextlib.contextmanager
    def profile(activities: Sequence[object]) -> Iterator[Any]:
        assert activities == [ProfilerActivity.CUDA]

        launch = recorded_event("launch", 0, 9e9, DeviceType.CPU)
        yield recording([launch, *(recorded_event(*kernel) for kernel in reversed(kernels))])

    monkeypatch.setattr(profiler, "profile", profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    return kernels


def part_of(name: str) -> str:
    return "copies" if "copy" in name else "attention"


def test_on_a_gpu_shares_are_of_the_time_of_its_kernels(recorded: list[Kernel]) -> None:
    recorded += [("copy", 0, 10), ("flash", 10, 85), ("copy", 85, 100), ("idle", 100, 100)]
    recorded += [(f"k{index}", 100 + index, 101 + index) for index in range(6)]
    _, seen = profile_call(Bound(lambda inputs: {}), INPUTS, GPU, part_of)
    assert [(each["name"], each["share"], each["part"]) for each in seen.kernels[:2]] == [
        ("flash", round(75 / 106, 4), "attention"),
        ("copy", round(25 / 106, 4), "copies"),
    ]
    assert [each["part"] for each in seen.kernels].count("attention") == 6  # with the six largest, one of them a copy
    assert seen.names[:2] == ["flash", "copy"]
    assert {*seen.names} == {"flash", "copy", "idle", *(f"k{index}" for index in range(6))}
    assert seen.profiler_ms == pytest.approx(0.106)


def test_the_attention_of_a_whole_model_is_named_though_it_is_not_among_the_six_largest_kernels(
    recorded: list[Kernel],
) -> None:
    recorded += [(f"copy{index}", 100 * index, 100 * index + 50) for index in range(8)]
    recorded += [("flash", 900, 910), ("flash tail", 910, 915)]
    _, seen = profile_call(Bound(lambda inputs: {}), INPUTS, GPU, part_of)
    assert [each["part"] for each in seen.kernels] == ["copies"] * 6 + ["attention"] * 2
    assert (seen.kernels[-2]["name"], seen.kernels[-2]["share"]) == ("flash", round(10 / 415, 4))
    recorded += [(f"part {index}", 1000 + index, 1001 + index) for index in range(9)]
    _, seen = profile_call(Bound(lambda inputs: {}), INPUTS, GPU, part_of)
    assert [each["part"] for each in seen.kernels] == ["copies"] * 6 + ["attention"] * 6


class LikeAStopwatch:
    """Notes what is asked of the device, in order."""

    def __init__(self, made: list[str]) -> None:
        self.wait = lambda: made.append("wait")
        self.clear_cache = lambda: made.append("clear")
        self.spin = lambda launch_s, calls: made.append(f"spin {calls}" if 0 < launch_s < 0.1 else "no time")


def calls_of(recorded: list[Kernel]) -> None:
    """Record rounds of two calls: one kernel of 100 µs, and two that lie 5 µs apart.

    There is one that does not count, whose kernels lie far apart, and seven after a spin, of which some are slow.
    """
    now = 0.0

    def run(name: str, us: float, gap: float = 0.0) -> None:
        nonlocal now
        recorded.append((name, now + gap, now + gap + us))
        now += gap + us

    run("fill", 50)
    for number, slow in enumerate((1, 1, 1, 9, 1, 1, 1, 9)):
        if number:
            run("at::cuda::(anonymous namespace)::spin_kernel(long)", 500)
        run("fill", 50)
        run("flash", 100 * slow)
        run("fill", 50)
        run("flash", 200 * slow, gap=3)
        run("copy", 10, gap=5 if number else 5000)


def test_times_of_kernels_are_medians_by_call_with_their_span_and_parts(recorded: list[Kernel]) -> None:
    calls_of(recorded)
    made: list[str] = []
    calls = {name: lambda name=name: made.append(name) for name in ("a", "b")}
    times = kernel_times(calls, cast(Any, LikeAStopwatch(made)), part_of)
    in_turn = ["clear", "a", "clear", "b", "wait"]
    assert made == ["wait", "clear", *in_turn, *["spin 3", *in_turn] * 7]
    total, span, parts, kernels = times["a"]
    assert (total, span, parts["attention"]) == pytest.approx((0.1, 0.1, 0.1))
    assert set(parts) == {"attention"}
    assert kernels == [{"name": "flash", "share": 1.0, "part": "attention"}]
    total, span, parts, kernels = times["b"]
    assert (total, span) == pytest.approx((0.21, 0.215))
    assert parts == {"attention": pytest.approx(0.2), "copies": pytest.approx(0.01)}
    assert [(each["name"], each["share"]) for each in kernels] == [
        ("flash", round(20 / 21, 4)),
        ("copy", round(1 / 21, 4)),
    ]


def test_kernels_that_run_beside_each_other_count_once_in_the_sum(recorded: list[Kernel]) -> None:
    recorded += [("fill", -100, -50)]
    for begin in (0, 1000):
        recorded += [("fill", begin, begin + 50), ("flash", begin + 50, begin + 150)]
        recorded += [("copy", begin + 100, begin + 200), ("copy", begin + 120, begin + 130)]
    found = kernel_times({"ring": lambda: None}, cast(Any, LikeAStopwatch([])), part_of, repeats=1)
    assert found["ring"][:3] == (0.15, 0.15, {"attention": 0.1, "copies": pytest.approx(0.11)})


def test_of_calls_so_long_that_one_repeat_is_enough_the_first_alone_is_called_before(recorded: list[Kernel]) -> None:
    for number, name in enumerate(("flash", "flash", "copy")):
        begin = 1000.0 * number
        recorded += [("fill", begin, begin + 50), (name, begin + 50, begin + 150)]
    recorded.insert(0, ("fill", -100, -50))
    made: list[str] = []
    calls = {name: lambda name=name: made.append(name) for name in ("a", "b")}
    times = kernel_times(calls, cast(Any, LikeAStopwatch(made)), part_of, repeats=1)
    assert made == ["wait", "clear", "clear", "a", "wait", "spin 3", "clear", "a", "clear", "b", "wait"]
    assert {name: set(parts) for name, (_, _, parts, _) in times.items()} == {"a": {"attention"}, "b": {"copies"}}


@pytest.mark.parametrize("lost", [0, 1, 2, -1, slice(None)])
def test_where_kernels_are_missing_no_times_are_known(recorded: list[Kernel], lost: int | slice) -> None:
    calls_of(recorded)
    recorded[:] = [kernel for kernel in recorded if kernel[0] != "copy"]
    del recorded[lost]
    calls = {name: lambda: None for name in ("a", "b")}
    assert kernel_times(calls, cast(Any, LikeAStopwatch([])), part_of) == {}


def test_the_device_rests_before_each_round_and_longer_after_a_longer_one(
    recorded: list[Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    rests: list[float] = []
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", rests.append)
    lasts = iter([0.0, 0.4, 8.0, 0.4])

    def call() -> None:
        now[0] += next(lasts)

    kernel_times({"a": call}, cast(Any, LikeAStopwatch([])), part_of, 3, 0.25)
    assert rests == [0.25, pytest.approx(0.1), 0.5]


def test_what_was_compiled_since_is_a_difference() -> None:
    assert CompileCounters(5, 3) - CompileCounters(2, 1) == CompileCounters(3, 2)


def test_calls_are_profiled_together_but_one_at_a_time_where_preparation_takes_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive: set[str] = set()
    seen: list[tuple[list[str], set[str]]] = []
    rests: list[float] = []

    class Graph:
        def __init__(self, name: str) -> None:
            self.name = name
            alive.add(name)

        def __del__(self) -> None:
            alive.discard(self.name)

    def profiled(calls: dict[str, Any], stopwatch: Any, part_of: Any, repeats: int, rest_s: float) -> Any:
        seen.append((list(calls), set(alive)))
        rests.append(rest_s)
        return {name: (float(repeats), call(), {}) for name, call in calls.items()}

    monkeypatch.setattr(profiler, "kernel_times", profiled)
    plain = Bound(lambda given: given["name"])
    retained = Bound(lambda graph: graph.name, lambda inputs: Graph(inputs["name"]))
    bounds = {"a": plain, "b": retained, "c": plain, "d": retained}
    inputs: Any = {name: {"name": name} for name in bounds}
    found: Any = profiler.times_of_bound(bounds, inputs, cast(Any, None), part_of, 2, ["b", "d"], 0.25)
    assert {name: each[:2] for name, each in found.items()} == {name: (2.0, name) for name in bounds}
    assert seen == [(["a", "c"], set()), (["b"], {"b"}), (["d"], {"d"})]
    assert rests == [0.25, 0.0, 0.0]  # the device is rested from then on
    assert alive == set()


def test_waiting_is_what_communication_takes_beyond_that_of_the_rank_that_waits_least() -> None:
    nccl = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    shared = operations.find("shared_step")
    call = shared.attention(sets.by_name()["flux1-1024px-ulysses-of-2"].shape)
    assert _base.part_of(variants.find("torch_cudnn").variant, call, shared.parts, nccl) == "communication"
    times = KernelTimes(90.0, 95.0, {"attention": 80.0, "communication": 10.0}, [])
    split = {"attention": 80.0, "communication": 6.0, "waiting": 4.0}
    assert with_waiting(times, [6.0, 12.0]) == (90.0, 95.0, split, [])
    assert with_waiting(times, [12.0]).parts_ms["waiting"] == 0.0
