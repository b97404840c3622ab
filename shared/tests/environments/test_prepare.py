"""How a measured environment is had: by a fake uv that logs its calls, or from a fake interpreter as it is."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import re
import sys
from pathlib import Path

import pytest
from fakes import CPU, GPU, REPOSITORY, clean, executable, fake_uv, interpreter, uv_calls

from fluxbench.core import progress
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import targets
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.environments import ambient
from fluxbench.environments.prepare import Environment, describe, lacking, prepare

PACKAGES = ("torch==2.13.0", "numpy==2.4.6")
FLASH = (*PACKAGES, "flash-attn==2.8.3.post2")
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
CPU_WHEEL = f"torch-2.13.0+cpu-{TAG}-{TAG}-manylinux_2_28_x86_64.whl"
PYTHON = ".".join(map(str, sys.version_info[:3]))
LOCKS = REPOSITORY / "environment" / "locks"
ON_GPU, ON_CPU = targets.of(GPU, REPOSITORY), targets.of(CPU, REPOSITORY)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of a fake uv that is in place."""
    clean(monkeypatch)
    return fake_uv(tmp_path, monkeypatch)


@pytest.fixture(params=["PIP_FIND_LINKS", "UV_FIND_LINKS"])
def offered(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A folder of wheels that one of these variables names."""
    monkeypatch.setenv(request.param, str(tmp_path))
    return tmp_path


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(root=REPOSITORY, cache=tmp_path / "cache")


def commands(log: Path) -> list[str]:
    return [call["arguments"][0] for call in uv_calls(log)]


def name_and_hash(lock: str) -> str:
    return f"{lock} {hashlib.sha256((LOCKS / lock).read_bytes()).hexdigest()[:12]}"


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([\w.-]+)==([^\s;\\]+)", (LOCKS / lock).read_text(encoding="utf-8")))


def test_an_environment_is_used_again(
    log: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "progress"))
    first = prepare(PACKAGES, ON_GPU, settings)
    steps = [json.loads(line)["step"] for line in (tmp_path / "progress").read_text(encoding="utf-8").splitlines()]
    assert steps == ["building the environment of torch==2.13.0 numpy==2.4.6", "starting workers"]
    assert prepare(PACKAGES, ON_GPU, settings) == prepare(PACKAGES[:1], ON_GPU, settings) == first
    assert commands(log) == ["venv", "pip"]
    assert Path(first.python).is_relative_to(settings.cache / "envs")
    base = getattr(sys, "_base_executable", sys.executable)
    assert uv_calls(log)[0]["arguments"][-4:] == ["--clear", "--python", base, str(Path(first.python).parents[1])]


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("error: no space left", "no space left; free some disk space and run it again"),
        (" ", "it ended with exit code 1 and printed nothing; run it again"),
    ],
)
def test_an_unfinished_environment_is_made_again(
    log: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, printed: str, sentence: str
) -> None:
    monkeypatch.setenv("FAKE_UV_FAILS_AT_PIP", printed)
    with pytest.raises(SetupError, match=f"^uv could not build the measured environment: {sentence}$"):
        prepare(PACKAGES, ON_GPU, settings)
    monkeypatch.delenv("FAKE_UV_FAILS_AT_PIP")
    prepare(PACKAGES, ON_GPU, settings)
    assert commands(log) == ["venv", "pip"] * 2


def test_what_would_be_imported_in_place_of_the_environment_is_refused(
    log: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout that a user works on has no metadata, so a record would name the version of the environment."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = Path(prepare(PACKAGES, ON_GPU, settings).python).parents[1]
    installed, checkout = folder / "lib" / "python3.12" / "site-packages", tmp_path / "checkout"
    for package in (installed / "flash_attn", installed / "nvidia", checkout / "flash_attn", checkout / "mine"):
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    for module in (installed / "six.py", installed / "_C.abi3.so", installed / "tests.txt", checkout / "tests.txt"):
        module.touch()
    (checkout / "nvidia").mkdir()  # no package: one that is comes first, wherever it is
    monkeypatch.setenv("PYTHONPATH", f"relative:{tmp_path / 'absent'}:{checkout}")
    with pytest.raises(
        SetupError, match=r"^PYTHONPATH must hold nothing that .*, got flash_attn: that would be imported"
    ):
        prepare(PACKAGES, ON_GPU, settings)
    (checkout / "flash_attn" / "__init__.py").unlink()
    assert prepare(PACKAGES, ON_GPU, settings)
    (checkout / "_C.so").touch()
    (checkout / "six.py").touch()
    with pytest.raises(SetupError, match="got _C, six: that"):
        prepare(PACKAGES, ON_GPU, settings)


def test_all_of_the_locks_is_installed_by_hash_from_wheels(log: Path, settings: Settings, tmp_path: Path) -> None:
    python = prepare(FLASH, ON_GPU, settings, "flash-attn-2").python
    assert python != prepare(PACKAGES, ON_GPU, settings, "xformers").python
    offline = dataclasses.replace(settings, wheels=tmp_path, cache=tmp_path / "another")
    (tmp_path / "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl").touch()
    with pytest.raises(SetupError, match=r"^numpy==2.4.6 must be a wheel in the folder .*; gather it with `make"):
        prepare(PACKAGES, ON_GPU, offline)
    numpy = tmp_path / "numpy-2.4.6-cp312-cp312-any.whl"
    numpy.touch()
    assert lacking(FLASH, ON_GPU, offline, "flash-attn-2") == (
        "flash-attn==2.8.3.post2 and einops==0.8.2 must be a wheel in the folder of FLUXBENCH_WHEELS; "
        "gather it with `make wheelhouse`, or name an interpreter that holds torch in FLUXBENCH_PYTHON"
    )
    prepare(PACKAGES, ON_GPU, offline)
    numpy.unlink()
    assert lacking(PACKAGES, ON_GPU, offline) is None  # since it is built
    installed, _, from_wheels = (call for call in uv_calls(log) if call["arguments"][0] == "pip")
    assert installed["arguments"][1:] == [
        *("install", "--quiet", "--require-hashes", "--no-deps", "--no-build", "--python", python),
        *("--requirements", str(LOCKS / "torch-2.13.0.txt"), "--requirements", str(LOCKS / "flash-attn-2.txt")),
    ]
    assert "--no-index" in from_wheels["arguments"]
    assert from_wheels["variables"]["UV_FIND_LINKS"] == str(tmp_path)


@pytest.mark.parametrize(
    ("packages", "library", "sentence"),
    [
        (PACKAGES, "flash-attn-5", "a cell's lock must be a file of environment/locks, got 'flash-attn-5'"),
        (FLASH, None, r"^torch-2.13.0.txt must lock flash-attn==2.8.3.post2, got nothing; .* `make lock`"),
        (FLASH, "sage", r"torch-2.13.0.txt or sage.txt must lock flash-attn==2.8.3.post2, got nothing"),
        (("torch==2.12.0",), None, r"must lock torch==2.12.0, got 2.13.0"),
    ],
)
def test_what_the_locks_do_not_hold_is_refused(
    log: Path, settings: Settings, packages: tuple[str, ...], library: str | None, sentence: str
) -> None:
    with pytest.raises(SetupError, match=sentence) as caught:
        prepare(packages, ON_GPU, settings, library)
    assert lacking(packages, ON_GPU, settings, library) == str(caught.value)
    assert lacking(PACKAGES, ON_GPU, settings) is None
    assert commands(log) == []


@pytest.mark.parametrize(
    ("device", "wheel", "lock"),
    [
        (CPU, CPU_WHEEL, "torch-2.13.0+cpu.txt"),
        (GPU, CPU_WHEEL, "torch-2.13.0.txt"),
        (CPU, CPU_WHEEL.replace("2.13.0", "2.12.0"), "torch-2.13.0.txt"),
        (CPU, CPU_WHEEL.replace(TAG, "cp39"), "torch-2.13.0.txt"),
        (CPU, CPU_WHEEL.replace("+cpu", ""), "torch-2.13.0.txt"),
        (CPU, CPU_WHEEL.replace("+cpu", "+cu130"), "torch-2.13.0.txt"),
    ],
)
def test_an_offered_cpu_build_is_taken(
    log: Path, offered: Path, settings: Settings, device: Device, wheel: str, lock: str
) -> None:
    (offered / wheel).touch()
    target = targets.of(device, REPOSITORY)
    assert describe(PACKAGES, target, settings)["lock"] == name_and_hash(lock)
    prepare(PACKAGES, target, settings)
    assert uv_calls(log)[1]["arguments"][-1] == str(LOCKS / lock)


def test_a_target_whose_every_lock_needs_a_wheel_that_is_not_offered_is_refused(log: Path, settings: Settings) -> None:
    target = dataclasses.replace(ON_CPU, locks=("torch-2.13.0+cpu.txt",))
    with pytest.raises(SetupError, match=r"locks of target 'cpu' need wheels that no folder offers; name their folder"):
        prepare(PACKAGES, target, settings)


def test_a_result_depends_on_locks_and_on_the_libraries_that_pick_kernels(offered: Path, settings: Settings) -> None:
    (offered / CPU_WHEEL).touch()
    facts = {"way": "uv", "python": PYTHON, "package.numpy": "2.4.6"}
    assert describe(PACKAGES, ON_CPU, settings) == {
        **facts, "lock": name_and_hash("torch-2.13.0+cpu.txt"), "package.torch": "2.13.0+cpu",
    }  # fmt: skip
    torch, library = pins("torch-2.13.0.txt"), pins("flash-attn-2.txt")
    names = ("torch", "triton", "nvidia-cudnn-cu13", "nvidia-cublas")
    assert describe((*PACKAGES, "nowhere==1.0"), ON_GPU, settings, "flash-attn-2") == {
        **facts,
        "lock": name_and_hash("torch-2.13.0.txt"),
        "library_lock": name_and_hash("flash-attn-2.txt"),
        **{f"package.{name}": torch[name] for name in names},
        **{f"package.{name}": version for name, version in library.items()},
        "package.nowhere": "1.0",
    }


@pytest.mark.parametrize("target", [ON_GPU, ON_CPU])
def test_a_chosen_torch_replaces_the_pins_of_a_cell(offered: Path, settings: Settings, target: Target) -> None:
    (offered / CPU_WHEEL).touch()
    chosen = dataclasses.replace(settings, torch="2.15.0")
    newer = pins("torch-2.15.0.txt")
    facts = describe((*PACKAGES, "triton==3.7.1"), target, chosen)
    assert facts["lock"] == name_and_hash("torch-2.15.0.txt")
    assert (facts["package.torch"], facts["package.triton"]) == ("2.15.0", newer["triton"]) == ("2.15.0", "3.9.0")
    assert facts["package.nvidia-cudnn-cu13"] == newer["nvidia-cudnn-cu13"]
    assert lacking(PACKAGES, target, chosen) is None
    assert describe(PACKAGES, target, dataclasses.replace(settings, torch="2.13.0")) == describe(
        PACKAGES, target, settings
    )


def test_a_library_s_lock_is_installed_on_the_chosen_torch(log: Path, settings: Settings) -> None:
    prepare(FLASH, ON_GPU, dataclasses.replace(settings, torch="2.15.0"), "flash-attn-2")
    requirements = [argument for argument in uv_calls(log)[1]["arguments"] if argument.endswith(".txt")]
    assert requirements == [str(LOCKS / "torch-2.15.0.txt"), str(LOCKS / "flash-attn-2.txt")]


def test_an_interpreter_that_has_everything_is_used_as_it_is(log: Path, tmp_path: Path, settings: Settings) -> None:
    python = str(interpreter(tmp_path / "python", torch="2.9.0a0+nv25.9", numpy="1.26.4", triton="3.6.0"))
    ambient = dataclasses.replace(settings, python=python)
    assert prepare(PACKAGES, ON_GPU, ambient) == Environment(python=python)
    assert commands(log) == []
    assert describe(PACKAGES, ON_GPU, ambient) == {
        "way": "ambient",
        "python": "3.12.3",
        "package.torch": "2.9.0a0+nv25.9",
        "package.numpy": "1.26.4",
        "package.triton": "3.6.0",
    }


@pytest.mark.parametrize(
    ("have", "packages", "library", "sentence"),
    [
        ({}, PACKAGES, None, r"^numpy==2.4.6 must be installed for FLUXBENCH_PYTHON, or be a wheel in the folder"),
        ({}, FLASH, None, r"^torch-2.13.0.txt must lock flash-attn==2.8.3.post2, got nothing"),
        ({"numpy": "2"}, PACKAGES, "flash-attn-2", r"^einops==0.8.2 and flash-attn==2.8.3.post2 must be installed for"),
        ({"numpy": "2"}, PACKAGES, "hf-kernels", r"^\S+==\S+, \S+==\S+, \S+==\S+ and \d+ more must be installed for"),
    ],
)
def test_what_an_interpreter_lacks_and_no_folder_offers_is_said(
    log: Path, settings: Settings, have: dict[str, str], packages: tuple[str, ...], library: str | None, sentence: str
) -> None:
    python = str(interpreter(log.parent / "python", torch="2.9.0", **have))
    (log.parent / "numpy-2.4.60-cp312-cp312-any.whl").touch()
    ambient = dataclasses.replace(settings, python=python, wheels=log.parent)
    with pytest.raises(SetupError, match=sentence) as caught:
        prepare(packages, ON_GPU, ambient, library)
    assert lacking(packages, ON_GPU, ambient, library) == str(caught.value)


@pytest.mark.parametrize("body", ["import sys; sys.exit(3)", "print('no JSON')", "print('{}')"])
def test_an_interpreter_that_does_not_work_is_refused(log: Path, tmp_path: Path, settings: Settings, body: str) -> None:
    python = str(executable(tmp_path / "python", body))
    with pytest.raises(SetupError, match=r"FLUXBENCH_PYTHON must be a working Python 3.11 or newer, got .*/python: "):
        prepare(PACKAGES, ON_GPU, dataclasses.replace(settings, python=python))


def test_a_real_interpreter_reports_its_packages(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean(monkeypatch)
    for name, version in (("nvidia_cudnn_cu13", "9.20.0.48"), ("Triton", "3.7.1"), ("tritonclient", "2.0")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
        )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ambient.inspect.cache_clear()
    facts = describe(("numpy==0.0.1", "absent==1.0"), ON_CPU, dataclasses.replace(settings, python=sys.executable))
    assert (facts["way"], facts["python"], facts["package.absent"]) == ("ambient", PYTHON, "1.0")
    assert facts["package.numpy"] == importlib.metadata.version("numpy")
    assert (facts["package.nvidia-cudnn-cu13"], facts["package.triton"]) == ("9.20.0.48", "3.7.1")
    assert "package.tritonclient" not in facts
