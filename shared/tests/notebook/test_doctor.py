"""What `fluxbench doctor` prints of made-up machines: a fake uv, a fake interpreter, devices that are not there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doctors import H200, Machine, made_up, variant
from fakes import CPU, GPU, REPOSITORY, uv_calls, without_uv

from fluxbench import cli, variants
from fluxbench.core.settings import Settings
from fluxbench.notebook.doctor.examination import Examination
from fluxbench.notebook.doctor.tools import tools

EXCLUDED = "torch_math_compile_ma"  # from an H200's page


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return made_up(tmp_path, monkeypatch)


def running(found: Examination) -> set[str]:
    return {here.variant for here in found.variants if not here.reason}


def lacking(found: Examination) -> str:
    [sentence] = found.lacking
    return sentence


def test_on_a_healthy_cpu_the_required_variants_run_and_the_others_have_a_reason(machine: Machine) -> None:
    machine.installs()
    found = machine.examine()
    assert (found.remarks, found.lacking) == ((), ())
    assert running(found) >= {"torch_flash", "torch_flash_copy", "torch_math", "torch_native", "flex"}
    assert not running(found) & {"torch_cudnn", "flash_attn_2", "flex_eager", "torch_flash_compile_d"}
    no_gpu = "needs an NVIDIA GPU of compute capability 8.0 or newer; this is a CPU"
    assert variant(found, "torch_cudnn").reason == no_gpu
    assert str(variant(found, "flex_eager").reason).startswith(
        "target 'cpu' leaves it out, environment/targets.toml says why; "
    )
    assert [variant(found, name).is_required for name in ("torch_flash", "flex")] == [True, False]
    for detailed in (False, True):
        text = " ".join(found.text(detailed=detailed).split())
        assert text.count(no_gpu) == 1  # variants with one reason share a sentence


def test_on_a_healthy_gpu_everything_runs_but_what_its_target_excludes(machine: Machine) -> None:
    machine.is_a(H200)
    found = machine.examine()
    assert (found.lacking, found.target_is_named, found.device.driver) == ((), True, "580.65.06")
    registered = {name: variants.find(name).variant for name in variants.NAMES}
    of_forward = {
        name
        for name, each in registered.items()
        if not each.deterministic_of and not each.only_decodes and "bfloat16" in each.capabilities.dtypes
    }
    assert running(found) == of_forward - {EXCLUDED, "torch_eager", "flex_dynamic"}  # two are for many small shapes
    assert "Device: target h200, configured in environment/targets.toml" in found.text()
    machine.sets(all=True)
    assert EXCLUDED in running(machine.examine())
    machine.is_a(GPU)
    assert "target made-up, not in environment/targets.toml, so as [any]" in machine.examine().text()


def test_the_command_prints_text_or_json_and_ends_with_1(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.installs()
    machine.monkeypatch.setattr(Settings, "load", lambda: machine.settings)
    machine.monkeypatch.setenv("FLUXBENCH_WHEELS", "")
    machine.monkeypatch.setenv("UV_FIND_LINKS", "https://user:secret@registry.example/wheels")
    machine.lacks_program("git")
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out == machine.examine().text() + "\n"
    machine.has_free(0.05)
    assert cli.main(["doctor", "--json"]) == 1
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert printed["well"] is False
    assert printed["settings"] == {"UV_FIND_LINKS": "https://registry.example/wheels"}
    assert printed["remarks"] == ["git must be on PATH for `fluxbench diff FOLDER@REVISION`, got none; install it"]


@pytest.mark.parametrize(
    ("take_away", "sentence"),
    [
        (
            lambda made: without_uv(made.monkeypatch, made.folder / "programs"),
            "uv must be on PATH to build the ",
        ),
        (lambda made: made.sets(python="/bin/false"), "FLUXBENCH_PYTHON must be a working Python 3.11 or newer"),
        (lambda made: made.sets(workloads=("flux1-1024",)), "got 'flux1-1024'; did you mean 'flux1-1024px'"),
    ],
)
def test_without_a_tool_nothing_runs(machine: Machine, take_away: Callable[[Machine], None], sentence: str) -> None:
    take_away(machine)
    found = machine.examine()
    assert running(found) == set()
    assert sentence in lacking(found)


def test_without_a_cpp_compiler_a_cpu_runs_all_but_what_torch_compile_makes_code_of(machine: Machine) -> None:
    machine.installs()
    machine.lacks_program("g++")
    machine.has_programs("clang++")  # which torch does not look for
    machine.sets(all=True)
    found = machine.examine()
    assert found.lacking == ()
    problem = "torch.compile on a CPU needs a C++ compiler, got no g++; install it, or name another in CXX"
    names = [here.variant for here in found.variants if here.reason == problem]
    assert names == ["torch_math_compile_d", "torch_math_compile_ma", "flex", "flex_compile_d", "flex_compile_ma"]
    assert found.remarks == (f"{problem}; these need it: {', '.join(names)}",)
    machine.monkeypatch.setenv("CXX", "clang++")
    assert machine.reason("flex") is None


def test_in_a_path_with_spaces_torch_compile_makes_no_code_on_a_cpu(tmp_path: Path) -> None:
    for folder, found in (("a clone", "torch.compile on a CPU needs a path without spaces, got "), ("a-clone", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "environment").symlink_to(REPOSITORY / "environment")
        [compiler] = [tool for tool in tools(CPU, tmp_path / folder) if tool.name == "C++ compiler"]
        assert str(compiler.problem or "").startswith(found)
        assert bool(compiler.problem) == bool(found)
    assert not [tool.problem for tool in tools(GPU, tmp_path / "a clone") if "spaces" in str(tool.problem)]


def test_without_a_c_compiler_a_gpu_lacks_what_its_target_requires_of_triton(machine: Machine) -> None:
    machine.is_a(H200)
    machine.lacks_program("gcc")
    found = machine.examine()
    assert lacking(found) == (
        "torch_math_compile_d, flex, flex_compile_d, flex_compile_ma, triton_flash, gluon_flash, gluon_int8_fp8 "
        "must run here, and will not: Triton needs a C compiler, got no gcc or clang; install it, or name another in CC"
    )
    assert found.remarks == ()
    machine.has_programs("clang")
    assert machine.examine().lacking == ()


def test_what_is_required_of_another_notebook_is_not_missed(machine: Machine) -> None:
    machine.is_a(H200)
    machine.lacks_program("gcc")
    machine.notebook.unlink()
    machine.notebook.with_name("decode.md").symlink_to(REPOSITORY / "notebooks" / "decode.md")
    found = machine.examine()  # of which targets.toml requires nothing
    assert (found.lacking, variant(found, "flex").is_required, bool(variant(found, "flex").reason)) == ((), False, True)


def test_an_interpreter_without_torch_runs_nothing_unless_the_wheels_offer_it(machine: Machine, tmp_path: Path) -> None:
    machine.uses(numpy="2.5.2")
    found = machine.examine()
    assert (running(found), found.packages["torch"]) == (set(), None)
    assert lacking(found) == (
        "torch_flash, torch_flash_copy, torch_math, torch_native must run here, and will not: torch==2.13.0 must be "
        "installed for FLUXBENCH_PYTHON, or be a wheel in the folder of FLUXBENCH_WHEELS"
    )
    (tmp_path / "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl").touch()
    machine.sets(wheels=tmp_path)
    assert machine.examine().lacking == ()


@pytest.mark.parametrize(
    ("fields", "torch", "sentence"),
    [
        ({}, "2.13.0+cpu", "torch 2.13.0+cpu was built for CPUs and cannot use this GPU"),
        ({"cuda": "12.8"}, None, "torch brings CUDA 13, and the driver supports 12.8 at most; install a newer driver"),
        (
            {"name": "NVIDIA Made Up", "compute_capability": (3, 5)},
            None,
            "torch_math, torch_native must run here, and will not: needs compute capability 8.0 or newer; "
            "NVIDIA Made Up has 3.5",
        ),
    ],
)
def test_an_unusable_gpu_is_lacking(machine: Machine, fields: dict[str, Any], torch: str | None, sentence: str) -> None:
    machine.is_a(dataclasses.replace(H200, **fields))
    if torch:
        machine.uses(torch=torch, numpy="2.4.6", triton="3.7.1")
    assert sentence in lacking(machine.examine())


def test_a_silent_driver_and_another_process_are_remarks_and_folders_are_counted(machine: Machine) -> None:
    machine.is_a(dataclasses.replace(CPU, note="its driver does not answer"), "17 python 500 MiB")
    part = machine.settings.cache / "overlays" / "one"
    part.mkdir(parents=True)
    (part / "file").write_bytes(bytes(1000))
    found = machine.examine()
    assert found.lacking == ()
    assert found.remarks[0] == "its driver does not answer"
    assert found.remarks[1].endswith("so times may be too long: 17 python 500 MiB")
    assert found.places[0].size_bytes == 1000


def test_a_full_disk_is_lacking_everywhere(machine: Machine) -> None:
    machine.has_free(0.05)
    sentences = " ".join(machine.examine().lacking)
    assert all(name in sentences for name in ("cache (", "results (", "temporary folder (", "uv's cache ("))
    assert "0.1 GB must be free for results (" in sentences


def test_torch_with_cuda_needs_more_until_its_environment_is_there(machine: Machine) -> None:
    machine.is_a(H200)
    machine.has_free(5)
    assert "12 GB must be free, roughly, to install torch with CUDA for cache (" in lacking(machine.examine())
    machine.installs()
    found = machine.examine()
    assert (found.lacking, found.environments) == ((), 1)
    next(machine.settings.cache.glob("envs/*/ready")).unlink()
    machine.uses(torch="2.11.0", numpy="2.5.2", triton="3.6.0", **{"nvidia-cublas": "13.1.0.3"})
    assert machine.examine().lacking == ()


def test_a_cpu_is_told_of_torchs_cpu_build_where_that_would_be_used(machine: Machine) -> None:
    [sentence] = machine.examine().remarks
    assert sentence.startswith("torch-2.13.0.txt brings CUDA, ")
    assert "torch-2.13.0+cpu.txt is used where a folder that PIP_FIND_LINKS names has its wheel" in sentence
    machine.is_a(H200)
    assert machine.examine().remarks == ()
    machine.is_a(dataclasses.replace(CPU, note="its driver does not answer"))
    assert machine.examine().remarks == ("its driver does not answer",)
    machine.is_a(CPU)
    machine.sets(torch="2.15.0")  # whose lock is the only one
    assert machine.examine().remarks == ()
    machine.sets(torch=None)
    machine.uses(torch="2.13.0", numpy="2.5.2")
    assert machine.examine().remarks == ()


def test_a_broken_notebook_beside_a_good_one_is_a_remark_and_alone_it_is_lacking(machine: Machine) -> None:
    machine.installs()
    machine.rewrite('"triton_flash"', '"triton_flush"', name="other.md")
    found = machine.examine()
    [sentence] = found.remarks
    assert found.lacking == ()
    assert sentence.startswith("other.md cannot be built: variant must be a registered name, got 'triton_flush'; did ")
    machine.notebook.unlink()
    assert lacking(machine.examine()) == sentence


def test_a_variant_that_no_notebook_names_is_not_missed_and_a_pin_must_be_in_the_lock(machine: Machine) -> None:
    machine.rewrite('"torch_math", ', "")
    found = machine.examine()
    assert (variant(found, "torch_math").reason, found.lacking) == ("no notebook names it", ())
    machine.rewrite("torch==2.13.0", "torch==2.12.0")
    sentence = "torch-2.13.0.txt must lock torch==2.12.0, got 2.13.0; update it with `make lock`"
    assert sentence in lacking(machine.examine())


def test_it_makes_nothing_and_asks_uv_for_two_words(machine: Machine) -> None:
    before = sorted(machine.folder.rglob("*"))
    machine.examine()
    assert sorted(machine.folder.rglob("*")) == before
    assert [call["arguments"] for call in uv_calls(machine.folder / "uv.log")] == [["--version"], ["cache", "dir"]]
