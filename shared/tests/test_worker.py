"""What becomes of a variant that fails, in a real worker on the CPU; and the road from a cell to its records."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import CPU, GPU, REPOSITORY, TINIER, TINY, clean
from wrong import right

from fluxbench import bench, environments, hardware, sentinel, timing, variants, workloads
from fluxbench.cell import Cell
from fluxbench.environments import Environment
from fluxbench.observations import Observations, to_record
from fluxbench.records import Record, Sentinel, Status, from_json
from fluxbench.requests import Request
from fluxbench.settings import Settings
from fluxbench.variants._base import Attention, Variant
from fluxbench.worker import Worker, versions
from fluxbench.workloads import Workload


@pytest.fixture(autouse=True)
def _at_home_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean(monkeypatch)
    monkeypatch.setattr(timing, "last_level_cache_bytes", lambda device: 1 << 16)
    monkeypatch.chdir(tmp_path)


def events_of(
    monkeypatch: pytest.MonkeyPatch, load: Callable[[], Attention], *, name: str = "made_up", **request: Any
) -> list[dict[str, Any]]:
    """Return the events of one worker that gets a variant with this `load`, and then torch_math."""
    monkeypatch.setattr(variants, "REGISTRY", (*variants.REGISTRY, Variant(name=name, load=load)))
    asked = {"variants": (name, "torch_math"), "references": ("torch_math",), "workloads": (TINY,), **request}
    asked.setdefault("device", "cpu")
    written = io.StringIO()
    with torch.inference_mode():
        Worker(Request(**asked), written).run()
    return [json.loads(line) for line in written.getvalue().splitlines()]


def failures(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(event["variant"], event["status"], event["reason"]) for event in events if event["event"] == "failed"]


def samples(events: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many samples were taken at the one workload that was timed, by name; empty where none was."""
    blocks = [event["samples_ms"] for event in events if event["event"] == "timed"]
    return {name: len(found) for block in blocks for name, found in block.items()}


def timed(events: list[dict[str, Any]]) -> set[str]:
    """Return the variants that were timed, of which the sentinel is none."""
    return set(samples(events)) - {sentinel.NAME}


def raising(error: Exception) -> Callable[[], Attention]:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        raise error

    return lambda: attend


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("shape mismatch\nmore"), "ERROR", "RuntimeError: shape mismatch"),
        (ModuleNotFoundError("No module named 'x'"), "UNAVAILABLE", "No module named 'x'; install what is missing"),
        (torch.OutOfMemoryError("tried to allocate 25 GiB"), "OUT_OF_MEMORY", "tried to allocate 25 GiB"),
        (RuntimeError("No available kernel. Aborting execution."), "UNSUPPORTED", "torch refuses this backend here"),
        (RuntimeError("CUDA error: no kernel image is available"), "UNSUPPORTED", "too old or too new"),
        (RuntimeError("No working C++ compiler found"), "UNAVAILABLE", "install g++"),
    ],
)
def test_a_variant_that_raises_costs_one_status_and_the_others_are_timed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, status: str, reason: str
) -> None:
    events = events_of(monkeypatch, raising(error))
    [(name, got, said)] = failures(events)
    assert (name, got) == ("made_up", status)
    assert reason in said
    assert timed(events) == {"torch_math"}


def test_a_library_that_is_not_installed_makes_its_variant_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> Attention:
        import a_library_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401

        return right.load()

    [(_, status, reason)] = failures(events_of(monkeypatch, load))
    assert (status, reason) == (
        "UNAVAILABLE",
        "No module named 'a_library_that_nobody_has'; install what is missing",
    )


def test_without_a_reference_that_runs_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(monkeypatch, raising(RuntimeError("no")), references=("made_up",))
    assert timed(events) == set()


def test_a_reference_that_was_not_asked_for_is_measured_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(monkeypatch, right.load, variants=("made_up",))
    assert timed(events) == {"made_up", "torch_math"}


def test_only_the_first_reference_that_runs_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(monkeypatch, right.load, variants=("made_up",), references=("torch_math", "torch_native"))
    assert timed(events) == {"made_up", "torch_math"}


