"""How the measured environment is had: by a fake uv that says what the real one says, or from a fake interpreter."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, GPU, REPOSITORY, clean, executable, fake_uv, interpreter, uv_calls, without_uv
from uvnote.parser import parse_markdown

from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import targets
from fluxbench.device.detection import Device
from fluxbench.environments import cell
from fluxbench.environments import prepare as environments

PACKAGES = ("torch==2.13.0", "numpy==2.4.6")
CPU_WHEEL = f"torch-2.13.0+cpu-cp{sys.version_info.major}{sys.version_info.minor}-cp311-manylinux_2_28_x86_64.whl"
LOCKS = REPOSITORY / "environment" / "locks"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of a fake uv that is in place."""
    clean(monkeypatch)
    return fake_uv(tmp_path, monkeypatch)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    environments._asked.cache_clear()
    return Settings(root=REPOSITORY, cache=tmp_path / "cache")


def prepare(
    settings: Settings, packages: tuple[str, ...] = PACKAGES, library: str | None = None
) -> environments.Environment:
    return environments.prepare(packages, targets.of(GPU, REPOSITORY), settings, library)


def commands(log: Path) -> list[str]:
    return [call["arguments"][0] for call in uv_calls(log)]


# By uv.


def test_an_environment_is_made_once_and_used_again(log: Path, settings: Settings) -> None:
    first, second = prepare(settings), prepare(settings)
    assert commands(log) == ["venv", "pip"]
    assert first == second
    assert Path(first.python).is_relative_to(settings.cache)


def test_a_half_made_environment_is_made_again(log: Path, settings: Settings) -> None:
    python = Path(prepare(settings).python)
    (python.parents[1] / "ready").unlink()
    prepare(settings)
    assert commands(log) == ["venv", "pip"] * 2


