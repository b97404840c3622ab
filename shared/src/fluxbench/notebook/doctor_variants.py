"""Why a variant will not run on a machine, as `doctor` says it: each function returns a reason, or None."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from fluxbench import variants
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.notebook.doctor_looks import Packages, Tool
from fluxbench.operations.workloads import Workload

# torch.compile makes calls of a ready kernel of these, and no code (tried: torch 2.13 on a CPU, 2.11 on an H200).
_CALLS_ALONE = ("torch_flash", "torch_cudnn", "torch_efficient", "torch_native")


def refused(name: str, device: Device, shapes: Sequence[Workload]) -> str | None:
    """Say what of the device or the shapes a variant does not support."""
    variant, _ = variants.find(name)
    found = {shape.name: why for shape in shapes if (why := variant.supports(device, shape))}
    where = f", at {', '.join(found)}" if len(found) < len(shapes) else ""
    return next((why + where for why in found.values()), None)


def left_out(name: str, target: Target, settings: Settings) -> str | None:
    """Say that the target leaves a variant out, where not all is asked for."""
    if settings.all or not any(fnmatch.fnmatch(name, pattern) for pattern in target.leaves_out):
        return None
    return f"left out of the page of target {target.name!r} for its time; FLUXBENCH_ALL=1 measures it"


def unfit(device: Device, packages: Packages) -> str | None:
    """Say why torch cannot use the GPU, as far as versions tell."""
    torch = packages.get("torch") or ""
    if device.kind == "cuda" and torch.endswith("+cpu"):
        return f"torch {torch} was built for CPUs and cannot use this GPU; bring one that was built for CUDA"
    cuda = next((it.split(".")[0] for name, it in packages.items() if it and name.startswith("nvidia-cublas")), None)
    if cuda and device.cuda and int(cuda) > int(device.cuda.split(".")[0]):
        return f"torch brings CUDA {cuda}, and the driver knows {device.cuda} at most; install a newer driver"
    return None


def _is_compiled(name: str) -> bool:
    variant, form = variants.find(name)
    return bool(form.compile_mode) or variant.name == "flex"


def needs_compiler(name: str) -> bool:
    """Whether code is made for a variant: C++ on a CPU, and on a GPU a Triton kernel, whose launcher is C."""
    variant, _ = variants.find(name)
    return variant.name not in _CALLS_ALONE and (_is_compiled(name) or "triton" in variant.packages)


def uncompiled(name: str, device: Device, compiler: Tool, packages: Packages) -> str | None:
    """Say what a variant's code cannot be made without."""
    if device.worker_kind != "cpu" and _is_compiled(name) and not packages.get("triton"):
        return "torch.compile on a GPU needs Triton, got none; install it for FLUXBENCH_PYTHON"
    return compiler.problem if needs_compiler(name) else None
