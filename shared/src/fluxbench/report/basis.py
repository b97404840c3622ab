"""What a page's numbers hold on: the device, when it was measured, and with what."""

from __future__ import annotations

from fluxbench.core.formatting import utc
from fluxbench.records.schema import Record
from fluxbench.report.blocks import Facts
from fluxbench.report.results import Results
from fluxbench.report.sentences import versions_of


def basis(results: Results) -> Facts:
    """Return the device, the driver, the time, where the packages came from, and their versions."""
    device, records = results.device, results.records
    times = sorted(record.measured_at for record in records)
    limit = f", power limit {device.power_limit_w:g} W" if device.power_limit_w else ""
    cuda = f", CUDA {device.cuda}" if device.cuda else ""
    environments = sorted({environment for record in records if (environment := _environment(record))})
    rows = {
        "device": f"{device.name}{limit}",
        "driver": f"{device.driver}{cuda}" if device.driver else "",
        "measured": " to ".join(dict.fromkeys((utc(times[0]), utc(times[-1])))) if times else "never",
        "environment": "; partly ".join(environments),
        "with": ", ".join(f"{name} {versions}" for name, versions in versions_of(records).items() if name != "driver"),
    }
    return Facts([(name, value) for name, value in rows.items() if value])


def _environment(record: Record) -> str:
    """Return where a record's packages came from; empty where it is unknown."""
    if record.fingerprint.get("way") == "ambient":
        return "as found on the machine; the pins in the cells did not apply to what it had"
    lock = str(record.fingerprint.get("lock") or "").split(" ")[0]  # its hash stands behind its name
    return f"from the lock {lock}" if lock else ""
