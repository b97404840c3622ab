"""The reruns table: how far ratios differ between fresh runs of another notebook, from its results on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fluxbench.analysis.certificate.reruns import Reruns
from fluxbench.core.formatting import percent, utc
from fluxbench.records.schema import BURST, SUSTAINED
from fluxbench.report.blocks import Block, Bullets, Column, Paragraph, Row, Table
from fluxbench.report.certificate_inputs import reruns_of
from fluxbench.report.results import RERUNS, Results

_AT_ONCE = (
    "These runs overlapped in time, so each had a card of its own, of the same model: differences between cards are in "
    "these numbers."
)


def blocks(results: Results) -> list[Block]:
    """Return how far the runs differ, how they compare, and which runs these are."""
    reruns = reruns_of(results)
    if reruns is None:
        return [Paragraph("There are no fresh runs: the results cell read no other notebook.")]
    items = [(f"{cell}: {', '.join(map(utc, times))}", "") for cell, times in reruns.cells.items()]
    runs = Bullets("Runs of the same fingerprint, the newest first:", items or [("none", "")])
    return [*_table(reruns), *map(Paragraph, _notes(reruns)), runs]


def files(results: Results) -> dict[str, str]:
    """Return what is published beside the page: `reruns.json`."""
    return {RERUNS: json.dumps(results.reruns, indent=1) + "\n"}


def _table(reruns: Reruns) -> list[Table]:
    rows = []
    for regime in (BURST, SUSTAINED):
        for fast, bound in ((True, "under"), (False, "from")):
            if spread := reruns.spread(regime, fast=fast):
                where = f"{spread.variant} at {spread.workload}"
                shares = percent(spread.median, 2), percent(spread.max, 2)
                rows.append(Row((regime, f"{bound} {reruns.fast_ms:g} ms", f"{spread.count}", *shares, where)))
    columns = [
        *(Column("regime", left=True), Column("variants that take", left=True), Column("ratios")),
        *(Column("median difference"), Column("largest"), Column("at", left=True)),
    ]
    return [Table(columns, rows)] if rows else []


def _notes(reruns: Reruns) -> Iterator[str]:
    compared = reruns.compared
    if compared.rows:
        yield (
            f"{compared.pairs} pairs of these runs as `fluxbench diff` compares them, {compared.rows} rows: "
            f"{compared.called} significant changes, {compared.undecided} undecided; under sustained load "
            f"{compared.called_sustained} significant changes. The control kernel's change was significant in "
            f"{compared.device_moved} of the pairs."
        )
    if reruns.late:
        yield f"Sustained ratios that are launch-bound in some run are left out: {reruns.late}."
    if reruns.at_once:
        yield _AT_ONCE
    if reruns.why_none:
        yield f"No difference of burst ratios under {reruns.fast_ms:g} ms: {reruns.why_none}."
    if reruns.once:
        yield f"Left out, with only one run: {', '.join(reruns.once)}."
