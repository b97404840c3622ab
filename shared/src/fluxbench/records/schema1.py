"""Records of schema 1, of November 2026: read as records of schema 2.

The one place that parses names and sentences, since schema 1 kept groups, forms and flags in them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fluxbench import operations
from fluxbench.core import strict
from fluxbench.operations import sets
from fluxbench.operations.workload import Workload
from fluxbench.records import method
from fluxbench.records.schema import BURST, SUSTAINED, Flag, Record, RecordError
from fluxbench.records.status import FlagKind

_LONGEST = 500  # characters of a value that a sentence shows
_FORMS = {"_copy": "copy", "_compile_d": "compile_d", "_compile_ma": "compile_ma"}
_OPERATIONS = {"forward": "attention", "backward": "attention_backward"}
_COUNT = r"(?:all processes|(?P<value>\d+) of \d+ processes)"
_MARKS = (
    (r"its speed did not settle in " + _COUNT, FlagKind.NOT_SETTLED, SUSTAINED),
    (r"(?P<regime>burst|sustained): .* out of the regime \((?P<detail>.*)\), not ranked", FlagKind.DISCARDED, None),
    (r"(?P<regime>burst|sustained): .* out of the regime \((?P<detail>.*)\), counted all the same.*",
     FlagKind.KEPT_OUT_OF_REGIME, None),
    (r"the two clocks differ by (?P<percent>[+-]?[\d.]+)%", FlagKind.CUPTI_DIFFERS, BURST),
    (r"no second clock: .*", FlagKind.NO_CUPTI, BURST),
    (r"sustained: the host was hardly ahead of the device in " + _COUNT + r".*", FlagKind.LAUNCH_BOUND, SUSTAINED),
    (r"its ratio leaves out (?P<value>\d+) of \d+ processes.*", FlagKind.OTHER_REFERENCE, None),
    (r"the machine slept for (?P<value>[\d.]+) s.*", FlagKind.SLEPT, None),
    (r"clock, power and temperature are unknown.*", FlagKind.NO_TELEMETRY, None),
    (r"energy is unknown.*", FlagKind.NO_ENERGY, SUSTAINED),
    (r"another process used the device: (?P<detail>.*)", FlagKind.SHARED_DEVICE, None),
)  # fmt: skip
_REASONS = (
    ("faster than the device can be", FlagKind.FASTER_THAN_ROOFLINE),
    ("skips work on inputs that it has seen", FlagKind.SKIPS_WORK),
)
_UNCHANGED = (
    *("notebook", "cell", "variant", "status", "reason", "measured_at", "energy_mj", "energy_ci95_mj", "launch_ms"),
    *("device_s", "peak_memory_bytes", "compile_s", "graph_breaks", "kernels", "detail", "versions", "fingerprint"),
)
_PARTS = {
    *_UNCHANGED,
    "workload",
    "correctness",
    "timing",
    "burst",
    "telemetry",
    "burst_telemetry",
    "second_clock",
    "marks",
}


def from_json(line: str | bytes) -> Record:
    """Return the record of schema 1 that a line of JSON holds. Raises `RecordError` where it does not fit."""
    try:
        data = strict.decode(line, dict[str, Any])
        data.pop("schema", None)
        if unknown := sorted(data.keys() - _PARTS):
            raise RecordError(f"it has no field {', '.join(unknown)}")
        return msgspec.convert(_converted(data), Record)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"a record does not fit schema 1: {str(error)[:_LONGEST]}") from error


def _converted(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of schema 2."""
    correctness, marks = data["correctness"], data.get("marks", ())
    regimes = {BURST: data.get("burst"), (data["timing"] or {}).get("regime", SUSTAINED): data["timing"]}
    telemetry = {BURST: data.get("burst_telemetry"), SUSTAINED: data["telemetry"]}
    timings = {regime: _timing(timing) for regime, timing in regimes.items() if timing}
    flags = [*_flags(marks, max((len(each["samples_ms"]) for each in timings.values()), default=0))]
    flags += [Flag(kind=kind) for words, kind in _REASONS if data["status"] == "ERROR" and words in str(data["reason"])]
    form = next((suffix for suffix in _FORMS if data["variant"].endswith(suffix)), "")
    return {
        **{name: data[name] for name in _UNCHANGED if name in data},
        "kernel": data["variant"].removesuffix(form),
        "form": _FORMS.get(form, "eager"),
        "precision_class": correctness["precision_class"] if correctness else "exact",
        "workload": _workload(data["workload"]),
        "method_version": method.of_schema_1(data.get("fingerprint", {})),
        "errors": {"out": {name: value for name, value in correctness.items() if name != "precision_class"}}
        if correctness
        else {},
        "timings": timings,
        "telemetry": {regime: its for regime, its in telemetry.items() if its},
        "flags": flags,
        "cupti": data.get("second_clock"),
        "compile_s": None if data.get("compile_s") is None else max(0.0, data["compile_s"]),  # some were negative
    }


def _timing(timing: Mapping[str, Any]) -> dict[str, Any]:
    unchanged = ("median_ms", "ci95_ms", "reference_variant", "ratio", "ratio_ci95")
    return {
        **{name: timing[name] for name in unchanged},
        "samples_ms": _by_process(timing["samples_ms"], timing.get("split") or (), timing["processes"]),
        "discarded": timing.get("set_aside", 0),
        "converged": timing.get("precise"),
    }


def _by_process(samples: Sequence[float], split: Sequence[int], processes: int) -> list[Sequence[float]]:
    sizes = split or [len(samples) // processes] * processes
    if len(sizes) != processes or sum(sizes) != len(samples):
        raise RecordError(f"samples_ms must hold the samples of {processes} processes, got {len(samples)}")
    ends = list(itertools.accumulate(sizes))
    return [samples[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _workload(old: Mapping[str, Any]) -> Workload:
    if old["pass"] not in _OPERATIONS:
        raise RecordError(f"pass must be forward or backward, got {old['pass']!r}")
    name, tokens, head_dim = old["name"], old["seq_len"], old["head_dim"]
    shape = {name: old[name] for name in ("batch", "heads", "kv_heads", "dtype", "causal")}
    shape |= {"seq_len_q": tokens, "seq_len_k": tokens, "head_dim_qk": head_dim, "head_dim_v": head_dim}
    if (known := sets.by_name().get(name)) and dict(known.shape) == shape and old["pass"] == "forward":
        return known
    text = re.search(r"-t(\d+)$", name)
    return operations.workload(
        _OPERATIONS[old["pass"]],
        name,
        shape,
        group=re.sub(r"-t\d+$", "", name),
        x=int(text[1]) if text else tokens,
        x_unit="text tokens" if text else "tokens",
    )


def _flags(marks: Sequence[str], processes: int) -> Iterator[Flag]:
    for mark in marks:
        for pattern, kind, regime in _MARKS:
            if found := re.fullmatch(pattern, mark, re.DOTALL):
                parts = found.groupdict()
                value = parts.get("value") or (processes if "processes" in pattern else None)
                if percent := parts.get("percent"):
                    value = float(percent) / 100
                detail, regime = parts.get("detail"), parts.get("regime") or regime
                yield Flag(kind=kind, regime=regime, value=None if value is None else float(value), detail=detail)
                break
        else:
            raise RecordError(f"a flag of schema 1 must be a known sentence, got {mark!r}")
