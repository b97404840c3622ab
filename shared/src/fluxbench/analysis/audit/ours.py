"""What was measured here, from the records of `reports/`: the largest share of the peak by operation, and by shape."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fluxbench.analysis.audit import cards
from fluxbench.analysis.audit.context import PASSES_OF, Context, NotDecidable
from fluxbench.analysis.verification.origin import device_of
from fluxbench.device.peaks import peak
from fluxbench.operations.precision import QUANTIZED
from fluxbench.operations.workload import Workload
from fluxbench.records import files
from fluxbench.records.schema import Record, RecordError
from fluxbench.records.status import Status


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A kernel's rate at one shape on one card, of kernels that compute in 16 bits."""

    target: str
    device: str
    variant: str
    passes: str
    workload: Workload
    regime: str
    ms: float
    share: float  # of the data sheet's peak
    share_at_highest_clock: float


@dataclass(frozen=True, kw_only=True)
class Ours:
    """The fastest kernel at each shape and regime, on each card."""

    measured: tuple[Measured, ...] = ()

    def best(self, passes: str) -> Measured | None:
        """Return the largest share that any shape reached; None where the passes were not measured."""
        of_passes = (one for one in self.measured if one.passes == passes)
        return max(of_passes, key=lambda one: one.share_at_highest_clock, default=None)

    def at_shape_of(self, context: Context) -> Measured | None:
        """Return the fastest of a row's own shape; None where that was not measured."""
        try:
            shape, passes, causal = context.shape, context.passes, bool(context.causal)
        except NotDecidable:
            return None
        sizes = dict(shape)
        if not context.get("kv_heads") and not context.known:
            sizes["kv_heads"] = sizes["heads"]
        same = (
            one
            for one in self.measured
            if one.passes == passes
            and bool(one.workload.shape.get("causal")) == causal
            and all(one.workload.shape.get(name, 1) == value for name, value in sizes.items())
        )
        return max(same, key=lambda one: one.share, default=None)


@functools.cache
def read(reports: Path) -> Ours:
    """Return what the records below a folder hold; what cannot be read is left out."""
    fastest: dict[tuple[str, str, str], Measured] = {}
    for folder in sorted(reports.glob("*/*/records")):
        for path in files.paths(folder):
            try:
                records = files.read(path)
            except (OSError, RecordError):
                continue
            for one in (one for record in records for one in _of_record(record, folder.parents[1].name)):
                key = (one.target, one.workload.name, one.regime)
                if key not in fastest or one.ms < fastest[key].ms:
                    fastest[key] = one
    return Ours(measured=tuple(fastest.values()))


def _of_record(record: Record, target: str) -> Iterator[Measured]:
    passes = PASSES_OF.get(record.workload.operation)
    rates = peak(device_of(record))
    is_16_bit = record.workload.dtype in ("bfloat16", "float16") and record.precision_class != QUANTIZED
    if record.status is not Status.PASSED or passes is None or rates is None or not is_16_bit:
        return
    for regime, timing in record.timings.items():
        tflops = record.workload.cost.flops / record.workload.ranks / timing.median_ms / 1e9
        yield Measured(
            target=target,
            device=device_of(record).name,
            variant=record.variant,
            passes=passes,
            workload=record.workload,
            regime=regime,
            ms=timing.median_ms,
            share=tflops / rates.bf16_tflops,
            share_at_highest_clock=tflops / cards.sustained_peak(rates),
        )
