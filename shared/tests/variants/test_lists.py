"""A variant is in its file, in the registry and in a cell; studies, targets and locks name what there is."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fakes import REPOSITORY
from uvnote.parser import parse_markdown

from fluxbench import studies, variants
from fluxbench.environments import cell
from fluxbench.environments.cell import Cell

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.md"))
ENVIRONMENT = REPOSITORY / "environment"
TARGETS: dict[str, dict[str, Any]] = tomllib.loads((ENVIRONMENT / "targets.toml").read_text(encoding="utf-8"))
KINDS = ("jsonl", "samples.json.gz", "control.json", "capabilities.json")  # of the files of a cell's variants


def measuring(notebook: Path) -> dict[str, tuple[Cell, list[str]]]:
    """Return the cells of a notebook that measure, with the files that each hands out."""
    codes = parse_markdown(notebook.read_text(encoding="utf-8"))[1]
    return {
        code.id: (cell.parse(code.code, code.id), list(code.outputs)) for code in codes if cell.is_measuring(code.code)
    }


CELLS = [(notebook.stem, found, outputs) for notebook in NOTEBOOKS for found, outputs in measuring(notebook).values()]


def test_every_form_of_every_variant_is_measured_by_one_cell() -> None:
    measured = [name for _, found, _ in CELLS if found.measures == "variants" for name in found.variants]
    assert sorted(measured) == sorted(variants.NAMES)


@pytest.mark.parametrize(("notebook", "found", "outputs"), CELLS, ids=lambda value: getattr(value, "id", ""))
def test_a_measuring_cell_hands_out_all_that_it_writes(notebook: str, found: Cell, outputs: list[str]) -> None:
    assert found.notebook == notebook
    if found.measures != "trials":
        written = [f"{found.id}.{kind}" for kind in KINDS] if found.variants else ["rates.json"]
        assert outputs == written
    if found.lock:
        assert (ENVIRONMENT / "locks" / f"{found.lock}.txt").is_file()


@pytest.mark.parametrize("name", studies.NAMES)
def test_the_references_of_a_study_are_variants(name: str) -> None:
    assert set(studies.find(name).references) <= set(variants.NAMES)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_names_variants_and_locks_that_there_are(name: str) -> None:
    target = {**TARGETS["any"], **TARGETS[name]}
    excluded = {pattern: set(fnmatch.filter(variants.NAMES, pattern)) for pattern in target["exclude"]}
    assert all(excluded.values()), excluded
    assert set(target["required"]) <= set(variants.NAMES) - set().union(*excluded.values())
    locks = [*target["locks"], *(f"{library}.txt" for library in target.get("libraries", ()))]
    assert [lock for lock in locks if not (ENVIRONMENT / "locks" / lock).is_file()] == []
