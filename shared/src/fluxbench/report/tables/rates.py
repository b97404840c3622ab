"""The rates that this device reaches itself, against those of its data sheet."""

from __future__ import annotations

from fluxbench.report.blocks import Block, Column, Paragraph, Row, Table
from fluxbench.report.results import Results


def blocks(results: Results) -> list[Block]:
    """Return the rates of `rates.json`, or why there are none."""
    rates, sheet = results.rates, results.peak
    if "matmul_tflops" not in rates:
        reason = rates.get("reason") or "no cell measured them"
        return [Paragraph(f"The device's own rates could not be measured: {reason}.", kind="note")]
    product = f"bfloat16 matrix product, n = {rates['matmul_size']:.0f}"
    rows = [
        _row(product, rates["matmul_tflops"], "TFLOP/s", sheet.bf16_tflops if sheet else None),
        _row("copy within the device's memory", rates["copy_gb_s"], "GB/s", sheet.memory_gb_s if sheet else None),
        Row(("between two events, nothing in it", f"{rates['event_us']:,.2f}", "µs", "")),
    ]
    processes = rates.get("processes")
    caption = f"Medians over {f'{processes} ' if processes else ''}fresh processes, rates under load."
    columns = [Column("what", left=True), Column("rate"), Column("unit", left=True), Column("data sheet", left=True)]
    return [Table(columns, rows, caption)]


def _row(what: str, rate: float, unit: str, peak: float | None) -> Row:
    share = f"{rate / peak:.0%} of the data sheet's {peak:,g}" if peak else "peak unknown"
    return Row((what, f"{rate:,.1f}", unit, share))
