"""The one-way road, held as a table: what each module may import of fluxbench, and who may load a heavy library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from fluxbench.notebook.freshness import CERTIFYING, NOT_SHOWING

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fluxbench"

FACTS = {
    "workloads": "",
    "hardware": "",
    "settings": "",
    "statistics": "",
    "verdicts": "statistics",
    "formatting": "",
    "field_types": "",
}
MEASURING = {
    "sentinel": "",
    "progress": "",
    "peaks": "hardware",
    "floor": "hardware peaks workloads",
    "floor_table": "floor peaks workloads",
    "targets": "hardware",
    "fingerprint": "hardware",
    "telemetry": "hardware records",
    "records": "field_types workloads",
    "requests": "workloads",
    "cell": "settings",
    "locks": "settings targets",
    "environments": "locks progress settings targets",
    "inputs": "records workloads",
    "reference": "inputs",
    "correctness": "inputs records reference",
    "stopwatch": "",
    "timing": "inputs statistics stopwatch",
    "failures": "records",
    "capabilities": "correctness inputs reference variants._base workloads",
    "profiling": "inputs",
    "checking": "correctness inputs profiling records timing variants._base",
    "ceilings": "stopwatch timing",
    "regimes": "correctness inputs profiling records sentinel stopwatch timing variants._base workloads",
    "worker": "capabilities ceilings checking failures records regimes requests sentinel stopwatch timing variants "
    "variants._base workloads",
    "samples": "telemetry",
    "energy": "statistics telemetry",
    "observations": "energy records samples telemetry",
    "recording": "cell floor hardware observations records samples statistics telemetry workloads",
    "processes": "environments hardware observations progress records requests telemetry variants workloads",
    "dependencies": "cell environments fingerprint hardware settings targets variants variants.slowed workloads",
    "certificate_trials": "bench cell dependencies hardware observations progress records samples settings "
    "variants.slowed",
    # What a cell calls also prints what it measured: the one place where measuring meets showing.
    "bench": "cell dependencies environments hardware observations peaks processes progress recording records requests "
    "settings tables targets variants workloads",
}
SHOWING = {
    "comparison": "fingerprint records statistics verdicts",
    "comparison_text": "comparison formatting verdicts",
    "certificate_runs": "comparison records verdicts",
    "certificate_position": "certificate_runs",
    "certificate_reruns": "comparison fingerprint hardware history ranking records",
    "certificate_summary": "certificate_position certificate_runs formatting verdicts",
    "certificate": "certificate_position certificate_reruns certificate_runs certificate_summary comparison formatting "
    "hardware records settings show tables_text verdicts",
    "history": "fingerprint formatting hardware ranking records signs workloads",
    "ranking": "records workloads",
    "remarks": "formatting ranking records workloads",
    "sentences": "formatting ranking records",
    "headline": "formatting ranking records remarks sentences",
    "signs": "ranking records sentences",
    "tables_text": "ranking remarks workloads",
    "tables_kernels": "formatting ranking records sentences tables_text",
    "tables_capabilities": "records tables_text variants._base",
    "tables_state": "formatting ranking records remarks sentences signs tables_text workloads",
    "tables_csv": "ranking records",
    "tables": "formatting headline ranking records sentences signs tables_capabilities tables_csv tables_kernels "
    "tables_state tables_text",
    "plots_style": "ranking",
    "plots_svg": "plots_style records",
    "plots_lines": "formatting plots_style plots_svg ranking records sentences signs",
    "plots_rows": "formatting plots_style plots_svg ranking records sentences signs",
    "plots_history": "formatting history plots_lines plots_style plots_svg ranking records",
    "plots_frontier": "formatting plots_rows plots_style plots_svg ranking records sentences signs",
    "plots_cost": "formatting plots_rows plots_style plots_svg ranking records sentences signs",
    "plots": "formatting history plots_cost plots_frontier plots_history plots_lines plots_rows plots_svg ranking "
    "records signs",
    "show": "formatting hardware history peaks plots records settings tables variants",
}
SITE = {
    "site": "",
    "site.collect": "hardware peaks ranking records",
    "site.page": "",
    "site.chart": "formatting plots_style ranking records site.page",
    "site.index": "headline ranking records sentences site.chart site.collect site.page",
    "site.compare": "fingerprint formatting plots_style ranking records site.chart site.collect site.page workloads",
    "site.draw": "settings site.collect site.compare site.index variants",
    "site.intake": "fingerprint floor hardware records settings site.collect workloads",
}
BUILDING = {
    "notebook": "",
    "notebook.supervisor": "",
    "notebook.runner": "notebook.supervisor",
    "notebook.document": "cell settings",
    "notebook.store": "notebook.document records",
    "notebook.freshness": "cell certificate_reruns dependencies fingerprint hardware notebook.document notebook.store "
    "records settings",
    "notebook.execution": "environments fingerprint history notebook.document notebook.runner notebook.store "
    "progress settings",
    "notebook.page": "formatting notebook.document notebook.execution notebook.freshness notebook.page_markup "
    "notebook.store",
    "notebook.page_markup": "notebook.page_text",
    "notebook.page_text": "records",
    "notebook.style": "",
    "notebook.build": "cell hardware notebook.document notebook.execution notebook.freshness notebook.page "
    "notebook.store progress records settings targets",
    "notebook.listeners": "notebook.build progress",
    "notebook.status": "cell formatting hardware notebook.document notebook.freshness notebook.store settings targets",
    "notebook.changes": "comparison formatting notebook.build notebook.revisions notebook.store records",
    "notebook.revisions": "comparison records settings",
    "notebook.publish": "history notebook.build records settings",
    "notebook.doctor_looks": "cell dependencies environments hardware notebook.document settings targets variants "
    "workloads",
    "notebook.doctor_variants": "hardware notebook.doctor_looks settings targets variants workloads",
    "notebook.doctor": "environments hardware notebook.doctor_looks notebook.doctor_variants settings targets variants",
    "cli": "comparison comparison_text floor_table notebook notebook.build notebook.changes notebook.doctor "
    "notebook.listeners notebook.publish notebook.revisions notebook.status settings site.draw site.intake",
}
ALLOWED = {name: set(text.split()) for name, text in {**FACTS, **MEASURING, **SHOWING, **SITE, **BUILDING}.items()}
OF_A_VARIANT = {"hardware", "workloads", "variants._base"}  # and a kernel written here
# A library that takes a second or a GPU to load, and the modules that may load it when they are imported.
HEAVY = {
    "torch": {
        "inputs",
        "reference",
        "correctness",
        "capabilities",
        "stopwatch",
        "timing",
        "failures",
        "checking",
        "ceilings",
        "profiling",
        "regimes",
        "sentinel",
        "worker",
        "kernels.*",
    },
    "triton": {"kernels.*"},
    "pandas": {"tables_csv"},
    "matplotlib": {"plots_cost", "plots_frontier", "plots_history", "plots_lines", "plots_rows", "plots_svg"},
    "uvnote": {"notebook.build", "notebook.document", "notebook.execution", "notebook.freshness", "notebook.page"},
    "pynvml": set(),
}


def modules() -> dict[str, ast.Module]:
    """Return every module of fluxbench, parsed, by its name within the package: "variants._base"."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


