"""Edits of published records and of the files beside them, and the words with which each is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

CELLS = ("cudnn_frontend", "sage", "triton")
EXACT, QUANTIZED = "triton", "sage"  # cells whose first record is of an exact and of a quantized kernel

Data = dict[str, Any]
Lie = Callable[[Path], None]


def read(path: Path) -> Any:
    """Return the JSON of a file, of a file of records a list."""
    text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def write(path: Path, data: Any) -> None:
    text = "".join(json.dumps(one) + "\n" for one in data) if path.suffix == ".jsonl" else json.dumps(data)
    path.write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())


def edited(name: str, change: Callable[[Any], object]) -> Lie:
    """Return the lie that changes the data of a file in place."""

    def lie(home: Path) -> None:
        data = read(home / name)
        change(data)
        write(home / name, data)

    return lie


def of_first(change: Callable[[Data], object], cell: str = EXACT) -> Lie:
    """Return the lie that changes the first record of a cell."""
    return edited(f"{cell}.jsonl", lambda records: change(records[0]))


def of_all(change: Callable[[Data], object]) -> Lie:
    """Return the lie that changes every record of every cell."""

    def lie(home: Path) -> None:
        for cell in CELLS:
            edited(f"{cell}.jsonl", lambda records: [change(record) for record in records])(home)

    return lie


def of_series(change: Callable[[Data], object], *, regime: str = "burst", control: bool = False) -> Lie:
    """Return the lie that changes the series of a variant in a regime, or the control kernel's."""

    def wanted(one: Data) -> bool:
        return one["regime"] == regime and (
            one["variant"] == "control_kernel" if control else "triton" in one["variant"]
        )

    return edited("triton.samples.json.gz", lambda data: [change(one) for one in data["series"] if wanted(one)])