def test_what_failed_in_an_earlier_process_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(monkeypatch, raising(RuntimeError("no")), skip=(("made_up", "tiny"),))
    assert failures(events) == []
    assert timed(events) == {"torch_math"}


def test_a_later_process_takes_the_samples_that_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = {"made_up": 3, "torch_math": 5, "sentinel": 4}
    assert samples(events_of(monkeypatch, right.load, process=1, rounds={"tiny": rounds})) == rounds


def test_a_variant_is_announced_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(monkeypatch, raising(RuntimeError("no")))
    [index] = [i for i, event in enumerate(events) if event["event"] == "failed"]
    assert events[index - 1] == {"event": "begin", "variant": "made_up", "workload": "tiny"}


def test_the_versions_name_what_takes_part() -> None:
    assert versions(torch.device("cpu"))["torch"] == torch.__version__


# The sentinel beside the variants.


def said_of_it(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "sentinel"]


def test_the_sentinel_is_named_once_and_timed_beside_the_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(monkeypatch, right.load, workloads=(TINY, TINIER))
    assert said_of_it(events) == [
        {"event": "sentinel", "description": sentinel.load(torch.device("cpu")).description},
    ]
    blocks = [event["samples_ms"] for event in events if event["event"] == "timed"]
    assert [set(block) for block in blocks] == [{"made_up", "torch_math", "sentinel"}] * 2
    assert all(sample > 0 for block in blocks for sample in block["sentinel"])
    assert all(len(block["sentinel"]) >= 2 for block in blocks)


def test_the_sentinel_is_checked_before_any_variant_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(monkeypatch, raising(RuntimeError("no")))
    assert [event["event"] for event in events[:3]] == ["ready", "sentinel", "begin"]


def test_a_later_process_times_the_sentinel_anew_where_the_first_one_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = {"made_up": 3, "torch_math": 5}
    found = samples(events_of(monkeypatch, right.load, process=1, rounds={"tiny": rounds}))
    assert {**found, "sentinel": 0} == {**rounds, "sentinel": 0}
    assert found["sentinel"] >= 2


def turning_wrong(after: int) -> Callable[[torch.device], sentinel.Sentinel]:
    """Return a loader of sentinels that give the right answer this often, and then another one."""
    calls = itertools.count(1)

    def call() -> torch.Tensor:
        return torch.tensor(next(calls) <= after)

    return lambda device: sentinel.Sentinel(description="made up", call=call, is_right=lambda out: bool(out))


def test_a_sentinel_that_turns_wrong_loses_its_samples_and_no_variant_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel, "load", turning_wrong(after=2))
    events = events_of(monkeypatch, right.load)
    assert set(samples(events)) == {"made_up", "torch_math"}
    assert failures(events) == []


def test_a_sentinel_that_stays_right_keeps_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentinel, "load", turning_wrong(after=1_000_000))
    assert set(samples(events_of(monkeypatch, right.load))) == {"made_up", "torch_math", "sentinel"}


def refusing(error: Exception) -> Callable[[torch.device], sentinel.Sentinel]:
    def load(device: torch.device) -> sentinel.Sentinel:
        raise error

    return load


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("the CUDA driver refused the sentinel: cuModuleLoadData returned 200"), "cuModuleLoadData"),
        (torch.OutOfMemoryError("tried to allocate 64 MiB"), "tried to allocate 64 MiB"),
        (OSError("libcuda.so.1: cannot open shared object file"), "libcuda.so.1"),
        (FileNotFoundError(2, "No such file or directory", "sentinel.fatbin"), "sentinel.fatbin"),
    ],
)
def test_a_sentinel_that_cannot_load_costs_no_variant(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    monkeypatch.setattr(sentinel, "load", refusing(error))
    events = events_of(monkeypatch, right.load)
    [said] = said_of_it(events)
    assert reason in said["reason"]
    assert "description" not in said
    assert failures(events) == []
    assert set(samples(events)) == {"made_up", "torch_math"}


def test_a_machine_that_computes_the_sentinel_wrong_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    correct = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda text: correct(text[:-1]))
    events = events_of(monkeypatch, right.load)
    assert said_of_it(events) == [
        {"event": "sentinel", "reason": "the sentinel computed a wrong result on this device"},
    ]
    assert set(samples(events)) == {"made_up", "torch_math"}


