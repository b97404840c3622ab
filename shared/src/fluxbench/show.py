"""What a showing cell calls: the records of the cells that it needs, drawn into its page.

uvnote names the folder of each needed cell's artifacts in `UVNOTE_INPUT_<ID>`. No torch, no measuring.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

from fluxbench import variants
from fluxbench.analysis import history as past
from fluxbench.core.formatting import utc
from fluxbench.core.errors import SetupError
from fluxbench.core.settings import Settings
from fluxbench.device import detection as hardware
from fluxbench.device.peaks import peak
from fluxbench.records import schema as records
from fluxbench.records.schema import Record, RecordError
from fluxbench.report.figures import figures as plots
from fluxbench.report.tables import tables


def device() -> None:
    """Print what this device is and its peak rates with their source, and write `device.json`."""
    found = hardware.detect()
    sheet = peak(found)
    facts = {"device": dataclasses.asdict(found), "peak": dataclasses.asdict(sheet) if sheet else None}
    records.write_text(Path("device.json"), json.dumps(facts, indent=1) + "\n")
    print(hardware.describe(found))
    if sheet:
        print(f"\npeak, dense         {sheet.bf16_tflops:g} TFLOP/s bfloat16, {sheet.memory_gb_s:,g} GB/s")
        print(textwrap.fill(sheet.source, 110, initial_indent="source              ", subsequent_indent=" " * 20))
    else:
        print("\npeak                unknown: this device is not in fluxbench's table of data sheets")
    others = hardware.other_processes(found)
    if others:
        print(f"\nin use by           {'; '.join(others)}")
    if text := hardware.nvidia_smi():
        print(f"\n{text}")


def answer() -> None:
    """Print the page's answer, what must be known of the kernels in it, and on what it holds."""
    found, device = measured(), _facts()["device"]
    print(*tables.answer(found, str(device["name"]), variants.notes()), _holds_on(device, found), sep="\n\n")


def correctness() -> None:
    """Print every variant's errors and verdicts, and write `correctness.csv`."""
    found = measured()
    tables.write_csv(found, Path("correctness.csv"))
    print(tables.correctness_table(found))


def state() -> None:
    """Print what the device was doing while it was measured, what a call costs beside its time, and all marks."""
    print(tables.state_table(measured()))


def kernels() -> None:
    """Print what a call of each variant consists of and the kernels that ran, and write `kernels.csv`."""
    found = measured()
    tables.write_kernels_csv(found, Path("kernels.csv"))
    print(tables.kernels_table(found, variants.notes()))


def capabilities() -> None:
    """Print what each variant declares and what came of trying it here, and write `capabilities.csv`."""
    found, tried = measured(), _tried()
    tables.write_capabilities_csv(variants.REGISTRY, found, tried, Path("capabilities.csv"))
    print(tables.capabilities_table(variants.REGISTRY, found, tried))


def latency() -> None:
    """Draw `latency.svg` with `latency.csv`."""
    plots.latency(measured(), Path("latency.svg"))


def throughput() -> None:
    """Draw `throughput.svg` with `throughput.csv`: against the data sheet's peak and the measured matrix rate."""
    sheet = _facts()["peak"]
    rates = input_json("ceilings.json")
    plots.throughput(
        measured(),
        Path("throughput.svg"),
        peak_tflops=sheet["bf16_tflops"] if sheet else None,
        matmul_tflops=rates.get("matmul_tflops") if rates else None,
    )


def frontier() -> None:
    """Draw `frontier.svg` with `frontier.csv`: error against time."""
    plots.frontier(measured(), Path("frontier.svg"))


def energy() -> None:
    """Draw `energy.svg` with `energy.csv`."""
    plots.energy(measured(), Path("energy.svg"))


def parts() -> None:
    """Draw `parts.svg` with `parts.csv`: what one call's time is spent on."""
    plots.parts(measured(), Path("parts.svg"))


