"""What a showing cell prints and writes, from sample records in the folders that uvnote names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import CPU, GPU, clean
from sample_records import make_record

from fluxbench import show, variants
from fluxbench.device import detection as hardware
from fluxbench.operations.workloads import named
from fluxbench.records import schema as records
from fluxbench.records.schema import Status

DRAWN = [
    *(show.answer, show.ranking, show.latency, show.throughput, show.correctness, show.state, show.kernels),
    *(show.capabilities, show.frontier, show.energy, show.parts),
]


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cells' artifacts, an empty folder to run in, and uvnote's variables."""
    clean(monkeypatch)
    for name in ("hardware", "sdpa", "here"):
        (tmp_path / name).mkdir()
    facts = {"device": dataclasses.asdict(GPU), "peak": None}
    (tmp_path / "hardware" / "device.json").write_text(json.dumps(facts), encoding="utf-8")
    found = [
        make_record(variant, workload, median_ms)
        for variant, median_ms in (("torch_flash", 0.8), ("torch_cudnn", 0.4))
        for workload in named("flux1-1024px")
    ]
    failed = [make_record("flex", workload, status=Status.CRASHED) for workload in named("flux1-1024px")]
    records.write(tmp_path / "sdpa" / "sdpa.jsonl", [*found, *failed])
    monkeypatch.setenv("UVNOTE_INPUTS", "UVNOTE_INPUT_HARDWARE,UVNOTE_INPUT_SDPA")
    monkeypatch.setenv("UVNOTE_INPUT_HARDWARE", str(tmp_path / "hardware"))
    monkeypatch.setenv("UVNOTE_INPUT_SDPA", str(tmp_path / "sdpa"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def written(inputs: Path) -> set[str]:
    return {path.name for path in (inputs / "here").iterdir() if path.stat().st_size}


def test_the_answer_names_the_device_and_the_fastest(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show.answer()
    first = capsys.readouterr().out.splitlines()[0]
    assert "NVIDIA Made Up" in first
    assert "torch_cudnn" in first


def test_below_the_answer_stands_on_what_it_holds(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show.answer()
    rows = capsys.readouterr().out.split("\n\n")[1].splitlines()
    assert [row.split()[0] for row in rows] == ["device", "driver", "measured", "with"]
    assert rows[1] == "driver       580.65.06, CUDA 13.0"
    assert rows[2] == "measured     2026-01-31T12:00:00Z".replace("T", " ")


@pytest.mark.parametrize(
    ("fingerprint", "said"),
    [
        ({"way": "ambient"}, "as found on the machine; the pins in the cells did not apply to what it had"),
        ({"way": "uv", "lock": "torch-2.13.0.txt 0123456789ab"}, "from the lock torch-2.13.0.txt"),
    ],
)
def test_below_the_answer_stands_where_the_packages_came_from(
    inputs: Path, capsys: pytest.CaptureFixture[str], fingerprint: dict[str, str], said: str
) -> None:
    made = dataclasses.replace(make_record(), fingerprint=fingerprint)
    records.write(inputs / "sdpa" / "sdpa.jsonl", [made])
    show.answer()
    assert f"\nenvironment  {said}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shown", "files"),
    [
        (show.latency, {"latency.svg", "latency.csv"}),
        (show.throughput, {"throughput.svg", "throughput.csv"}),
        (show.frontier, {"frontier.svg", "frontier.csv"}),
        (show.energy, {"energy.svg", "energy.csv"}),
        (show.parts, {"parts.svg", "parts.csv"}),
        (show.ranking, {"ranking.svg", "ranking.csv"}),
        (show.correctness, {"correctness.csv"}),
        (show.state, set()),
        (show.kernels, {"kernels.csv"}),
        (show.capabilities, {"capabilities.csv"}),
        (show.answer, set()),
    ],
)
def test_a_showing_cell_writes_its_files_into_an_empty_folder(
    inputs: Path, shown: Callable[[], None], files: set[str]
) -> None:
    shown()
    assert written(inputs) == files


@pytest.mark.parametrize("shown", DRAWN)
def test_a_page_is_drawn_where_nothing_passed(inputs: Path, shown: Callable[[], None]) -> None:
    failed = [make_record("flex", workload, status=Status.UNSUPPORTED) for workload in named("flux1-1024px")]
    records.write(inputs / "sdpa" / "sdpa.jsonl", failed)
    shown()


@pytest.mark.parametrize("shown", DRAWN)
def test_damaged_records_end_the_cell_with_one_sentence(inputs: Path, shown: Callable[[], None]) -> None:
    path = inputs / "sdpa" / "sdpa.jsonl"
    path.write_text(path.read_text(encoding="utf-8")[:-50], encoding="utf-8")
    with pytest.raises(SystemExit) as caught:
        shown()
    said = str(caught.value.code)
    assert said.startswith("fluxbench: sdpa.jsonl, line 18: a record must be one JSON object a line")
    assert said.endswith("; run the cell that wrote it again")
    assert "\n" not in said


@pytest.mark.parametrize("shown", [show.answer, show.ranking, show.throughput])
def test_a_cell_that_does_not_need_the_hardware_is_told_to(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, shown: Callable[[], None]
) -> None:
    monkeypatch.setenv("UVNOTE_INPUTS", "UVNOTE_INPUT_SDPA")
    with pytest.raises(SystemExit, match=r"must have needs=hardware, for device.json"):
        shown()


def test_the_state_is_printed_with_its_marks(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marked = dataclasses.replace(make_record("torch_flash"), marks=("too hot",))
    records.write(inputs / "sdpa" / "sdpa.jsonl", [marked])
    show.state()
    assert "too hot" in capsys.readouterr().out


def test_what_was_tried_is_read_from_the_needed_cells(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tried = {"schema": 1, "variants": {"flex": {"causal": "yes", "gqa": "no: not today", "head_dim 64": "yes"}}}
    (inputs / "sdpa" / "sdpa.capabilities.json").write_text(json.dumps(tried), encoding="utf-8")
    show.capabilities()
    text = capsys.readouterr().out
    assert {line.split()[0] for line in text.splitlines() if line.split()[1:2] == ["bf16"]} == {
        "torch_flash",
        "torch_cudnn",
    }
    (flex,) = (line.split("  ") for line in text.splitlines() if line.startswith("flex "))
    assert [cell.strip() for cell in flex if cell.strip()][1:5] == [
        *("bf16* fp16* fp32*", "yes", "FAILS", "64 96* 128* 192* 256*"),
    ]
    assert "not today" in text


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"variants": 3}', '{"variants": {"flex": 1}}'])
def test_damaged_capabilities_end_the_cell_with_one_sentence(inputs: Path, text: str) -> None:
    (inputs / "sdpa" / "sdpa.capabilities.json").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^fluxbench: sdpa.capabilities.json is damaged; run the cell"):
        show.capabilities()


def test_notes_of_the_registry_stand_with_the_kernels_and_the_answer(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = [dataclasses.replace(variant, note=f"a note on {variant.name}") for variant in variants.REGISTRY]
    monkeypatch.setattr(variants, "REGISTRY", tuple(noted))
    show.kernels()
    assert "torch_cudnn: a note on torch_cudnn" in capsys.readouterr().out
    show.answer()
    assert "Of torch_cudnn: a note on torch_cudnn." in capsys.readouterr().out


def test_samples_beside_the_records_are_left_alone(inputs: Path) -> None:
    (inputs / "sdpa" / "sdpa.samples.json").write_text('{"variant": "torch_flash"}\n', encoding="utf-8")
    assert {record.variant for record in show.measured()} == {"torch_flash", "torch_cudnn", "flex"}


def test_every_record_of_every_needed_cell_is_shown(inputs: Path) -> None:
    assert {record.variant for record in show.measured()} == {"torch_flash", "torch_cudnn", "flex"}


def test_rates_that_could_not_be_measured_leave_the_figure_whole(inputs: Path) -> None:
    marks = {"reason": "torch cannot use this device", "fingerprint": {}}
    (inputs / "hardware" / "ceilings.json").write_text(json.dumps(marks), encoding="utf-8")
    show.throughput()
    assert written(inputs) == {"throughput.svg", "throughput.csv"}


def test_the_device_is_described_and_its_facts_are_written(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hardware, "detect", lambda: CPU)
    show.device()
    facts = json.loads((inputs / "here" / "device.json").read_text(encoding="utf-8"))
    assert (facts["device"]["name"], facts["peak"]) == ("made-up CPU", None)
    assert "made-up CPU" in capsys.readouterr().out


def test_a_known_device_comes_with_its_peak_and_the_source(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    h200 = dataclasses.replace(GPU, name="NVIDIA H200", memory_bytes=141 * 2**30)
    monkeypatch.setattr(hardware, "detect", lambda: h200)
    show.device()
    facts = json.loads((inputs / "here" / "device.json").read_text(encoding="utf-8"))
    assert f"{facts['peak']['bf16_tflops']:g} TFLOP/s bfloat16" in capsys.readouterr().out