def both(*changes: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return the lie, or the change of data, that makes several."""

    def change(data: Any) -> None:
        for each in changes:
            each(data)

    return change


def scale(*path: str, by: float) -> Callable[[Data], object]:
    """Return the change that multiplies a value, or all numbers of nested lists, at a path of keys."""

    def scaled(value: Any) -> Any:
        return [scaled(one) for one in value] if isinstance(value, list) else value * by

    def change(data: Data) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = scaled(data[path[-1]])

    return change


def put(*path: Any) -> Callable[[Data], object]:
    """Return the change that puts the last argument at a path of keys."""

    def change(data: Any) -> None:
        for key in path[:-2]:
            data = data[key]
        data[path[-2]] = path[-1]

    return change


def times(by: float) -> Callable[[Data], object]:
    """Return the change that scales all times of a record, whole and consistent in itself."""

    def change(record: Data) -> None:
        for timing in record["timings"].values():
            for key in ("median_ms", "ci95_ms", "samples_ms", "ratio", "ratio_ci95"):
                scale(key, by=by)(timing)

    return change


def multiplied(record: Data) -> None:
    for timing in record["timings"].values():
        for key in timing.keys() & {"samples_ms", "reference_ms"}:
            timing[key] *= 40


def swapped(records: list[Data]) -> None:
    names = [one["variant"] for one in records]
    first, other = names[0], next(name for name in names if name != names[0])
    for one in records:
        one["variant"] = one["kernel"] = {first: other, other: first}.get(one["variant"], one["variant"])


def copied(data: Data) -> None:
    """Give all processes the samples of the first one."""
    first: dict[tuple[str, ...], Data] = {}
    for one in data["series"]:
        if one["variant"] != "control_kernel":
            original = first.setdefault((one["variant"], one["workload"], one["regime"]), one)
            one.update({key: value for key, value in original.items() if key not in ("process", "worker")})


def zero_width(record: Data) -> None:
    for timing in record["timings"].values():
        timing["ci95_ms"] = [timing["median_ms"]] * 2
        timing["ratio_ci95"] = [timing["ratio"]] * 2


def narrowed(record: Data) -> None:
    timing = record["timings"]["burst"]
    low, high = timing["ci95_ms"]
    middle = timing["median_ms"]
    timing["ci95_ms"] = [middle - (middle - low) / 20, middle + (high - middle) / 20]


def nanosecond(one: Data) -> None:
    one["samples_ms"][one["ranked"].index(1)] = 1e-6


def picked(one: Data) -> None:
    """Leave out the slower half of the samples and more."""
    least = sorted(one["samples_ms"])[len(one["samples_ms"]) // 3]
    one["ranked"] = [int(sample <= least) for sample in one["samples_ms"]]


def yes_to_all(data: Data) -> None:
    yes = {"status": "yes", "reason": None, "rel_l2": None, "budget": None}
    keys = ("bfloat16", "float16", "causal", "gqa", "backward", "varlen", "head_dim 256")
    data["variants"] = {name: dict.fromkeys(keys, yes) for name in data["variants"]}


def other_card(data: Data) -> None:
    data["device"] |= {"name": "NVIDIA B200", "card": "0badcafe"}


def cupti(record: Data) -> None:
    for key in ("kernels_ms", "span_ms"):
        record["cupti"][key] *= 0.8


def renamed(record: Data) -> None:
    record["variant"] = record["kernel"] = "my_" + record["kernel"]


BESIDE_OTHERS = ("budget raised a little", "control kernel scaled everywhere")  # only other cells show these
ERRORS = ("errors", "out")
TIME = ("timings", "sustained")
LIES: dict[str, tuple[Lie, str]] = {
    "a tenth of its time": (of_first(times(0.1)), "faster than the device can be"),
    "2% faster": (of_first(times(0.98)), "its samples must be those of its samples file, ms:"),
    "a median of its own": (of_first(scale(*TIME, "median_ms", by=0.999)), "median_ms must follow from the samples"),
    "a ratio without its medians": (
        of_first(both(put(*TIME, "ratio", 0.5), put(*TIME, "ratio_ci95", [0.4, 0.6]))),
        "sustained: ratio must follow from the samples, .*, got 0.5",
    ),
    "zero-width intervals": (of_first(zero_width), "ci95"),
    "narrow intervals": (of_first(narrowed), "ci95_ms must"),
    "samples of 120 processes": (of_first(multiplied), "processes must have samples of their own"),
    "processes with the same samples": (edited("triton.samples.json.gz", copied), "samples must be those of"),
    "a sample of a nanosecond": (of_series(nanosecond), "no sample can be 1e-06 ms"),
    "samples under the physical limit": (
        of_series(lambda one: one["samples_ms"].__setitem__(0, 0.1), regime="sustained"),
        "no sample can be 0.1 ms: faster than the device can be",
    ),
    "only fast samples ranked": (of_series(picked), "fewer than half of a process's samples can be discarded"),
    "a scaled samples file": (of_series(scale("samples_ms", by=1.5)), "samples must be those of its samples file"),
    "no samples file": (lambda home: (home / "triton.samples.json.gz").unlink(), "there is no such file"),
    "another kernel in a later process": (
        of_series(put("kernels", ["another_kernel"])), "the same kernel must run in all processes; .* another_kernel in"
    ),
    "swapped variants": (edited("cudnn_frontend.jsonl", swapped), "samples must be those of|must match"),
    "another reference": (
        of_first(put(*TIME, "reference_variant", "torch_math")), "reference must be that of its samples, torch_flash"
    ),
    "a variant left out": (
        edited("cudnn_frontend.jsonl", lambda records: records.pop()), "is in the samples and must have a record"
    ),
    "budget raised": (of_first(scale(*ERRORS, "budget_rel_l2", by=100)), "budget of an exact kernel must be at most"),
    "budget raised a little": (of_first(scale(*ERRORS, "budget_rel_l2", by=1.5)), "of the other exact kernels there"),
    "quantized budget raised": (
        of_first(scale(*ERRORS, "budget_rel_l2", by=2), QUANTIZED), "its budget in output out must be the variant's own"
    ),
    "quantized relabelled exact": (
        of_first(put("precision_class", "exact"), QUANTIZED), "precision class must be quantized"
    ),
    "an error over its budget": (of_first(put(*ERRORS, "rel_l2", 0.9)), "PASSED must be within its budget"),
    "NaN in PASSED": (of_first(put(*ERRORS, "nan_count", 3)), "3 elements that are not finite"),
    "a head over what it may err": (
        of_first(put(*ERRORS, "head_budget_share", 1.5)), "must be within the budget of a head, got 1.5 times"
    ),
    "a row over what it may err": (of_first(put(*ERRORS, "row_budget_share", 1.01)), "budget of a row, got 1.01"),
    "rounded relabelled": (
        of_first(put("precision_class", "rounded")), "precision class must be exact"
    ),
    "a smaller error": (of_first(scale(*ERRORS, "rel_l2", by=0.8)), "errors of output out: rel_l2 must be that of"),
    "smaller errors": (
        of_first(both(scale(*ERRORS, "rel_l2", by=0.3), scale(*ERRORS, "rel_l2_by_inputs", "normal", by=0.3))),
        "errors of output out: (rel_l2 must be|cosine must fit)",
    ),
    "another card in one record": (of_first(put("fingerprint", "card", "0badcafe")), "must be of one card"),
    "another driver in one record": (
        of_first(both(put("fingerprint", "driver", "999"), put("versions", "driver", "999"))), "must be of one driver"
    ),
    "another device in all records": (
        of_all(put("fingerprint", "device", "NVIDIA B200")), "device.json must be of the records' device, whose name is"
    ),
    "another day in one record": (of_first(put("measured_at", "2020-01-01T00:00:00+00:00")), "one measured_at"),
    "all renamed": (of_all(renamed), "my_triton_flash must be a registered variant; send its file"),
    "wrong kernel": (
        of_first(put("kernels", [{"name": "flash_fwd", "share": 1.0}])), "one of its profiled kernels must match"
    ),
    "disagreeing clocks": (of_first(cupti), "flag cupti_differs"),
    "5 GHz": (of_first(put("telemetry", "burst", "sm_clock_mhz", 5000.0)), "sm_clock_mhz must be 1 to 1980, got 5000"),
    "5 GHz at each sample": (
        of_series(lambda one: put("sm_clock_mhz", [5000.0] * len(one["ranked"]))(one)), "sm_clock_mhz must be 1 to 1980"
    ),
    "3 kW": (of_first(put("telemetry", "sustained", "power_w", 3000.0)), "power_w must be 0 to"),
    "less energy": (of_first(scale("energy_mj", by=0.5)), "energy_mj must be the power times the sustained time"),
    "less memory than there is": (of_first(put("peak_memory_bytes", 10**15)), "peak_memory_bytes must not exceed"),
    "control kernel scaled": (
        edited("triton.control.json", scale("samples_ms", "triton_flash", by=0.9)), "control kernel's times beside"
    ),
    "control kernel scaled everywhere": (
        both(
            edited("triton.control.json", scale("samples_ms", "triton_flash", by=0.9)),
            of_series(scale("samples_ms", by=0.9), control=True),
        ),
        "must take as many cycles as in other cells",
    ),
    "device.json of another card": (edited("device.json", other_card), "whose name is NVIDIA H200, got NVIDIA B200"),
    "rates above the limit": (edited("rates.json", put("matmul_tflops", 5000.0)), "matmul_tflops must be at most"),
    "capabilities all yes": (edited("triton.capabilities.json", yes_to_all), "must be one that it declares"),
    "a time that no call takes": (
        of_first(put("timings", "burst", "ratio_ci95", [5e-324, 1e9])), "ratios must be those of times within 1e-06"
    ),
    "no cross-check": (of_first(lambda record: record.pop("cupti")), "it must have the flag no_cupti"),
    "a record twice": (edited("triton.jsonl", lambda records: records.append(records[0])), "one record of it in flux"),
}  # fmt: skip
