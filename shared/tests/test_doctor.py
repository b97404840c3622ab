"""What `fluxbench doctor` says of made-up machines: a fake uv, a fake interpreter, devices that are not there."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import namedtuple
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from fakes import CPU, GPU, REPOSITORY, clean, executable, fake_uv, interpreter, uv_calls, without_uv

from fluxbench import variants
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.device.detection import Device
from fluxbench.notebook import doctor_looks
from fluxbench.notebook.doctor import Examination, OfVariant, examine

CPU_WHEEL = f"torch-2.13.0+cpu-cp{sys.version_info.major}{sys.version_info.minor}-cp311-manylinux_2_28_x86_64.whl"
H200 = dataclasses.replace(GPU, name="NVIDIA H200")
Usage = namedtuple("Usage", "total used free")  # what shutil.disk_usage returns


@dataclasses.dataclass
class Machine:
    """A made-up machine, healthy until a test takes something away."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    settings: Settings

    @property
    def notebooks(self) -> Path:
        return self.folder / "notebooks"

    def is_a(self, device: Device, *others: str) -> None:
        self.monkeypatch.setattr(hardware, "detect", lambda: device)
        self.monkeypatch.setattr(hardware, "other_processes", lambda device: others)

    def has_free(self, gigabytes: float) -> None:
        self.monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(0, 0, int(gigabytes * 1e9)))

    def has_programs(self, *names: str) -> None:
        for name in names:
            executable(self.folder / "programs" / name, "")

    def lacks_program(self, name: str) -> None:
        (self.folder / "programs" / name).unlink()

    def uses(self, **have: str) -> None:
        """Measure with an interpreter that has these packages and runs no code."""
        self.settings = dataclasses.replace(self.settings, python=str(interpreter(self.folder / "python", **have)))

    def examine(self) -> Examination:
        return examine(self.settings)

    def reason(self, name: str) -> str | None:
        return variant(self.examine(), name).reason


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    clean(monkeypatch)
    for name in ("CC", "CXX", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    fake_uv(tmp_path, monkeypatch)
    (tmp_path / "environment").symlink_to(REPOSITORY / "environment")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "flux.md").symlink_to(REPOSITORY / "notebooks" / "flux.md")
    found = Machine(tmp_path, monkeypatch, Settings(root=tmp_path, cache=tmp_path / "cache"))
    found.has_programs("g++", "gcc", "git")
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    found.is_a(CPU)
    found.has_free(100)
    return found


def variant(found: Examination, name: str) -> OfVariant:
    [its] = [each for each in found.variants if each.variant == name]
    return its


def running(found: Examination) -> set[str]:
    return {each.variant for each in found.variants if not each.reason}


def lacking(found: Examination) -> str:
    [sentence] = found.lacking
    return sentence


# Machines that are well.


def test_on_a_healthy_cpu_its_expected_variants_run_and_the_others_say_why_not(machine: Machine) -> None:
    found = machine.examine()
    assert found.is_well
    assert (found.remarks, found.lacking) == ((), ())
    assert running(found) == {"torch_flash", "torch_flash_copy", "torch_math", "torch_native", "flex"}
    assert variant(found, "torch_cudnn").reason == (
        "needs an NVIDIA GPU of compute capability 8.0 or newer; this is a CPU"
    )
    assert variant(found, "flex_eager").reason == (
        "left out of the page of target 'cpu' for its time; FLUXBENCH_ALL=1 measures it"
    )
    assert variant(found, "torch_flash").is_expected
    assert found.text().endswith("\n\nNothing is lacking.")


def test_on_a_healthy_gpu_everything_runs(machine: Machine) -> None:
    machine.is_a(H200)
    found = machine.examine()
    assert found.is_well
    assert running(found) == set(variants.NAMES) - {"torch_math_compile_ma"}  # which its page leaves out
    assert found.target_is_named
    assert "target h200, a table of environment/targets.toml" in found.text()
    assert "580.65.06" in found.text()


def test_a_device_without_a_table_of_its_own_is_said_to_get_that_of_any(machine: Machine) -> None:
    machine.is_a(GPU)
    found = machine.examine()
    assert not found.target_is_named
    assert "target made-up, without a table, so [any], of environment/targets.toml" in found.text()


