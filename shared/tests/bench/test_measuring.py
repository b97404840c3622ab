"""A whole measuring cell: one sentence where the request is not right, a status where the machine is not."""

from __future__ import annotations

import dataclasses
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_workers import HEADER, in_cell, interpreter, log_of, when
from fakes import CPU, GPU, REPOSITORY, clean, tokens, without_uv

from fluxbench import bench, studies
from fluxbench.bench import measuring
from fluxbench.bench.collected import Collected
from fluxbench.core import progress
from fluxbench.core.settings import Settings
from fluxbench.device import detect, nvidia
from fluxbench.device.model import Device
from fluxbench.environments import cell
from fluxbench.operations.workload import Workload
from fluxbench.records import files
from fluxbench.records.schema import Record
from fluxbench.records.status import Status
from fluxbench.studies.study import Study
from fluxbench.worker.request import Effort

WORKLOADS = ("flux1-512px-t128", "flux1-512px-t512")


def header(study: str, variant: str) -> str:
    return HEADER.format("flux", f'study = "{study}"\n# variants = ["torch_flash", "{variant}"]')


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)
    monkeypatch.setattr(detect, "detect", lambda: CPU)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The empty folder that a cell runs in; what it measures by is in the folder above."""
    monkeypatch.syspath_prepend(tmp_path)
    return in_cell(monkeypatch, tmp_path)


STUDY = """
from fluxbench.operations import workload

