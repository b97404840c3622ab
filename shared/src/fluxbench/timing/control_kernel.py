"""The control kernel: fixed, and timed beside every variant, so that a change of the device shows as one.

A GPU runs `kernels/control.fatbin`, machine code that was compiled once and is loaded through the CUDA driver API: no
version of torch, Triton, cuDNN or the driver's own compiler can change it. A CPU hashes a fixed text with the SHA-256
of Python's own hashlib, in which torch takes no part. If the control kernel takes longer than before, the device does.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

NAME = "control_kernel"
_IMAGE = Path(__file__).parents[1] / "kernels" / "control.fatbin"
_IMAGE_SHA256 = "314715877508d613bb074484d35a4866a1772e363f139b7ab2a5d0c99849279e"
_TILE, _DEPTH, _THREADS = 128, 64, 256  # of control.cu
_TILES, _BLOCKS, _REPEATS = 16, 1056, 48  # 0.4 ms on an H200, in four waves of its 132 multiprocessors
_TOLERANCE = 1e-3  # float32 sums of 3,072 exact products, in another order
_ENTRY = b"fluxbench_sentinel"  # the kernel's name in the machine code
_TEXT = bytes(range(256)) * 65536
_DIGEST = "341aacac661ccb210720bedaa9ead5d668fe5ea41a73532fc147c71e34040df1"


@dataclass(frozen=True, kw_only=True)
class ControlKernel:
    """A fixed call on one device. `is_right` says whether an output of it is what it must be."""

    description: str
    call: Callable[[], torch.Tensor]
    is_right: Callable[[torch.Tensor], bool]


def load(device: torch.device) -> ControlKernel:
    """Return the control kernel of a device, checked once.

    Raises `RuntimeError` with a sentence where it cannot run here, or does not compute what it must.
    """
    control = _on_gpu(device) if device.type == "cuda" else _on_cpu()
    if not control.is_right(control.call()):
        raise RuntimeError("the control kernel computed a wrong result on this device")
    return control


def _on_cpu() -> ControlKernel:
    def call() -> torch.Tensor:
        return torch.frombuffer(bytearray(hashlib.sha256(_TEXT).digest()), dtype=torch.uint8)

    python = ".".join(map(str, sys.version_info[:3]))
    return ControlKernel(
        description=f"SHA-256 of {len(_TEXT) >> 20} MiB by the hashlib of Python {python}",
        call=call,
        is_right=lambda out: bytes(out.tolist()).hex() == _DIGEST,
    )


def _on_gpu(device: torch.device) -> ControlKernel:
    image = _IMAGE.read_bytes()
    if hashlib.sha256(image).hexdigest() != _IMAGE_SHA256:  # the driver gets no length: it would read past the end
        raise RuntimeError(f"the control kernel's machine code {_IMAGE.name} is damaged; install fluxbench again")
    a, b = (_operand(seed, device) for seed in (1, 2))
    out = torch.full((_TILES, _TILE, _TILE), torch.nan, device=device, dtype=torch.float32)
    driver = ctypes.CDLL("libcuda.so.1")
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    _driver_call(driver, "cuModuleLoadData", ctypes.byref(module), image)
    _driver_call(driver, "cuModuleGetFunction", ctypes.byref(kernel), module, _ENTRY)
    arguments = (
        *(ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, out)),
        ctypes.c_int(_TILES),
        ctypes.c_int(_REPEATS),
    )
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))

    def call(_kept: object = (a, b, arguments)) -> torch.Tensor:  # the pointers alone keep nothing alive
        stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
        _driver_call(driver, "cuLaunchKernel", kernel, _BLOCKS, 1, 1, _THREADS, 1, 1, 0, stream, pointers, None)
        return out

    expected = _REPEATS * (a.double() @ b.double().transpose(1, 2))
    major, minor = torch.cuda.get_device_capability(device)

    def is_right(found: torch.Tensor) -> bool:
        error = (found.double() - expected).norm() / expected.norm()
        return bool(error < _TOLERANCE)  # false also where it is not a number

    return ControlKernel(
        description=f"bfloat16 products of {_TILE} x {_DEPTH} tiles, {_BLOCKS} x {_REPEATS}, fixed machine code "
        f"{_IMAGE_SHA256[:12]} on compute capability {major}.{minor}",
        call=call,
        is_right=is_right,
    )


def _operand(seed: int, device: torch.device) -> torch.Tensor:
    """Return `[_TILES, _TILE, _DEPTH]` bfloat16 values of a fixed integer hash (Knuth's), all exact."""
    index = torch.arange(_TILES * _TILE * _DEPTH, dtype=torch.int64) * 2 + seed
    mixed = index * 2654435761 % (1 << 32)
    mixed = (mixed ^ (mixed >> 15)) * 1103515245 % (1 << 32)
    values = (((mixed >> 24).float() - 127.5) / 64).bfloat16().view(_TILES, _TILE, _DEPTH)
    return values.to(device)  # made on the host: a process would load five kernels for it


def _driver_call(driver: ctypes.CDLL, function: str, *arguments: object) -> None:
    code = getattr(driver, function)(*arguments)
    if code:
        raise RuntimeError(f"the CUDA driver refused the control kernel: {function} returned {code}")
