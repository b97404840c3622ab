"""What a measuring cell does where the request or the machine is not as it must be: one sentence, or a status."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, GPU, REPOSITORY, clean, executable, fake_uv, without_uv
from sample_records import make_record
from sample_turns import timed

from fluxbench import variants
from fluxbench.bench import measuring as bench
from fluxbench.bench.observations import Observations
from fluxbench.core import progress
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.environments import cell
from fluxbench.environments import prepare as environments
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, Sentinel, Status

PACKAGE = Path(bench.__file__).parent

HEADER = """\
# /// script
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# ///
"""


def run_cell(folder: Path, body: str, header: str = HEADER, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a cell's script as uvnote does, in an empty folder."""
    script = folder / "cells" / "sdpa.py"
    script.parent.mkdir()
    script.write_text(f"{header}from fluxbench import bench\n\n{body}\n", encoding="utf-8")
    (folder / "empty").mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLUXBENCH_", "UV", "PIP_"))}
    path = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=folder / "empty",
        env={**inherited, "PYTHONPATH": path, "FLUXBENCH_CACHE": str(folder / "cache"), **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("body", "header", "variables", "sentence"),
    [
        (
            'bench.measure("torch_mat")',
            HEADER,
            {},
            "fluxbench: variant must be a registered name, got 'torch_mat'; did you mean 'torch_math'?",
        ),
        (
            "bench.measure()",
            HEADER,
            {},
            "fluxbench: a measuring cell must name at least one variant, got none",
        ),
        (
            'bench.measure("torch_math")',
            HEADER,
            {"FLUXBENCH_WORKLOADS": "flux1-1024"},
            "fluxbench: workload must be a known name, got 'flux1-1024'; did you mean 'flux1-1024px'?",
        ),
        (
            'bench.measure("torch_math")',
            "",
            {},
            "fluxbench: cell 'sdpa' must have a [tool.fluxbench] table in its PEP 723 header, got none",
        ),
        (
            'bench.measure("torch_math")',
            HEADER,
            {"FLUXBENCH_CELL_LIMIT_S": "20 minutes"},
            "fluxbench: FLUXBENCH_CELL_LIMIT_S must be a whole number of seconds, got '20 minutes'",
        ),
        (
            'bench.measure("torch_math")',
            HEADER,
            {"FLUXBENCH_WHEELS": "/missing/wheels"},
            "fluxbench: FLUXBENCH_WHEELS must be a folder of wheels, got '/missing/wheels'",
        ),
    ],
)
def test_a_request_that_cannot_be_met_ends_the_cell_with_one_sentence(
    tmp_path: Path, body: str, header: str, variables: dict[str, str], sentence: str
) -> None:
    done = run_cell(tmp_path, body, header, **variables)
    assert (done.returncode, done.stderr.strip()) == (1, sentence)
    assert list((tmp_path / "empty").iterdir()) == []


# In this process.

THIS = cell.parse(HEADER, "sdpa")


def measured(folder: Path, *names: str, device: hardware.Device = CPU, everything: bool = False) -> list[Record]:
    settings = Settings(
        root=REPOSITORY, cache=folder / "cache", workloads=("flux1-512px-t128", "flux1-512px-t512"), all=everything
    )
    observed = Observations()
    found = bench.measure_cell(THIS, list(names), device, settings, time.monotonic() + 60, observed)
    assert (observed.turns, observed.sentinel) == ([], None)  # no worker of these tests comes so far
    return found


def test_without_uv_every_variant_is_unavailable_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_uv(monkeypatch, tmp_path)
    found = measured(tmp_path, "torch_math", "torch_flash")
    assert {record.status for record in found} == {Status.UNAVAILABLE}
    assert {record.reason for record in found} == {
        "uv must be on PATH to build the measured environment, got none; run `make setup`"
    }


def test_every_variant_has_a_record_for_every_workload_in_the_order_of_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_uv(monkeypatch, tmp_path)
    found = measured(tmp_path, "torch_math", "torch_cudnn")
    assert [(record.variant, record.workload.text_tokens) for record in found] == [
        ("torch_math", 128),
        ("torch_math", 512),
        ("torch_cudnn", 128),
        ("torch_cudnn", 512),
    ]


