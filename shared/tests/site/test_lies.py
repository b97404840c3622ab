"""Published records, edited: each lie is refused by `add` and by `site`, and `diff` verifies likewise."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fluxbench.analysis.verification.verify import verify
from fluxbench.cli import main
from fluxbench.notebook.revisions import measured
from fluxbench.records import files
from fluxbench.site.collect import collect
from fluxbench.site.intake import add

REPORTS = Path(__file__).resolve().parents[3] / "reports"
CELLS = ("cudnn_frontend", "sage", "triton")
EXACT, QUANTIZED = "triton", "sage"  # cells whose first record is of an exact and of a quantized kernel

Data = dict[str, Any]
Lie = Callable[[Path], None]


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """The records of some cells of the H200's page, in a target's folder."""
    home = tmp_path / "reports" / "h200" / "flux" / "records"
    home.mkdir(parents=True)
    for path in (REPORTS / "h200" / "flux" / "records").iterdir():
        if path.name.partition(".")[0] in (*CELLS, "device", "rates"):
            shutil.copyfile(path, home / path.name)
    return home


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


def problems_of(home: Path, tmp_path: Path) -> tuple[list[str], list[str]]:
    """Return the problems that `add` and `site` find."""
    intake = add(home, tmp_path / "theirs")
    assert bool(intake.problems) == (intake.folder is None)
    return list(intake.problems), [one for target in collect(tmp_path / "reports", verify) for one in target.problems]


def leave_only_what_lies(home: Path, lie: Lie) -> None:
    """Tell a lie, and remove the cells whose files it leaves as they are, which take long to verify."""
    by_cell = {cell: [*home.glob(f"{cell}.*")] for cell in CELLS}
    before = {path: path.read_bytes() for paths in by_cell.values() for path in paths}
    lie(home)
    as_they_are = {path for path, content in before.items() if path.exists() and path.read_bytes() == content}
    others = [paths for paths in by_cell.values() if as_they_are.issuperset(paths)]
    for path in (path for paths in others if len(others) < len(CELLS) for path in paths):
        path.unlink()


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_with_its_sentence(sent: Path, tmp_path: Path, name: str) -> None:
    lie, words = LIES[name]
    if name in BESIDE_OTHERS:
        lie(sent)
    else:
        leave_only_what_lies(sent, lie)
    of_add, of_site = problems_of(sent, tmp_path)
    assert any(re.search(words, problem) for problem in of_add), of_add[:3]
    assert of_site


@pytest.mark.parametrize("cells", [CELLS, *((cell,) for cell in CELLS)], ids="-".join)
def test_published_cells_are_believed(sent: Path, tmp_path: Path, cells: tuple[str, ...]) -> None:
    for path in (path for cell in CELLS if cell not in cells for path in sent.glob(f"{cell}.*")):
        path.unlink()
    assert problems_of(sent, tmp_path) == ([], [])


def test_a_lying_record_is_not_drawn_and_the_others_are(sent: Path, tmp_path: Path) -> None:
    LIES["a tenth of its time"][0](sent)
    [target] = collect(tmp_path / "reports", verify)
    left_out = {(r["variant"], r["workload"]["name"]) for r in read(sent / "triton.jsonl")[:1]}
    everything = {(r.variant, r.workload.name) for path in files.paths(sent) for r in files.read(path)}
    assert {(r.variant, r.workload.name) for r in target.records} == everything - left_out
    assert "triton.jsonl: triton_flash at flux1-1024px-t128 is left out: " in target.problems[0]


@pytest.mark.parametrize(
    "history", sorted(REPORTS.glob("*/flux/history/*")), ids=lambda path: "-".join(path.parts[-4::3])
)
def test_the_history_is_believed(history: Path) -> None:
    assert measured(str(history), history).records


def test_the_commands_refuse_a_lie(sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    LIES["budget raised"][0](sent)
    assert main(["add", str(sent), "--reports", str(tmp_path / "theirs")]) == 2
    assert "triton, triton_flash at flux1-1024px-t128: the budget of an exact" in capsys.readouterr().err
    assert main(["site", "--reports", str(tmp_path / "reports")]) == 1
    assert "is left out: the budget of an exact kernel must be at most" in capsys.readouterr().err
    assert main(["diff", str(sent), str(sent)]) == 2
    assert "must follow from their samples: triton, triton_flash at flux1" in capsys.readouterr().err


def test_rounded_kernels_count_as_exact_no_more(sent: Path, tmp_path: Path) -> None:
    """Those of the history do, which is believed: there was no such class."""
    for path in (REPORTS / "h200" / "flux" / "records").glob("te.*"):
        shutil.copyfile(path, sent / path.name)
    assert problems_of(sent, tmp_path) == ([], [])
    edited("te.jsonl", lambda records: [one.update(precision_class="exact") for one in records])(sent)
    assert "class must be rounded, as the variant declares, got exact" in str(add(sent, tmp_path / "again").problems)