def test_variants_with_one_reason_share_a_sentence(machine: Machine) -> None:
    text = " ".join(machine.examine().text().split())
    assert text.count(": needs an NVIDIA GPU of compute capability 8.0 or newer; this is a CPU") == 1
    assert re.search(r"torch_efficient_compile_ma[^:]*: needs an NVIDIA GPU", text)


def test_what_the_target_leaves_out_runs_where_all_is_asked_for(machine: Machine) -> None:
    machine.settings = dataclasses.replace(machine.settings, all=True)
    assert {"flex_eager", "torch_math_compile_ma"} <= running(machine.examine())


def test_the_lock_and_its_versions_are_named(machine: Machine, tmp_path: Path) -> None:
    assert machine.examine().packages["torch"] == "2.13.0"
    (tmp_path / CPU_WHEEL).touch()
    machine.monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    found = machine.examine()
    assert (found.way, str(found.lock).split()[0]) == ("uv", "torch-2.13.0+cpu.txt")
    assert found.packages["torch"] == "2.13.0+cpu"
    assert found.packages["triton"] is None
    assert found.is_well


def test_only_settings_that_are_set_are_named_and_no_password(machine: Machine) -> None:
    assert "Settings" not in machine.examine().text()
    machine.monkeypatch.setenv("FLUXBENCH_ALL", "1")
    machine.monkeypatch.setenv("FLUXBENCH_WHEELS", "")
    machine.monkeypatch.setenv("UV_FIND_LINKS", "https://user:secret@registry.example/wheels")
    assert machine.examine().settings == {
        "FLUXBENCH_ALL": "1",
        "UV_FIND_LINKS": "https://registry.example/wheels",
    }


def test_the_json_holds_the_same(machine: Machine) -> None:
    machine.lacks_program("git")
    found = machine.examine()
    read = json.loads(found.to_json())
    assert read.pop("well") is True
    assert set(read) == {field.name for field in dataclasses.fields(Examination)}
    assert read["remarks"] == list(found.remarks)
    assert read["variants"][0] == {
        "variant": "torch_flash",
        "notebooks": ["flux.md"],
        "is_expected": True,
        "reason": None,
    }
    assert read["device"]["name"] == CPU.name


# Tools.


def test_without_uv_nothing_runs_and_that_is_said_once_with_what_to_do(machine: Machine, tmp_path: Path) -> None:
    without_uv(machine.monkeypatch, tmp_path)
    machine.monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    found = machine.examine()
    assert not found.is_well
    assert running(found) == set()
    assert lacking(found) == "uv must be on PATH to build the measured environment, got none; run `make setup`"


def test_a_uv_that_does_not_start_is_lacking(machine: Machine) -> None:
    machine.monkeypatch.setenv("UV", str(executable(machine.folder / "uv", "raise SystemExit(3)")))
    assert "uv must start: " in lacking(machine.examine())


def test_without_uvnote_nothing_runs(machine: Machine) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    machine.monkeypatch.setattr(metadata, "version", version)
    found = machine.examine()
    assert lacking(found) == "uvnote must be installed beside fluxbench, got none; run `make setup`"
    assert running(found) == set()


def test_without_a_cpp_compiler_a_cpu_runs_all_but_what_torch_compile_makes_code_of(machine: Machine) -> None:
    machine.lacks_program("g++")
    machine.settings = dataclasses.replace(machine.settings, all=True)
    found = machine.examine()
    assert found.is_well
    problem = "torch.compile on a CPU needs a C++ compiler, got no g++; install it, or name another in CXX"
    names = [each.variant for each in found.variants if each.reason == problem]
    assert names == ["torch_math_compile_d", "torch_math_compile_ma", "flex", "flex_compile_d", "flex_compile_ma"]
    assert found.remarks == (f"{problem}; these need it: {', '.join(names)}",)


def test_the_cpp_compiler_that_torch_is_told_of_counts(machine: Machine) -> None:
    machine.lacks_program("g++")
    machine.has_programs("clang++")
    assert machine.reason("flex")  # torch itself does not look for it
    machine.monkeypatch.setenv("CXX", "clang++")
    assert machine.reason("flex") is None