MODULES = modules()
VARIANTS = sorted(name for name in MODULES if name.startswith("variants.") and name != "variants._base")


def imported(tree: ast.Module) -> set[str]:
    """Return which modules of fluxbench a module imports, at its top or anywhere within."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports within fluxbench are absolute"
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name.removeprefix("fluxbench.") in MODULES else str(node.module) for name in full}
    return {name.removeprefix("fluxbench.") for name in found if name.startswith("fluxbench.")}


def imported_when_loaded(tree: ast.Module) -> set[str]:
    """Return the outermost packages that a module imports when it is imported itself."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
        elif not isinstance(node, ast.If):  # `if TYPE_CHECKING:` is never run
            found |= {
                name
                for inner in ast.walk(node)
                if not isinstance(node, ast.FunctionDef | ast.ClassDef) and isinstance(inner, ast.Import)
                for name in (alias.name.split(".")[0] for alias in inner.names)
            }
    return found


def test_every_module_has_its_line_in_the_table() -> None:
    by_rule = {"", "variants", "variants._base", *VARIANTS, *(name for name in MODULES if name.startswith("kernels"))}
    assert set(MODULES) - by_rule == set(ALLOWED)


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_module_imports_what_its_line_allows(name: str) -> None:
    assert imported(MODULES[name]) <= ALLOWED[name]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_imports_no_other_variant_and_nothing_that_measures(name: str) -> None:
    others = {module for module in imported(MODULES[name]) if not module.startswith("kernels.")}
    assert others <= OF_A_VARIANT