def test_a_network_that_is_down_makes_variants_unavailable_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean(monkeypatch)
    fake_uv(tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE_UV_FAILS_AT_PIP", "error: dns error")
    [record, _] = measured(tmp_path, "torch_math")
    assert record.status is Status.UNAVAILABLE
    assert str(record.reason).endswith("check the network, or name a folder of wheels in FLUXBENCH_WHEELS")


def test_what_no_device_like_this_can_run_is_unsupported_without_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> environments.Environment:
        raise AssertionError("no environment is needed")

    monkeypatch.setattr(environments, "prepare", refuse)
    assert {record.status for record in measured(tmp_path, "torch_cudnn", "triton_flash")} == {Status.UNSUPPORTED}


def test_on_a_cpu_no_library_besides_torch_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> environments.Environment:
        raise AssertionError("no environment is needed")

    monkeypatch.setattr(environments, "prepare", refuse)
    names = [name for each in variants.REGISTRY if set(each.packages) - {"torch", "triton"} for name in each.names]
    assert names
    assert {record.status for record in measured(tmp_path, *names)} == {Status.UNSUPPORTED}


def test_a_gpu_that_is_too_old_is_unsupported_and_says_what_is_needed(tmp_path: Path) -> None:
    old = hardware.Device(kind="cuda", name="NVIDIA Old", compute_capability=(7, 5))
    [record, _] = measured(tmp_path, "torch_flash", device=old)
    assert (record.status, record.reason) == (
        Status.UNSUPPORTED,
        "needs compute capability 8.0 or newer; NVIDIA Old has 7.5",
    )


@pytest.mark.parametrize("kind", ["rocm", "xpu", "mps"])
def test_a_device_of_another_vendor_is_named_and_never_measured_as_a_cpu(tmp_path: Path, kind: str) -> None:
    other = hardware.Device(kind=kind, name="another device")
    [record, _] = measured(tmp_path, "torch_math", device=other)
    assert record.status is Status.UNSUPPORTED
    assert "another device" in str(record.reason)


def test_a_variant_that_is_left_out_says_how_to_measure_it(tmp_path: Path) -> None:
    [record, _] = measured(tmp_path, "flex_compile_d")
    assert (record.status, record.reason) == (
        Status.UNSUPPORTED,
        "left out of the page of target 'cpu' for its time; FLUXBENCH_ALL=1 measures it",
    )


def test_where_everything_is_asked_for_nothing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_uv(monkeypatch, tmp_path)
    [record, _] = measured(tmp_path, "flex_compile_d", everything=True)
    assert record.status is Status.UNAVAILABLE


def test_nothing_is_left_of_a_run_but_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "prepare", lambda *_: environments.Environment(python="/bin/false"))
    assert {record.status for record in measured(tmp_path, "torch_math")} == {Status.CRASHED}
    assert list((tmp_path / "cache" / "runs").iterdir()) == []


def test_whoever_waits_is_told_how_many_steps_there_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    monkeypatch.setattr(environments, "prepare", lambda *_: environments.Environment(python="/bin/false"))
    measured(tmp_path, "torch_math", "torch_flash", "torch_cudnn")
    # Two variants that a CPU can run, at two workloads, in three processes.
    assert json.loads(listened.read_text(encoding="utf-8").splitlines()[0]) == {"steps": 2 * 2 * 3}


def test_where_nothing_is_to_be_measured_no_step_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    measured(tmp_path, "torch_cudnn")
    assert progress.read(listened) == progress.Progress(share=None, step="")


