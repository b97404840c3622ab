"""Adding a variant touches three places, held against each other: its file, a line of the registry, a cell."""

from __future__ import annotations

import ast
import fnmatch
import shutil
import tomllib
from pathlib import Path

import pytest
from fakes import REPOSITORY
from uvnote.parser import parse_markdown

from fluxbench import variants
from fluxbench.environments import cell
from fluxbench.variants import _base

VARIANTS = Path("shared/src/fluxbench/variants")


def declared(root: Path) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the names that each variant of a file goes by: {("flex", "UNFUSED"): ("flex_eager",)}."""
    found = {}
    for path in sorted((root / VARIANTS).glob("[!_]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                keywords = {keyword.arg: keyword.value for keyword in node.value.keywords}
                if ast.unparse(node.value.func).split(".")[-1] == "Variant":
                    found[path.stem, ast.unparse(node.targets[0])] = names_of(keywords)
    return found


def names_of(keywords: dict[str | None, ast.expr]) -> tuple[str, ...]:
    forms: tuple[_base.Form, ...] = (_base.Form.EAGER,)
    if "forms" in keywords:
        expression = compile(ast.Expression(keywords["forms"]), "forms", "eval")
        forms = eval(expression, {"_base": _base, **vars(_base)})
    return tuple(ast.literal_eval(keywords["name"]) + form.value for form in forms)


def registered(root: Path) -> set[tuple[str, str]]:
    """Return the registry's lines: {("flex", "UNFUSED")} for `flex.UNFUSED`."""
    for node in ast.parse((root / VARIANTS / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "REGISTRY":
            assert isinstance(node.value, ast.Tuple)
            parts = [ast.unparse(element).split(".") for element in node.value.elts]
            return {(module, name) for module, name in parts}
    raise AssertionError("no REGISTRY in variants/__init__.py")


def measured(root: Path) -> set[str]:
    """Return the names that cells give to `bench.measure`."""
    found = set()
    for notebook in (root / "notebooks").glob("*.md"):
        for code in parse_markdown(notebook.read_text(encoding="utf-8"))[1]:
            found |= set(cell.measured(code.code))
    return found


def forgotten(root: Path) -> list[str]:
    """Return what one of the three places has and another lacks, one sentence each."""
    files, lines, cells = declared(root), registered(root), measured(root)
    known = {name for names in files.values() for name in names}
    return [
        *(f"the registry lacks {module}.{name}" for module, name in sorted(files.keys() - lines)),
        *(f"no file declares {module}.{name}" for module, name in sorted(lines - files.keys())),
        *(f"no cell measures {name}" for name in sorted(known - cells)),
        *(f"no file declares {name}, which a cell measures" for name in sorted(cells - known)),
    ]


MADE_UP = '''"""Made up."""

from fluxbench.variants import _base

VARIANT = _base.Variant(name="made_up", load=lambda: _base.sdpa(None))
'''
CELL = """
```python id=made_up
from fluxbench.bench import measuring as bench

bench.measure("made_up")
```
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The three places of this repository, copied."""
    shutil.copytree(REPOSITORY / VARIANTS, tmp_path / VARIANTS)
    (tmp_path / "notebooks").mkdir()
    for notebook in (REPOSITORY / "notebooks").glob("*.md"):
        shutil.copy(notebook, tmp_path / "notebooks")
    return tmp_path


def add_file(root: Path) -> None:
    (root / VARIANTS / "made_up.py").write_text(MADE_UP, encoding="utf-8")


def add_line(root: Path) -> None:
    registry = root / VARIANTS / "__init__.py"
    text = registry.read_text(encoding="utf-8")
    assert "    triton_flash.VARIANT,\n" in text
    registry.write_text(
        text.replace("    triton_flash.VARIANT,\n", "    triton_flash.VARIANT,\n    made_up.VARIANT,\n"),
        encoding="utf-8",
    )


def add_cell(root: Path) -> None:
    with (root / "notebooks" / "flux.md").open("a", encoding="utf-8") as notebook:
        notebook.write(CELL)


def test_the_three_places_of_this_repository_agree() -> None:
    assert forgotten(REPOSITORY) == []


def test_what_is_read_from_the_files_is_what_is_imported() -> None:
    assert {name for names in declared(REPOSITORY).values() for name in names} == set(variants.NAMES)


def test_a_variant_in_all_three_places_is_complete(copy: Path) -> None:
    for add in (add_file, add_line, add_cell):
        add(copy)
    assert forgotten(copy) == []


def test_a_forgotten_line_of_the_registry_is_said(copy: Path) -> None:
    add_file(copy)
    add_cell(copy)
    assert forgotten(copy) == ["the registry lacks made_up.VARIANT"]


def test_a_forgotten_cell_is_said(copy: Path) -> None:
    add_file(copy)
    add_line(copy)
    assert forgotten(copy) == ["no cell measures made_up"]


def test_a_forgotten_file_is_said(copy: Path) -> None:
    add_line(copy)
    add_cell(copy)
    assert forgotten(copy) == [
        "no file declares made_up.VARIANT",
        "no file declares made_up, which a cell measures",
    ]


def test_a_form_that_no_cell_measures_is_said(copy: Path) -> None:
    notebook = copy / "notebooks" / "flux.md"
    text = notebook.read_text(encoding="utf-8")
    notebook.write_text(text.replace('"torch_flash_copy", ', ""), encoding="utf-8")
    assert forgotten(copy) == ["no cell measures torch_flash_copy"]


@pytest.mark.parametrize("notebook", sorted((REPOSITORY / "notebooks").glob("*.md")), ids=lambda path: path.stem)
def test_a_cell_that_measures_hands_out_its_records_and_all_that_it_found_beside_them(notebook: Path) -> None:
    codes = [c for c in parse_markdown(notebook.read_text(encoding="utf-8"))[1] if cell.measured(c.code)]
    assert codes or notebook.stem == "certificate"  # whose cells name no variant of a page
    kinds = ("jsonl", "samples.json", "sentinel.json", "capabilities.json")
    assert {c.id: set(c.outputs) for c in codes} == {c.id: {f"{c.id}.{kind}" for kind in kinds} for c in codes}


@pytest.mark.parametrize("variant", variants.REGISTRY, ids=lambda variant: variant.name)
def test_every_variant_declares_what_it_is_capable_of(variant: _base.Variant) -> None:
    assert variant.capabilities
    assert set(variant.capabilities.head_dims) <= set(_base.HEAD_DIMS)
    assert variant.precision_class == "exact" or variant.quantized_budget_rel_l2


def test_no_two_variants_share_a_name() -> None:
    assert len(set(variants.NAMES)) == len(variants.NAMES)


@pytest.mark.parametrize("name", variants.REFERENCES)
def test_a_reference_is_a_variant(name: str) -> None:
    assert name in variants.NAMES


def targets() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads((REPOSITORY / "environment" / "targets.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("target", targets())
def test_a_target_expects_variants_that_exist(target: str) -> None:
    assert set(targets()[target].get("expects", [])) <= set(variants.NAMES)


@pytest.mark.parametrize("target", targets())
def test_a_target_leaves_out_variants_that_exist(target: str) -> None:
    patterns = targets()[target].get("leaves_out", [])
    assert [pattern for pattern in patterns if not fnmatch.filter(variants.NAMES, pattern)] == []


@pytest.mark.parametrize("target", targets())
def test_a_target_leaves_out_nothing_that_it_expects(target: str) -> None:
    entry = {**targets()["any"], **targets()[target]}
    left_out = {name for pattern in entry["leaves_out"] for name in fnmatch.filter(variants.NAMES, pattern)}
    assert left_out & set(entry["expects"]) == set()


@pytest.mark.parametrize("target", targets())
def test_the_locks_of_a_target_exist(target: str) -> None:
    locks = targets()[target].get("locks", [])
    assert [lock for lock in locks if not (REPOSITORY / "environment" / "locks" / lock).is_file()] == []


def test_the_nearest_name_is_offered_for_an_unknown_variant() -> None:
    with pytest.raises(KeyError, match="got 'torch_cuddn'; did you mean 'torch_cudnn'"):
        variants.find("torch_cuddn")


def test_every_name_is_found_in_its_form() -> None:
    found = [variants.find(name) for name in variants.NAMES]
    assert [variant.name + form.value for variant, form in found] == list(variants.NAMES)
