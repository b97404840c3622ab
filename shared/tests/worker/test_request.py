"""What one worker is asked for: which workloads it holds at once, and how much is spent on each."""

from __future__ import annotations

from typing import Any

import pytest
from clocks import small_cache, small_control
from fakes import TINIER, TINY, tokens
from sample_events import parsed, timed
from workers import given, honest, trials

from fluxbench import studies
from fluxbench.bench.collected import Collected, Trial
from fluxbench.bench.events import Checked, Timed
from fluxbench.worker.request import Effort, Request


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    small_cache(monkeypatch)
    small_control(monkeypatch)


def test_workloads_are_held_in_parts_and_what_was_timed_before_is_not_timed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TINY reads and writes more than TINIER; both together more than may be held."""
    effort = Effort(held_bytes=TINY.cost.min_bytes)
    asked: dict[str, Any] = {"workloads": (TINIER, TINY), "effort": effort}
    seen = trials(given(monkeypatch, honest, **asked))
    assert [(one.variant, one.workloads) for one in seen] == [
        (name, (workload,)) for workload in ("tinier", "tiny") for name in ("torch_math", "made_up")
    ]
    done = (("another", "tinier"), ("torch_math", "tinier"), ("torch_math", "tiny"))
    [_, again] = trials(given(monkeypatch, honest, name="another", **asked, done=done))
    assert (again.variant, again.workloads) == ("another", ("tiny",))


def test_no_workload_is_lost_between_parts_and_a_request_is_read_as_it_was_written() -> None:
    workloads = tuple(tokens(f"of-{length}", length) for length in (8, 16, 24, 32, 256, 8))
    most = 3 * workloads[0].cost.min_bytes
    for held, sizes in ((None, [6]), (most, [2, 1, 1, 1, 1]), (10**12, [6])):
        effort = Effort(grid=True, held_bytes=held, fully=("of-8",))
        asked = Request(
            device="cuda", workloads=workloads, variants=("a",), references=("b",), effort=effort, done=(("a", "of-8"),)
        )
        parts = asked.held_together
        assert [len(part) for part in parts] == sizes
        assert tuple(one for part in parts for one in part) == workloads
        assert all(len(part) == 1 or sum(one.cost.min_bytes for one in part) <= (held or 1e99) for part in parts)
        assert Request.from_json(asked.to_json()) == asked


def test_a_gpu_s_sustained_block_holds_calls_of_about_one_length() -> None:
    lengths = [tokens(f"of-{length}", length) for length in (4096, 640, 512, 1024, 768)]
    names = [workload.name for workload in lengths]
    asked: dict[str, Any] = {"device": "cuda", "workloads": tuple(lengths), "variants": ("a",), "references": ("b",)}
    blocks = {0: ["of-640", "of-512"], 1: ["of-1024", "of-768"], 2: ["of-4096"]}
    assert Request(**asked).in_blocks(names) == blocks
    assert Request(**asked).in_blocks(["of-4096", "of-512"]) == {0: ["of-512"], 2: ["of-4096"]}  # it failed elsewhere
    assert Request(**asked, burst_alone=("of-4096",)).in_blocks(names) == {0: blocks[0], 1: blocks[1]}
    assert Request(**asked, sustained=False).in_blocks(names) == {}
    for whole in (Request(**asked | {"device": "cpu"}), Request(**asked, effort=Effort(long=True))):
        assert whole.in_blocks(names) == {0: names}


def test_calls_are_graphs_as_the_first_process_decided_at_their_workloads() -> None:
    """Of a variant that was measured alone at one workload each of the two processes decided for its own."""

    def block(workload: str, replayed: bool) -> Trial:
        event = timed("a", 0, block_ms=(1.0,) * 4)
        event["workloads"] = [workload]
        for taken in (event["burst"], *event["blocks"]):
            for field in ("samples_ms", "reference_ms", "launch_ms", "places", "calls"):
                if found := taken.get(field):
                    taken[field] = {workload: next(iter(found.values()))}
        event["blocks"][0]["replayed"] = replayed
        made = parsed(event)
        assert isinstance(made, Timed)
        return Trial(made, 0)

    collected = Collected()
    collected.trials += [block("large", False), block("small", True), block("large", True)]  # the first one stands
    assert collected.replays == {"a": {"large": False, "small": True}}
    workloads = tuple(tokens(name, 8) for name in ("small", "large", "other"))
    request = Request(
        device="cuda", workloads=workloads, variants=("a", "b"), references=("b",), replays=collected.replays,
        burst_alone=("other",),
    )  # fmt: skip
    asked = {("small",): True, ("large",): False, ("small", "other"): True, ("small", "large"): None, ("other",): None}
    assert {names: request.replays_at("a", names) for names in asked} == asked
    assert request.replays_at("b", ["small"]) is None


@pytest.mark.parametrize(
    ("device", "thorough_in", "process", "own", "beside"),
    [("cuda", 0, 0, True, False), ("cuda", 0, 1, False, False), ("cpu", 1, 0, True, True), ("cpu", 1, 1, True, True),
     ("cpu", 1, 2, False, False)],
)  # fmt: skip
def test_calls_are_judged_before_they_are_timed_up_to_the_thorough_process(
    device: str, thorough_in: int, process: int, own: bool, beside: bool
) -> None:
    asked = Request(
        device=device, workloads=(TINY,), variants=("a",), references=("b",), process=process, thorough_in=thorough_in
    )
    assert (asked.judges("a"), asked.judges("b")) == (own, beside)


def test_workloads_that_share_inputs_are_held_once_and_together() -> None:
    passes = ("attention_training", "attention_backward")
    workloads = tuple(tokens(f"{name}-{length}", length, name) for length in (8, 16, 24) for name in passes)
    most = sum(one.cost.min_bytes for one in workloads[:3:2])  # of both passes at two lengths
    asked = Request(
        device="cuda", workloads=workloads, variants=(), references=(), effort=Effort(grid=True, held_bytes=most)
    )
    assert asked.held_together == [workloads[:4], workloads[4:]]


def test_a_grid_checks_some_workloads_in_full_and_the_others_on_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given(monkeypatch, honest, workloads=(TINIER, TINY), effort=Effort(fully=("tiny",)))
    checks = {one.workload: one for one in seen if isinstance(one, Checked) and one.variant == "made_up"}
    kinds = {name: list(one.errors["out"].rel_l2_by_inputs) for name, one in checks.items()}
    assert kinds == {"tiny": ["normal", "flux", "peaked", "tailed"], "tinier": ["normal"]}
    assert [bool(checks[name].kernels) for name in ("tiny", "tinier")] == [True, False]
    assert all(one.thorough for one in checks.values())
    assert {one.unprofiled for one in trials(seen)} == {("tinier",)}


@pytest.mark.parametrize(
    ("study", "measured"), [("sdpa", False), *((f"language:{n}", True) for n in ("LLAMA", "MEMORY"))]
)
def test_memory_is_measured_of_long_calls_and_not_of_a_grid_of_short_ones(study: str, measured: bool) -> None:
    effort = studies.find(study if study == "sdpa" else f"fluxbench.studies.{study}").effort
    first, second = (
        Request(device="cuda", workloads=(TINY,), variants=("a",), references=("b",), effort=effort, process=process)
        for process in range(2)
    )
    assert (first.measures_memory, second.measures_memory) == (measured, False)


@pytest.mark.parametrize(
    ("device", "variant", "workload", "profiled"),
    [
        ("cuda", "made_up", "tiny", True),
        ("cpu", "made_up", "tiny", False),
        ("cuda", "torch_math", "tiny", False),  # a reference that is here for the others alone
        ("cuda", "made_up", "tinier", False),  # at which the first process has not looked
    ],
)
def test_kernels_are_looked_at_where_the_first_process_has(
    device: str, variant: str, workload: str, *, profiled: bool
) -> None:
    of_both = {"workloads": (TINY, TINIER), "variants": ("made_up",), "references": ("torch_math",)}
    asked = Request(device=device, process=1, effort=Effort(fully=("tiny",)), **of_both)  # type: ignore[arg-type]
    assert asked.profiles(variant, workload) is profiled
