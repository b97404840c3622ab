"""Why a variant will not run on a machine: each function returns a reason, or None."""

from __future__ import annotations

from collections.abc import Sequence

from fluxbench import operations, variants
from fluxbench.device.model import Device
from fluxbench.notebook.doctor.notebooks import Packages
from fluxbench.notebook.doctor.tools import Tool
from fluxbench.operations.workload import Workload

# torch.compile makes calls of a ready kernel of these, and no code (tried: torch 2.13 on a CPU, 2.11 on an H200).
_CALLS_ALONE = ("torch_flash", "torch_cudnn", "torch_efficient", "torch_native")


def unsupported(name: str, device: Device, workloads: Sequence[Workload]) -> str | None:
    """Return what of the device or the workloads a variant does not support; None if it runs at some of them."""
    formed = variants.find(name)
    calls = (operations.find(workload.operation).attention(workload.shape) for workload in workloads)
    reasons = [formed.supports(device, call) for call in calls]
    return reasons[0] if reasons and all(reasons) else None


def unfit(device: Device, packages: Packages) -> str | None:
    """Return why torch cannot use the GPU, as far as versions tell."""
    torch = packages.get("torch") or ""
    if device.kind == "cuda" and torch.endswith("+cpu"):
        return f"torch {torch} was built for CPUs and cannot use this GPU; bring one that was built for CUDA"
    versions = (version for name, version in packages.items() if version and name.startswith("nvidia-cublas"))
    cuda = next((version.split(".")[0] for version in versions), None)
    if cuda and device.cuda and int(cuda) > int(device.cuda.split(".")[0]):
        return f"torch brings CUDA {cuda}, and the driver supports {device.cuda} at most; install a newer driver"
    return None


def needs_compiler(name: str) -> bool:
    """Whether code is made for a variant: C++ on a CPU, and on a GPU a Triton kernel, whose launcher is C."""
    formed = variants.find(name)
    return formed.variant.name not in _CALLS_ALONE and (formed.compiles or "triton" in formed.variant.packages)


def uncompiled(name: str, device: Device, compiler: Tool, packages: Packages) -> str | None:
    """Return what a variant's code cannot be made without."""
    if device.worker_kind != "cpu" and variants.find(name).compiles and not packages.get("triton"):
        return "torch.compile on a GPU needs Triton, got none; install it for FLUXBENCH_PYTHON"
    return compiler.problem if needs_compiler(name) else None
