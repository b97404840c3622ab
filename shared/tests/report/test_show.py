"""What cells show and write: device, results, answer, tables, figures, a whole study, and what a cell measured."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from certificates import as_json, made_up
from fakes import CPU, GPU, clean
from sample_records import H200, record, results

from fluxbench import show
from fluxbench.device import detect
from fluxbench.device.model import Device
from fluxbench.operations import sets
from fluxbench.records import files
from fluxbench.records.method import METHOD_VERSION
from fluxbench.records.schema import Flag, Record
from fluxbench.records.status import FlagKind, Status
from fluxbench.report import display
from fluxbench.report import results as of_cells

HEADER = '# /// script\n# [tool.fluxbench]\n# notebook = "flux"\n# packages = ["torch==2.13.0"]\n# {}\n# ///\n'
VARIANTS, RATES = 'variants = ["torch_flash"]', 'measures = "rates"'
TRIALS = f'measures = "trials"\n# {VARIANTS}'


@dataclass(frozen=True)
class Page:
    """A running cell, `sdpa`: its folder, and what it needs and shows."""

    here: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def on(self, device: Device) -> None:
        self.monkeypatch.setattr(detect, "detect", lambda: device)

    def runs(self, table: str) -> None:
        """Run a cell with this line in its header."""
        script = self.here.parent / "sdpa.py"
        script.write_text(HEADER.format(table), encoding="utf-8")
        self.monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)

    def needs(self, *cells: str) -> None:
        for name in cells:
            self.monkeypatch.setenv(f"UVNOTE_INPUT_{name.upper()}", str(self.here.parent / name))
        self.monkeypatch.setenv("UVNOTE_INPUTS", ",".join(f"UVNOTE_INPUT_{name.upper()}" for name in cells))

    def of(self, *records: Record, **fields: Any) -> None:
        """Need a results cell with these records."""
        of_cells.write(results(*records, **fields), self.here.parent / "results")
        self.needs("sdpa", "results")

    def shown(self, call: Callable[[], None]) -> str:
        call()
        return self.capsys.readouterr().out

    def refusal(self, call: Callable[[], None]) -> str:
        """Return the one sentence with which a call ends the cell, before anything is shown."""
        with pytest.raises(SystemExit) as caught:
            call()
        assert "\n" not in str(caught.value.code)
        assert self.capsys.readouterr().out == ""
        return str(caught.value.code)

    @property
    def written(self) -> set[str]:
        return {path.name for path in self.here.iterdir() if path.stat().st_size}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Page:
    clean(monkeypatch)
    for name in ("here", "hardware", "sdpa", "results"):
        (tmp_path / name).mkdir()
    for variable in ("FLUXBENCH_HISTORY", display.VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path / "here")
    made = Page(tmp_path / "here", monkeypatch, capsys)
    made.on(GPU)
    made.runs(VARIANTS)
    return made


def curves(name: str) -> list[Record]:
    return [record(variant, workload) for variant in ("torch_flash", "flex") for workload in sets.sets()[name]]


def test_the_device_is_shown_with_its_peak_and_written(page: Page) -> None:
    page.on(H200)
    text = page.shown(show.device)
    content = json.loads((page.here / "device.json").read_text(encoding="utf-8"))
    assert (content["device"]["name"], content["peak"]["bf16_tflops"]) == ("NVIDIA H200", 989.5)
    assert "peak, dense         989.5 TFLOP/s bfloat16, 4,800 GB/s\nsource              NVIDIA" in text
    page.on(CPU)
    assert "unknown: this device is not in fluxbench's table of data sheets" in page.shown(show.device)
    assert json.loads((page.here / "device.json").read_text(encoding="utf-8"))["peak"] is None


def test_results_are_gathered_from_the_needed_cells_with_earlier_records(page: Page) -> None:
    hardware, sdpa, before = (page.here.parent / name for name in ("hardware", "sdpa", "before"))
    (hardware / "device.json").write_text(json.dumps({"device": dataclasses.asdict(GPU)}), encoding="utf-8")
    files.write(sdpa / "sdpa.jsonl", [record(), record("flex"), record("a", status=Status.CRASHED)])
    (sdpa / "sdpa.capabilities.json").write_text("{", encoding="utf-8")
    before.mkdir()
    files.write(before / "sdpa.jsonl", [record("torch_math")])
    page.monkeypatch.setenv("FLUXBENCH_HISTORY", str(before))
    page.needs("hardware", "sdpa")
    text = page.shown(partial(show.results, study="made_up_study:DECODE"))
    gathered = of_cells.read(page.here)
    assert page.written == set(of_cells.OUTPUTS)
    assert ([each.variant for each in gathered.records], gathered.device) == (["torch_flash", "flex", "a"], GPU)
    assert ([each.variant for each in gathered.earlier], gathered.study) == (["torch_math"], "made_up_study:DECODE")
    assert (gathered.reruns, len(gathered.notes)) == ({}, 1)
    facts, note = text.strip().split("\n\n")
    assert facts.splitlines()[1:] == ["records          2 PASSED, 1 CRASHED", "earlier records  1"]
    assert note.startswith("sdpa.capabilities.json cannot be read, so what was tried is missing here")


def test_results_of_trials_count_their_runs(page: Page) -> None:
    hardware, measured = (page.here.parent / name for name in ("hardware", "measured"))
    (hardware / "device.json").write_text(json.dumps({"device": dataclasses.asdict(GPU)}), encoding="utf-8")
    measured.mkdir()
    (measured / "trials.json").write_text(json.dumps(as_json(made_up(runs=2))), encoding="utf-8")
    page.needs("hardware", "measured")
    assert page.shown(show.results).split() == ["runs", "of", "trials", "2", "earlier", "sessions", "0"]


def test_results_without_a_device_are_refused(page: Page) -> None:
    page.needs("sdpa")
    assert "the results cell must need the cell that writes device.json" in page.refusal(show.results)


def test_the_answer_stands_above_what_it_holds_on_and_what_could_not_be_read(page: Page) -> None:
    page.monkeypatch.setenv(display.VARIABLE, str(page.here / "display.html"))
    uv, ambient = {"way": "uv", "lock": "torch-2.13.0.txt 0123456789ab"}, {"way": "ambient"}
    when, versions = "2026-02-01T00:00:00+00:00", {"torch": "2.10.0", "driver": "580.10", "fa": "3"}
    later = record("torch_cudnn", sustained_ms=0.4, measured_at=when, fingerprint=ambient, versions=versions)
    page.of(record(fingerprint=uv), later, notes=("A note.",))
    answer, mixed, chart, *lines_of_use, fold, facts, note = page.shown(show.answer).strip().split("\n\n")
    assert "torch 2.10.0 (torch_cudnn), 2.9.0 (torch_flash)." in " ".join(mixed.split())
    assert lines_of_use[0].startswith("Use cuDNN (SDPA):\n")
    assert answer.startswith("cuDNN (SDPA) is the faster of 2 exact kernels measured here: 2.5 times as fast as")
    assert chart.splitlines()[-1] == "  FlashAttention-2 (SDPA): 1×"
    assert fold == "What this was measured with"
    lines = facts.splitlines()
    assert lines[:2] == ["device       NVIDIA H200, power limit 700 W", "driver       580.10, CUDA 13.0"]
    assert lines[2] == "measured     2026-01-31 12:00:00 UTC to 2026-02-01 00:00:00 UTC"
    assert lines[3] == f"method       version {METHOD_VERSION}"
    assert lines[4].startswith("environment  from the lock torch-2.13.0.txt; partly the packages of the machine's own")
    assert lines[-1] == "with         torch 2.10.0 and 2.9.0, cuda 13.0, cudnn 9.12, fa 3"
    assert note == "A note."
    markup = (page.here / "display.html").read_text(encoding="utf-8")
    assert markup.startswith('<p class="lead">cuDNN (SDPA) is')
    assert markup.endswith('<p class="note">A note.</p>\n')


def test_a_page_that_is_drawn_again_has_what_it_published_of_other_pages(page: Page) -> None:
    script = page.here / "results.py"
    script.write_text("# /// script\n# tool.fluxbench.reads = ['flux']\n# ///\n", encoding="utf-8")
    page.monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script))
    hardware = page.here.parent / "hardware"
    hardware.mkdir(exist_ok=True)
    (hardware / "device.json").write_text(json.dumps({"device": dataclasses.asdict(GPU)}), encoding="utf-8")
    (page.here / of_cells.RERUNS).write_text('{"runs": 3}', encoding="utf-8")
    (page.here / of_cells.SIMULATION).write_text('{"pages": 200}', encoding="utf-8")
    page.monkeypatch.setenv(of_cells.PUBLISHED_VARIABLE, str(page.here))
    page.needs("hardware")
    page.shown(partial(show.results, study="certificate"))
    shown = of_cells.read(page.here)
    assert (shown.reruns, shown.simulation) == ({"runs": 3}, {"pages": 200})


@pytest.mark.parametrize("name", ["ranking", "correctness", "kernels", "capabilities"])
def test_a_table_is_shown_and_written_where_it_has_a_csv(page: Page, name: str) -> None:
    page.of(record(), record("torch_cudnn"))
    assert "torch_cudnn" in page.shown(partial(show.table, name))
    assert page.written == (set() if name == "ranking" else {f"{name}.csv"})
    assert all("torch_cudnn," in (page.here / file).read_text(encoding="utf-8") for file in page.written)


def test_unknown_names_are_one_sentence_with_the_nearest(page: Page) -> None:
    page.of(record(), notebook="flx")
    for call, sentence in (
        (partial(show.table, "rankin"), "table must be a known name, got 'rankin'; did you mean 'ranking'?"),
        (partial(show.figure, "latncy"), "figure must be a known name, got 'latncy'; did you mean 'latency'?"),
        (show.study, "study must be a known name or module:attribute, got 'flx'; did you mean 'flux'?"),
    ):
        assert page.refusal(call) == f"fluxbench: {sentence}"
    page.of(record(), study="made_up_study:UNKNOWN_FIGURE")
    assert "did you mean 'latency'?" in page.refusal(show.study)


@pytest.mark.parametrize("call", [show.answer, partial(show.table, "state"), partial(show.figure, "parts"), show.study])
def test_a_cell_without_the_results_is_told_what_it_needs(page: Page, call: Callable[[], None]) -> None:
    page.needs("sdpa")
    sentence = "fluxbench: this cell must need the results cell; add needs=results to its first line"
    assert page.refusal(call) == sentence


def test_a_study_is_shown_whole(page: Page) -> None:
    page.of(*curves("llama3-8b-decode"), study="made_up_study:DECODE")
    text = page.shown(show.study)
    assert page.written == {"correctness.csv", "latency.svg", "latency.csv"}
    places = [text.index(words) for words in ("exact kernel", "Ranking at", "GB/s", "Errors against the float64")]
    assert places == sorted(places)


def test_a_measuring_cell_shows_its_own_times_and_the_method(page: Page) -> None:
    shared = [Flag(kind=FlagKind.SHARED_DEVICE, detail="7 python 3 MiB")]
    files.write(page.here / "sdpa.jsonl", [record(flags=shared), record("a", sustained_ms=0.4, flags=shared)])
    files.write(page.here / "other.jsonl", [record("flex")])
    text = " ".join(page.shown(show.measured).split())
    warning = "Another process was using the device: 7 python 3 MiB. Times may be too long."
    assert text.startswith(f"{warning} Times of 2 variants at 1 workload of flux1-1024px ")
    assert text.count("Another process") == 1
    assert " a 0.400 ±0.002 " in text
    assert "Measured 2026-01-31 (UTC)" in text
    assert "flex" not in text


def test_a_cell_of_rates_shows_them(page: Page) -> None:
    page.runs(RATES)
    (page.here / "rates.json").write_text('{"reason": "no torch"}', encoding="utf-8")
    assert page.shown(show.measured) == "The device's own rates could not be measured: no torch.\n\n"


def test_a_cell_of_trials_shows_its_runs(page: Page) -> None:
    def run(seconds: float, *records: Record) -> dict[str, object]:
        lines = [json.loads(each.to_json()) for each in records]
        return {"seconds": seconds, "others": [], "records": lines, "control": None, "places": []}

    page.runs(TRIALS)
    trials = {
        **{"schema": 2, "asked": 6, "device": "H200", "fingerprint": {}, "reason": "no slowed variant ran"},
        "variants": {"torch_flash_plus_0": {"base": "torch_flash", "percent": 0.0, "twin": False}},
        "runs": [run(12.4, record(), record("slow", status=Status.CRASHED)), run(11.6, record(), record("flex"))],
    }
    (page.here / "trials.json").write_text(json.dumps(trials), encoding="utf-8")
    page.monkeypatch.setenv(display.VARIABLE, str(page.here / "display.html"))
    lines = [" ".join(line.split()) for line in page.shown(show.measured).splitlines() if line]
    assert lines[2:4] == ["1 of 6 12 1 of 2", "2 of 6 12 2 of 2"]
    assert lines[4:] == [
        "Did not pass:",
        "CRASHED: the worker ended on signal 11",
        "1 record",
        "no slowed variant ran.",
    ]
    assert (page.here / "display.html").read_text(encoding="utf-8").count('<tr class="failed">') == 1


@pytest.mark.parametrize("content", [None, "{"])
@pytest.mark.parametrize(("table", "name"), [(VARIANTS, "sdpa.jsonl"), (RATES, "rates.json"), (TRIALS, "trials.json")])
def test_what_was_not_measured_cannot_be_shown(page: Page, content: str | None, table: str, name: str) -> None:
    page.runs(table)
    if content:
        (page.here / name).write_text(content, encoding="utf-8")
    sentence = page.refusal(show.measured)
    assert name in sentence
    assert sentence.endswith(" first")


def test_a_measuring_cell_loads_no_matplotlib() -> None:
    """It takes as long as all else that a cell loads whose kernels are unavailable."""
    asked = "import sys; from fluxbench import bench, show; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, encoding="utf-8").stdout == "False\n"
