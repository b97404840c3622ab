"""From a cell to its records, with real worker processes of this interpreter on the CPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import CPU, GPU, REPOSITORY, TINY, clean

from fluxbench.bench import measuring as bench
from fluxbench.bench.observations import Observations, to_samples, to_sentinel
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.environments import prepare as environments
from fluxbench.environments.cell import Cell
from fluxbench.environments.prepare import Environment
from fluxbench.operations import workloads
from fluxbench.records.schema import Record, Status, from_json
from fluxbench.timing import control_kernel as sentinel


@pytest.fixture(autouse=True)
def _at_home_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean(monkeypatch)
    monkeypatch.chdir(tmp_path)


CELL = Cell(notebook="flux", id="sdpa", packages=("torch==2.13.0", "numpy==2.4.6"), source_sha256="0" * 64)


def measured(
    monkeypatch: pytest.MonkeyPatch, folder: Path, device: hardware.Device, names: list[str], **settings: Any
) -> tuple[dict[str, Record], Observations]:
    monkeypatch.setitem(workloads.BY_NAME, TINY.name, TINY)
    chosen = Settings(
        root=REPOSITORY, cache=folder / "cache", python=sys.executable, workloads=(TINY.name,), **settings
    )
    observed = Observations()
    found = bench.measure_cell(CELL, names, device, chosen, time.monotonic() + 120, observed)
    return {record.variant: record for record in found}, observed


@pytest.fixture(scope="module")
def cpu_cell(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Record], Observations]:
    """What a cell measures on the CPU: three real processes."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        clean(monkeypatch)
        names = ["torch_math", "torch_flash", "torch_cudnn", "torch_math_compile_d"]
        return measured(monkeypatch, tmp_path_factory.mktemp("cell"), CPU, names)


@pytest.fixture
def cpu_records(cpu_cell: tuple[dict[str, Record], Observations]) -> dict[str, Record]:
    return cpu_cell[0]


def test_the_sentinel_is_timed_beside_each_variant_in_each_of_three_processes(
    cpu_cell: tuple[dict[str, Record], Observations],
) -> None:
    found = to_sentinel(cpu_cell[1])
    assert found is not None
    assert found.kernel == sentinel.load(torch.device("cpu")).description
    assert set(found.samples_ms) == {"torch_math", "torch_flash"}
    for parts in found.samples_ms.values():
        assert len(parts) == 3
        assert all(len(part) >= 2 for part in parts)


def test_the_sentinel_is_no_variant_and_has_no_record(cpu_records: dict[str, Record]) -> None:
    assert sentinel.NAME not in cpu_records


def test_a_cell_has_one_record_for_every_variant_it_names(cpu_records: dict[str, Record]) -> None:
    assert {name: record.status for name, record in cpu_records.items()} == {
        "torch_math": Status.PASSED,
        "torch_flash": Status.PASSED,
        "torch_cudnn": Status.UNSUPPORTED,
        "torch_math_compile_d": Status.UNSUPPORTED,
    }


@pytest.mark.parametrize("name", ["torch_math", "torch_flash"])
def test_a_passed_record_holds_samples_of_both_regimes_from_three_processes(
    cpu_records: dict[str, Record], name: str
) -> None:
    record = cpu_records[name]
    for timing, regime in ((record.timing, "sustained"), (record.burst, "burst")):
        assert timing is not None
        assert (timing.regime, timing.processes) == (regime, 3)
        assert all(len(part) >= 2 for part in timing.by_process)


def test_a_cpu_has_no_energy_and_says_nothing_of_clocks_that_it_cannot_know(cpu_records: dict[str, Record]) -> None:
    record = cpu_records["torch_math"]
    assert (record.energy_mj, record.energy_ci95_mj, record.launch_ms) == (None, None, None)
    assert not any("unknown" in mark for mark in record.marks)


def test_every_sample_of_a_cell_is_kept_as_json(cpu_cell: tuple[dict[str, Record], Observations]) -> None:
    kept = json.loads(to_samples(cpu_cell[1]))
    assert 0 < kept["busy_s"] <= kept["measuring_s"]
    record = cpu_cell[0]["torch_math"]
    assert record.burst is not None
    series = [s for s in kept["series"] if (s["variant"], s["regime"]) == ("torch_math", "burst")]
    assert [s["process"] for s in series] == [0, 1, 2]
    assert tuple(sample for s in series for sample in s["samples_ms"]) == record.burst.samples_ms
    blocks = [s for s in kept["series"] if (s["variant"], s["regime"]) == ("torch_flash", "sustained")]
    assert [s["process"] for s in blocks] == [0, 1, 2]  # before the other one


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
    found, observed = measured(monkeypatch, tmp_path, GPU, ["torch_flash", "torch_math"])
    assert to_sentinel(observed) is None
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