def test_without_a_c_compiler_a_gpu_lacks_what_its_target_expects_of_triton(machine: Machine) -> None:
    machine.is_a(H200)
    machine.lacks_program("gcc")
    found = machine.examine()
    assert lacking(found) == (
        "torch_math_compile_d, flex, flex_compile_d, flex_compile_ma, triton_flash must run "
        "here, and will not: Triton needs a C compiler, got no gcc or clang; install it, or name another in CC"
    )
    assert found.remarks == ()
    machine.has_programs("clang")
    assert machine.examine().is_well


def test_a_missing_git_is_a_remark(machine: Machine) -> None:
    machine.lacks_program("git")
    found = machine.examine()
    assert found.is_well
    assert found.remarks == ("git must be on PATH for `fluxbench diff FOLDER@REVISION`, got none; install it",)


# The ambient way.


def gather(folder: Path) -> None:
    """Lay empty wheels into a folder, of all that the h200's libraries ask for."""
    table = tomllib.loads((REPOSITORY / "environment" / "targets.toml").read_text(encoding="utf-8"))
    for library in table["h200"]["libraries"]:
        lock = (REPOSITORY / "environment" / "locks" / f"{library}.txt").read_text(encoding="utf-8")
        for name, version in re.findall(r"(?m)^([\w.-]+)==([^\s;\\]+)", lock):
            (folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl").touch()


def test_an_interpreter_that_has_everything_is_well(machine: Machine, tmp_path: Path) -> None:
    machine.is_a(H200)
    machine.uses(torch="2.11.0", numpy="2.5.2", triton="3.6.0")
    gather(tmp_path)
    machine.settings = dataclasses.replace(machine.settings, wheels=tmp_path)
    found = machine.examine()
    assert found.is_well
    assert (found.way, found.lock) == ("ambient", None)
    assert running(found) == set(variants.NAMES) - {"torch_math_compile_ma"}
    assert found.packages == {"python": "3.12.3", "torch": "2.11.0", "numpy": "2.5.2", "triton": "3.6.0"}


def test_a_library_that_is_neither_there_nor_among_the_wheels_is_said(machine: Machine, tmp_path: Path) -> None:
    machine.is_a(GPU)
    machine.uses(torch="2.11.0", numpy="2.5.2", triton="3.6.0", einops="0.8.2")
    text = (machine.notebooks / "flux.md").read_text(encoding="utf-8")
    (machine.notebooks / "flux.md").unlink()
    pins = 'packages = ["torch==2.13.0", "numpy==2.4.6", "triton==3.7.1"]'
    assert pins in text
    own = text.replace(pins, f'{pins}\n# lock = "flash-attn-2"')
    (machine.notebooks / "own.md").write_text(own, encoding="utf-8")
    assert machine.reason("triton_flash") == (
        "flash-attn==2.8.3.post2 must be installed for FLUXBENCH_PYTHON, or lie as a wheel in the folder that "
        "FLUXBENCH_WHEELS names"
    )
    assert machine.reason("torch_flash") is None
    gather(tmp_path)
    machine.settings = dataclasses.replace(machine.settings, wheels=tmp_path)
    assert machine.reason("triton_flash") is None


def test_an_interpreter_without_torch_runs_nothing(machine: Machine) -> None:
    machine.uses(numpy="2.5.2")
    found = machine.examine()
    assert running(found) == set()
    assert found.packages["torch"] is None
    assert lacking(found) == (
        "torch_flash, torch_flash_copy, torch_math, torch_native must run here, and will not: torch==2.13.0 must be "
        "installed for FLUXBENCH_PYTHON, or lie as a wheel in the folder that FLUXBENCH_WHEELS names"
    )


def test_what_an_interpreter_lacks_may_lie_in_the_folder_of_wheels(machine: Machine, tmp_path: Path) -> None:
    machine.uses(torch="2.11.0")
    machine.settings = dataclasses.replace(machine.settings, wheels=tmp_path)
    (tmp_path / "numpy-2.4.5-cp312-cp312-manylinux_2_28_x86_64.whl").touch()
    assert "numpy==2.4.6 must be installed" in lacking(machine.examine())
    (tmp_path / "numpy-2.4.6-cp312-cp312-manylinux_2_28_x86_64.whl").touch()
    assert machine.examine().is_well


def test_without_triton_an_interpreter_compiles_nothing_on_a_gpu(machine: Machine) -> None:
    machine.is_a(H200)
    machine.uses(torch="2.11.0", numpy="2.5.2")
    found = machine.examine()
    assert variant(found, "torch_flash").reason is None
    assert variant(found, "torch_flash_compile_d").reason == (
        "torch.compile on a GPU needs Triton, got none; install it for FLUXBENCH_PYTHON"
    )
    assert str(variant(found, "triton_flash").reason).startswith("triton==3.7.1 must be installed")


def test_without_triton_an_interpreter_compiles_on_a_cpu(machine: Machine) -> None:
    machine.uses(torch="2.11.0", numpy="2.5.2")
    assert machine.reason("flex") is None


def test_a_torch_that_was_built_for_cpus_cannot_use_a_gpu(machine: Machine) -> None:
    machine.is_a(H200)
    machine.uses(torch="2.13.0+cpu", numpy="2.4.6", triton="3.7.1")
    assert "torch 2.13.0+cpu was built for CPUs and cannot use this GPU" in lacking(machine.examine())


def test_an_interpreter_that_does_not_work_is_lacking(machine: Machine) -> None:
    broken = executable(machine.folder / "python", "raise SystemExit(3)")
    machine.settings = dataclasses.replace(machine.settings, python=str(broken))
    found = machine.examine()
    assert "FLUXBENCH_PYTHON must be a working Python 3.11 or newer" in lacking(found)
    assert running(found) == set()


# The device.


def test_an_older_driver_than_the_locked_torch_needs_is_lacking(machine: Machine) -> None:
    machine.is_a(dataclasses.replace(H200, cuda="12.8"))
    assert lacking(machine.examine()) == (
        "torch brings CUDA 13, and the driver knows 12.8 at most; install a newer driver"
    )


def test_a_gpu_that_is_too_old_for_what_every_target_expects_is_lacking(machine: Machine) -> None:
    machine.is_a(dataclasses.replace(GPU, compute_capability=(3, 5)))
    assert lacking(machine.examine()) == (
        "torch_math, torch_native must run here, and will not: needs compute capability 5.0 or newer; "
        "NVIDIA Made Up has 3.5"
    )


def test_a_silent_driver_and_another_process_are_remarks(machine: Machine) -> None:
    machine.is_a(dataclasses.replace(CPU, note="its driver does not answer"), "17 python 500 MiB")
    found = machine.examine()
    assert found.is_well
    assert found.remarks == (
        "its driver does not answer",
        "another process is on the device, so times may be too long: 17 python 500 MiB",
    )


# Disk.


def test_a_full_disk_is_lacking_everywhere(machine: Machine) -> None:
    machine.has_free(0.05)
    found = machine.examine()
    assert not found.is_well
    assert all(
        name in " ".join(found.lacking) for name in ("cache (", "results (", "temporary folder (", "uv's cache (")
    )


def test_a_full_disk_on_which_no_temporary_file_can_be_made_is_examined_too(machine: Machine) -> None:
    def full() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    machine.monkeypatch.setattr("tempfile.gettempdir", full)
    assert not machine.examine().lacking


def test_torch_with_cuda_needs_more_than_its_environment_does_once_it_is_there(machine: Machine) -> None:
    machine.is_a(H200)
    machine.has_free(5)
    assert "12 GB must be free, roughly, to install torch with CUDA for cache (" in lacking(machine.examine())
    made = machine.settings.cache / "envs" / "0123456789abcdef"
    made.mkdir(parents=True)
    (made / "ready").touch()
    found = machine.examine()
    assert found.is_well
    assert found.environments == 1


def test_an_interpreter_that_is_provisioned_needs_no_room_for_torch(machine: Machine) -> None:
    machine.is_a(H200)
    machine.has_free(5)
    machine.uses(torch="2.11.0", numpy="2.5.2", triton="3.6.0", **{"nvidia-cublas": "13.1.0.3"})
    assert machine.examine().is_well


def test_folders_are_counted_as_far_as_time_allows(machine: Machine) -> None:
    part = machine.settings.cache / "overlays" / "one"
    part.mkdir(parents=True)
    (part / "file").write_bytes(bytes(1000))
    (part / "link").symlink_to("/")
    [cache] = [place for place in machine.examine().places if place.name == "cache"]
    assert cache.size_bytes == 1000 + (part / "link").lstat().st_size
    assert not cache.is_more
    machine.monkeypatch.setattr(doctor_looks, "_WALK_S", -1.0)
    found = machine.examine()
    assert all(place.is_more for place in found.places if place.size_bytes is not None)
    assert "more than 0.0 MB" in found.text()


# Requests and notebooks.


def test_an_unknown_workload_is_lacking_and_nothing_runs(machine: Machine) -> None:
    machine.settings = dataclasses.replace(machine.settings, workloads=("flux1-1024",))
    found = machine.examine()
    assert lacking(found).startswith("workload must be a known name, got 'flux1-1024'; did you mean 'flux1-1024px'")
    assert running(found) == set()
    assert found.workloads == ()


def test_a_broken_notebook_beside_a_good_one_is_a_remark(machine: Machine) -> None:
    (machine.notebooks / "broken.md").write_text("no cells here", encoding="utf-8")
    found = machine.examine()
    assert found.is_well
    [remark] = found.remarks
    assert remark.startswith("broken.md cannot be built: a notebook must have at least one ```python cell, got none in")


def test_a_notebook_that_names_an_unknown_variant_is_broken(machine: Machine) -> None:
    text = (machine.notebooks / "flux.md").read_text(encoding="utf-8")
    (machine.notebooks / "other.md").write_text(text.replace('"triton_flash"', '"triton_flush"'), encoding="utf-8")
    [remark] = machine.examine().remarks
    assert remark == (
        "other.md cannot be built: variant must be a registered name, got 'triton_flush'; did you mean 'triton_flash'?"
    )


def test_where_no_notebook_can_be_built_that_is_lacking(machine: Machine) -> None:
    (machine.notebooks / "flux.md").unlink()
    assert "must measure something, got none" in lacking(machine.examine())
    (machine.notebooks / "flux.md").write_text("no cells here", encoding="utf-8")
    found = machine.examine()
    assert lacking(found).startswith("flux.md cannot be built: ")
    assert found.remarks == ()


def test_a_variant_that_no_notebook_names_says_so_and_is_not_missed(machine: Machine) -> None:
    text = (machine.notebooks / "flux.md").read_text(encoding="utf-8")
    (machine.notebooks / "flux.md").unlink()
    (machine.notebooks / "less.md").write_text(text.replace('"torch_math", ', ""), encoding="utf-8")
    found = machine.examine()
    assert variant(found, "torch_math").reason == "no notebook names it"
    assert found.is_well
    assert f"less.md names {len(variants.NAMES) - 1} of {len(variants.NAMES)}" in found.text()


def test_a_pin_that_the_lock_does_not_hold_is_lacking(machine: Machine) -> None:
    text = (machine.notebooks / "flux.md").read_text(encoding="utf-8")
    (machine.notebooks / "flux.md").unlink()
    (machine.notebooks / "flux.md").write_text(text.replace("torch==2.13.0", "torch==2.12.0"), encoding="utf-8")
    assert "torch-2.13.0.txt must lock torch==2.12.0, got 2.13.0; lock it anew with `make lock`" in lacking(
        machine.examine()
    )


# What it leaves alone.


def test_it_makes_nothing_and_asks_uv_for_two_words_alone(machine: Machine) -> None:
    before = sorted(machine.folder.rglob("*"))
    machine.examine()
    assert sorted(machine.folder.rglob("*")) == before
    assert [call["arguments"] for call in uv_calls(machine.folder / "uv.log")] == [["--version"], ["cache", "dir"]]


def test_it_loads_no_heavy_library() -> None:
    code = """
import sys
import tomllib
from fluxbench.notebook.doctor import examine
from fluxbench.core.settings import Settings
found = examine(Settings.load())
found.text(), found.to_json()
print(*{"torch", "triton", "pandas", "matplotlib", "numpy"} & set(sys.modules))
"""
    variables: dict[str, Any] = {name: value for name, value in os.environ.items() if not name.startswith("FLUXBENCH_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables)
    assert done.stdout.split() == []
