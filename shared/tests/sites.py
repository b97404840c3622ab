"""Made-up `reports/` for tests of the site, hostile ones among them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from sample_records import make_record

from fluxbench.operations.workloads import BY_NAME, Workload
from fluxbench.records import schema as records
from fluxbench.records.fingerprint import Fingerprint
from fluxbench.records.schema import Record, Status

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u2028\u2029{0}%s"
H200: Fingerprint = {
    "device": "NVIDIA H200",
    "device_kind": "cuda",
    "compute_capability": "9.0",
    "mig": False,
    "driver": "580.10",
    "code.timing.py": "aaa",
}
CPU: Fingerprint = {"device": "AMD EPYC", "device_kind": "cpu", "cpu_cores": 2, "code.timing.py": "aaa"}
LENGTHS = ("flux1-1024px-t128", "flux1-1024px-t512")


def record(
    variant: str = "torch_flash", workload: str | Workload = LENGTHS[1], ms: float = 1.0, **changed: Any
) -> Record:
    """Return a record with a fingerprint; `said` is the rest of it."""
    said = changed.pop("said", H200)
    options = {key: changed.pop(key) for key in ("status", "reason", "versions", "precision_class") if key in changed}
    made = make_record(variant, workload, ms, **options)
    return dataclasses.replace(made, fingerprint=said, **changed)


def several() -> list[Record]:
    """Return two variants at two lengths, one of them quantized and one that failed."""
    found = []
    for length, workload in enumerate(LENGTHS, start=1):
        found += [
            record("torch_flash", workload, 1.0 * length),
            record("torch_cudnn", workload, 0.5 * length),
            record("sage_int8_fp16_triton", workload, 0.4 * length, precision_class="quantized"),
            record("flex", workload, status=Status.CRASHED, reason="the worker ended on signal 11"),
        ]
    return found


def write(reports: Path, target: str, *found: Record, notebook: str = "flux", cell: str = "sdpa") -> Path:
    """Write records of a target, and return their file."""
    folder = reports / target / notebook / "records"
    folder.mkdir(parents=True, exist_ok=True)
    records.write(folder / f"{cell}.jsonl", found)
    return folder / f"{cell}.jsonl"


def of_two_targets(reports: Path) -> Path:
    """Write a GPU and a CPU, and return the folder."""
    write(reports, "h200", *several())
    small = [
        record(v, "flux1-512px-t512", ms, said=CPU, versions={"torch": "2.9.0"})
        for v, ms in (("torch_flash", 90.0), ("flex", 120.0))
    ]
    write(reports, "cpu", *small)
    return reports


def hostile(reports: Path) -> Path:
    """Write records of which every text is markup, and return the folder."""
    workload = dataclasses.replace(BY_NAME[LENGTHS[1]], name=HOSTILE)
    texts: dict[str, Any] = {
        "notebook": HOSTILE,
        "cell": HOSTILE,
        "detail": HOSTILE,
        "marks": (HOSTILE,),
        "said": {**H200, "device": HOSTILE, "driver": HOSTILE, "code.timing.py": HOSTILE, "power_limit_w": HOSTILE},
        "versions": {"torch": HOSTILE, "driver": HOSTILE, "cudnn": HOSTILE, HOSTILE: HOSTILE},
    }
    bad = record(f"bad {HOSTILE}", workload, status=Status.ERROR, reason=HOSTILE, **texts)
    file = write(reports, "x<b onmouseover=alert(1)>'\"&", record(HOSTILE, workload, **texts), bad)
    broken = {**json.loads(file.read_text(encoding="utf-8").splitlines()[0]), "status": HOSTILE}
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(broken) + "\n" + HOSTILE.replace("\u2028", "").replace("\u2029", "") + "\n")
    return reports
