"""Made-up `reports/` for tests of the site, hostile ones among them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import sample_records

from fluxbench.analysis.verification.problem import Problem
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records import files
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.schema import Flag, Record
from fluxbench.records.status import FlagKind, Status

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u2028\u2029{0}%s{{ 7 * 7 }}"
H200: Fingerprint = {
    "device": "NVIDIA H200",
    "device_kind": "cuda",
    "compute_capability": "9.0",
    "mig": False,
    "driver": "580.10",
    "python": "3.12.3",
    "code.timing": "aaa",
}
CPU: Fingerprint = {
    "device": "AMD EPYC",
    "device_kind": "cpu",
    "cpu_cores": 2,
    "python": "3.12.3",
    "code.timing": "aaa",
}
LENGTHS = ("flux1-1024px-t128", "flux1-1024px-t512")


def record(
    variant: str = "torch_flash", workload: str | Workload = LENGTHS[1], ms: float = 1.0, **fields: Any
) -> Record:
    """Return a record with the fingerprint of an H200; `fields` are those of `sample_records.record`."""
    return sample_records.record(variant, workload, ms, **({"fingerprint": H200} | fields))


def believe(*cells: object) -> list[Problem]:
    """Find no problem in cells: made-up records have no samples that they could follow from."""
    return []


def several() -> list[Record]:
    """Return three variants at two lengths, one of them quantized, and one that failed."""
    records = []
    for length, workload in enumerate(LENGTHS, start=1):
        records += [
            record("torch_flash", workload, 1.0 * length),
            record("torch_cudnn", workload, 0.5 * length),
            record("sage_int8_fp16_triton", workload, 0.4 * length, precision_class="quantized"),
            record("flex", workload, status=Status.CRASHED, reason="the worker ended on signal 11"),
        ]
    return records


def write(reports: Path, target: str, *records: Record, notebook: str = "flux", cell: str = "sdpa") -> Path:
    """Write records of a target, and return their file."""
    folder = reports / target / notebook / "records"
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / f"{cell}.jsonl", records)
    return folder / f"{cell}.jsonl"


def of_two_targets(reports: Path) -> Path:
    """Write a GPU and a CPU, and return the folder."""
    write(reports, "h200", *several())
    small = [
        record(variant, "flux1-256px-t512", ms, fingerprint=CPU, versions={"torch": "2.9.0"})
        for variant, ms in (("torch_flash", 90.0), ("flex", 120.0))
    ]
    write(reports, "cpu", *small)
    return reports


def hostile(reports: Path) -> Path:
    """Write records of which every text is markup, and return the folder."""
    workload = dataclasses.replace(sets.by_name()[LENGTHS[1]], name=HOSTILE, group=HOSTILE, x_unit=HOSTILE)
    texts: dict[str, Any] = {
        "notebook": HOSTILE,
        "cell": HOSTILE,
        "kernel": HOSTILE,
        "form": HOSTILE,
        "detail": HOSTILE,
        "flags": (Flag(kind=FlagKind.SHARED_DEVICE, detail=HOSTILE),),
        "fingerprint": {**H200, "device": HOSTILE, "driver": HOSTILE, "code.timing": HOSTILE, "power_limit_w": HOSTILE},
        "versions": {"torch": HOSTILE, "driver": HOSTILE, "cudnn": HOSTILE, HOSTILE: HOSTILE},
    }
    bad = record(f"bad {HOSTILE}", workload, status=Status.ERROR, reason=HOSTILE, **texts)
    file = write(reports, "x<b onmouseover=alert(1)>'\"&", record(HOSTILE, workload, **texts), bad)
    broken = {**json.loads(file.read_bytes().splitlines()[0]), "status": HOSTILE}
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(broken) + "\n" + HOSTILE.replace("\u2028", "").replace("\u2029", "") + "\n")
    return reports