def ranking() -> None:
    """Print the ranking with its intervals and what its numbers are, and draw `ranking.svg` with `ranking.csv`."""
    found = measured()
    sheet = _facts()["peak"]
    print(tables.ranking_table(found, peak_tflops=sheet["bf16_tflops"] if sheet else None))
    print(f"\n{tables.method_note(found)}")
    plots.ranking(found, Path("ranking.svg"))


def history() -> None:
    """Print the times over drivers and libraries; of two revisions or more draw `history.svg` with `history.csv`."""
    found = measured()
    facts = _facts()["device"]
    names = {field.name for field in dataclasses.fields(hardware.Device)}
    device = hardware.Device(**{name: value for name, value in facts.items() if name in names})
    try:
        root = Settings.load().root
    except SetupError as error:
        sys.exit(f"fluxbench: {error}")
    folders = [past.published_folder(root, device, name) for name in dict.fromkeys(record.notebook for record in found)]
    collected = past.revisions(found, device, folders, past.local_folders())
    timelines = collected.timelines(found)
    print(past.text(collected, timelines))
    if any(len(timeline.revisions) > 1 for timeline in timelines):
        plots.history(timelines, Path("history.svg"))


def measured() -> list[Record]:
    """Return all records of the cells that this cell needs. Ends the cell with one sentence where one is damaged."""
    found: list[Record] = []
    for folder in inputs():
        for path in sorted(folder.glob("*.jsonl")):
            try:
                found += records.read(path)
            except RecordError as error:
                sys.exit(f"fluxbench: {error}; run the cell that wrote it again")
    return found


def _holds_on(device: dict[str, Any], found: list[Record]) -> str:
    """Return the device, when it was measured and with what, as aligned rows."""
    times = sorted(utc(record.measured_at) for record in found)
    versions: dict[str, set[str]] = {}
    for record in found:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    limit, driver = device.get("power_limit_w"), device.get("driver")
    rows = {
        "device": f"{device['name']}{f', power limit {limit:g} W' if limit else ''}",
        "driver": f"{driver}{f', CUDA {cuda}' if (cuda := device.get('cuda')) else ''}" if driver else "",
        "measured": " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "never",
        "environment": "; partly ".join(sorted({way for record in found if (way := _environment(record))})),
        "with": ", ".join(f"{name} {' and '.join(sorted(its))}" for name, its in versions.items() if name != "driver"),
    }
    return "\n".join(f"{name:<13}{text}" for name, text in rows.items() if text)


def _environment(record: Record) -> str:
    """Return where a record's packages came from; empty where it does not say."""
    if record.fingerprint.get("way") == "ambient":
        return "as found on the machine; the pins in the cells did not apply to what it had"
    lock = str(record.fingerprint.get("lock") or "").split(" ")[0]  # its hash stands behind its name
    return f"from the lock {lock}" if lock else ""


def _tried() -> dict[str, dict[str, str]]:
    """Return what came of trying each variant's capabilities. Ends the cell where a file of it is damaged."""
    found: dict[str, dict[str, str]] = {}
    for folder in inputs():
        for path in sorted(folder.glob("*.capabilities.json")):
            try:
                found |= {name: dict(its) for name, its in json.loads(path.read_bytes())["variants"].items()}
            except (AttributeError, KeyError, TypeError, ValueError):
                sys.exit(f"fluxbench: {path.name} is damaged; run the cell that wrote it again")
    return found


def _facts() -> dict[str, Any]:
    facts = input_json("device.json")
    if facts is None:
        sys.exit("fluxbench: this cell must have needs=hardware, for device.json; add it to the cell's first line")
    return facts


def input_json(name: str) -> dict[str, Any] | None:
    """Return what a JSON file of a needed cell holds, None where there is none."""
    for folder in inputs():
        if (folder / name).is_file():
            found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
            return found
    return None


def inputs() -> list[Path]:
    """Return the folders of the needed cells' artifacts."""
    names = [name for name in os.environ.get("UVNOTE_INPUTS", "").split(",") if name]
    return [Path(os.environ[name]) for name in names]
