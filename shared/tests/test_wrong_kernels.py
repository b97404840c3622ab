"""Every kernel of `wrong/` goes down the road of a variant, and is refused; the right one passes."""

from __future__ import annotations

import importlib
import io
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from wrong import right

from fluxbench import inputs, timing, variants
from fluxbench.cell import Cell
from fluxbench.correctness import Case, judge
from fluxbench.hardware import Device
from fluxbench.observations import Observations, to_record
from fluxbench.records import Record, Status
from fluxbench.requests import Request
from fluxbench.variants._base import Attention, Variant
from fluxbench.worker import Worker
from fluxbench.workloads import Workload

RAGGED = Workload(name="ragged", seq_len=123, heads=4, head_dim=64)
OVER_BUDGET = r"relative L2 error .* is over the budget"
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
    "unwritten_rows": rf"NaN|{OVER_BUDGET}",
    "wrong_from_third_call": rf"right when checked, wrong when timed: {OVER_BUDGET}",
    "changes_inputs": r"changes its inputs",
}
NUMERIC = [name for name, reason in WRONG.items() if reason == OVER_BUDGET and name != "stale_output"]


@pytest.fixture(autouse=True)
def _small_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timing, "last_level_cache_bytes", lambda device: 1 << 16)
    monkeypatch.chdir(tmp_path)  # where a worker keeps its cases


def kernel(name: str) -> ModuleType:
    return importlib.import_module(f"wrong.{name}")


def measured(monkeypatch: pytest.MonkeyPatch, tested: Variant, *others: str) -> dict[str, Record]:
    """Return the records, by variant, of one worker that gets this variant first and then registered ones."""
    monkeypatch.setattr(variants, "REGISTRY", (*variants.REGISTRY, tested))
    names = (tested.name, *others)
    request = Request(device="cpu", workloads=(RAGGED,), variants=names, references=("torch_flash",))
    events = io.StringIO()
    with torch.inference_mode():
        Worker(request, events).run()
    observed = Observations()
    for line in events.getvalue().splitlines():
        observed.add(json.loads(line))
    this = Cell(notebook="flux", id="made_up", packages=("torch==2.13.0",), source_sha256="")
    return {
        name: to_record(
            observed,
            this,
            name,
            RAGGED,
            fingerprint={},
            measured_at="2026-01-31T12:00:00Z",
            processes=1,
            device=Device(kind="cpu", name="made up"),
        )
        for name in names
    }


def test_every_wrong_kernel_is_tested() -> None:
    files = {path.stem for path in (Path(__file__).parent / "wrong").glob("*.py")}
    assert files - {"__init__", "right"} == set(WRONG)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_refused_on_the_road_of_a_variant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    record = measured(monkeypatch, Variant(name="made_up", load=kernel(name).load))["made_up"]
    assert (record.status, record.timing) == (Status.INCORRECT, None)
    assert re.search(WRONG[name], str(record.reason)), record.reason


@pytest.mark.parametrize("name", ["one_nan", "changes_inputs", "stale_output", "wrong_from_third_call"])
def test_a_wrong_kernel_costs_no_other_variant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = measured(monkeypatch, Variant(name="made_up", load=kernel(name).load), "torch_math", "torch_flash")
    assert [found[other].status for other in ("torch_math", "torch_flash")] == [Status.PASSED] * 2


def test_the_right_kernel_passes_on_the_road_of_a_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(monkeypatch, Variant(name="made_up", load=right.load))["made_up"]
    assert (record.status, record.reason) == (Status.PASSED, None)


@pytest.mark.parametrize("kind", inputs.KINDS)
@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_numerically_wrong_kernel_is_refused_on_either_kind_of_inputs(name: str, kind: str, dtype: str) -> None:
    workload = Workload(name="made-up", seq_len=160, heads=2, head_dim=64, dtype=dtype)
    case = Case.of(inputs.make(workload, kind, 0, "cpu"))
    errors, wrong = judge(kernel(name).load()(*case.inputs), case)
    assert errors is not None
    assert wrong is not None


def torch_flash() -> Attention:
    return variants.find("torch_flash")[0].load()


@pytest.mark.parametrize("kind", inputs.KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("seq_len", [33, 123])
@pytest.mark.parametrize("load", [right.load, torch_flash])
def test_a_right_kernel_passes_at_ragged_lengths(load: object, seq_len: int, dtype: str, kind: str) -> None:
    assert callable(load)
    attention = load()
    workload = Workload(name="made-up", seq_len=seq_len, heads=3, head_dim=64, dtype=dtype)
    reasons = []
    for seed in range(6):
        case = Case.of(inputs.make(workload, kind, seed, "cpu"))
        reasons.append(judge(attention(*case.inputs), case)[1])
    assert reasons == [None] * 6


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
    from fluxbench.correctness import poison

    case = Case.of(inputs.make(Workload(name="made-up", seq_len=4608, heads=2), "normal", 0, "cuda"))
    poison(case.inputs[0])
    out = kernel("unwritten_rows").load()(*case.inputs)
    assert "NaN" in str(judge(out, case)[1])