def test_what_all_variants_share_knows_devices_and_workloads_alone() -> None:
    assert imported(MODULES["variants._base"]) <= {"hardware", "workloads"}


def test_the_registry_imports_variants_alone() -> None:
    assert imported(MODULES["variants"]) <= {"variants._base", *VARIANTS}


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith("kernels")])
def test_a_kernel_imports_nothing_of_fluxbench(name: str) -> None:
    assert imported(MODULES[name]) == set()


def test_the_table_lets_no_measuring_module_import_a_showing_one() -> None:
    crossings = {
        (name, other) for name in {*FACTS, *MEASURING} for other in ALLOWED[name] & {*SHOWING, *SITE, *BUILDING}
    }
    assert crossings == {("bench", "tables")}


def test_the_table_lets_no_showing_module_import_a_measuring_one() -> None:
    read_only = {"fingerprint", "records", "peaks", "variants", "variants._base", *FACTS}
    crossings = {(name, other) for name in SHOWING for other in ALLOWED[name] - {*SHOWING, *read_only}}
    assert crossings == set()


def test_there_is_no_circle() -> None:
    left = {name: imported(tree) & set(MODULES) for name, tree in MODULES.items()}
    left["variants"] -= {"variants"}
    while free := {name for name, needs in left.items() if not needs & set(left)}:
        left = {name: needs for name, needs in left.items() if name not in free}
    assert left == {}


@pytest.mark.parametrize(("module", "hidden"), [("show", NOT_SHOWING), ("certificate", NOT_SHOWING - CERTIFYING)])
def test_a_showing_cell_depends_on_all_that_it_imports(module: str, hidden: set[str]) -> None:
    found, ahead = set(), {module}
    while ahead:
        found |= ahead
        ahead = {name for module in ahead for name in imported(MODULES[module]) & set(MODULES)} - found
    assert {f"{name}.py" for name in found} & hidden == set()


@pytest.mark.parametrize("library", sorted(HEAVY))
def test_a_heavy_library_is_loaded_by_its_own_modules_alone(library: str) -> None:
    loading = {name for name, tree in MODULES.items() if library in imported_when_loaded(tree)}
    by_rule = {name for name in loading if name.startswith("kernels.") and "kernels.*" in HEAVY[library]}
    assert loading - by_rule <= HEAVY[library]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("cli", "torch triton pandas matplotlib numpy uvnote"),
        ("notebook.status", "torch triton pandas matplotlib numpy"),
        ("variants", "torch triton pandas matplotlib"),
        ("show", "torch triton"),
        ("bench", "torch triton matplotlib"),
        ("certificate", "torch triton"),
        ("certificate_trials", "torch triton matplotlib"),
        ("records", "torch triton pandas matplotlib numpy"),
        ("site.draw", "torch triton pandas matplotlib numpy uvnote"),
        ("site.intake", "torch triton pandas matplotlib numpy uvnote"),
        ("floor_table", "torch triton pandas matplotlib numpy"),
    ],
)
def test_importing_a_module_leaves_what_it_does_not_need(module: str, absent: str) -> None:
    code = f"import fluxbench.{module}, sys; print(*(set({absent.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
