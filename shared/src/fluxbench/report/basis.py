"""What a page's numbers hold on: the device, when and by which method it was measured, and with what."""

from __future__ import annotations

from fluxbench.core.formatting import utc
from fluxbench.records.schema import Record
from fluxbench.report.blocks import Facts, Fold, Paragraph
from fluxbench.report.results import Results
from fluxbench.report.sentences import versions_of
from fluxbench.variants import label, notes


def measured_with(results: Results) -> Fold:
    """Return a fold of the device, driver and time, of where packages came from, their versions, and notes on them."""
    kernels = dict.fromkeys(record.kernel for record in results.records if record.timing)
    known = notes()
    by_note: dict[str, list[str]] = {}
    for kernel in kernels:
        if kernel in known:
            by_note.setdefault(known[kernel], []).append(label(kernel))
    paragraphs = [Paragraph(f"{' and '.join(names)}: {note}.") for note, names in by_note.items()]
    return Fold("What this was measured with", [_basis(results), *paragraphs])


def _basis(results: Results) -> Facts:
    device, records = results.device, results.records
    times = sorted(record.measured_at for record in records)
    methods = sorted({record.method_version for record in records})
    limit = f", power limit {device.power_limit_w:g} W" if device.power_limit_w else ""
    cuda = f", CUDA {device.cuda}" if device.cuda else ""
    environments = sorted({environment for record in records if (environment := _environment(record))})
    rows = {
        "device": f"{device.name}{limit}",
        "driver": f"{device.driver}{cuda}" if device.driver else "",
        "measured": " to ".join(dict.fromkeys((utc(times[0]), utc(times[-1])))) if times else "never",
        "method": " and ".join(f"version {number or 'unknown'}" for number in methods),
        "environment": "; partly ".join(environments),
        "with": ", ".join(f"{name} {versions}" for name, versions in versions_of(records).items() if name != "driver"),
    }
    return Facts([(name, value) for name, value in rows.items() if value])


def _environment(record: Record) -> str:
    """Return where a record's packages came from; empty where it is unknown."""
    if record.fingerprint.get("way") == "ambient":
        return "the packages of the machine's own Python, not the versions pinned in the cells"
    lock = str(record.fingerprint.get("lock") or "").split(" ")[0]  # its hash stands behind its name
    return f"from the lock {lock}" if lock else ""
