"""What must agree across files: the registry of variants, the cells of notebooks, studies, tables and figures."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from certificates import as_json, made_up
from fakes import GPU, REPOSITORY
from sample_records import record, results
from uvnote.parser import CodeCell

from fluxbench import audit, studies, variants
from fluxbench.analysis.audit import published
from fluxbench.core.settings import Settings
from fluxbench.environments import cell
from fluxbench.notebook.document import Document, load
from fluxbench.report import figures, tables, usage
from fluxbench.report.results import OUTPUTS
from fluxbench.timing.parts import parts_of
from fluxbench.variants._base import YES, Variant

EVERY_NOTEBOOK = [load(path) for path in sorted((REPOSITORY / "notebooks").glob("*.md"))]
GRID_ALONE = {"torch_eager", "flex_dynamic"}  # variants for many shapes, which the notebooks of one attention leave out
NOTEBOOKS = [document for document in EVERY_NOTEBOOK if any(map(document.is_measuring, document.cells))]
KINDS = ("jsonl", "samples.json.gz", "control.json", "capabilities.json")


def of_notebooks(notebook: Document) -> str:
    return notebook.path.stem


def measuring(document: Document) -> list[tuple[CodeCell, cell.Cell]]:
    """Return the measuring cells of a notebook with their headers."""
    return [(code, cell.parse(code.code, code.id)) for code in document.cells if document.is_measuring(code)]


def takes_bfloat16(variant: Variant) -> bool:
    return "bfloat16" in variant.capabilities.dtypes


def is_of_forward(variant: Variant) -> bool:
    return not (variant.deterministic_of or variant.only_decodes)


def test_every_form_of_every_variant_is_measured_by_exactly_one_cell() -> None:
    [flux] = [document for document in NOTEBOOKS if document.path.stem == "flux"]
    [grid] = [document for document in NOTEBOOKS if document.path.stem == "sdpa"]
    found = {name: variants.find(name).variant for name in variants.NAMES}
    of_forward = [name for name, each in found.items() if is_of_forward(each) and takes_bfloat16(each)]
    measured = Counter(name for _, header in measuring(flux) for name in header.variants)
    assert measured == Counter(name for name in of_forward if name not in GRID_ALONE)
    of_grid = Counter(name for _, header in measuring(grid) for name in header.variants)
    assert set(of_grid) >= GRID_ALONE
    assert max(of_grid.values()) == 1


def test_every_library_with_a_backward_pass_and_every_deterministic_one_is_measured_by_one_cell() -> None:
    [backward] = [document for document in NOTEBOOKS if document.path.stem == "backward"]
    measured = Counter(name for _, header in measuring(backward) for name in header.variants)
    differentiable = {
        each.name for each in variants.REGISTRY if each.capabilities.backward is YES and takes_bfloat16(each)
    } - GRID_ALONE
    assert set(measured) >= differentiable
    assert max(measured.values()) == 1
    pairs = {each.deterministic_of: each.name for each in variants.REGISTRY if each.deterministic_of}
    assert pairs.keys() <= differentiable


def test_every_variant_made_for_decoding_is_measured_by_one_cell() -> None:
    [decode] = [document for document in NOTEBOOKS if document.path.stem == "decode"]
    of_caches = [header for _, header in measuring(decode) if header.study == "decode"]
    measured = Counter(name for header in of_caches for name in header.variants)
    assert set(measured) >= {each.name for each in variants.REGISTRY if each.only_decodes}
    assert max(measured.values()) == 1


def test_every_variant_of_a_forward_pass_says_how_it_is_used() -> None:
    for name in (name for name in variants.NAMES if is_of_forward(variants.find(name).variant)):
        found = usage.of(record(name))
        assert found, name
        assert found.code, name
        assert found.diffusers.lines or found.diffusers.note, name


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=of_notebooks)
def test_all_that_a_notebook_names_exists_and_its_cell_hands_out_the_files(notebook: Document) -> None:
    assert [studies.find(header.study) for _, header in measuring(notebook)]
    given: dict[str, Any] = {"trials": as_json(made_up(runs=1)), "rates": {"event_us": 1.0}}
    for code in notebook.cells:
        written: list[str] = []
        for kind, name in re.findall(r'show\.(table|figure)\("([\w-]+)"\)', code.code):
            if kind == "table":
                table = tables.find(name)
                written += table.files(results(**given)) if table.files else ()
                written += [f"{name}.csv"] * bool(table.rows)
            else:
                assert callable(figures.find(name))
                written += [f"{name}.svg", f"{name}.csv"]
        if "show.table(" in code.code or "show.figure(" in code.code:
            assert set(code.outputs) == set(written)
    shown = re.findall(r'show\.table\("(\w+)"\)', notebook.text)
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize(
    "notebook", [document for document in EVERY_NOTEBOOK if document not in NOTEBOOKS], ids=of_notebooks
)
def test_all_that_a_notebook_without_measurements_calls_exists(notebook: Document) -> None:
    calls = [
        re.fullmatch(r"(\w+)\((.*)\)", code.code.splitlines()[-1].removeprefix("audit.")) for code in notebook.cells
    ]
    assert all(call and callable(getattr(audit, call[1])) for call in calls)
    assert {call[2].strip('"') for call in calls if call and call[1] == "source"} == set(published.sources())


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=of_notebooks)
def test_measuring_cells_keep_all_that_they_write_and_the_results_cell_gathers_it(notebook: Document) -> None:
    for code, header in measuring(notebook):
        of_variants = {f"{code.id}.{kind}" for kind in KINDS}
        assert set(code.outputs) == (of_variants if header.measures == "variants" else {f"{header.measures}.json"})
        assert header.notebook == notebook.path.stem
        assert code.code.endswith("\nfrom fluxbench import bench, show\nbench.measure()\nshow.measured()")
    gathering = notebook.find("results")
    assert set(gathering.needs) == {"hardware", *(code.id for code, _ in measuring(notebook))}
    assert tuple(gathering.outputs) == OUTPUTS
    assert cell.reads(gathering.code) == (("flux",) if notebook.path.stem == "certificate" else ())
    showing = [code for code in notebook.cells if code.id not in gathering.needs and code != gathering]
    assert {tuple(code.needs) for code in showing} == {("results",)}


def test_cells_that_sustain_one_workload_are_of_one_method_version() -> None:
    """Else their times there would not be ranked together. A study says whether its notebook has unlike lengths."""
    settings = Settings(root=REPOSITORY, cache=REPOSITORY)
    for notebook in NOTEBOOKS:
        versions: dict[str, set[bool]] = {}
        for study in (studies.find(header.study) for _, header in measuring(notebook)):
            workloads = [one for one in study.workloads_on(GPU, settings) if study.sustains(one.operation, GPU)]
            for operation in {one.operation for one in workloads if not study.effort.long}:
                alike = [one for one in workloads if one.operation == operation]
                assert study.unlike_lengths or len({*parts_of(alike).values()}) == 1, (notebook.path.stem, operation)
                for one in alike:
                    versions.setdefault(one.name, set()).add(study.unlike_lengths)
        assert all(len(of) == 1 for of in versions.values()), notebook.path.stem
