"""A device: what is known of the accelerator, or of the CPU, that a measurement runs on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Device:
    """The first visible accelerator, or the CPU where there is none. None is "unknown", never zero."""

    kind: str  # "cuda", "rocm", "xpu", "mps" or "cpu"
    name: str  # "NVIDIA H200"; on a CPU its model
    driver: str | None = None  # "580.159.04"
    cuda: str | None = None  # the newest CUDA that the driver speaks, "13.0"
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None  # of the device, or of its MIG slice; on a CPU the RAM, or the cgroup's limit
    sm_clock_max_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    power_limit_w: float | None = None  # the one enforced, whoever set it
    power_limit_default_w: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    compute_mode: str | None = None
    card: str | None = None  # which one of its model: a hash of the driver's identifier
    count: int = 1  # how many such devices CUDA shows
    cores: int | None = None  # CPU: logical cores that this process may use
    instruction_sets: tuple[str, ...] = ()  # CPU: the ones that matter for matrix work
    cpu: str | None = None  # the host's CPU model
    os: str | None = None  # "Linux 6.18 x86_64"
    note: str | None = None  # a sentence where something is wrong or unknown

    @property
    def worker_kind(self) -> str:
        """The kind of torch device that a worker is to use: never a CPU in place of a GPU that is there."""
        return "cpu" if self.kind == "cpu" else "cuda"


# What looking for a vendor's device gives: the device, and a sentence where something of its kind needs one. Without a
# device the sentence says what is present and cannot be used.
Detected = tuple[Device | None, str | None]
