"""Every kernel of `wrong/` goes down the road of a variant, and is refused; the right one passes."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
import workers
from wrong import right

from fluxbench import variants
from fluxbench.bench.observations import Observations
from fluxbench.bench.recording import to_record
from fluxbench.correctness.judging import Case, judge, refusal
from fluxbench.device.detection import Device, detect
from fluxbench.environments.cell import Cell
from fluxbench.operations import inputs
from fluxbench.operations.workloads import Workload
from fluxbench.records.schema import INPUTS, Record, Status
from fluxbench.variants._base import Attention, Form, Variant, build
from fluxbench.worker.request import Request

RAGGED = Workload(name="ragged", seq_len=123, heads=4, head_dim=64)
LONGER = Workload(name="longer", seq_len=771, heads=4, head_dim=64)  # far longer than it takes to look at its inputs
OVER_BUDGET = r"relative L2 error .* is over the budget"
NOT_WRITTEN = rf"NaN|{OVER_BUDGET}"
WHEN_TIMED = rf"right when checked, wrong when timed: .*({NOT_WRITTEN})"
# What is said of each: its file, and a pattern of the reason.
WRONG = {
    "scale_off": OVER_BUDGET,
    "last_block_dropped": OVER_BUDGET,
    "heads_swapped": OVER_BUDGET,
    "one_nan": r"1 of \d+ output elements are NaN",
    "float8_keys": OVER_BUDGET,
    "float8_values": OVER_BUDGET,
    "heads_first_strides": r"must be contiguous as \[batch, seq_len, heads, head_dim\]",
    "heads_first_shape": r"must have shape \[1, 123, 4, 64\], got \[1, 4, 123, 64\]",
    "broadcast_rows": r"must be contiguous",
    "one_row": r"must have shape \[1, 123, 4, 64\], got \[1, 1, 4, 64\]",
    "returns_tuple": r"must be one tensor, got tuple",
    "float32_output": r"must be torch.bfloat16, got torch.float32",
    "stale_output": OVER_BUDGET,
    "unwritten_rows": NOT_WRITTEN,
    "wrong_from_third_call": WHEN_TIMED,
    "changes_inputs": r"changes its inputs",
    "output_in_q": rf"changes its inputs|{OVER_BUDGET}",
    "half_the_keys": OVER_BUDGET,
    "top_keys_only": OVER_BUDGET,
    "mean_of_values": OVER_BUDGET,
    "causal_by_mistake": OVER_BUDGET,
    "layout_misread": OVER_BUDGET,
    "float8_scores": OVER_BUDGET,
    "float8_probabilities": OVER_BUDGET,
    "no_max_subtraction": NOT_WRITTEN,
    "right_for_even_lengths": OVER_BUDGET,
    "padding_attended": OVER_BUDGET,
    "ragged_tail_uninitialised": NOT_WRITTEN,
    "lazy_subclass": r"must be a plain torch.Tensor, got LazyTensor",
    "cached_by_address": WHEN_TIMED,
    "keeps_row_maxima": WHEN_TIMED,
    "keeps_scales": WHEN_TIMED,
    "cached_by_contents": r"skips work on inputs that it has seen",
    "returns_first_result_forever": WHEN_TIMED,
    "left_to_a_thread": WHEN_TIMED,
    "left_on_another_stream": WHEN_TIMED,
    "spoils_inputs_when_timed": WHEN_TIMED,
}
STATUS = {"cached_by_contents": Status.ERROR}  # its values are right, and its time is not; all others are INCORRECT
QUANTIZED = {"keeps_scales": 0.06}  # by their budgets, which they are within when they are checked
GPU_ALONE = ("left_on_another_stream",)
ON_CPU = [name for name in WRONG if name not in GPU_ALONE]
# Right in some cases, each with its own test below.
AT_RAGGED_LENGTHS = ("right_for_even_lengths", "padding_attended")
IN_SOME_CASES = ("stale_output", *AT_RAGGED_LENGTHS)
NUMERIC = [name for name, reason in WRONG.items() if reason == OVER_BUDGET and name not in IN_SOME_CASES]
LENGTHS = (33, 123, 4097, 4415)  # not one is a multiple of a block
SEEDS = 200


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workers.hurry(monkeypatch)
    monkeypatch.chdir(tmp_path)  # where a worker keeps its cases


def kernel(name: str) -> ModuleType:
    return importlib.import_module(f"wrong.{name}")


def made_up(name: str) -> Variant:
    """Return a wrong kernel as a variant."""
    budget = QUANTIZED.get(name)
    kind = "quantized" if budget else "exact"
    return Variant(name="made_up", load=kernel(name).load, precision_class=kind, quantized_budget_rel_l2=budget)


def measured(
    monkeypatch: pytest.MonkeyPatch, tested: Variant, *others: str, workload: Workload = RAGGED, device: str = "cpu"
) -> dict[str, Record]:
    """Return the records, by variant, of one worker that gets this variant first and then registered ones."""
    monkeypatch.setattr(variants, "REGISTRY", (*variants.REGISTRY, tested))
    names = (tested.name, *others)
    request = Request(device=device, workloads=(workload,), variants=names, references=("torch_flash",))
    observed = Observations()
    for event in workers.events_of(request):
        observed.add(event)
    this = Cell(notebook="flux", id="made_up", packages=("torch==2.13.0",), source_sha256="")
    return {
        name: to_record(
            observed,
            this,
            name,
            workload,
            fingerprint={},
            measured_at="2026-01-31T12:00:00Z",
            processes=1,
            device=Device(kind=device, name="made up"),
        )
        for name in names
    }


def test_every_wrong_kernel_is_tested() -> None:
    files = {path.stem for path in (Path(__file__).parent / "wrong").glob("*.py")}
    assert files - {"__init__", "right"} == set(WRONG)


@pytest.mark.parametrize("name", ON_CPU)
def test_a_wrong_kernel_is_refused_on_the_road_of_a_variant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    workload = LONGER if name in STATUS else RAGGED
    if name in STATUS:
        workers.hurry(monkeypatch, most_s=0.2)  # windows enough that one which the machine disturbs is no matter
    record = measured(monkeypatch, made_up(name), workload=workload)["made_up"]
    assert re.search(WRONG[name], str(record.reason)), record.reason
    assert (record.status, record.timing, record.burst) == (STATUS.get(name, Status.INCORRECT), None, None)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in WRONG if WRONG[name] == WHEN_TIMED or name in STATUS])
def test_a_kernel_that_cheats_when_timed_is_refused_on_a_gpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    workload = Workload(name="ragged", seq_len=4415, heads=2)
    record = measured(monkeypatch, made_up(name), workload=workload, device="cuda")["made_up"]
    assert re.search(WRONG[name], str(record.reason)), record.reason
    assert (record.status, record.timing, record.burst) == (STATUS.get(name, Status.INCORRECT), None, None)


@pytest.mark.parametrize(
    "name",
    [
        "one_nan",
        "changes_inputs",
        "output_in_q",
        "stale_output",
        "wrong_from_third_call",
        "cached_by_address",
        "cached_by_contents",
        "left_to_a_thread",
        "spoils_inputs_when_timed",
    ],
)
def test_a_wrong_kernel_costs_no_other_variant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = measured(monkeypatch, Variant(name="made_up", load=kernel(name).load), "torch_math", "torch_flash")
    assert [found[other].status for other in ("torch_math", "torch_flash")] == [Status.PASSED] * 2


def test_the_right_kernel_passes_on_the_road_of_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(monkeypatch, Variant(name="made_up", load=right.load))["made_up"]
    assert (record.status, record.reason) == (Status.PASSED, None)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_numerically_wrong_kernel_is_refused_on_either_kind_of_inputs(name: str, kind: str, dtype: str) -> None:
    workload = Workload(name="made-up", seq_len=160, heads=2, head_dim=64, dtype=dtype)
    case = Case.of(inputs.make(workload, kind, 0, "cpu"))
    out = kernel(name).load()(*case.inputs)
    errors, wrong = judge(out, case)
    assert errors is not None
    assert wrong is not None
    assert re.search(NOT_WRITTEN, str(refusal(out, case)))


@pytest.mark.parametrize("name", AT_RAGGED_LENGTHS)
def test_a_ragged_length_shows_what_an_even_one_does_not(name: str) -> None:
    found = {}
    for seq_len in (128, 123):
        case = Case.of(inputs.make(Workload(name="made-up", seq_len=seq_len, heads=2, head_dim=64), "normal", 0, "cpu"))
        found[seq_len] = judge(kernel(name).load()(*case.inputs), case)[1]
    assert found[128] is None
    assert re.search(OVER_BUDGET, str(found[123]))


def test_outliers_show_what_normal_inputs_do_not() -> None:
    found = {}
    for kind in INPUTS:
        case = Case.of(inputs.make(RAGGED, kind, 0, "cpu"))
        found[kind] = judge(kernel("no_max_subtraction").load()(*case.inputs), case)[1]
    assert found["normal"] is None
    assert re.search(NOT_WRITTEN, str(found["flux"]))


def test_only_a_plain_tensor_is_judged() -> None:
    case = Case.of(inputs.make(RAGGED, "normal", 0, "cpu"))
    out = torch.nn.Parameter(right.load()(*case.inputs), requires_grad=False)
    reason = "the output must be a plain torch.Tensor, got Parameter"
    assert judge(out, case) == (None, reason)
    assert refusal(out, case) == reason
    assert refusal(right.load()(*case.inputs), case) is None


def torch_flash() -> Attention:
    return variants.find("torch_flash")[0].load()


def reasons_against(attention: Attention, workload: Workload, kind: str, seeds: int) -> list[str | None]:
    """Return why the outputs of so many fresh seeds are wrong, None for each that is right."""
    with torch.inference_mode():
        cases = (Case.of(inputs.make(workload, kind, seed, "cpu")) for seed in range(seeds))
        return [judge(attention(*case.inputs), case)[1] for case in cases]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("seq_len", LENGTHS[:2])
@pytest.mark.parametrize("load", [right.load, torch_flash])
def test_a_right_kernel_passes_at_ragged_lengths(
    load: Callable[[], Attention], seq_len: int, dtype: str, kind: str
) -> None:
    workload = Workload(name="made-up", seq_len=seq_len, heads=2, head_dim=64, dtype=dtype)
    assert reasons_against(load(), workload, kind, SEEDS) == [None] * SEEDS


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("seq_len", LENGTHS[2:])
def test_a_right_kernel_passes_at_long_ragged_lengths(seq_len: int, kind: str) -> None:
    workload = Workload(name="made-up", seq_len=seq_len, heads=1, head_dim=64)
    assert reasons_against(torch_flash(), workload, kind, 3) == [None] * 3


@pytest.mark.gpu
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("seq_len", LENGTHS)
def test_every_variant_is_right_at_ragged_lengths_on_a_gpu(seq_len: int, kind: str) -> None:
    workload = Workload(name="made-up", seq_len=seq_len, heads=2)
    device = detect()
    kernels = []
    for variant in variants.REGISTRY:
        if variant.supports(device, workload) is None:
            with contextlib.suppress(ImportError):  # a package that this host has not
                kernels.append((variant, build(variant, Form.EAGER)))
    wrong = []
    with torch.inference_mode():
        for seed in range(SEEDS):
            case = Case.of(inputs.make(workload, kind, seed, "cuda"))
            for variant, attention in kernels:
                _, reason = judge(
                    attention(*case.inputs),
                    case,
                    precision_class=variant.precision_class,
                    quantized_budget=variant.quantized_budget_rel_l2,
                )
                if reason:
                    wrong.append((variant.name, seed, reason))
    assert "torch_flash" in [variant.name for variant, _ in kernels]
    assert wrong == []


def test_a_quantized_kernel_passes_within_its_own_budget_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Variant(
        name="made_up",
        load=kernel("float8_values").load,
        precision_class="quantized",
        quantized_budget_rel_l2=0.06,
    )
    record = measured(monkeypatch, honest)["made_up"]
    assert record.status is Status.PASSED
    assert record.correctness is not None
    assert (record.correctness.precision_class, record.correctness.budget_rel_l2) == ("quantized", 0.06)


def test_the_errors_in_a_record_are_those_of_the_worse_kind_of_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(monkeypatch, Variant(name="made_up", load=right.load))["made_up"]
    shares = {}
    for kind, seed in (("normal", 1), ("flux", 0)):
        case = Case.of(inputs.make(RAGGED, kind, seed, "cpu"))
        errors, _ = judge(right.load()(*case.inputs), case)
        assert errors is not None
        assert errors.rel_l2 is not None
        shares[errors.rel_l2] = errors.rel_l2 / errors.budget_rel_l2
    assert record.correctness is not None
    assert record.correctness.rel_l2 == pytest.approx(max(shares, key=lambda error: shares[error]))


@pytest.mark.gpu
@pytest.mark.parametrize("name", NUMERIC)
def test_a_numerically_wrong_kernel_is_refused_at_a_published_shape(name: str) -> None:
    workload = Workload(name="made-up", seq_len=4608, heads=2)
    case = Case.of(inputs.make(workload, "normal", 0, "cuda"))
    assert judge(kernel(name).load()(*case.inputs), case)[1] is not None


@pytest.mark.gpu
def test_rows_that_are_never_written_are_nan_on_a_gpu() -> None:
    from fluxbench.correctness.judging import poison

    case = Case.of(inputs.make(Workload(name="made-up", seq_len=4608, heads=2), "normal", 0, "cuda"))
    poison(case.inputs[0])
    out = kernel("unwritten_rows").load()(*case.inputs)
    assert "NaN" in str(judge(out, case)[1])
