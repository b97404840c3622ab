"""What the results cell gathers: everything that is there, a note for what is not, and the same again when read."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from certificates import as_json, made_up
from sample_records import CPU, H200, record, results

from fluxbench.bench.events import ProbeResult
from fluxbench.core.errors import SetupError
from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.records import files
from fluxbench.report import results as of_cells
from fluxbench.report.results import OUTPUTS, Results

OVER = "gradient of q: relative L2 error 4.99e-03 is over the budget 4.92e-03"
YES = ProbeResult(status="yes", reason=None, rel_l2=None, budget=None)


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """The folders of a device cell and of two measuring cells."""
    found = [tmp_path / name for name in ("device", "sdpa", "flex")]
    for folder in found:
        folder.mkdir()
    facts = {"device": dataclasses.asdict(H200), "peak": None}
    (found[0] / "device.json").write_text(json.dumps(facts), encoding="utf-8")
    files.write(found[1] / "sdpa.jsonl", [record(), record("torch_cudnn")])
    files.write(found[2] / "flex.jsonl", [record("flex")])
    return found


def probed(folder: Path, **variants: Any) -> Path:
    path = folder / "sdpa.capabilities.json"
    path.write_text(json.dumps({"schema": 1, "variants": variants}), encoding="utf-8")
    return path


def test_the_records_of_all_cells_are_gathered_in_the_order_of_the_cells(folders: list[Path]) -> None:
    gathered = of_cells.gather(folders)
    assert [each.variant for each in gathered.records] == ["torch_flash", "torch_cudnn", "flex"]
    assert (gathered.device, gathered.notebook, gathered.notes) == (H200, "flux", ())


def test_a_notebook_without_records_has_the_name_of_its_study(folders: list[Path]) -> None:
    assert of_cells.gather(folders[:1], study="decode").notebook == "decode"
    assert of_cells.gather(folders, study="decode").notebook == "flux"
    assert of_cells.gather(folders, study="decode").study == "decode"


def test_outcomes_are_typed_of_either_schema(folders: list[Path]) -> None:
    typed = {"status": "wrong", "reason": OVER, "rel_l2": 4.99e-3, "budget": 4.92e-3}
    outcomes = {"causal": "yes", "gqa": "no: not today: or ever", "varlen": typed, "backward": f"wrong: {OVER}"}
    probed(folders[1], flex=outcomes)
    wrong = ProbeResult(status="wrong", reason=OVER, rel_l2=4.99e-3, budget=4.92e-3)
    no = ProbeResult(status="no", reason="not today: or ever", rel_l2=None, budget=None)
    gathered = of_cells.gather(folders).capabilities
    assert gathered == {"flex": {"causal": YES, "gqa": no, "varlen": wrong, "backward": wrong}}


@pytest.mark.parametrize("name", ["rates.json", "ceilings.json"])
def test_the_devices_own_rates_are_gathered_of_either_schema(folders: list[Path], name: str) -> None:
    (folders[0] / name).write_text('{"matmul_tflops": 672.0}', encoding="utf-8")
    assert of_cells.gather(folders).rates == {"matmul_tflops": 672.0}


@pytest.mark.parametrize("name", ["trials.json", "trials.json.gz"])
def test_whole_trials_are_gathered_as_measured_and_as_published(folders: list[Path], name: str) -> None:
    trials = {"schema": 2, "asked": 6, "device": "H200", "fingerprint": {}, "variants": {}, "runs": []}
    content = json.dumps(trials).encode()
    (folders[1] / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert of_cells.gather(folders).trials == trials


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trials.json", '{"schema": 2}'),
        ("flex.jsonl", '{"schema": 2'),
        ("flex.jsonl", '{"schema": 3}'),
        ("flex.capabilities.json", "{"),
        ("flex.capabilities.json", '{"schema": 1}'),
        ("flex.capabilities.json", '{"variants": {"flex": {"causal": "perhaps"}}}'),
        ("flex.capabilities.json", '{"variants": {"flex": {"causal": {"status": "yes"}}}}'),
        ("rates.json", "[]"),
        ("trials.json", "[]"),
        ("trials.json", '{"schema": 2, "runs": 1}'),
        ("trials.json", "[" * 100_000),
    ],
)
def test_what_is_damaged_is_missing_with_a_note(folders: list[Path], name: str, content: str) -> None:
    (folders[2] / name).write_text(content, encoding="utf-8")
    gathered = of_cells.gather(folders)
    [note] = gathered.notes
    assert note.startswith(f"{name} cannot be read, so ")
    assert {"torch_flash", "torch_cudnn"} <= {each.variant for each in gathered.records}
    assert (gathered.rates, gathered.capabilities, gathered.trials) == ({}, {}, {})


def test_trials_are_gathered_as_they_are(folders: list[Path]) -> None:
    content = as_json(made_up(runs=1))
    (folders[1] / "trials.json").write_text(json.dumps(content), encoding="utf-8")
    assert of_cells.gather(folders).trials == content


def test_without_a_device_the_cell_is_told_what_it_needs(folders: list[Path]) -> None:
    with pytest.raises(SetupError, match=r"must need the cell that writes device.json; add it to its needs="):
        of_cells.gather(folders[1:])


@pytest.mark.parametrize("content", ["{", '{"peak": null}', '{"device": {"kind": "cuda"}}'])
def test_a_damaged_device_is_one_sentence(folders: list[Path], content: str) -> None:
    (folders[0] / "device.json").write_text(content, encoding="utf-8")
    with pytest.raises(SetupError, match=r"^device.json must describe the device: .*; run the cell that wrote it$"):
        of_cells.gather(folders)


def test_a_device_of_a_newer_fluxbench_is_read(folders: list[Path]) -> None:
    content = {"device": {**dataclasses.asdict(CPU), "sockets": 2, "instruction_sets": ["avx512f"]}}
    (folders[0] / "device.json").write_text(json.dumps(content), encoding="utf-8")
    assert of_cells.gather(folders).device == dataclasses.replace(CPU, instruction_sets=("avx512f",))


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    written = results(
        record(),
        rates={"reason": "none"},
        capabilities={"flex": {"gqa": YES}},
        earlier=(record("flex"),),
        notes=("A.",),
        study="other",
    )
    of_cells.write(written, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(OUTPUTS)
    assert of_cells.read(tmp_path) == written


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("content", [None, "{"])
def test_results_that_are_not_whole_are_one_sentence(tmp_path: Path, name: str, content: str | None) -> None:
    of_cells.write(results(record(), earlier=(record(),)), tmp_path)
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(SetupError, match=r"^the results of the results cell must be whole, .*; run it again$"):
        of_cells.read(tmp_path)


def of(study: str = "", notebook: str = "flux", device: Device = H200) -> Results:
    return Results(notebook=notebook, study=study, device=device, records=())


def test_the_unit_of_throughput_is_the_studys() -> None:
    assert of(notebook="flux").rate == "TFLOP/s"
    assert of(study="made_up_study:DECODE", notebook="flux").rate == "GB/s"
    assert of(notebook="unheard-of").rate == "TFLOP/s"


def test_the_peak_is_that_of_the_unit_the_dtype_and_all_ranks() -> None:
    workload = sets.by_name()["flux1-1024px-t512"]
    both = dataclasses.replace(workload, ranks=2)
    single = dataclasses.replace(workload, shape={**workload.shape, "dtype": "float32"})
    assert [of().peak_rate(each) for each in (workload, both, single)] == [989.5, 1979.0, None]
    decode = of(study="made_up_study:DECODE")
    assert [decode.peak_rate(each) for each in (workload, both, single)] == [4800.0, 9600.0, 4800.0]
    assert of(device=CPU).peak_rate(workload) is None