def test_an_environment_whose_installation_failed_is_made_again(
    log: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV_FAILS_AT_PIP", "error: no")
    with pytest.raises(SetupError):
        prepare(settings)
    monkeypatch.delenv("FAKE_UV_FAILS_AT_PIP")
    prepare(settings)
    assert commands(log) == ["venv", "pip"] * 2


def test_an_old_environment_in_the_way_is_cleared(log: Path, settings: Settings) -> None:
    prepare(settings)
    assert "--clear" in uv_calls(log)[0]["arguments"]


def test_cells_of_one_lock_share_an_environment(log: Path, settings: Settings) -> None:
    assert prepare(settings).python == prepare(settings, ("torch==2.13.0",)).python


def test_a_library_with_a_lock_of_its_own_gets_an_environment_of_its_own(log: Path, settings: Settings) -> None:
    found = {
        prepare(settings, library=library).python for library in (None, "flash-attn-2", "flash-attn-4", "xformers")
    }
    assert len(found) == 4


def test_all_of_the_locks_is_installed_by_hash_from_wheels_and_nothing_else(log: Path, settings: Settings) -> None:
    prepare(settings, (*PACKAGES, "flash-attn==2.8.3.post2"), library="flash-attn-2")
    arguments = uv_calls(log)[1]["arguments"]
    assert {"--require-hashes", "--no-deps", "--no-build"} <= set(arguments)
    files = [arguments[i + 1] for i, argument in enumerate(arguments) if argument == "--requirements"]
    assert files == [str(LOCKS / "torch-2.13.0.txt"), str(LOCKS / "flash-attn-2.txt")]


def test_a_lock_that_is_not_there_is_said(log: Path, settings: Settings) -> None:
    with pytest.raises(SetupError, match=r"a cell's lock must be a file of environment/locks, got 'flash-attn-5'"):
        prepare(settings, library="flash-attn-5")


def test_a_package_that_the_lock_does_not_hold_is_refused_before_anything_is_made(
    log: Path, settings: Settings
) -> None:
    with pytest.raises(SetupError, match=r"torch-2.13.0.txt must lock flash-attn==2.8.3, got nothing; .* `make lock`"):
        prepare(settings, ("torch==2.13.0", "flash-attn==2.8.3"))
    with pytest.raises(SetupError, match=r"torch-2.13.0.txt or sage.txt must lock flash-attn==2.8.3, got nothing"):
        prepare(settings, ("torch==2.13.0", "flash-attn==2.8.3"), "sage")
    assert commands(log) == []


def test_a_version_that_the_lock_does_not_hold_is_refused(log: Path, settings: Settings) -> None:
    with pytest.raises(SetupError, match=r"must lock torch==2.12.0, got 2.13.0"):
        prepare(settings, ("torch==2.12.0",))


def test_a_missing_uv_is_said_with_what_to_do(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_uv(monkeypatch, tmp_path)
    with pytest.raises(SetupError, match=r"uv must be on PATH .*, got none; run `make setup`"):
        prepare(settings)


# What uv 0.13.8 prints in each of these cases, and the advice that fits.
NO_NETWORK = """\
error: Failed to fetch: https://registry.example/simple/torch/
  cause: error sending request for url (https://registry.example/simple/torch/)
  cause: client error (Connect)
  cause: dns error
  cause: failed to lookup address information: Name or service not known
"""
REFUSED = """\
error: Failed to fetch: http://user:secret@registry.example:8080/simple/torch/
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
OFFLINE = """\
error: No solution found when resolving dependencies
  cause: Because torch was not found in the cache and you require torch==2.13.0, we can conclude that your \
requirements are unsatisfiable.

hint: Packages were unavailable because the network was disabled.
"""
HASH_MISMATCH = """\
error: Failed to download `numpy==2.4.6`
  cause: Hash mismatch for `numpy==2.4.6`

         Expected:
           sha256:0000000000000000000000000000000000000000000000000000000000000000

         Computed:
           sha256:89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93
"""
FULL_DISK = """\
error: Failed to install: torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (torch==2.13.0)
  cause: failed to copy file to libtorch_cpu.so
  cause: No space left on device (os error 28)
"""
UNFIT = """\
error: No solution found when resolving dependencies
  cause: Because torch==2.13.0 has no wheels with a matching Python ABI tag (e.g., `cp311`) and you require \
torch==2.13.0, we can conclude that your requirements are unsatisfiable.

hint: You require CPython 3.11 (`cp311`), but we only found wheels for `torch` (v2.13.0) with `cp39`
"""
DAMAGED = """\
error: No solution found when resolving dependencies
  cause: Because numpy==2.4.6 has an invalid package format and you require numpy==2.4.6, we can conclude that your \
requirements are unsatisfiable.
"""
NOT_BUILT = """\
error: No solution found when resolving dependencies
  cause: Because flash-attn==2.8.3.post2 has no usable wheels and you require flash-attn==2.8.3.post2, we can conclude \
that your requirements are unsatisfiable.

hint: Wheels are required for `flash-attn` because building from source is disabled for all packages
"""


@pytest.mark.parametrize(
    ("printed", "advice"),
    [
        (NO_NETWORK, "check the network, or name a folder of wheels in FLUXBENCH_WHEELS"),
        (REFUSED, "check the network, or name a folder of wheels in FLUXBENCH_WHEELS"),
        (OFFLINE, "bring a wheel that fits, or allow the network"),
        (HASH_MISMATCH, "name a folder without it in UV_FIND_LINKS, or lock it anew"),
        (FULL_DISK, "free some disk space and run it again"),
        (UNFIT, "bring a wheel that fits"),
        (NOT_BUILT, "no registry has this wheel: build it as environment/locks/*.in say"),
        (DAMAGED, "bring a wheel that fits this Python and platform"),
    ],
)
def test_what_uv_says_becomes_one_sentence_with_advice_and_no_address(
    log: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, printed: str, advice: str
) -> None:
    monkeypatch.setenv("FAKE_UV_FAILS_AT_PIP", printed)
    with pytest.raises(SetupError) as caught:
        prepare(settings)
    said = str(caught.value)
    assert said.startswith("uv could not build the measured environment: ")
    assert advice in said
    assert "\n" not in said
    assert not re.search(r"://|registry\.example|secret", said)


def test_a_long_story_of_uv_is_cut(log: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_UV_FAILS_AT_PIP", "error: " + "no solution " * 200)
    with pytest.raises(SetupError) as caught:
        prepare(settings)
    assert len(str(caught.value)) < 500


def test_a_uv_that_dies_without_a_word_is_said_to(
    log: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV_FAILS_AT_VENV", " ")
    with pytest.raises(SetupError, match=r"it ended with exit code 1 and said nothing; run it again"):
        prepare(settings)


# Which lock, and from where.


def described(
    settings: Settings,
    device: Device = CPU,
    packages: tuple[str, ...] = PACKAGES,
    library: str | None = None,
    **changes: Any,
) -> dict[str, str]:
    changed = dataclasses.replace(settings, **changes)
    return environments.describe(packages, targets.of(device, REPOSITORY), changed, library)


def lock_of(settings: Settings, device: Device = CPU) -> str:
    return described(settings, device)["lock"].split()[0]


@pytest.mark.parametrize("variable", ["PIP_FIND_LINKS", "UV_FIND_LINKS"])
def test_the_cpu_build_is_taken_where_a_folder_offers_it(
    log: Path, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    (tmp_path / CPU_WHEEL).touch()
    monkeypatch.setenv(variable, str(tmp_path))
    assert lock_of(settings) == "torch-2.13.0+cpu.txt"


def test_the_cpu_build_is_installed_from_its_own_lock(
    log: Path, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CPU_WHEEL).touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    environments.prepare(PACKAGES, targets.of(CPU, REPOSITORY), settings)
    arguments = uv_calls(log)[1]["arguments"]
    assert arguments[arguments.index("--requirements") + 1] == str(LOCKS / "torch-2.13.0+cpu.txt")


@pytest.mark.parametrize(
    "wheel",
    [
        "torch-2.12.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.13.0+cpu-cp39-cp39-manylinux_2_28_x86_64.whl",
        "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.13.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl",
    ],
)
def test_a_folder_that_offers_another_build_is_not_taken_for_the_cpu_build(
    log: Path, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, wheel: str
) -> None:
    (tmp_path / wheel).touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert lock_of(settings) == "torch-2.13.0.txt"


def test_the_cpu_build_is_not_taken_for_a_gpu(
    log: Path, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CPU_WHEEL).touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert lock_of(settings, GPU) == "torch-2.13.0.txt"


PYTHON = ".".join(map(str, sys.version_info[:3]))


def test_a_result_depends_on_the_lock_and_on_its_own_versions_of_the_packages(
    log: Path, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CPU_WHEEL).touch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    digest = hashlib.sha256((LOCKS / "torch-2.13.0+cpu.txt").read_bytes()).hexdigest()
    assert described(settings) == {
        "way": "uv",
        "python": PYTHON,
        "lock": f"torch-2.13.0+cpu.txt {digest[:12]}",
        "package.torch": "2.13.0+cpu",
        "package.numpy": "2.4.6",
    }
    assert commands(log) == []


def test_on_a_gpu_it_depends_on_the_libraries_that_pick_kernels_as_well(log: Path, settings: Settings) -> None:
    locked = pins("torch-2.13.0.txt")
    found = described(settings, GPU)
    assert {name: version for name, version in found.items() if name.startswith("package.")} == {
        f"package.{name}": locked[name] for name in ("torch", "numpy", "triton", "nvidia-cudnn-cu13", "nvidia-cublas")
    }


def test_a_package_that_the_lock_does_not_hold_is_described_by_its_pin(log: Path, settings: Settings) -> None:
    assert described(settings, GPU, ("torch==2.13.0", "flash-attn==2.8.3"))["package.flash-attn"] == "2.8.3"


def test_a_library_s_result_depends_on_its_lock_and_on_all_that_this_holds(log: Path, settings: Settings) -> None:
    digest = hashlib.sha256((LOCKS / "flash-attn-2.txt").read_bytes()).hexdigest()
    found = described(settings, GPU, (*PACKAGES, "flash-attn==2.8.3.post2"), "flash-attn-2")
    assert found["library_lock"] == f"flash-attn-2.txt {digest[:12]}"
    assert found["lock"].startswith("torch-2.13.0.txt ")
    assert found["package.flash-attn"] == "2.8.3.post2"
    assert found["package.einops"] == pins("flash-attn-2.txt")["einops"]
    assert found["package.torch"] == "2.13.0"


def test_a_lock_that_changes_is_another_one(
    log: Path, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = tmp_path / "environment" / "locks"
    locks.mkdir(parents=True)
    target = dataclasses.replace(targets.of(GPU, REPOSITORY), locks=("a.txt",))
    there = dataclasses.replace(settings, root=tmp_path)
    found = []
    for more in ("", "sympy==1.14.0\n"):
        (locks / "a.txt").write_text(f"torch==2.13.0\n{more}", encoding="utf-8")
        found.append(environments.describe(("torch==2.13.0",), target, there))
    assert found[0]["lock"] != found[1]["lock"]
    assert {**found[0], "lock": ""} == {**found[1], "lock": ""}


def test_a_target_whose_every_lock_needs_a_wheel_that_is_not_offered_says_so(log: Path, settings: Settings) -> None:
    target = dataclasses.replace(targets.of(CPU, REPOSITORY), locks=("torch-2.13.0+cpu.txt",))
    with pytest.raises(SetupError, match=r"need wheels that no folder offers; name their folder in UV_FIND_LINKS"):
        environments.prepare(PACKAGES, target, settings)


def test_the_folders_that_pip_is_told_of_are_carried_over_to_uv(
    log: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/one /two")
    prepare(settings)
    assert uv_calls(log)[1]["variables"]["UV_FIND_LINKS"] == "/one,/two"


def test_the_folders_that_uv_is_told_of_win_over_those_of_pip(
    log: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/one")
    monkeypatch.setenv("UV_FIND_LINKS", "/two")
    prepare(settings)
    assert uv_calls(log)[1]["variables"]["UV_FIND_LINKS"] == "/two"


def test_a_folder_of_wheels_takes_the_place_of_the_network(log: Path, tmp_path: Path, settings: Settings) -> None:
    prepare(dataclasses.replace(settings, wheels=tmp_path))
    assert "--no-index" in uv_calls(log)[1]["arguments"]
    found = uv_calls(log)[1]["variables"]
    assert (found["UV_FIND_LINKS"], found["UV_NO_INDEX"], found["UV_OFFLINE"]) == (str(tmp_path), "1", "1")


# The ambient way.


def test_an_interpreter_that_has_everything_is_used_as_it_is(log: Path, tmp_path: Path, settings: Settings) -> None:
    python = str(interpreter(tmp_path / "python", torch="2.9.0a0+nv25.9", numpy="1.26.4"))
    assert prepare(dataclasses.replace(settings, python=python)) == environments.Environment(python=python)
    assert commands(log) == []


def test_the_versions_of_an_interpreter_are_what_a_result_depends_on(
    log: Path, tmp_path: Path, settings: Settings
) -> None:
    python = str(interpreter(tmp_path / "python", torch="2.9.0a0+nv25.9", numpy="1.26.4", triton="3.6.0"))
    assert described(settings, GPU, python=python) == {
        "way": "ambient",
        "python": "3.12.3",
        "package.torch": "2.9.0a0+nv25.9",
        "package.numpy": "1.26.4",
        "package.triton": "3.6.0",
    }


def test_what_an_interpreter_lacks_is_described_by_its_pin(log: Path, tmp_path: Path, settings: Settings) -> None:
    python = str(interpreter(tmp_path / "python", torch="2.9.0"))
    assert described(settings, GPU, python=python)["package.numpy"] == "2.4.6"


def test_what_an_interpreter_lacks_is_laid_over_it_by_hash_in_a_venv_of_its_own(
    log: Path, tmp_path: Path, settings: Settings
) -> None:
    python = str(interpreter(tmp_path / "python", torch="2.9.0", einops="0.8.0"))
    for wheel in ("numpy-2.4.6-cp312-cp312-any.whl", "flash_attn-2.8.3.post2-cp312-cp312-linux_x86_64.whl"):
        (tmp_path / wheel).touch()
    with_wheels = dataclasses.replace(settings, python=python, wheels=tmp_path)
    found = prepare(with_wheels, (*PACKAGES, "flash-attn==2.8.3.post2"), "flash-attn-2")
    made, installed = (call["arguments"] for call in uv_calls(log))
    overlay = Path(found.python).parents[1]
    assert overlay.is_relative_to(settings.cache)
    assert made[made.index("--python") + 1 :] == [python, str(overlay)]
    assert {"--require-hashes", "--no-deps", "--no-build"} <= set(installed)
    assert installed[installed.index("--python") + 1] == found.python
    text = Path(installed[installed.index("--requirements") + 1]).read_text(encoding="utf-8")
    assert re.findall(r"(?m)^([\w.-]+)==", text) == ["numpy", "flash-attn"]  # einops is there, if in another version
    assert pins("flash-attn-2.txt")["einops"] != "0.8.0"
    described_as = described(with_wheels, GPU, PACKAGES, "flash-attn-2")
    assert (described_as["package.einops"], described_as["package.flash-attn"]) == ("0.8.0", "2.8.3.post2")
    assert described_as["library_lock"].startswith("flash-attn-2.txt ")


def test_all_that_is_missing_is_said_and_a_long_list_is_cut(log: Path, tmp_path: Path, settings: Settings) -> None:
    python = str(interpreter(tmp_path / "python", torch="2.9.0", numpy="2.4.6"))
    ambient = dataclasses.replace(settings, python=python, wheels=tmp_path)
    with pytest.raises(SetupError, match=r"einops==0.8.2 and flash-attn==2.8.3.post2 must be installed for FLUXBENCH_"):
        prepare(ambient, PACKAGES, "flash-attn-2")
    with pytest.raises(
        SetupError, match=r"^\S+==\S+, \S+==\S+, \S+==\S+ and \d+ more must be installed for FLUXBENCH_"
    ):
        prepare(ambient, PACKAGES, "hf-kernels")


def test_what_an_interpreter_lacks_and_no_folder_holds_is_said(log: Path, tmp_path: Path, settings: Settings) -> None:
    python = str(interpreter(tmp_path / "python", torch="2.9.0"))
    with pytest.raises(SetupError, match=r"numpy==2.4.6 must be installed for FLUXBENCH_PYTHON, or lie as a wheel"):
        prepare(dataclasses.replace(settings, python=python))


@pytest.mark.parametrize("body", ["import sys; sys.exit(3)", "import os; os.abort()", "print('no JSON')"])
def test_an_interpreter_that_does_not_work_is_said(log: Path, tmp_path: Path, settings: Settings, body: str) -> None:
    python = str(executable(tmp_path / "python", body))
    with pytest.raises(SetupError, match=r"FLUXBENCH_PYTHON must be a working Python 3.11 or newer, got"):
        prepare(dataclasses.replace(settings, python=python))


def test_this_very_interpreter_says_its_versions(settings: Settings) -> None:
    packages = ("numpy==0.0.1", "a-package-that-nobody-has==1.0")
    found = described(settings, packages=packages, python=sys.executable)
    assert (found["way"], found["python"]) == ("ambient", PYTHON)
    assert found["package.numpy"] == importlib.metadata.version("numpy")
    assert found["package.a-package-that-nobody-has"] == "1.0"


def test_an_interpreter_says_the_libraries_that_pick_its_kernels_whoever_asked_for_them(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("nvidia_cudnn_cu13", "9.20.0.48"), ("Triton", "3.7.1"), ("tritonclient", "2.0")):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = described(settings, packages=("numpy==2.4.6",), python=sys.executable)
    assert (found["package.nvidia-cudnn-cu13"], found["package.triton"]) == ("9.20.0.48", "3.7.1")
    assert "package.tritonclient" not in found


# The real locks and the real notebooks.


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([\w.-]+)==([^\s;\\]+)", (LOCKS / lock).read_text(encoding="utf-8")))


def measuring_cells() -> list[cell.Cell]:
    found = []
    for notebook in sorted((REPOSITORY / "notebooks").glob("*.md")):
        for code in parse_markdown(notebook.read_text(encoding="utf-8"))[1]:
            if cell.tool_table(code.code):
                found.append(cell.parse(code.code, f"{notebook.stem}_{code.id}"))
    return found


@pytest.mark.parametrize("lock", ["torch-2.13.0.txt", "torch-2.13.0+cpu.txt"])
def test_every_pin_of_a_cell_is_in_every_lock_that_it_is_installed_from(lock: str) -> None:
    runs_here = [this for this in measuring_cells() if "+cpu" not in lock or "triton==3.7.1" not in this.packages]
    wrong = {
        f"{this.id}: {package}"
        for this in runs_here
        for package in this.packages
        if {**pins(lock), **(pins(f"{this.lock}.txt") if this.lock else {})}.get(package.split("==")[0], "").split("+")[
            0
        ]
        != package.split("==")[1]
    }
    assert wrong == set()


def test_a_cell_names_the_notebook_that_it_stands_in() -> None:
    assert [this.id for this in measuring_cells() if not this.id.startswith(f"{this.notebook}_")] == []


LIBRARIES = sorted(
    {path.stem for path in LOCKS.glob("*.in")} - {"uv", "tools", "dev", "torch-2.13.0", "torch-2.13.0+cpu"}
)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_s_lock_holds_nothing_that_torch_brings(library: str) -> None:
    assert pins(f"{library}.txt").keys() & pins("torch-2.13.0.txt").keys() == set()
    assert not [name for name in pins(f"{library}.txt") if name.endswith("-cu12")]


def test_the_wheelhouse_of_the_h200_holds_every_library() -> None:
    table = tomllib.loads((REPOSITORY / "environment" / "targets.toml").read_text(encoding="utf-8"))
    assert sorted(table["h200"]["libraries"]) == LIBRARIES


@pytest.mark.parametrize("lock", sorted(path.name for path in LOCKS.glob("*.txt")))
def test_every_package_of_a_lock_has_a_hash_and_no_index_is_named(lock: str) -> None:
    text = (LOCKS / lock).read_text(encoding="utf-8")
    packages = re.split(r"(?m)^(?=[\w.-]+==)", text)[1:]
    assert [package.split()[0] for package in packages if "--hash=sha256:" not in package] == []
    assert not re.search(r"://|--index|--find-links", text)
