"""The repository's locks: hashes, no index, nothing twice, every pin of a measuring cell; and its targets."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fakes import REPOSITORY
from uvnote.parser import parse_markdown

from fluxbench import variants
from fluxbench.device import targets
from fluxbench.environments import cell
from fluxbench.environments.locks import Locks

FOLDER = REPOSITORY / "environment" / "locks"
TORCH = sorted(FOLDER.glob("torch-*.txt"))
TARGETS: dict[str, dict[str, Any]] = tomllib.loads((FOLDER.parent / "targets.toml").read_text(encoding="utf-8"))
LIBRARIES = sorted({path.stem for path in FOLDER.glob("*.in")} - {"uv", "tools", "dev", *(path.stem for path in TORCH)})


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.txt")))
def test_every_package_of_a_lock_has_a_hash_and_no_index_is_named(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    packages = re.split(r"(?m)^(?=[\w.-]+==)", text)[1:]
    assert [package.split()[0] for package in packages if "--hash=sha256:" not in package] == []
    assert not re.search(r"://|--index|--find-links", text)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_s_lock_holds_nothing_that_a_torch_brings(library: str) -> None:
    locks = Locks(torch=FOLDER / "torch-2.13.0.txt", library=FOLDER / f"{library}.txt")
    brought = {name for torch in TORCH for name in Locks(torch=torch).pins()}
    assert locks.library_pins().keys() & brought == set()
    assert not [name for name in locks.library_pins() if name.endswith("-cu12")]


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_names_variants_and_locks_that_exist(name: str) -> None:
    target = targets.named(name, REPOSITORY)
    excluded = {pattern: set(fnmatch.filter(variants.NAMES, pattern)) for pattern in target.exclude}
    assert all(excluded.values()), excluded
    notebook = "parallel" if re.search(r"-x\d+$", name) else ""  # a host has this one alone
    required = set(target.required_in.get(notebook, target.required))
    assert required <= set(variants.NAMES) - set().union(*excluded.values())
    assert [lock for lock in target.locks if not (FOLDER / lock).is_file()] == []


@pytest.mark.parametrize("torch", TORCH, ids=lambda path: path.stem)
def test_every_pin_of_a_cell_is_in_every_lock_that_it_is_installed_from(torch: Path) -> None:
    tables = {}
    for notebook in sorted((REPOSITORY / "notebooks").glob("*.md")):
        for code in parse_markdown(notebook.read_text(encoding="utf-8"))[1]:
            if cell.is_measuring(code.code):
                tables[f"{notebook.stem}/{code.id}"] = cell.tool_table(code.code) or {}
    assert len(tables) > 5
    wrong = {}
    for name, table in tables.items():
        if "+cpu" in torch.stem and any(pin.startswith("triton==") for pin in table["packages"]):
            continue  # which no CPU measures
        library = FOLDER / f"{table['lock']}.txt" if "lock" in table else None
        locks = Locks(torch=torch, library=library)
        pins = tuple(table["packages"])
        wrong[name] = locks.wrong(pins if "2.13.0" in torch.stem else locks.on_torch(pins))
    assert not any(wrong.values()), wrong
