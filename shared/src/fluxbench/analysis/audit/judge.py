"""A table -> a judgement of every row."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fluxbench.analysis.audit import cards, growth, memory, physics, published, relations, shares, table
from fluxbench.analysis.audit.claim import Claim, Metric
from fluxbench.analysis.audit.context import Context, NotDecidable
from fluxbench.analysis.audit.finding import WRONG, Finding, Judgement, Kind, implausible
from fluxbench.analysis.audit.index import Index, with_shapes
from fluxbench.analysis.audit.ours import Ours
from fluxbench.analysis.audit.table import Entry, Options
from fluxbench.records import files
from fluxbench.records.schema import RecordError

OVER_OURS = 1.5  # times our own share of the peak from which on a figure is implausible
_ORDER = list(Judgement)
_COMPARED = {  # what cannot be judged by itself -> what is missing
    Metric.SPEEDUP: "the times that the speedup is of are not beside it",
    Metric.SHARE: "the rate that the share is of is not beside it",
}


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A row and what it is; `missing` says why it is not decidable."""

    line: int
    context: Context
    claims: tuple[Claim, ...]
    judgement: Judgement
    findings: tuple[Finding, ...] = ()
    missing: str = ""
    share: float | None = None  # of the data sheet's peak
    binary: bool = False  # its MB or GB agree with the formula only as powers of two


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The rows of a table in their order, judged."""

    table: str
    rows: tuple[Judged, ...]

    def count(self, judgement: Judgement) -> int:
        """Return how many rows are so."""
        return sum(row.judgement is judgement for row in self.rows)

    def of(self, judgement: Judgement) -> list[Judged]:
        """Return the rows that are so."""
        return [row for row in self.rows if row.judgement is judgement]

    @property
    def is_wrong(self) -> bool:
        """Whether some figure cannot be right, or cannot be if what is assumed of it holds."""
        return any(row.judgement in WRONG for row in self.rows)

    @property
    def is_decided(self) -> bool:
        """Whether some row could be judged."""
        return any(row.judgement is not Judgement.UNDECIDABLE for row in self.rows)

    def missing(self) -> Mapping[str, int]:
        """Return why rows are not decidable, with how many, most first."""
        return {reason: len(lines) for reason, lines in self.missing_lines().items()}

    def missing_lines(self) -> Mapping[str, list[int]]:
        """Return why rows are not decidable, with their lines, most first."""
        found: dict[str, list[int]] = {}
        for row in self.of(Judgement.UNDECIDABLE):
            found.setdefault(row.missing, []).append(row.line)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def audit(
    path: Path,
    *,
    gpu: str | None = None,
    causal: bool = False,
    peak_tflops: float | None = None,
    ours: Ours | None = None,
) -> Audit:
    """Judge every row of a CSV; `docs/audit.md` has the columns.

    What a row does not state is `gpu`, or the device in a page's `records/device.json`; and not causal, unless `causal`
    is set. `peak_tflops` is that of a card which is not known, in 16 bits. Raises `OSError`, and `ValueError` with a
    sentence where the table is refused whole.
    """
    options = _options(gpu or _gpu_of_page(path), causal, peak_tflops)
    return _judged(path.name, table.of_csv(path, options), ours or Ours())


@functools.cache
def of_source(name: str) -> tuple[Judged, ...]:
    """Return the rows of the published figures that are of one of their sources."""
    return tuple(row for row in _of_package().rows if row.context.get("source") == name)


@functools.cache
def _of_package() -> Audit:
    return audit(published.MEASUREMENTS)


def audit_frame(
    frame: Any,
    *,
    gpu: str | None = None,
    causal: bool = False,
    peak_tflops: float | None = None,
    ours: Ours | None = None,
) -> Audit:
    """Judge every row of a frame of pandas, as `audit` does. Raises `ValueError`."""
    return _judged("frame", table.of_frame(frame, _options(gpu, causal, peak_tflops)), ours or Ours())


def _options(gpu: str | None, causal: bool, peak_tflops: float | None) -> Options:
    return Options(gpu=gpu, causal=causal, peak=cards.given(peak_tflops) if peak_tflops else None)


def _judged(name: str, entries: Sequence[Entry], ours: Ours) -> Audit:
    entries = with_shapes(entries)
    index = Index(claim for entry in entries for claim in entry.claims)
    found: dict[Claim, list[Finding]] = {}
    compared: set[Claim] = set()
    for rule in (relations, shares, growth):
        for claim, finding in rule.judge(index):
            compared.add(claim)
            if finding:
                found.setdefault(claim, []).append(finding)
    return Audit(table=name, rows=tuple(_row(entry, found, compared, ours) for entry in entries))


def _row(entry: Entry, found: Mapping[Claim, list[Finding]], compared: set[Claim], ours: Ours) -> Judged:
    findings: list[Finding] = []
    missing = entry.missing
    share = None
    for claim in entry.claims:
        of_claim = list(found.get(claim, ()))
        share = physics.share_of_peak(claim) if share is None else share
        try:
            alone = [*physics.judge(claim), *memory.judge(claim)]
            of_claim += alone or _over_ours(claim, ours)
            _check_compared(claim, compared)
        except NotDecidable as reason:
            missing = missing or ("" if of_claim else str(reason))
        findings += of_claim
    findings.sort(key=lambda finding: _ORDER.index(finding.judgement))
    none_found = Judgement.UNDECIDABLE if missing else Judgement.FINE
    judgement = findings[0].judgement if findings else none_found
    return Judged(
        entry.line,
        entry.context,
        entry.claims,
        judgement,
        tuple(findings),
        missing if judgement is Judgement.UNDECIDABLE else "",
        share,
        any(memory.is_binary_only(claim) for claim in entry.claims if claim.metric is Metric.BYTES),
    )


def _check_compared(claim: Claim, compared: set[Claim]) -> None:
    """Raise `NotDecidable` where a figure means something only beside another, which is missing."""
    if claim in compared:
        return
    if claim.metric in _COMPARED:
        raise NotDecidable(_COMPARED[claim.metric])
    if claim.context.get("per"):
        raise NotDecidable("too few lengths are beside it")
    if claim.metric is Metric.BYTES and claim.context.component == "total":
        raise NotDecidable("the parts of the memory are not beside it")


def _over_ours(claim: Claim, ours: Ours) -> Iterator[Finding]:
    """Yield where a rate is far over what was measured here; a narrow format includes quantization there."""
    context = claim.context
    if claim.metric not in (Metric.TIME, Metric.RATE) or context.is_narrow or context.get("per"):
        return
    best, tflops = ours.best(context.passes), physics.flops_per_s(claim)
    if best is None or tflops is None:
        return
    share = tflops / cards.sustained_peak(context.rates)
    if share > OVER_OURS * best.share_at_highest_clock:
        yield implausible(
            Kind.NEAR_PEAK,
            share=share,
            ours=best.share_at_highest_clock,
            times=share / best.share_at_highest_clock,
            variant=best.variant,
            device=best.device,
        )


def _gpu_of_page(path: Path) -> str | None:
    """Return the name of the device that a page's own table was measured on; None for a table of no page."""
    for folder in Path(os.path.realpath(path)).parents[:3]:
        try:
            device = files.read_json(folder / "records" / "device.json", dict[str, Any], "the device")["device"]
            return str(device["name"]) + (" MIG" if device["mig"] else "")  # a slice is not the card
        except (OSError, RecordError, KeyError, TypeError):
            continue
    return None