def test_where_only_the_device_s_own_rates_are_asked_for_no_sentinel_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said_of_it(events_of(monkeypatch, right.load, workloads=())) == []


@pytest.mark.gpu
def test_on_a_gpu_the_sentinel_is_timed_beside_the_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(monkeypatch, right.load, device="cuda", references=("torch_math",))
    [said] = said_of_it(events)
    assert said["description"].startswith("bfloat16 matrix product")
    assert set(samples(events)) == {"made_up", "torch_math", "sentinel"}
    assert samples(events)["sentinel"] >= 10


# From a cell to its records, with real worker processes of this interpreter.

CELL = Cell(notebook="flux", id="sdpa", packages=("torch==2.13.0", "numpy==2.4.6"), source_sha256="0" * 64)


def measured(
    monkeypatch: pytest.MonkeyPatch, folder: Path, device: hardware.Device, names: list[str], **settings: Any
) -> tuple[dict[str, Record], Sentinel | None]:
    monkeypatch.setitem(workloads.BY_NAME, TINY.name, TINY)
    chosen = Settings(
        root=REPOSITORY, cache=folder / "cache", python=sys.executable, workloads=(TINY.name,), **settings
    )
    found, beside = bench.measure_cell(CELL, names, device, chosen, time.monotonic() + 120)
    return {record.variant: record for record in found}, beside


