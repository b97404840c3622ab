"""The variables of workers: those by which a library chooses its kernels, and where compilers keep what they made."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from fake_workers import HEADER, interpreter, is_gone, log_of
from fakes import GPU, REPOSITORY, clean

from fluxbench.bench import compiler_caches, measuring
from fluxbench.bench.collected import Collected
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.environments import cell, prepare


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)


def measure(folder: Path, *names: str, python: str, device: Device = GPU) -> None:
    """Measure variants at one length with fake workers, which write what they got to a log."""
    this = cell.parse(HEADER.format("flux", 'study = "flux"\n# variants = ["torch_math"]'), "sdpa")
    settings = Settings(root=REPOSITORY, cache=folder / "cache", python=python, workloads=("flux1-512px-t128",))
    measuring.measure(this, names, device, settings, time.monotonic() + 600, Collected())


def test_variants_that_read_other_variables_have_workers_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    scenario = f"""
def before(step, variant=None, workload=None):
    while step == "ready" and len(os.listdir({str(tmp_path / "waits")!r})) < 6:
        time.sleep(0.01)
"""
    (tmp_path / "waits").mkdir()
    python = interpreter(tmp_path / "python", scenario, log=log)
    wait = f"open({str(tmp_path)!r} + f'/waits/{{os.getpid()}}', 'w').close()\nrequest_path,"
    python.write_text(python.read_text(encoding="utf-8").replace("request_path,", wait, 1), encoding="utf-8")
    measure(tmp_path, "te_fused", "te_flash", python=str(python))
    groups = [(line["request"]["variants"], line["variables"]["NVTE_FUSED_ATTN"]) for line in log_of(log)]
    assert groups == [(["te_fused"], "1")] * 3 + [(["te_flash"], "0")] * 3
    waited = [int(path.name) for path in (tmp_path / "waits").iterdir()]
    assert len(waited) == 6
    assert all(is_gone(pid) for pid in waited)
    assert list((tmp_path / "cache" / "runs").iterdir()) == []


def test_workers_inherit_no_variable_that_decides_which_kernel_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.jsonl"
    deciding = (
        *("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHINDUCTOR_MAX_AUTOTUNE", "NVTE_FUSED_ATTN"),
        *("OMP_NUM_THREADS", "KMP_AFFINITY", "MKL_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"),
        *("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF"),
    )
    for name in (*deciding, "CUDA_DEVICE_ORDER", "CUDA_HOME"):
        monkeypatch.setenv(name, "0")
    measure(tmp_path, "torch_math", python=str(interpreter(tmp_path / "python", log=log)))
    for variables in [line["variables"] for line in log_of(log)]:
        assert not variables.keys() & {*deciding}
        assert (variables["CUDA_DEVICE_ORDER"], variables["CUDA_HOME"]) == ("PCI_BUS_ID", "0")


def test_what_max_autotune_has_chosen_is_kept_by_device_and_driver(tmp_path: Path) -> None:
    known = {"device": "made up", "driver": "580", "package.torch": "2.11"}

    def folder(**changes: str) -> str:
        return compiler_caches.variables(tmp_path, known | changes)["TORCHINDUCTOR_CACHE_DIR"]

    assert folder() == folder(**{"package.torch": "2.13"})
    assert len({folder(), folder(driver="590"), folder(device="another")}) == 3


def test_kernels_of_flash_attention_4_are_kept_by_device_and_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.jsonl"
    python = str(interpreter(tmp_path / "python", log=log))

    def folders(device: Device = GPU, quack: str = "0.6.5") -> set[str]:
        monkeypatch.setattr(prepare, "describe", lambda *asked: {"package.quack-kernels": quack})
        log.unlink(missing_ok=True)
        measure(tmp_path, "torch_math", python=python, device=device)
        variables = [line["variables"] for line in log_of(log)]
        assert {each["FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"] for each in variables} == {"1"}
        return {each["FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"] for each in variables}

    (first,) = folders()  # of all processes
    assert Path(first).parent == tmp_path / "cache" / "compiled" / "flux-sdpa"
    assert folders() == {first}
    others = folders(quack="0.6.6") | folders(dataclasses.replace(GPU, name="another"))
    assert len(others - {first}) == 2
