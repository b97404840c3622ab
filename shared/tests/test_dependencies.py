"""What a measuring cell's result depends on: its own variants' files and no others, read off a copy of the package."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, GPU, NEWER_DRIVER, REPOSITORY, clean

from fluxbench import variants
from fluxbench.bench import dependencies
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.detection import Device
from fluxbench.environments import cell
from fluxbench.records import fingerprint
from fluxbench.records.fingerprint import Fingerprint

PACKAGE = Path(fingerprint.__file__).parent
SOURCE = """\
# /// script
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# ///
"""
THIS = cell.parse(SOURCE, "sdpa")
ASK = """
import json, sys
from pathlib import Path
from fluxbench.bench import dependencies
from fluxbench.environments import cell
from fluxbench.device.detection import Device
from fluxbench.core.settings import Settings

root, source, *names = sys.argv[1:]
assert not Path(dependencies.__file__).is_relative_to(root), "the copy is asked, not the repository"
settings = Settings(root=Path(root), cache=Path("cache"))
print(json.dumps(dict(dependencies.of(cell.parse(source, "a"), names, Device(kind="cuda", name="made up"), settings))))
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)


def depends(package: Path, *names: str) -> Fingerprint:
    """Return what a cell that measures these would depend on, as a fresh process with that package says."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLUXBENCH_", "UV", "PIP_"))}
    path = os.pathsep.join(filter(None, (str(package.parent), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(REPOSITORY), SOURCE, *names],
        env={**inherited, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: Fingerprint = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def as_it_is(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Fingerprint]:
    """What cells depend on with the package as it is."""
    package = tmp_path_factory.mktemp("as_it_is") / "fluxbench"
    copy_to(package)
    return functools.cache(functools.partial(depends, package))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    return copy_to(tmp_path / "fluxbench")


def copy_to(package: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__")))


def change(package: Path, *files: str) -> None:
    for file in files:
        with (package / file).open("ab") as changed:
            changed.write(b"\n# changed\n")


MEASURING = ["timing.py", "sentinel.py", "kernels/sentinel.fatbin", "variants/_base.py"]
REFERENCES = ["variants/torch_flash.py", "variants/torch_efficient.py", "variants/torch_math.py"]


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (("flex",), [*MEASURING, *REFERENCES, "variants/flex.py"]),
        (("flex_compile_d", "torch_cudnn"), ["variants/flex.py", "variants/torch_cudnn.py"]),
        (("triton_flash",), ["kernels/flash_forward.py", "variants/triton_flash.py"]),
        ((), [*MEASURING, "ceilings.py"]),
    ],
)
def test_a_change_to_each_of_these_files_is_named(
    as_it_is: Callable[..., Fingerprint], package: Path, names: tuple[str, ...], files: list[str]
) -> None:
    change(package, *files)
    found = fingerprint.differences(as_it_is(*names), depends(package, *names))
    assert sorted(found) == sorted(f"{file} changed" for file in files)


SHOWING = ["tables.py", "plots.py", "cli.py", "variants/__init__.py", "notebook/build.py"]


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (("flex",), ["ceilings.py", "kernels/flash_forward.py", "variants/triton_flash.py", "variants/torch_cudnn.py"]),
        (("triton_flash",), ["ceilings.py", "variants/flex.py", "variants/torch_native.py"]),
        ((), ["variants/flex.py", "variants/triton_flash.py", "kernels/flash_forward.py", *REFERENCES]),
    ],
)
def test_what_other_cells_measure_or_what_shows_changes_nothing(
    as_it_is: Callable[..., Fingerprint], package: Path, names: tuple[str, ...], files: list[str]
) -> None:
    change(package, *files, *SHOWING)
    assert depends(package, *names) == as_it_is(*names)


MADE_UP = '''"""Made up; `fluxbench.kernels.forgotten` was its kernel before."""

from fluxbench.variants import _base


def load():
    from fluxbench.kernels import made_up

    return made_up.attention


VARIANT = _base.Variant(name="made_up", load=load)
'''


def add_a_variant(package: Path) -> None:
    (package / "variants" / "made_up.py").write_text(MADE_UP, encoding="utf-8")
    (package / "kernels" / "made_up.py").write_text("attention = None\n", encoding="utf-8")
    registry = package / "variants" / "__init__.py"
    text = registry.read_text(encoding="utf-8")
    for line, with_it in (
        ("    triton_flash,\n", "    triton_flash,\n    made_up,\n"),
        ("    triton_flash.VARIANT,\n", "    triton_flash.VARIANT,\n    made_up.VARIANT,\n"),
    ):
        assert line in text
        text = text.replace(line, with_it)
    registry.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("names", [("flex",), ()])
def test_a_variant_that_is_added_changes_nothing_for_other_cells(
    as_it_is: Callable[..., Fingerprint], package: Path, names: tuple[str, ...]
) -> None:
    add_a_variant(package)
    assert depends(package, *names) == as_it_is(*names)


def test_a_cell_that_measures_an_added_variant_depends_on_its_file_and_its_kernel(
    as_it_is: Callable[..., Fingerprint], package: Path
) -> None:
    add_a_variant(package)
    found = depends(package, "flex", "made_up")
    assert set(found) - set(as_it_is("flex")) == {"code.variants/made_up.py", "code.kernels/made_up.py"}


def test_a_name_that_no_variant_goes_by_is_left_to_the_cell(as_it_is: Callable[..., Fingerprint]) -> None:
    assert as_it_is("flex", "no_such_variant") == as_it_is("flex")


# In this process.


def marks(device: Device = GPU, *names: str, this: cell.Cell = THIS, **settings: Any) -> Fingerprint:
    chosen = Settings(root=REPOSITORY, cache=REPOSITORY / ".cache", **settings)
    return dependencies.of(this, names or ("torch_math",), device, chosen)


@pytest.mark.parametrize("device", [CPU, GPU])
def test_the_same_cell_on_the_same_machine_depends_on_the_same(device: Device) -> None:
    assert marks(device) == marks(device)


@pytest.mark.parametrize("name", variants.NAMES)
def test_every_variant_has_a_file_that_its_cell_depends_on(name: str) -> None:
    variant, _ = variants.find(name)
    files = {key.removeprefix("code.variants/") for key in marks(GPU, name) if key.startswith("code.variants/")}
    declaring = {
        path.name
        for path in (PACKAGE / "variants").glob("[!_]*.py")
        if f'name="{variant.name}"' in path.read_text(encoding="utf-8")
    }
    assert len(declaring) == 1
    assert declaring <= files


def test_all_that_it_says_can_be_kept_in_a_record() -> None:
    found = dict(marks())
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("device", "settings", "phrases"),
    [
        (GPU, {"workloads": ("flux1-512px-t128",)}, ["workloads flux1-1024px-t128 flux1-1024px-t256"]),
        (CPU, {"all": True}, ["left out *_compile_d *_compile_ma flex_eager -> none"]),
        (NEWER_DRIVER, {}, ["driver 580.65.06 -> 580.159.04"]),
        (dataclasses.replace(GPU, power_limit_w=600.0), {}, ["power limit in W none -> 600.0"]),
    ],
)
def test_another_request_or_device_is_named(device: Device, settings: dict[str, Any], phrases: list[str]) -> None:
    found = fingerprint.differences(marks(CPU if device is CPU else GPU), marks(device, **settings))
    assert [phrase[: len(start)] for phrase, start in zip(found, phrases, strict=True)] == phrases


def test_a_changed_source_is_named() -> None:
    other = cell.parse(SOURCE + "# another line\n", "sdpa")
    assert fingerprint.differences(marks(), marks(this=other)) == ["the cell's source changed"]


def test_another_pin_is_named_with_the_source_that_holds_it() -> None:
    other = cell.parse(SOURCE.replace(', "numpy==2.4.6"', ""), "sdpa")
    found = fingerprint.differences(marks(python=sys.executable), marks(this=other, python=sys.executable))
    assert "the cell's source changed" in found
    assert [phrase for phrase in found if phrase.startswith("numpy 2.") and phrase.endswith(" -> none")] != []


def test_another_interpreter_is_named() -> None:
    found = fingerprint.differences(marks(), marks(python=sys.executable))
    assert "environment by uv -> ambient" in found


def test_a_machine_without_an_environment_still_knows_what_it_depends_on() -> None:
    found = marks(python="/missing/python")
    assert str(found["way"]).startswith("none: FLUXBENCH_PYTHON must be a working Python")
    assert found["code.timing.py"] == marks()["code.timing.py"]


def test_a_cpu_measures_the_small_images_and_a_gpu_the_large_ones() -> None:
    settings = Settings(root=REPOSITORY, cache=REPOSITORY / ".cache")
    names = [dependencies.default_workloads(device, settings)[0].name for device in (CPU, GPU)]
    assert names == ["flux1-512px-t128", "flux1-1024px-t128"]


def test_an_unknown_workload_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SetupError, match=r"got 'flux1-1024'; did you mean 'flux1-1024px'\?"):
        marks(workloads=("flux1-1024",))
