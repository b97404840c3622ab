"""An operation in a file outside of the package: measured by real workers on the CPU, checked and recorded.

Its cell is run as uvnote runs one: a script in an empty folder, here with this interpreter as it is.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fakes import REPOSITORY
from outside import row_norms

from fluxbench.analysis.verification import cell
from fluxbench.analysis.verification.verify import verify
from fluxbench.records import files
from fluxbench.records.line import parse
from fluxbench.records.schema import BURST, SUSTAINED, Record
from fluxbench.records.status import Status

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
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of a cell of this operation that has run in three real processes."""
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
    return empty / "norms.jsonl"


@pytest.fixture(scope="module")
def records(file: Path) -> dict[tuple[str, int], Record]:
    """These records by variant and x."""
    return {(record.variant, record.workload.x): record for record in files.read(file)}


def test_what_was_measured_follows_from_the_samples_beside_it(file: Path) -> None:
    of_cell = cell.read(file)
    assert of_cell.samples is not None
    assert of_cell.control is not None
    assert verify([of_cell]) == []


def test_every_variant_has_a_record_that_says_what_it_is_of(
    records: dict[tuple[str, int], Record],
) -> None:
    assert {key: record.status for key, record in records.items()} == {
        **{(name, x): Status.PASSED for name in MEASURED for x in (33, 1024)},
        **{(name, x): Status.UNSUPPORTED for name in ("torch_cudnn", "torch_math_compile_d") for x in (33, 1024)},
    }, {key: record.reason for key, record in records.items()}
    record = records["torch_math", 33]
    assert (record.notebook, record.cell, record.kernel) == ("outside", "norms", "torch_math")
    assert record.workload == row_norms.WORKLOADS[0]
    assert record.workload.operation == row_norms.OPERATION
    assert record.versions["torch"] == torch.__version__
    depends = record.fingerprint
    assert (depends["way"], depends["package.torch"], depends["workloads"], depends["regimes"]) == (
        "ambient", torch.__version__, "row-norms-33 row-norms-1024", "burst sustained",
    )  # fmt: skip
    assert {"code.outside.row_norms", "code.timing", "code.variants/torch_flash.py"} <= depends.keys()
    assert parse(record.to_json()) == record


def test_it_is_timed_in_three_processes_and_checked(records: dict[tuple[str, int], Record]) -> None:
    for name, x in itertools.product(MEASURED, (33, 1024)):
        record = records[name, x]
        assert set(record.timings) == set(record.telemetry) == {BURST, SUSTAINED}
        for timing in record.timings.values():
            assert (timing.processes, timing.reference_variant) == (3, "torch_math")
            assert all(len(part) >= 2 for part in timing.samples_ms)
            assert (timing.ratio == 1.0) == (name == "torch_math")
        assert (record.energy_mj, record.launch_ms, record.peak_memory_bytes) == (None, None, None)
        [(output, errors)] = record.errors.items()
        assert (output, list(errors.rel_l2_by_inputs)) == ("norms", ["normal"])
        assert 0 < (errors.rel_l2 or 0) <= errors.budget_rel_l2 < 0.01
        assert record.kernels != ()
        assert record.cupti is not None
    assert any("flash_attention" in kernel.name for kernel in records["torch_flash", 1024].kernels)