@pytest.fixture(scope="module")
def cpu_cell(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Record], Sentinel | None]:
    """What a cell measures on the CPU: three real processes."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        clean(monkeypatch)
        names = ["torch_math", "torch_flash", "torch_cudnn", "torch_math_compile_d"]
        return measured(monkeypatch, tmp_path_factory.mktemp("cell"), CPU, names)


@pytest.fixture
def cpu_records(cpu_cell: tuple[dict[str, Record], Sentinel | None]) -> dict[str, Record]:
    return cpu_cell[0]


def test_the_sentinel_is_timed_equally_often_in_each_of_three_processes(
    cpu_cell: tuple[dict[str, Record], Sentinel | None],
) -> None:
    _, beside = cpu_cell
    assert beside is not None
    assert beside.kernel == sentinel.load(torch.device("cpu")).description
    [(workload, parts)] = beside.samples_ms.items()
    assert workload == "tiny"
    assert len(parts) == 3
    assert len({len(part) for part in parts}) == 1
    assert len(parts[0]) >= 2


def test_the_sentinel_is_no_variant_and_has_no_record(cpu_records: dict[str, Record]) -> None:
    assert sentinel.NAME not in cpu_records


def test_a_cell_has_one_record_for_every_variant_it_names(cpu_records: dict[str, Record]) -> None:
    assert {name: record.status for name, record in cpu_records.items()} == {
        "torch_math": Status.PASSED,
        "torch_flash": Status.PASSED,
        "torch_cudnn": Status.UNSUPPORTED,
        "torch_math_compile_d": Status.UNSUPPORTED,
    }


def test_a_passed_record_holds_equally_many_samples_of_three_processes(cpu_records: dict[str, Record]) -> None:
    timings = [cpu_records[name].timing for name in ("torch_math", "torch_flash")]
    assert all(timing and timing.processes == 3 and len(timing.samples_ms) % 3 == 0 for timing in timings)


def test_ratios_are_against_torch_flash_whose_own_is_one(cpu_records: dict[str, Record]) -> None:
    timings = [cpu_records[name].timing for name in ("torch_math", "torch_flash")]
    assert [timing.reference_variant for timing in timings if timing] == ["torch_flash"] * 2
    assert timings[1] is not None
    assert (timings[1].ratio, timings[1].ratio_ci95) == (1.0, (1.0, 1.0))


def test_a_passed_record_says_how_its_output_was_checked(cpu_records: dict[str, Record]) -> None:
    errors = cpu_records["torch_flash"].correctness
    assert errors is not None
    assert errors.rel_l2 is not None
    assert 0 < errors.rel_l2 < errors.budget_rel_l2


def test_a_passed_record_says_what_ran(cpu_records: dict[str, Record]) -> None:
    record = cpu_records["torch_flash"]
    assert any("flash_attention" in kernel.name for kernel in record.kernels)
    assert record.versions["torch"] == torch.__version__


def test_a_record_says_what_it_depends_on(cpu_records: dict[str, Record]) -> None:
    marks = cpu_records["torch_cudnn"].fingerprint
    assert (marks["device"], marks["workloads"], marks["cell"]) == (CPU.name, "tiny", "0" * 12)
    assert (marks["way"], marks["package.torch"]) == ("ambient", torch.__version__)
    assert {"code.timing.py", "code.variants/torch_cudnn.py", "code.variants/torch_flash.py"} <= set(marks)


def test_a_variant_that_needs_a_gpu_is_unsupported_on_a_cpu_and_says_why(cpu_records: dict[str, Record]) -> None:
    assert cpu_records["torch_cudnn"].reason == (
        "needs an NVIDIA GPU of compute capability 8.0 or newer; this is a CPU"
    )


def test_a_variant_that_the_target_leaves_out_says_how_to_measure_it(cpu_records: dict[str, Record]) -> None:
    assert cpu_records["torch_math_compile_d"].reason == (
        "left out of the page of target 'cpu' for its time; FLUXBENCH_ALL=1 measures it"
    )


def test_a_record_is_the_same_after_it_was_written_and_read(cpu_records: dict[str, Record]) -> None:
    tiny = cpu_records["torch_flash"]
    assert from_json(tiny.to_json()) == tiny


def test_a_torch_that_cannot_use_the_gpu_makes_it_unavailable_and_never_measures_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # where the machine of this test has a GPU
    found, beside = measured(monkeypatch, tmp_path, GPU, ["torch_flash", "torch_math"])
    assert beside is None
    assert {record.status for record in found.values()} == {Status.UNAVAILABLE}
    assert {record.timing for record in found.values()} == {None}
    assert {record.reason for record in found.values()} == {
        f"torch {torch.__version__} cannot use this machine's GPU (its CUDA: {torch.version.cuda or 'none'}); "
        "install a torch that was built for CUDA and for this driver"
    }


def test_an_interpreter_that_cannot_import_torch_ends_in_records_that_say_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "torch.py").write_text("raise OSError('libtorch.so: file too short')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    monkeypatch.setattr(environments, "prepare", with_path(broken))
    [record] = measured(monkeypatch, tmp_path, CPU, ["torch_math"])[0].values()
    assert record.status is Status.CRASHED
    assert "libtorch.so: file too short" in str(record.reason)


def with_path(folder: Path) -> Callable[..., Environment]:
    def prepare(*arguments: object) -> Environment:
        return Environment(python=sys.executable, variables={"PYTHONPATH": str(folder)})

    return prepare


def test_a_variant_that_was_timed_in_too_few_processes_is_an_error() -> None:
    observed = Observations()
    block = {"reference": "a", "samples_ms": {"a": [1.0]}, "began": 0.0, "ended": 1.0}
    observed.add({"event": "timed", "workload": "tiny", **block})
    record = to_record(
        observed, CELL, "a", TINY, fingerprint={}, measured_at="2026-01-31T12:00:00Z", processes=3, device=CPU
    )
    assert (record.status, record.timing) == (Status.ERROR, None)


def test_a_workload_of_a_request_survives_the_trip_to_the_worker() -> None:
    asked = Request(
        device="cpu",
        workloads=(TINY, Workload(name="b", seq_len=33, heads=4, kv_heads=2, causal=True)),
        variants=("a",),
        references=("b",),
        rounds={"tiny": {"a": 3}},
        skip=(("a", "tiny"),),
    )
    assert Request.from_json(asked.to_json()) == asked
