"""When a worker waits for the device with patience: where it has had its turn, as at its begin and after a trial."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fluxbench.core.device_lock import DeviceLock
from fluxbench.worker import device_use
from fluxbench.worker.device_use import DeviceUse
from fluxbench.worker.needs import CONTEXT_BYTES
from fluxbench.worker.request import Request
from fluxbench.worker.shortage import Shortage


def test_the_first_short_step_and_each_that_follows_a_long_one_are_patient(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[bool, bool]] = []

    @contextlib.contextmanager
    def held(self: DeviceLock, *, short: bool, alone: bool = False, patient: bool = False) -> Iterator[None]:
        asked.append((short, patient))
        yield

    monkeypatch.setattr(DeviceLock, "held", held)
    request = Request(device="cpu", workloads=(), variants=(), references=(), lock=str(tmp_path))
    use = DeviceUse(request, torch.device("cpu"), lambda event, **fields: None)
    for name in ("preparing", "preparing", "checking", "measuring", "checking", "checking", "measuring", "measuring"):
        with use.step(name, short=name != "measuring"):
            pass
    patient = [is_patient for short, is_patient in asked if short]
    assert patient == [True, False, False, True, False]


@pytest.mark.parametrize(("lasts_s", "is_wanted", "held"), [(1.0, True, 2), (1.0, False, 1), (0.0, True, 1)])
def test_a_short_step_that_lasts_lets_those_go_first_that_wait_for_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lasts_s: float, is_wanted: bool, held: int
) -> None:
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(DeviceLock, "is_wanted", property(lambda self: is_wanted))
    monkeypatch.setattr(device_use, "_PAUSES_S", 0.5 - lasts_s)
    request = Request(device="cpu", workloads=(), variants=(), references=(), lock=str(tmp_path))
    use = DeviceUse(request, torch.device("cpu"), lambda event, name, **fields: seen.append((event, name)))
    with use.step("preparing", short=True):
        use.pause()
    assert seen.count(("phase", "preparing")) == held


class Gpu:
    """The memory of a GPU as torch says it, in GiB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserved, self.emptied = 0, 0
        self.free = iter([40, 60, 90, 90, 120])
        for name, of in {
            "is_initialized": lambda: True,
            "synchronize": lambda device: None,
            "memory_reserved": lambda device: self.reserved << 30,
            "memory_allocated": lambda device: 1 << 30,
            "mem_get_info": lambda device: (next(self.free) << 30, 140 << 30),
            "empty_cache": self.empty,
        }.items():
            monkeypatch.setattr(torch.cuda, name, of)

    def empty(self) -> None:
        self.emptied += 1


CONTEXT_GIB = CONTEXT_BYTES / 2**30


def on_gpu(tmp_path: Path, *, alone: bool = False, waits: type[BaseException] | None = None) -> DeviceUse:
    """Return the use of a GPU, which raises `waits` where it would wait."""

    def emit(event: str, name: str, **fields: object) -> None:
        if waits and name == "waiting":
            raise waits

    request = Request(device="cuda", workloads=(), variants=(), references=(), lock=str(tmp_path), alone=alone)
    return DeviceUse(request, torch.device("cuda"), emit)


