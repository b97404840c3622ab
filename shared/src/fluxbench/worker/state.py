"""What belongs to the whole process and moves the times of others: read before and after a variant, and put back.

Compared by value. To leave something out, take its line from the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

Setting = tuple[
    Callable[[], Any], Callable[[Any], object] | None
]  # what reads it, and what writes it where that can be


def _flag(owner: Any, name: str) -> Setting:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _autocast(kind: str) -> Setting:
    return lambda: torch.is_autocast_enabled(kind), lambda on: torch.set_autocast_enabled(kind, on)


_EVERYWHERE: Mapping[str, Setting] = {
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "interop threads": (torch.get_num_interop_threads, None),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default device": (torch.get_default_device, lambda _: torch.set_default_device(None)),
    "float32 matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "inference mode": (torch.is_inference_mode_enabled, None),
    "mkldnn": (lambda: torch._C._get_mkldnn_enabled(), lambda on: torch._C._set_mkldnn_enabled(on)),
    "flush of denormal numbers": (
        lambda: bool(torch.tensor(1e-310, dtype=torch.float64, device="cpu") == 0), torch.set_flush_denormal
    ),
    "flash sdp": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "efficient sdp": (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    "math sdp": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "cudnn sdp": (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
    "16-bit sums of math sdp": (
        torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp,
    ),
    "scaled_dot_product_attention": _flag(torch.nn.functional, "scaled_dot_product_attention"),
    **{f"autocast on {kind}": _autocast(kind) for kind in ("cpu", "cuda")},
}  # fmt: skip
_AFFINITY: Mapping[str, Setting] = {
    "CPU affinity": (lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores))
}
_MATMUL = torch.backends.cuda.matmul
_ON_GPU: Mapping[str, Setting] = {
    "TF32 products": _flag(_MATMUL, "allow_tf32"),
    "bfloat16 reductions": _flag(_MATMUL, "allow_bf16_reduced_precision_reduction"),
    "float16 reductions": _flag(_MATMUL, "allow_fp16_reduced_precision_reduction"),
    "cudnn": _flag(torch.backends.cudnn, "enabled"),
    "cudnn benchmark": _flag(torch.backends.cudnn, "benchmark"),
    "cudnn deterministic": _flag(torch.backends.cudnn, "deterministic"),
    "cudnn TF32": _flag(torch.backends.cudnn, "allow_tf32"),
    "current device": (lambda: torch.cuda.current_device(), lambda index: torch.cuda.set_device(index)),
    "stream": (lambda: torch.cuda.current_stream(), lambda stream: torch.cuda.set_stream(stream)),
    "memory fraction": (
        lambda: torch.cuda.get_per_process_memory_fraction(),
        lambda share: torch.cuda.set_per_process_memory_fraction(share),
    ),
    "allocator settings": (lambda: torch._C._accelerator_getAllocatorSettings(), None),
}


class ProcessState:
    """The settings of this process on one kind of device, as they were when this was made."""

    def __init__(self, device: torch.device) -> None:
        self._settings = dict(_EVERYWHERE)
        if hasattr(os, "sched_getaffinity"):
            self._settings |= _AFFINITY
        if device.type == "cuda":
            self._settings |= _ON_GPU
        self._before = self._read()

    def _read(self) -> dict[str, Any]:
        return {name: _value(read) for name, (read, _) in self._settings.items()}

    def restore(self) -> str | None:
        """Put back what has changed since, where that can be; return why a variant is wrong that changed it, or None.

        What cannot be put back counts from now on, so that only the variant that changed it is named.
        """
        changes = []
        for name, value in self._read().items():
            if value == (before := self._before[name]):
                continue
            changes.append(f"{name} {_word(before)} -> {_word(value)}")
            write = self._settings[name][1]
            if write is None or before is None:
                self._before[name] = value
            else:
                write(before)
        return f"changes process-wide state: {', '.join(changes)}" if changes else None


def _value(read: Callable[[], Any]) -> Any:
    """Return a setting; None where this version of torch has it not, or does not say."""
    try:
        return read()
    except (AttributeError, RuntimeError):
        return None


def _word(value: Any) -> str:
    return str(sorted(value)) if isinstance(value, set) else str(value)
