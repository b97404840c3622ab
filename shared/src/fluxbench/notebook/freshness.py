"""Which cached results of uvnote are no longer those of this machine, and dropping them.

uvnote's cache key holds a cell's source and nothing of devices, drivers or imported packages.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from fluxbench import bench, cell, fingerprint
from fluxbench.hardware import Device
from fluxbench.notebook.document import Document, records_in
from fluxbench.records import Status, write_text
from fluxbench.settings import Settings

# What may go better the next time: the network is back, the other process has left the device.
RETRIED = {Status.UNAVAILABLE, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.CRASHED, Status.ERROR}


def drop_stale(document: Document, device: Device, settings: Settings) -> dict[str, list[str]]:
    """Drop the cached results that do not hold on this device now; return why, by cell."""
    results = document.results()
    why: dict[str, list[str]] = {}
    for code in document.cells:
        if code.id not in results:
            continue
        folder, result = results[code.id]
        if not result.get("success"):
            why[code.id] = ["it failed"]
        elif document.is_measuring(code):
            now = bench.fingerprint_of(cell.parse(code.code, code.id), device, settings)
            if reasons := _stale(folder, now):
                why[code.id] = reasons
    stamp_path = document.work / "fluxbench-shown-with.txt"
    stamp = _shown_with(device)
    if not stamp_path.is_file() or stamp_path.read_text(encoding="utf-8") != stamp:
        for code in document.cells:
            if not document.is_measuring(code):
                why.setdefault(code.id, ["fluxbench or the device changed"])
    for cell_id in document.descendants(set(why)):
        if cell_id in results:
            why.setdefault(cell_id, ["a cell that it needs is run again"])
            shutil.rmtree(results[cell_id][0])
    document.work.mkdir(exist_ok=True)
    write_text(stamp_path, stamp)
    return {cell_id: reasons for cell_id, reasons in why.items() if cell_id in results}


def _stale(folder: Path, now: fingerprint.Fingerprint) -> list[str]:
    found = records_in(folder)
    if any(record.status in RETRIED for record in found):
        return ["a variant failed in a way that may pass"]
    ceilings = folder / "ceilings.json"
    if found:
        before = found[0].fingerprint
    elif ceilings.is_file():
        kept = json.loads(ceilings.read_text(encoding="utf-8"))
        if "reason" in kept:
            return ["the device's rates could not be measured"]
        before = kept["fingerprint"]
    else:
        return ["its records are missing or damaged"]
    return fingerprint.differences(before, now)


def _shown_with(device: Device) -> str:
    digest = hashlib.sha256(repr(device).encode())
    package = Path(__file__).parents[1]
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
