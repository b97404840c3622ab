"""What NVML's answers become: the GPU that CUDA uses first, its MIG slice, and what else runs on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import MIB, NVMLError, gpu, write

from fluxbench.device.detect import detect
from fluxbench.device.model import Device
from fluxbench.device.nvidia import nvidia_smi, other_processes
from fluxbench.device.peaks import peak

Install = Callable[..., None]
SLICE = SimpleNamespace(name="NVIDIA H200 MIG 1g.18gb", uuid="MIG-1", memory_mib=16384)


def test_an_h200_is_described_by_everything_that_nvml_knows(linux: Path, nvml: Install) -> None:
    write(linux / "proc/cpuinfo", "model name\t: INTEL(R) XEON(R) PLATINUM 8581C\n")
    nvml(gpu(), gpu(uuid="GPU-bbbb-2"))
    assert detect() == Device(
        kind="cuda",
        name="NVIDIA H200",
        card="dad9ac5a",
        driver="580.159.04",
        cuda="13.1",
        compute_capability=(9, 0),
        memory_bytes=143771 * MIB,
        sm_clock_max_mhz=1980,
        memory_clock_max_mhz=3201,
        power_limit_w=650.0,
        power_limit_default_w=700.0,
        ecc=True,
        mig=False,
        compute_mode="default",
        count=2,
        cpu="INTEL(R) XEON(R) PLATINUM 8581C",
        os="Linux 6.18 x86_64",
    )
    nvml(gpu(mode=3))
    assert detect().compute_mode == "exclusive_process"


@pytest.mark.parametrize(
    ("unsupported", "field"),
    [
        ("ecc", "ecc"),
        ("mig", "mig"),
        ("memory_mib", "memory_bytes"),
        ("limit_mw", "power_limit_w"),
        ("default_mw", "power_limit_default_w"),
        ("sm_mhz", "sm_clock_max_mhz"),
        ("capability", "compute_capability"),
        ("mode", "compute_mode"),
        ("uuid", "card"),
    ],
)
def test_what_nvml_does_not_support_is_unknown_and_the_rest_stays(nvml: Install, unsupported: str, field: str) -> None:
    nvml(gpu())
    whole = vars(detect())
    nvml(gpu(**{unsupported: None}))
    assert vars(detect()) == {**whole, field: None}


def test_two_cards_of_a_model_differ_without_their_identifiers(nvml: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(gpu(uuid="GPU-aaaa-1"), gpu(uuid=b"GPU-bbbb-2"))
    cards = []
    for index in ("0", "1", "0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", index)
        cards.append(detect().card)
    assert cards[0] == cards[2] != cards[1]
    assert not {"aaaa", "bbbb"} & {str(card) for card in cards}


@pytest.mark.parametrize("setting", ["1", "1,0", " 1", "GPU-bbbb-2", "GPU-bb"])
def test_the_first_visible_gpu_is_used(monkeypatch: pytest.MonkeyPatch, nvml: Install, setting: str) -> None:
    nvml(gpu(), gpu(uuid="GPU-bbbb-2", limit_mw=500_000))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert detect().power_limit_w == 500.0


@pytest.mark.parametrize(
    ("only", "setting", "note"),
    [
        *((gpu(), name, f"CUDA_VISIBLE_DEVICES={name!r} leaves no NVIDIA GPU")
          for name in ("", "-1", "1", "GPU-zzzz", "MIG-zzzz")),
        (None, None, "NVML lists no GPU that answers"),
        (gpu(mig=[1, 1]), None, "MIG is on and the GPU has no MIG device; create one, or turn MIG off"),
        (gpu(name=None), None, "an NVIDIA GPU is present but its driver does not answer: Not Supported; "
         "everything runs on the CPU"),
    ],
)  # fmt: skip
def test_a_gpu_not_to_be_used_is_a_note(
    monkeypatch: pytest.MonkeyPatch, nvml: Install, only: SimpleNamespace | None, setting: str | None, note: str
) -> None:
    nvml(only)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert (detect().kind, detect().note) == ("cpu", note)


def test_a_lost_gpu_does_not_shift_the_indices_of_the_others(monkeypatch: pytest.MonkeyPatch, nvml: Install) -> None:
    nvml(None, gpu(limit_mw=500_000), gpu())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    device = detect()
    assert (device.power_limit_w, device.count, device.note) == (500.0, 1, None)


@pytest.mark.parametrize(("setting", "count"), [(None, 4), ("0,1", 2), ("3, 2,1", 3), ("GPU-aa", 1)])
def test_gpus_that_cuda_does_not_show_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, nvml: Install, setting: str | None, count: int
) -> None:
    nvml(*(gpu(uuid=f"GPU-aa{index}") for index in range(4)))
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert detect().count == count


def test_gpus_of_several_models_are_noted_for_their_order(nvml: Install) -> None:
    nvml(gpu(), gpu(name="NVIDIA L4"))
    assert detect().note == "several GPU models: they are counted as nvidia-smi counts them"
    assert detect().count == 1


@pytest.mark.parametrize("setting", [None, "0", "MIG-1"])
def test_a_mig_slice_has_no_peak(monkeypatch: pytest.MonkeyPatch, nvml: Install, setting: str | None) -> None:
    nvml(gpu(mig=[1, 1], slices=[None, SLICE]))
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    device = detect()
    assert (device.name, device.memory_bytes, device.mig) == ("NVIDIA H200 MIG 1g.18gb", 16384 * MIB, True)
    assert device.power_limit_w == 650.0
    assert peak(device) is None


def test_other_processes_are_those_that_are_not_ours(
    monkeypatch: pytest.MonkeyPatch, linux: Path, nvml: Install
) -> None:
    me, parent, child, stranger = os.getpid(), 900001, 900002, 900003
    for pid, ppid in ((me, parent), (parent, 1), (child, me), (stranger, 1), (1, 0)):
        write(linux / f"proc/{pid}/stat", f"{pid} (a name) with ) it) S {ppid} 1 1 0\n")
    running = [SimpleNamespace(pid=pid, usedGpuMemory=2048 * MIB) for pid in (me, parent, child, stranger)]
    nvml(gpu(processes=[*running, SimpleNamespace(pid=900004, usedGpuMemory=None)]))
    device = detect()
    assert other_processes(device) == ("900003 train 2048 MiB", "900004 train unknown MiB")
    write(linux / "proc/900004/stat", "900004 (another cell of the build) S 900001 1 1 0\n")
    monkeypatch.setenv("FLUXBENCH_BUILD", "900001")
    assert other_processes(device) == ("900003 train 2048 MiB",)
    assert other_processes(Device(kind="rocm", name="AMD gfx942")) == ()
    nvml(init_error=NVMLError("no"))
    assert other_processes(device) == ()
    nvml(None)
    assert other_processes(device) == ()


@pytest.mark.parametrize("exit_code", [0, 9])
def test_nvidia_smi_is_shown_without_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exit_code: int) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert nvidia_smi() is None
    printed = "|  80W /  700W | Pwr:Usage/Cap |\n|  1  844  C  /home/someone/venv/bin/python3   846MiB |"
    write(tmp_path / "bin/nvidia-smi", f"#!/bin/sh\nprintf '%s' '{printed}'\nexit {exit_code}\n").chmod(0o755)
    assert nvidia_smi() == "|  80W /  700W | Pwr:Usage/Cap |\n|  1  844  C  python3                          846MiB |"
