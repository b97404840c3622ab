"""An operation in a file outside of the package: measured by real workers on the CPU, checked and recorded.

Its cell is run as uvnote runs one: a script in an empty folder, here with this interpreter as it is.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from clocks import small_cache
from fakes import REPOSITORY
from outside import row_norms
from workers import checks, failures, given, honest, timed, wrapped

from fluxbench.operations.protocol import Attention
from fluxbench.records import files
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.records.status import Status
from fluxbench.timing import control_kernel

TESTS = Path(__file__).parent
CELL = """\
# /// script
# [tool.fluxbench]
# notebook = "outside"
# study = "outside.row_norms:STUDY"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# variants = ["torch_flash", "torch_math", "torch_cudnn", "torch_math_compile_d"]
# ///
from fluxbench import bench

bench.measure()
"""
MEASURED = ("torch_flash", "torch_math")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cell of this operation that has run, in three real processes."""
    folder = tmp_path_factory.mktemp("cell")
    script, empty = folder / "norms.py", folder / "empty"
    script.write_text(CELL, encoding="utf-8")
    empty.mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLUXBENCH_", "UV", "PIP_"))}
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY / "shared" / "src", TESTS))),
        "FLUXBENCH_PYTHON": sys.executable,
        "FLUXBENCH_CACHE": str(folder / "cache"),
        "CUDA_VISIBLE_DEVICES": "",  # where the machine has a GPU
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(script)], cwd=empty, env={**inherited, **variables}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list((folder / "cache" / "runs").iterdir()) == []
    return empty


@pytest.fixture(scope="module")
def records(measured: Path) -> dict[tuple[str, int], Record]:
    """Its records, by variant and x."""
    return {(record.variant, record.workload.x): record for record in files.read(measured / "norms.jsonl")}


def test_every_variant_has_a_record_at_every_workload(records: dict[tuple[str, int], Record]) -> None:
    assert {key: record.status for key, record in records.items()} == {
        **{(name, x): Status.PASSED for name in MEASURED for x in (33, 96)},
        **{(name, x): Status.UNSUPPORTED for name in ("torch_cudnn", "torch_math_compile_d") for x in (33, 96)},
    }
    reasons = [str(records[name, 33].reason) for name in ("torch_cudnn", "torch_math_compile_d")]
    assert reasons == [
        "needs an NVIDIA GPU of compute capability 8.0 or newer; this is a CPU",
        "excluded from the page of target 'cpu' for its time; FLUXBENCH_ALL=1 measures it",
    ]


@pytest.mark.parametrize("name", MEASURED)
def test_it_is_timed_in_both_regimes_in_three_processes(records: dict[tuple[str, int], Record], name: str) -> None:
    for x in (33, 96):
        record = records[name, x]
        assert set(record.timings) == set(record.telemetry) == {BURST, SUSTAINED}
        for timing in record.timings.values():
            assert (timing.processes, timing.reference_variant) == (3, "torch_flash")
            assert all(len(part) >= 2 for part in timing.samples_ms)
            assert (timing.ratio == 1.0) == (name == "torch_flash")
        assert (record.energy_mj, record.launch_ms, record.peak_memory_bytes) == (None, None, None)


def test_it_is_checked_by_its_own_reference(records: dict[tuple[str, int], Record]) -> None:
    for name in MEASURED:
        record = records[name, 96]
        [(output, errors)] = record.errors.items()
        assert (output, list(errors.rel_l2_by_inputs)) == ("norms", ["normal"])
        assert 0 < (errors.rel_l2 or 0) <= errors.budget_rel_l2 < 0.01
        assert record.kernels != ()
        assert record.cupti is not None
    assert any("flash_attention" in kernel.name for kernel in records["torch_flash", 96].kernels)


def test_its_records_say_what_they_are_of_and_depend_on(records: dict[tuple[str, int], Record]) -> None:
    record = records["torch_math", 33]
    assert (record.notebook, record.cell, record.kernel) == ("outside", "norms", "torch_math")
    assert record.workload == row_norms.WORKLOADS[0]
    assert record.workload.operation == row_norms.OPERATION
    assert record.versions["torch"] == torch.__version__
    depends = record.fingerprint
    assert (depends["way"], depends["package.torch"], depends["workloads"], depends["regimes"]) == (
        "ambient", torch.__version__, "row-norms-33 row-norms-96", "burst sustained",
    )  # fmt: skip
    assert {"code.outside.row_norms", "code.timing", "code.variants/torch_flash.py"} <= depends.keys()
    assert files.parse(record.to_json()) == record


def test_every_sample_is_kept_and_the_ranked_ones_are_the_record_s(
    measured: Path, records: dict[tuple[str, int], Record]
) -> None:
    kept: dict[str, Any] = json.loads(gzip.decompress((measured / "norms.samples.json.gz").read_bytes()))
    assert 0 < kept["busy_s"] <= kept["measuring_s"]
    ranked: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    for series in kept["series"]:
        assert len(series["samples_ms"]) == len(series.get("ranked", series["samples_ms"]))
        if "workload" in series:
            chosen = [ms for ms, counts in zip(series["samples_ms"], series["ranked"], strict=True) if counts]
            key = (series["variant"], series["workload"], series["regime"])
            ranked.setdefault(key, []).append(tuple(chosen))
            assert len(chosen) < len(series["ranked"]) or series["regime"] == BURST  # without the warm-up
    for workload in row_norms.WORKLOADS:
        record = records["torch_math", workload.x]
        assert record.burst is not None
        assert record.sustained is not None
        assert tuple(ranked["torch_math", workload.name, BURST]) == record.burst.samples_ms
        for windows, timed_ms in zip(
            ranked["torch_math", workload.name, SUSTAINED], record.sustained.samples_ms, strict=True
        ):
            assert min(windows) <= fmean(timed_ms) <= max(windows)
            assert len(windows) >= len(timed_ms)


def test_the_control_kernel_is_timed_beside_each_variant_and_its_capabilities_are_tried(measured: Path) -> None:
    control = files.read_control(measured, "norms")
    assert control is not None
    assert control.kernel == control_kernel.load(torch.device("cpu")).description
    probed = json.loads((measured / "norms.capabilities.json").read_text(encoding="utf-8"))["variants"]
    assert set(probed) == set(MEASURED)
    assert set(control.samples_ms) == set(MEASURED)
    for parts in control.samples_ms.values():
        assert [len(part) >= 2 for part in parts] == [True] * 3


# Kernels in this process.


def keeps_its_first_output() -> Callable[[Attention, tuple[torch.Tensor, ...]], torch.Tensor]:
    kept: dict[int, torch.Tensor] = {}

    def attend(attention: Attention, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        address = inputs[0].data_ptr()
        if address not in kept:
            kept[address] = attention(*inputs)
        return kept[address].clone()

    return attend


@pytest.fixture
def in_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small_cache(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_folder")
def test_a_kernel_that_keeps_its_output_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given(monkeypatch, wrapped(keeps_its_first_output()), workloads=row_norms.WORKLOADS)
    assert [(name, status) for name, status, _ in failures(seen)] == [("made_up", "INCORRECT")] * 2
    reason = "right when checked, wrong when timed: norms: relative L2 error "
    assert all(words.startswith(reason) for _, _, words in failures(seen))
    assert timed(seen) == {"torch_math"}


@pytest.mark.usefixtures("in_folder")
def test_a_right_kernel_passes_and_is_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = given(monkeypatch, honest, workloads=row_norms.WORKLOADS)
    assert failures(seen) == []
    assert timed(seen) == {"made_up", "torch_math"}
    assert checks(seen)["made_up"].kernels != ()
