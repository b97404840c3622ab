"""What a library or torch itself fails at, to a status and a sentence for a person."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import NamedTuple

import torch

from fluxbench.core.errors import first_sentence
from fluxbench.records.status import Status
from fluxbench.timing.memory import OUT_OF_MEMORY, is_out_of_memory
from fluxbench.worker.shortage import Shortage, shortage_of

# What CUDA and torch say where a driver is too old for what was built (CUDA's errors 35, 222, 803 and 804).
_DRIVER_TOO_OLD = re.compile(
    r"driver version is insufficient|driver on your system is too old|unsupported toolchain"
    r"|unsupported display driver|forward compatibility was attempted"
)

_LEFT_OUT = re.compile(r"This flash attention build does not support")  # FlashAttention-3, of what was not built in


class Wrong(NamedTuple):
    """What disqualifies a variant at a workload."""

    status: Status
    reason: str
    shortage: Shortage | None = None  # of memory
    of_inputs: bool = False  # which lacked memory, before any variant was called

    @property
    def is_of_output(self) -> bool:
        """Whether the output alone is wrong: the call ran, and can be timed."""
        return self.status is Status.INCORRECT


def wrong_of(error: Exception, when: str = "") -> Wrong:
    """Return what an exception of a library says; `when` it was raised comes before the reason."""
    status, reason = classify(error)
    return Wrong(status, f"{when}{reason}", shortage_of(error))


def classify(error: Exception) -> tuple[Status, str]:
    """Return the status and the sentence for an exception of a library."""
    sentence = first_sentence(error)
    text = str(error)
    if shortage := shortage_of(error):
        return Status.OUT_OF_MEMORY, str(shortage)
    if is_out_of_memory(error):
        return Status.OUT_OF_MEMORY, sentence
    if isinstance(error, ImportError) and ";" in sentence:  # it says what to do
        return Status.UNAVAILABLE, sentence
    if isinstance(error, ImportError | OSError) and "undefined symbol" in text:
        words = f"it was built for another torch than {torch.__version__}: {sentence}"
        return Status.UNAVAILABLE, f"{words}; install a build that fits"
    if isinstance(error, ImportError) or "shared object not found" in text:  # the latter is Transformer Engine's
        return Status.UNAVAILABLE, f"{sentence.rstrip('.')}; install what is missing"
    if isinstance(error, NotImplementedError):
        return Status.UNSUPPORTED, f"the library refuses this call here: {sentence}"
    if _DRIVER_TOO_OLD.search(text):
        return _refused(sentence)
    if "no kernel image is available" in text:
        return Status.UNSUPPORTED, "this build of the library has no kernels for this GPU; it is too old or too new"
    if _LEFT_OUT.search(text):
        return Status.UNSUPPORTED, f"this build of the library has no kernels for this call: {sentence}"
    if "out of resource: shared memory" in text:  # Triton's, also where Inductor passes it on
        return Status.UNSUPPORTED, f"its kernel needs more shared memory than this GPU has: {sentence}"
    if "No available kernel" in text:
        return Status.UNSUPPORTED, f"torch refuses this backend here: {sentence}"
    if "InvalidCxxCompiler" in type(error).__name__ or "No working C++ compiler" in text:
        return Status.UNAVAILABLE, "torch.compile needs a C++ compiler on a CPU; install g++"
    if "Failed to find C compiler" in text or "TritonMissing" in type(error).__name__:
        return Status.UNAVAILABLE, f"Triton cannot compile here: {sentence}; install what is missing"
    return Status.ERROR, f"{type(error).__name__}: {sentence}"


def is_fatal(error: Exception) -> bool:
    """Whether a process can do nothing on its GPU any more."""
    return "CUDA error" in str(error) and OUT_OF_MEMORY not in str(error)


def unusable(device: torch.device) -> tuple[Status, str] | None:
    """Return the status and the reason why this torch cannot use the device at all, or None."""
    if device.type == "cpu":
        return None
    if not torch.cuda.is_available():
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:  # the latter of a torch without CUDA
            return _refused(first_sentence(error))
        return _refused("torch finds no GPU")
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError as error:
        return classify(error)
    return None


def _refused(cause: str) -> tuple[Status, str]:
    return Status.UNAVAILABLE, (
        f"torch {torch.__version__} (its CUDA: {torch.version.cuda or 'none'}) cannot use this GPU with {_driver()}: "
        f"{cause.rstrip('.')}; install a newer driver, or choose another torch by FLUXBENCH_TORCH"
    )


def _driver() -> str:
    """Return the driver's version and the newest CUDA that it knows, as far as it says them."""
    file = Path("/proc/driver/nvidia/version")
    version = re.search(r"\d{3,}\.[\d.]+", file.read_text(encoding="utf-8")) if file.is_file() else None
    number = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except OSError:
        return f"driver {version[0]}, without its libcuda.so.1" if version else "no NVIDIA driver"
    cuda = f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"
    return f"driver {version[0] if version else 'unknown'} which supports {cuda}"