def test_what_torch_keeps_for_later_is_given_back_before_others_use_the_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A call of unfused attention leaves tens of GiB, which the checks of other cells need."""
    gpu, use = Gpu(monkeypatch), on_gpu(tmp_path)
    for reserved, emptied in ((2, 0), (3, 1)):  # the first is little, which the next call gets faster
        gpu.reserved = reserved
        with use.step("checking", short=True):
            with use.step("checking", short=True):
                pass
            assert not gpu.emptied
        assert gpu.emptied == emptied


def test_a_step_that_raises_waits_for_the_device_before_others_use_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Gpu(monkeypatch)
    use, order = on_gpu(tmp_path), list[str]()
    release = DeviceLock.release

    def releases(lock: DeviceLock) -> None:
        order.append("released")
        release(lock)

    monkeypatch.setattr(DeviceLock, "release", releases)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: order.append("waited"))
    with pytest.raises(ValueError, match="too little"), use.step("measuring", short=False):
        raise ValueError("too little")
    assert order[-2:] == ["waited", "released"]

    def gone(device: torch.device) -> None:
        raise torch.AcceleratorError("the context is gone")

    monkeypatch.setattr(torch.cuda, "synchronize", gone)
    with pytest.raises(ValueError, match="too little"), use.step("measuring", short=False):
        raise ValueError("too little")  # what is told is why it failed first


def test_what_a_worker_has_reserved_it_keeps_over_its_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu, use = Gpu(monkeypatch), on_gpu(tmp_path)
    use.reserve(5 << 30)
    for reserved, emptied in ((4, 0), (6, 1)):
        gpu.reserved = reserved
        with use.step("checking", short=True):
            pass
        assert gpu.emptied == emptied
    use.reserve(7 << 30)
    assert gpu.emptied == 1
    use.reserve(3 << 30)  # the next workloads need less
    assert gpu.emptied == 2


def test_what_is_alone_on_the_device_waits_until_what_others_held_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(device_use, "_FREED_S", 0.0)
    gpu = Gpu(monkeypatch)
    on_gpu(tmp_path).take_memory()
    assert next(gpu.free) == 40  # nobody has asked
    on_gpu(tmp_path, alone=True).take_memory()
    assert next(gpu.free) == 120


_OTHER = """
import sys
from pathlib import Path
from typing import Any
from fluxbench.core.memory_ledger import MemoryLedger
ledger = MemoryLedger(Path(sys.argv[1]))
ledger.take(int(sys.argv[2]) << 30, 1 << 40)
print("has", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def other_worker(folder: Path, gib: int) -> Iterator[None]:
    """Let another process take so much memory meanwhile."""
    command = [sys.executable, "-c", _OTHER, str(folder), str(gib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.communicate("\n")


def taken_gib(folder: Path, what: str = "takes") -> float:
    return int((folder / f"{what}-{os.getpid()}").read_text()) / 2**30


@pytest.mark.parametrize(
    ("own", "room"),
    [(30, 30 + 2 + 20), (None, 20 + 2 + 20)],  # the last is what others hold over what they reserved
)
def test_what_lacked_memory_waits_for_what_it_had_and_lacked_beside_what_others_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: int | None, room: int
) -> None:
    gpu, use = Gpu(monkeypatch), on_gpu(tmp_path)
    gpu.free = iter([50] * 6)  # of 140
    assert not use.shares_memory
    with other_worker(tmp_path, 50):
        assert not use.shares_memory  # it has reserved none
        use.reserve(20 << 30)
        assert use.shares_memory
        with use.step("checking", short=True):
            assert not use.shares_memory
        gpu.reserved = 20
        use.make_room(Shortage(asked_bytes=2 << 30, free_bytes=0, total_bytes=1, own_bytes=own and own << 30))
        assert taken_gib(tmp_path) == pytest.approx(room - CONTEXT_GIB)
        use.reserve(20 << 30)
        use.make_room(None)
        assert taken_gib(tmp_path) == pytest.approx(20 + 20 + 20 - CONTEXT_GIB)


def with_driver(monkeypatch: pytest.MonkeyPatch, *, result: int, is_active: int) -> None:
    """Let the driver say whether this process has a context."""

    class Driver:
        def __init__(self, name: str) -> None:
            assert name == "libcuda.so.1"

        @staticmethod
        def cuDevicePrimaryCtxGetState(device: int, flags: Any, active: Any) -> int:
            active._obj.value = is_active
            return result

    monkeypatch.setattr(ctypes, "CDLL", Driver)


def test_what_a_process_holds_beside_torchs_memory_is_counted_before_it_takes_any_and_while_it_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu, use = Gpu(monkeypatch), on_gpu(tmp_path, waits=TimeoutError)
    with_driver(monkeypatch, result=0, is_active=0)  # torch is initialized, and has opened no context
    use.hold_context()
    with_driver(monkeypatch, result=3, is_active=0)  # CUDA_ERROR_NOT_INITIALIZED
    use.hold_context()
    assert not list(tmp_path.iterdir())
    with_driver(monkeypatch, result=0, is_active=1)
    use.hold_context()
    assert taken_gib(tmp_path, "holds") == CONTEXT_GIB
    gpu.reserved = 3
    with other_worker(tmp_path, 100), pytest.raises(TimeoutError):
        use.reserve(30 << 30)
    assert taken_gib(tmp_path) == 3 + CONTEXT_GIB