# The whole cell.


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which a cell runs that measures nothing itself."""
    monkeypatch.chdir(tmp_path)
    clean(monkeypatch)
    monkeypatch.setattr(cell, "current", lambda: THIS)
    monkeypatch.setattr(hardware, "detect", lambda: CPU)
    monkeypatch.setattr(bench, "measure_cell", lambda *_: [make_record("torch_flash"), make_record("torch_math")])
    return tmp_path


def test_a_cell_writes_its_records_and_prints_its_times(settled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.measure("torch_flash", "torch_math")
    assert [record.variant for record in records.read(settled / "sdpa.jsonl")] == ["torch_flash", "torch_math"]
    assert "torch_math" in capsys.readouterr().out


SEEN = (
    {"event": "sentinel", "description": "made up"},
    *(
        timed("torch_flash", process, burst_ms=(1.0,) * len(beside), sentinel_ms=beside)
        for process, beside in enumerate([(1.0, 1.1), (1.2,)])
    ),
)


def measuring(*events: dict[str, Any], others: tuple[str, ...] = ()) -> Callable[..., list[Record]]:
    """Return what takes the place of `measure_cell`: it hears these events of workers."""

    def measure_cell(*arguments: Any) -> list[Record]:
        observed = arguments[-1]
        for event in events:
            observed.add(event)
        observed.others += others
        return [make_record("torch_flash")]

    return measure_cell


def test_all_samples_and_the_times_of_the_sentinel_are_written_beside_the_records(
    settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "measure_cell", measuring(*SEEN))
    bench.measure("torch_flash")
    assert {path.name for path in settled.iterdir()} == {"sdpa.jsonl", "sdpa.samples.json", "sdpa.sentinel.json"}
    found = records.read_sentinel(settled / "sdpa.sentinel.json")
    assert found == Sentinel(kernel="made up", samples_ms={"torch_flash": ((1.0, 1.1), (1.2,))})
    kept = json.loads((settled / "sdpa.samples.json").read_text(encoding="utf-8"))
    assert [(each["variant"], each["regime"]) for each in kept["series"]] == 2 * [
        ("torch_flash", "burst"),
        ("torch_flash", "sustained"),
        ("sentinel", "burst"),
    ]


def test_where_the_device_has_no_sentinel_no_file_says_so(settled: Path) -> None:
    bench.measure("torch_flash")
    assert {path.name for path in settled.iterdir()} == {"sdpa.jsonl", "sdpa.samples.json"}


@pytest.mark.parametrize(
    ("limit", "seconds"), [("20", 15.0), ("100", 75.0), ("120", 90.0), ("1200", 1170.0), ("", 270.0), (None, 270.0)]
)
def test_measuring_stops_in_time_to_say_what_is_not_measured(
    settled: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, seconds: float
) -> None:
    deadlines: list[float] = []

    def remember(*arguments: Any) -> list[Record]:
        deadlines.append(arguments[-2])
        return [make_record("torch_flash")]

    monkeypatch.setattr(bench, "measure_cell", remember)
    if limit is not None:
        monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", limit)
    before = time.monotonic()
    bench.measure("torch_flash")
    [deadline] = deadlines
    assert before + seconds <= deadline <= time.monotonic() + seconds


def test_rates_that_are_not_measured_in_time_say_so(settled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = executable(settled / "python", "import time; time.sleep(600)")
    monkeypatch.setattr(environments, "prepare", lambda *_: environments.Environment(python=str(hangs)))
    monkeypatch.setenv("FLUXBENCH_CACHE", str(settled / "cache"))
    monkeypatch.setenv("FLUXBENCH_CELL_LIMIT_S", "1")
    bench.ceilings()
    found = json.loads((settled / "ceilings.json").read_text(encoding="utf-8"))
    assert found["reason"] == "the cell's time was up; the process was ended"


def test_another_process_on_the_device_is_named(
    settled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "measure_cell", measuring(others=("trainer (pid 7)",)))
    bench.measure("torch_flash")
    assert "Another process was using the device: trainer (pid 7)." in capsys.readouterr().out


def test_another_process_is_looked_for_before_and_after_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([("trainer (pid 7)",), ("trainer (pid 7)", "game (pid 9)")])
    monkeypatch.setattr(hardware, "other_processes", lambda device: next(seen))
    monkeypatch.setattr(environments, "prepare", lambda *_: environments.Environment(python="/bin/false"))
    observed = Observations()
    settings = Settings(root=REPOSITORY, cache=tmp_path / "cache", workloads=("flux1-512px-t128",))
    bench.measure_cell(THIS, ["torch_math"], CPU, settings, time.monotonic() + 60, observed)
    assert observed.others == ["trainer (pid 7)", "game (pid 9)"]


def test_the_workers_of_all_groups_of_variants_wait_before_the_first_group_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []

    class Waits:
        def __init__(self, folder: Path, environment: environments.Environment, *_: object) -> None:
            self.backend = environment.variables.get("NVTE_FUSED_ATTN")
            assert folder.is_dir()
            done.append(("waits", self.backend))

        def close(self) -> None:
            done.append(("ended", self.backend))

    def run(folder: Path, environment: environments.Environment, *rest: Any, **_: object) -> None:
        assert folder.is_dir()
        assert rest[-1].backend == environment.variables.get("NVTE_FUSED_ATTN")
        done.append(("measured", rest[-1].backend))

    monkeypatch.setattr(bench, "Waiting", Waits)
    monkeypatch.setattr(bench, "run_variants", run)
    monkeypatch.setattr(environments, "prepare", lambda *_: environments.Environment(python="/bin/false"))
    settings = Settings(root=REPOSITORY, cache=tmp_path / "cache", workloads=("flux1-512px-t128",))
    deadline = time.monotonic() + 60
    bench.measure_cell(THIS, ["te_fused", "te_flash"], GPU, settings, deadline, Observations())
    assert done[:2] == [("waits", "1"), ("waits", "0")]
    assert done[2:6] == [("measured", "1"), ("ended", "1"), ("measured", "0"), ("ended", "0")]


@pytest.mark.parametrize("sustained", [True, False])
def test_whoever_asks_for_burst_alone_has_workers_asked_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sustained: bool
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(bench, "run_variants", lambda *_, **keywords: asked.append(keywords["sustained"]))
    monkeypatch.setattr(environments, "prepare", lambda *_: environments.Environment(python="/bin/false"))
    settings = Settings(root=REPOSITORY, cache=tmp_path / "cache", workloads=("flux1-512px-t128",))
    deadline = time.monotonic() + 60
    bench.measure_cell(THIS, ["torch_math"], CPU, settings, deadline, Observations(), sustained=sustained)
    assert asked == [sustained]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_ends_the_cell_with_one_sentence(
    settled: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(number, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit) as caught:
        bench.measure("torch_flash")
    assert caught.value.code == "fluxbench: the disk is full; free some space and run it again"


def test_an_error_that_nobody_foresaw_keeps_its_traceback(settled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(bench, "measure_cell", broken)
    with pytest.raises(OSError, match="Input/output error"):
        bench.measure("torch_flash")


def test_rates_are_printed_beside_the_data_sheet_and_with_what_an_event_costs() -> None:
    found = {"matmul_tflops": 700.0, "matmul_size": 8192, "copy_gb_s": 4000.0, "event_us": 1.634}
    said = bench._against_peak(found, None).splitlines()
    assert said[1].split() == [
        "bfloat16",
        "matrix",
        "product,",
        "n",
        "=",
        "8192",
        "700.0",
        "TFLOP/s",
        "peak",
        "unknown",
    ]
    assert said[3].split() == ["between", "two", "events,", "nothing", "in", "it", "1.63", "µs"]


def test_rates_that_cannot_be_measured_say_why_and_leave_the_page_whole(
    settled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(*arguments: object) -> environments.Environment:
        raise SetupError("uv must be on PATH; install uv")

    monkeypatch.setattr(environments, "prepare", unavailable)
    bench.ceilings()
    found = json.loads((settled / "ceilings.json").read_text(encoding="utf-8"))
    assert found["reason"] == "uv must be on PATH; install uv"
    assert found["fingerprint"]["device"] == CPU.name
    assert "code.ceilings.py" in found["fingerprint"]
    assert "could not be measured: uv must be on PATH; install uv." in capsys.readouterr().out
