"""Every kernel of `wrong/` goes down the road of a variant, checked and timed, and is refused; the right one passes."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import workers
from calls import CALLS, wrong
from clocks import small_cache, small_control
from fakes import CPU, GPU, foreseen, tokens
from workers import QUICK, failures, timed, variant
from wrong.backwards import BACKWARDS, RIGHT
from wrong.changes import CHANGES
from wrong.cheats import CHEATS, stop_watching
from wrong.gradients import GRADIENTS
from wrong.kinds import KINDS
from wrong.right import attention_of
from wrong.values import VALUES

from fluxbench import operations, variants
from fluxbench.bench import recording
from fluxbench.bench.collected import Collected
from fluxbench.bench.events import Event
from fluxbench.bench.recording import Context
from fluxbench.correctness.case import Case
from fluxbench.correctness.guards import poison
from fluxbench.correctness.judging import judge
from fluxbench.device.detect import detect
from fluxbench.environments.cell import Cell
from fluxbench.operations.protocol import Attention
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Workload
from fluxbench.records.status import Status
from fluxbench.timing import interleaved
from fluxbench.timing.stopwatch import Stopwatch
from fluxbench.variants._base import Variant
from fluxbench.variants.forms import EAGER, FormedVariant
from fluxbench.worker.request import Request

CELL = Cell(notebook="flux", id="sdpa", study="flux", packages=("torch==2.13.0",), source_sha256="0" * 64)
OPERATIONS = ("attention_backward", "attention_training")
RAGGED = tokens("ragged", 123, heads=4)
EVEN = tokens("even", 192, heads=16)
STRIDES = ("strides_of_q", "q_as_if_contiguous", "heads_as_if_contiguous", "reads_beyond")
ONLY_AT_EVEN = ("int8_in_some_heads", "tail_dropped", "one_batch_entry", *STRIDES)  # else more of it shows
LONGEST = tokens("longest", 1600, heads=4)
LONGER = tokens(
    "longer", 1300, heads=4
)  # 10 ms and more on any CPU, and far longer than it takes to look at its inputs
BACKWARD = tokens("backward", 123, "attention_backward")
OF_BOTH = {name: tokens("grouped", 123, name, heads=4, kv_heads=2, causal=True) for name in OPERATIONS}
OVER_BUDGET = r"relative L2 error .* is over the budget"
NOT_WRITTEN = rf"NaN|{OVER_BUDGET}"
WHEN_TIMED = rf"right when checked, wrong when timed: .*({NOT_WRITTEN})"
SPOILED = (
    rf"right when checked, wrong when timed: (.*{NOT_WRITTEN}|(on flux inputs: )?the kernel changes its inputs: q$)"
)
SKIPPING = ("cached_by_contents", "undoes_symmetries", "honest_twice")
BY_TIME = (*SKIPPING, "computed_as_inputs_change")  # right, and not believed
# What is said of each: a pattern of the reason.
SAID = {
    **dict.fromkeys(VALUES, OVER_BUDGET),
    **dict.fromkeys(
        ("tail_dropped", "one_batch_entry"), rf"^at 2 batch entries of 333 keys, whatever the strides: {OVER_BUDGET}"
    ),
    **dict.fromkeys(STRIDES, r"^at 2 batch entries of 333 keys, strides unequal: .* are NaN or infinite; right where"),
    "no_max_subtraction": NOT_WRITTEN,
    **dict.fromkeys(
        ("no_max_in_float32", "maximum_from_zero", "clamped_where_exp_ends"),
        rf"^at 2 batch entries of 333 keys, scores of a query all around 128 or -128: .*({NOT_WRITTEN})",
    ),
    **dict.fromkeys(("unwritten_rows", "ragged_tail_uninitialised"), NOT_WRITTEN),
    "one_nan": r"1 of \d+ output elements are NaN",
    **dict.fromkeys(KINDS, r"^the output must (have shape \[1, 123, 4, 64\]|be)"),
    "changes_inputs": r"the kernel changes its inputs: q$",
    "output_in_q": rf"changes its inputs|{OVER_BUDGET}",
    **dict.fromkeys(CHEATS, WHEN_TIMED),
    "stale_output": OVER_BUDGET,
    "right_for_the_seeds_alone": OVER_BUDGET,
    "one_output": "^the next call overwrites its outputs, which are still held: out$",
    "adapts_to_small_scores": rf"^right when checked, wrong when timed: on peaked inputs: {OVER_BUDGET}",
    "spoils_inputs_when_timed": SPOILED,
    **dict.fromkeys(SKIPPING, r"skips work on inputs that it has seen"),
    "computed_as_inputs_change": r"works outside of its calls: other threads took",
    **dict.fromkeys(
        CHANGES, r"^changes process-wide state: (threads 1 -> 2|mkldnn|default dtype|float32 matmul|16-bit|scaled)"
    ),
}
OF_GRADIENTS = {**dict.fromkeys(GRADIENTS, "dq"), "half_of_v": "dv", "heads_swapped": "dk"}
OF_BACKWARDS = {
    "dk_and_dv_swapped": rf"^dk: {OVER_BUDGET}",
    "dq_without_scale": rf"^dq: {OVER_BUDGET}",
    "groups_not_summed": rf"^dk: {OVER_BUDGET}",
    "last_block_without_gradient": rf"^dk: {OVER_BUDGET}",
    "mask_off_by_one": rf"^dq: {OVER_BUDGET}",
    "one_nan": r"^dv: 1 of \d+ output elements are NaN",
    "accumulated": rf"^dq: {OVER_BUDGET}",
    "reused": rf"^dq: {OVER_BUDGET}",
    "dout_as_if_contiguous": r"^at 2 batch entries of 333 keys, strides unequal: dq: .* NaN or infinite; right where",
    "accumulated_when_timed": WHEN_TIMED,
    "reused_when_timed": WHEN_TIMED,
}
QUANTIZED = {"keeps_scales": 0.06}  # by their budgets, which they are within when they are checked
ON_CPU = [*VALUES, *KINDS, *(name for name in CHEATS if name != "left_on_another_stream")]
SEEDS = {"attention": 25, "attention_backward": 8}


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    foreseen(monkeypatch)
    small_cache(monkeypatch)
    small_control(monkeypatch)
    monkeypatch.chdir(tmp_path)  # where a worker keeps its cases


def load(name: str) -> Callable[[AttentionCall], Attention]:
    """Return the `load` of a wrong kernel."""
    return lambda call: CHEATS[name]() if name in CHEATS else (VALUES | KINDS)[name]


def made_up(name: str) -> Variant:
    """Return a wrong kernel as a variant."""
    budget = QUANTIZED.get(name)
    precision = "quantized" if budget else "exact"
    return variant("made_up", load(name), precision_class=precision, quantized_budget_rel_l2=budget)


def measured(
    monkeypatch: pytest.MonkeyPatch,
    tested: Variant,
    workload: Workload = RAGGED,
    *,
    sustained: bool = False,
    device: str = "cpu",
    rounds: int = 5,
) -> list[Event]:
    """Return what one worker writes that gets this variant first, and then torch_math."""
    workers.register(monkeypatch, tested)
    request = Request(
        device=device,
        workloads=(workload,),
        variants=(tested.name, "torch_math"),
        references=("torch_flash",),
        sustained=sustained,
    )
    # On a CPU as many however long they take: slots and contents come again, so that a cheat skips most of its work.
    monkeypatch.setattr(interleaved, "LEAST_ROUNDS", 40)
    # One window that the machine disturbs is no matter, and all slots come again.
    block_s = 0.5 if device == "cuda" else 0.0
    plan = dataclasses.replace(QUICK, min_rounds=rounds, max_rounds=rounds, min_block_s=block_s, max_block_s=block_s)
    return workers.events_of(request, plan)


def check_refused(
    events: list[Event], name: str, pattern: str, workload: Workload = RAGGED, device: str = "cpu"
) -> None:
    """Fail unless the record of a wrong kernel says what it should, and the variant after it was measured."""
    collected = Collected()
    for event in events:
        collected.add(event)
    context = Context(
        cell=CELL, device=GPU if device == "cuda" else CPU, processes=1, fingerprint={}, measured_at="", powers={}
    )
    [record] = recording.of_cell(collected, ["made_up"], [workload], context)
    assert record.status is (Status.ERROR if name in (*BY_TIME, *CHANGES) else Status.INCORRECT), record.reason
    assert re.search(pattern, str(record.reason)), record.reason
    assert record.timings == {}
    assert {failed for failed, _, _ in failures(events)} <= {"made_up"}
    assert timed(events) - {"made_up"} == {"torch_flash", "torch_math"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.alone) if name in BY_TIME else name for name in ON_CPU]
)
def test_a_wrong_kernel_is_refused_and_costs_no_other_variant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    workload = LONGER if name in BY_TIME else EVEN if name in ONLY_AT_EVEN else RAGGED
    if name == "computed_as_inputs_change":  # its thread needs time between new inputs and the call
        monkeypatch.setattr(Stopwatch, "clear_cache", lambda _: time.sleep(0.3))
        workload = LONGEST
    rounds = 50 if name == "wrong_now_and_then" else 5
    events = measured(monkeypatch, made_up(name), workload, sustained=name in CHEATS, rounds=rounds)
    stop_watching()
    check_refused(events, name, SAID[name], workload)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in CHEATS if name not in ("computed_as_inputs_change", *CHANGES)])
def test_a_kernel_that_cheats_is_refused_on_a_gpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    workload = tokens("ragged", 4415)
    events = measured(monkeypatch, made_up(name), workload, sustained=True, device="cuda", rounds=50)
    # What skips its work when it is profiled runs another kernel then.
    pattern = f"{SAID[name]}|did not run in the first process" if name in SKIPPING else SAID[name]
    check_refused(events, name, pattern, workload, "cuda")


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_wrong_gradient_is_refused_and_its_right_output_is_not(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    tested = variant("made_up", lambda call: GRADIENTS[name])
    assert wrong(tested) is None
    check_refused(measured(monkeypatch, tested, BACKWARD), name, rf"^{OF_GRADIENTS[name]}: {OVER_BUDGET}", BACKWARD)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", BACKWARDS)
def test_a_wrong_backward_pass_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, operation: str) -> None:
    workload = OF_BOTH[operation]
    events = measured(monkeypatch, variant("made_up", BACKWARDS[name]), workload, sustained="timed" in name)
    check_refused(events, name, OF_BACKWARDS[name], workload)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_right_backward_pass_is_not(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    events = measured(monkeypatch, variant("made_up", RIGHT), OF_BOTH[operation], sustained=True)
    assert failures(events) == []
    assert timed(events) == {"made_up", "torch_flash", "torch_math"}


def test_the_right_kernel_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    events = measured(monkeypatch, variant("made_up", lambda call: attention_of))
    assert failures(events) == []
    assert timed(events) == {"made_up", "torch_flash", "torch_math"}


def test_ragged_lengths_and_outliers_show_what_even_lengths_and_normal_inputs_do_not() -> None:
    for name in ("right_for_even_lengths", "padding_attended", "ragged_tail_uninitialised"):
        tested = variant("made_up", load(name))
        assert wrong(tested, tokens=128) is None
        assert re.search(NOT_WRITTEN, str(wrong(tested, tokens=123)))
    assert re.search(f"^flux: .*({NOT_WRITTEN})", str(wrong(variant("made_up", load("no_max_subtraction")))))


@pytest.mark.parametrize("kind", ["normal", "flux"])
@pytest.mark.parametrize("seq_len", [33, 123])
@pytest.mark.parametrize("operation", ["attention", "attention_backward"])
def test_right_kernels_pass_at_ragged_lengths_whatever_the_seed(operation: str, seq_len: int, kind: str) -> None:
    """A budget that a right kernel is over once in a thousand cases would refuse some kernel on every page."""
    for dtype in ("bfloat16", "float16"):
        workload = tokens("made-up", seq_len, operation, dtype=dtype)
        found = operations.find(operation)
        bound = {
            name: found.bind(FormedVariant(each, EAGER), workload.shape)
            for name, each in (
                ("right", variant("right", lambda call: attention_of)),
                ("flash", variants.find("torch_flash").variant),
            )
        }
        for seed in range(SEEDS[operation]):
            case = Case.make(workload, kind, seed, torch.device("cpu"))
            for name, call in bound.items():
                assert judge(call(case.inputs), case)[1] is None, (name, dtype, seed)


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ["attention", "attention_backward"])
@pytest.mark.parametrize("variant", variants.REGISTRY, ids=lambda each: each.name)
def test_every_call_that_a_variant_supports_is_right_on_a_gpu(variant: Variant, operation: str) -> None:
    backward, found, device = operation == "attention_backward", operations.find(operation), detect()
    results = {}
    for key, changes in CALLS.items():
        workload = tokens(key, 1025, operation, **{"head_dim_qk": 128, "head_dim_v": 128, **changes})
        asked = found.attention(workload.shape)
        if variant.supports(device, asked):
            continue
        with contextlib.suppress(ImportError), torch.inference_mode(not backward), torch.set_grad_enabled(False):
            bound = found.bind(FormedVariant(variant, EAGER), workload.shape)
            for kind in variant.gated_kinds(found.input_kinds):
                case = Case.make(workload, kind, 0, torch.device("cuda"))
                results[key, kind] = judge(
                    bound(case.inputs), case, variant.quantized_budget_rel_l2, variant.precision_class
                )[1]
    assert results == dict.fromkeys(results)


@pytest.mark.gpu
def test_rows_that_are_never_written_are_nan_on_a_gpu() -> None:
    case = Case.make(tokens("made-up", 4608), "normal", 0, torch.device("cuda"))
    poison(case)
    assert "NaN" in str(judge({"out": VALUES["unwritten_rows"](*case.inputs.values())}, case)[1])
