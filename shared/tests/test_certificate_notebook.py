"""notebooks/certificate.md: what its results depend on, and that its cells hand out what the summary is made of."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, GPU, REPOSITORY, clean
from uvnote.parser import CodeCell

from fluxbench.bench import dependencies
from fluxbench.core.settings import Settings
from fluxbench.device.detection import Device
from fluxbench.environments import cell
from fluxbench.notebook.document import Document, load
from fluxbench.notebook.freshness import depended_on, depends_on
from fluxbench.notebook.store import Result

SETTINGS = Settings(root=REPOSITORY, cache=REPOSITORY / ".cache")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)


@pytest.fixture(scope="module")
def certificate() -> Document:
    return load(REPOSITORY / "notebooks" / "certificate.md")


@pytest.mark.parametrize("device", [CPU, GPU])
def test_trials_depend_on_what_their_records_say_that_they_do(certificate: Document, device: Device) -> None:
    code = certificate.find("trials")
    now = depends_on(code, certificate, device, SETTINGS)
    names, chosen = dependencies.trials(device, SETTINGS)
    turned = [*names[3:], *names[:3]]
    assert now == dependencies.of(cell.parse(code.code, "trials"), turned, device, chosen)


def test_trials_depend_on_the_slowed_kernels_and_on_what_slows_them(certificate: Document) -> None:
    now = depends_on(certificate.find("trials"), certificate, GPU, SETTINGS)
    files = {key.removeprefix("code.") for key in now if key.startswith("code.")}
    assert {"certificate_trials.py", "variants/slowed.py", "variants/triton_flash.py", "timing.py"} <= files
    assert {"variants/torch_cudnn.py", "kernels/flash_forward.py"} <= files
    assert not {"ceilings.py", "variants/flex.py", "comparison.py"} & files


def shows(code: CodeCell) -> bool:
    return "import certificate\n" in code.code


def test_what_is_judged_is_drawn_again_when_the_judging_changes_and_the_flux_page_is_not(certificate: Document) -> None:
    judging = {"code.comparison.py", "code.verdicts.py", "code.certificate_runs.py"}
    for code in certificate.cells:
        if shows(code):
            assert judging <= set(depends_on(code, certificate, GPU, SETTINGS))
    flux = load(REPOSITORY / "notebooks" / "flux.md")
    assert not judging & set(depends_on(flux.find("answer"), flux, GPU, SETTINGS))


def test_a_cell_that_shows_declarations_of_variants_depends_on_their_files() -> None:
    flux = load(REPOSITORY / "notebooks" / "flux.md")
    files = {"code.variants/_base.py", "code.variants/torch_flash.py"}
    assert files <= set(depends_on(flux.find("answer"), flux, GPU, SETTINGS))
    assert not files & set(depends_on(flux.find("latency"), flux, GPU, SETTINGS))


def test_reruns_are_drawn_again_after_another_run_of_the_flux_notebook(certificate: Document, tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "flux.md").write_text("```python id=flex\n```\n", encoding="utf-8")
    settings = dataclasses.replace(SETTINGS, root=tmp_path)
    code = certificate.find("reruns")
    before = depends_on(code, certificate, GPU, settings)
    folder = tmp_path / "notebooks" / ".uvnote" / "cache" / "flux.flex.00001"
    folder.mkdir(parents=True)
    (folder / "flex.jsonl").touch()
    (folder / "result.json").write_text('{"failure": null}', encoding="utf-8")
    after = depends_on(code, certificate, GPU, settings)
    assert (before["reruns"], after["reruns"]) == ("", "flux.flex.00001")


@pytest.mark.parametrize(
    ("trials", "expected"),
    [({"fingerprint": {"device": "a"}}, {"device": "a"}), ({}, "its records are missing")],
)
def test_a_result_of_trials_depended_on_what_its_file_says(tmp_path: Path, trials: Any, expected: Any) -> None:
    (tmp_path / "trials.json").write_text(json.dumps(trials), encoding="utf-8")
    result = Result(
        cell="trials", number=1, folder=tmp_path, stdout="", stderr="", duration_s=1.0,
        artifacts={"trials.json": 2}, failure=None, ran_at="2026-01-31T12:00:00+00:00",
    )  # fmt: skip
    assert depended_on(result, is_measuring=True) == expected


def test_the_summary_needs_and_the_cells_hand_out_what_it_is_made_of(certificate: Document) -> None:
    outputs = {code.id: code.outputs for code in certificate.cells if code.outputs}
    assert outputs == {
        "summary": ["summary.json"],
        "reruns": ["reruns.json"],
        "events": ["ceilings.json"],
        "trials": ["trials.json"],
        "hardware": ["device.json"],
    }
    assert set(certificate.find("summary").needs) == {"trials", "reruns", "events"}
    judged = {code.id for code in certificate.cells if shows(code)} - {"summary", "reruns"}
    assert {tuple(certificate.find(each).needs) for each in judged} == {("trials",)}


def test_the_certificate_looks_like_the_flux_page(certificate: Document) -> None:
    flux = load(REPOSITORY / "notebooks" / "flux.md").config
    ours = certificate.config
    assert (ours.theme, ours.syntax_theme) == (flux.theme, flux.syntax_theme)
    assert set(str(ours.custom_css).splitlines()) <= set(str(flux.custom_css).splitlines())