shape = {"seq_len_k": 9, "seq_len_q": 2, "heads": 1, "kv_heads": 1, "head_dim_qk": 8, "head_dim_v": 8}
workload("decode", "one", shape, group="one", x=1, x_unit="tokens")
"""


def test_a_wrong_request_ends_the_cell_with_one_sentence(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here.parent / "made_up.py").write_text(STUDY, encoding="utf-8")
    shape = "decode must have one query and no mask, got seq_len_q 2 and causal False"
    for variant, workload, study, said in (
        ("torch_mat", "", "flux", "variant must be a registered name, got 'torch_mat'; did you mean 'torch_math'?"),
        ("torch_math", "wan-480", "flux", "workload must be a known name, got 'wan-480'; did you mean 'wan-480p'?"),
        ("torch_math", "", "made_up:ONE", f"study 'made_up:ONE' cannot be loaded: workload 'one': {shape}"),
    ):
        (here.parent / "sdpa.py").write_text(header(study=study, variant=variant), encoding="utf-8")
        monkeypatch.setenv("FLUXBENCH_WORKLOADS", workload)
        with pytest.raises(SystemExit) as caught:
            bench.measure()
        assert str(caught.value.code).startswith(f"fluxbench: {said}")
    assert list(here.iterdir()) == []


def study(monkeypatch: pytest.MonkeyPatch, *workloads: Workload, **fields: Any) -> str:
    """Return the name of a study of these workloads, in a module that is there as long as the test."""
    module = type(sys)("a_study")
    vars(module)["STUDY"] = Study(
        name="flux", references=("torch_flash", "torch_efficient", "torch_math"), workloads=workloads, **fields
    )
    monkeypatch.setitem(sys.modules, "a_study", module)
    return "a_study:STUDY"


def records(
    folder: Path, *names: str, device: Device = CPU, study: str = "flux", deadline_s: float = 600.0, **settings: Any
) -> list[Record]:
    """Return the records of a cell in this process."""
    chosen = {"workloads": () if ":" in study else WORKLOADS, **settings}
    this = cell.parse(header(study=study, variant="torch_math"), "sdpa")
    here = Settings(root=REPOSITORY, cache=folder / "cache", **chosen)
    return measuring.measure(this, names, device, here, time.monotonic() + deadline_s, Collected())


def test_a_cell_that_begins_when_the_build_s_time_is_up_makes_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_uv(monkeypatch, tmp_path)  # its rows would be UNAVAILABLE
    made = records(tmp_path, "torch_math", "torch_cudnn", until=time.monotonic())
    reasons = {
        "torch_math": "the build's time was up before it was measured; build again, with a larger LIMIT if that repeats"
    }
    assert {record.variant: record.reason for record in made if record.status is Status.TIMEOUT} == reasons
    assert {record.status for record in made if record.variant == "torch_cudnn"} == {Status.UNSUPPORTED}


def test_what_cannot_run_has_records_that_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_uv(monkeypatch, tmp_path)
    made = records(tmp_path, "torch_math", "torch_cudnn", "flex_compile_d", "torch_math")
    assert [(record.variant, record.workload.x, record.status) for record in made] == [
        (name, x, status)
        for name, status in (
            ("torch_math", Status.UNAVAILABLE),
            ("torch_cudnn", Status.UNSUPPORTED),
            ("flex_compile_d", Status.UNSUPPORTED),
        )
        for x in (128, 512)
    ]
    assert [record.reason for record in made[::2]] == [
        "uv must be on PATH to build the measured environment, got none; run `make setup`",
        "needs an NVIDIA GPU of compute capability 8.0 or newer; this is a CPU",
        "target 'cpu' leaves it out, environment/targets.toml says why; FLUXBENCH_ALL=1 measures it",
    ]
    assert records(tmp_path, "flex_compile_d", all=True)[0].status is Status.UNAVAILABLE


def test_a_cell_writes_four_files_and_leaves_nothing_else(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here.parent / "sdpa.py").write_text(header(study="flux", variant="torch_math"), encoding="utf-8")
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(here.parent / "python")))
    monkeypatch.setenv("FLUXBENCH_WORKLOADS", ",".join(WORKLOADS))
    bench.measure()
    names = {"sdpa.jsonl", "sdpa.samples.json.gz", "sdpa.control.json", "sdpa.capabilities.json"}
    assert {path.name for path in here.iterdir()} == names
    made = files.read(here / "sdpa.jsonl")
    assert [(record.variant, record.workload.name) for record in made] == [
        (name, workload) for name in ("torch_flash", "torch_math") for workload in WORKLOADS
    ]
    assert {record.status for record in made} == {Status.PASSED}
    assert {record.timing and record.timing.samples_ms for record in made} == {((1.0, 1.1),) * 3}
    kept = json.loads(gzip.decompress((here / "sdpa.samples.json.gz").read_bytes()))
    assert kept["references_failed"] == []
    assert len(kept["series"]) == 3 * 2 * (2 + 1)  # in each process and beside each variant, with the control kernel
    control = files.read_control(here, "sdpa")
    assert control is not None
    assert (control.kernel, control.samples_ms["torch_math"]) == ("made up", ((0.5, 0.6),) * 3)
    probed = json.loads((here / "sdpa.capabilities.json").read_text(encoding="utf-8"))
    assert (probed["schema"], probed["variants"]["torch_math"]["causal"]["status"]) == (2, "yes")
    assert list((here.parent / "cache" / "runs").iterdir()) == []


def test_a_cell_says_why_a_reference_failed_that_it_has_no_record_of(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here.parent / "sdpa.py").write_text(HEADER.format("flux", 'study = "flux"\n# variants = ["torch_math"]'))
    fails = when("step == 'check' and variant != 'torch_math'", "return 'fails'")
    monkeypatch.setenv("FLUXBENCH_PYTHON", str(interpreter(here.parent / "python", fails)))
    monkeypatch.setenv("FLUXBENCH_WORKLOADS", ",".join(WORKLOADS))
    bench.measure()
    kept = json.loads(gzip.decompress((here / "sdpa.samples.json.gz").read_bytes()))
    failed = {"variant": "torch_flash", "status": "INCORRECT", "reason": "it is wrong"}
    assert kept["references_failed"] == [{**failed, "workload": workload} for workload in WORKLOADS]
    said = f"The reference torch_flash failed at {', '.join(WORKLOADS)}: INCORRECT, it is wrong.\n"
    assert capsys.readouterr().out == said


def test_a_gpu_measures_some_operations_in_burst_alone() -> None:
    backward = studies.find("backward")
    assert backward.sustains("attention_training", GPU)
    assert not backward.sustains("attention_backward", GPU)
    assert backward.sustains("attention_backward", CPU)
    assert not studies.find("layers").sustains("layer", CPU)


@pytest.mark.parametrize(("measures", "sustained"), [(("burst", "sustained"), True), (("burst",), False)])
def test_workers_are_asked_for_the_regimes_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measures: tuple[str, ...], sustained: bool
) -> None:
    log = tmp_path / "log.jsonl"
    python = str(interpreter(tmp_path / "python", log=log))
    name = study(monkeypatch, tokens("a", 8), measures=measures)
    records(tmp_path, "torch_math", study=name, python=python)
    asked = [line["request"] for line in log_of(log)]
    assert [request["sustained"] for request in asked] == [sustained] * 3
    assert [request["probe"] for request in asked] == [[], ["torch_math"] * sustained, []]
    assert {request["device"] for request in asked} == {"cpu"}
    assert asked[0]["references"] == ["torch_flash", "torch_math"]  # torch_efficient does not run on a CPU


TWO = ("torch_math", "torch_native")


@pytest.mark.parametrize(("device", "names", "processes"), [(GPU, TWO, 2), (GPU, TWO[:1], 3), (CPU, TWO, 3)])
def test_long_calls_of_several_variants_on_a_gpu_are_measured_in_two_processes(
    device: Device, names: tuple[str, ...], processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.jsonl"
    python = str(interpreter(tmp_path / "python", log=log))
    name = study(monkeypatch, tokens("a", 8), effort=Effort(long=True, probes=False))
    made = records(tmp_path, *names, study=name, python=python, device=device, contents="of the build")
    asked = [line["request"] for line in log_of(log)]
    assert len(asked) == processes
    assert not any(each["probe"] for each in asked)
    [kept_in] = {each["contents"] for each in asked}
    assert kept_in == "of the build" if device is GPU else Path(kept_in).is_relative_to(tmp_path)
    assert [(record.status, record.timing and len(record.timing.samples_ms)) for record in made] == [
        (Status.PASSED, processes) for _ in names
    ]


def test_a_step_that_cannot_be_shared_is_a_row_and_the_others_are_measured(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    python = str(interpreter(tmp_path / "python", log=log))
    host = dataclasses.replace(GPU, count=3)
    names = tuple(f"wan-480p-{way}-of-3" for way in ("alone", "ulysses", "ring"))
    made = records(tmp_path, "torch_math", study="parallel", device=host, python=python, workloads=names)
    reasons = {record.workload.name: record.reason for record in made if record.status is Status.UNSUPPORTED}
    assert reasons == {names[1]: "heads must be a multiple of the ulysses degree, got 40 heads on 3 ranks"}
    asked = log_of(log)[0]["request"]
    assert ([each["name"] for each in asked["workloads"]], bool(asked["references"])) == ([names[0], names[2]], True)


def test_each_operation_has_processes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = tokens("decode", 64, "decode", seq_len_q=1, heads=4, kv_heads=2)
    log = tmp_path / "log.jsonl"
    several = study(monkeypatch, tokens("a", 8), decode, tokens("b", 9))
    made = records(tmp_path, "torch_math", study=several, python=str(interpreter(tmp_path / "python", log=log)))
    asked = [[workload["name"] for workload in line["request"]["workloads"]] for line in log_of(log)]
    assert asked == [["a", "b"]] * 3 + [["decode"]] * 3
    assert [(record.workload.name, record.status) for record in made] == [
        (name, Status.PASSED) for name in ("a", "decode", "b")
    ]


def test_operations_that_share_references_share_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log.jsonl"
    of = {"training": "attention_training", "backward": "attention_backward"}
    some = [tokens(f"{name}-{length}", length, operation) for name, operation in of.items() for length in (8, 9)]
    several = study(monkeypatch, some[2], tokens("forward", 8), *some[:2], some[3])
    made = records(tmp_path, "torch_math", study=several, python=str(interpreter(tmp_path / "python", log=log)))
    asked = [[workload["name"] for workload in line["request"]["workloads"]] for line in log_of(log)]
    assert asked == [["training-8", "backward-8", "training-9", "backward-9"]] * 3 + [["forward"]] * 3
    assert {record.status for record in made} == {Status.PASSED}


def test_other_processes_are_looked_for_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listened = tmp_path / "progress.jsonl"
    monkeypatch.setenv("FLUXBENCH_PROGRESS", str(listened))
    records(tmp_path, "torch_cudnn")
    assert progress.read(listened) == progress.Progress(share=None, step="")  # nothing is measured
    seen = iter([("trainer (pid 7)",), ("trainer (pid 7)", "game (pid 9)")])
    monkeypatch.setattr(nvidia, "other_processes", lambda device: next(seen))
    made = records(tmp_path, "torch_math", "torch_flash", "torch_cudnn", python=str(interpreter(tmp_path / "python")))
    assert [flag.detail for flag in made[0].flags if flag.kind == "shared_device"] == ["trainer (pid 7); game (pid 9)"]
    # Two variants that a CPU can run, workloads, processes, of which the first counts double.
    assert log_of(listened)[0] == {"steps": 2 * 2 * (2 + 2)}
