"""Which variants can run at which workloads here; the others have a status without a worker."""

from __future__ import annotations

from collections.abc import Iterable

from fluxbench import operations, variants
from fluxbench.bench.collected import Collected
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device.model import Device
from fluxbench.device.targets import Target
from fluxbench.operations.protocol import Refuses
from fluxbench.operations.workload import Workload
from fluxbench.records.status import Status


def known(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names. Raises `SetupError` where one is no variant's."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        try:
            variants.find(name)
        except ValueError as error:
            raise SetupError(str(error)) from error
    return found


def gate(
    names: Iterable[str],
    workloads: Iterable[Workload],
    target: Target,
    device: Device,
    settings: Settings,
    collected: Collected,
) -> list[str]:
    """Return the variants that can run at some workload; those that cannot, or are excluded, are UNSUPPORTED there."""
    wanted = []
    for name in names:
        excluded = None if settings.all else target.excluded(name)
        for workload in workloads:
            if reason := unsupported(name, device, workload) or excluded:
                collected.fail(name, workload.name, Status.UNSUPPORTED, reason)
            elif name not in wanted:
                wanted.append(name)
    return wanted


def unsupported(name: str, device: Device, workload: Workload) -> str | None:
    """Return why a variant cannot run at a workload, or None. Raises `SetupError` where the operation is unknown."""
    try:
        asked = operations.find(workload.operation).attention(workload.shape)
    except ValueError as error:
        raise SetupError(f"workload {workload.name!r}: {error}") from error
    return refused(workload, device) or variants.find(name).supports(device, asked)


def refused(workload: Workload, device: Device) -> str | None:
    """Return why no variant can run at a workload, or None."""
    operation = operations.find(workload.operation)
    return operation.refuses(workload.shape, device) if isinstance(operation, Refuses) else None
