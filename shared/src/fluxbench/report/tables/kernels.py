"""Records -> what really ran: a call's time by what its kernels do, what else it costs, and the kernels by name."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fluxbench.analysis.ranking import base, groups, timing_of
from fluxbench.core.formatting import number
from fluxbench.records.schema import PARTS, Kernel, Record, Status, write_rows
from fluxbench.report.sentences import shape
from fluxbench.report.tables.text import WRAP, grid, not_passed, prose

UNKNOWN = "-"  # what is not known, or is nothing
_LEAST = 0.01  # share of a call's device time under which a kernel is counted and not named
_NAME = 80  # characters of a kernel's name
_HEADS = (
    *("variant", "call\nms", "attention\nms", "quantization\nms", "copies\nms", "other\nms"),
    *("burst host\nlaunch ms", "peak\nMiB", "compile\ns", "graph\nbreaks"),
)
_HEADER = (
    *("workload", "variant", "status", "reason", "call_ms", *(f"{part}_ms" for part in PARTS), "launch_ms"),
    *("peak_memory_bytes", "compile_s", "graph_breaks", "detail", "kernel", "kernel_share", "kernel_part"),
)
# Template arguments that say what a kernel does whose own name does not, the most telling first.
_TELLING = (r"\w*(?:Attn|[Aa]ttention|fmha|FMHA)\w*", r"direct_copy\w*|Copy", r"\w+Functor", r"[A-Za-z]\w{3,}")
_GENERIC = re.compile(r"(device_kernel|Kernel\d?|\w*elementwise_kernel|multi_tensor_apply_kernel|reduce_kernel)$")
_TELLS_NOTHING = re.compile(r"enable_\w+|gpu_kernel_impl\w*|TensorListMetadata|at|native|cutlass|flash|void|false|true")


def kernels_table(records: Iterable[Record], notes: Mapping[str, str] | None = None) -> str:
    """Return what a call at the longest workload consists of, one row per variant that passed, and its kernels.

    `notes` says by kernel (a variant's name without its form) what a reader must know of it.
    """
    parts: list[str] = []
    for group in groups(records):
        shown = [r for r in group.records if r.workload == group.longest and r.status is Status.PASSED]
        shown.sort(key=lambda record: (timing_of(record).ratio, record.variant))
        if shown:
            parts += [
                f"What ran at {shape(group)}:\ntimes are of single calls on a device that rested before (burst).",
                grid(_HEADS, [_row(record, _compile_s(group.records, record.variant)) for record in shown]),
                _WORDS,
                f"The largest kernels of a call, with their shares of its device time ({group.name}):",
                grid(("variant", "share", "does", "kernel"), _named(shown), left=(0, 2, 3)),
            ]
        else:
            parts.append(f"Nothing passed at {shape(group)}, so nothing is known of what ran there.")
        parts += [_noted({base(variant) for variant in group.variants}, notes or {}), not_passed(group)]
    return "\n\n".join(part for part in parts if part) or "There are no records."


_WORDS = prose(
    "Call: from the first kernel's begin to the last one's end, by device events, the median of the first process's"
    " bursts (on a CPU one call). Attention, quantization, copies, other: the sum of such kernels' own times, by"
    " torch's profiler, in seven calls after these bursts, so they can exceed the call by a percent; gaps between"
    " kernels are in none of them.",
    "Host launch: what the host takes to launch one call, in burst: back to back the host is faster. Peak: what one"
    " call allocates at most, its output included. Compile: a first call less a warm one, at the length where that was"
    " longest, with caches that are empty at the start of the cell: the first variant pays for what later ones find"
    " done.",
    f"{UNKNOWN}: not known, or nothing of the kind.",
)


def write_kernels_csv(records: Iterable[Record], path: Path) -> None:
    """Write one row per record and kernel, all workloads; one without kernels has one row. Raises `OSError`.

    Units end the columns' names, shares are 0 to 1; what a record does not hold is empty.
    """
    rows: list[Sequence[object]] = [_HEADER]
    for record in records:
        clock = record.second_clock
        times = (clock.events_ms if clock else None, *(_part_ms(record, part) for part in PARTS), record.launch_ms)
        who = (record.workload.name, record.variant, record.status.value, record.reason)
        cost = (record.peak_memory_bytes, record.compile_s, record.graph_breaks, record.detail)
        seen: Sequence[Kernel | None] = record.kernels or (None,)
        rows += [
            (*who, *times, *cost, *((kernel.name, kernel.share, kernel.part) if kernel else ("", "", "")))
            for kernel in seen
        ]
    write_rows(path, rows)


def _compile_s(records: Iterable[Record], variant: str) -> float | None:
    """Return the longest compilation of a variant at any length: what is compiled once is so at the first of them."""
    its = (record.compile_s for record in records if record.variant == variant)
    return max((seconds for seconds in its if seconds is not None), default=None)


def _row(record: Record, compile_s: float | None) -> Sequence[str]:
    clock = record.second_clock
    memory = record.peak_memory_bytes
    return (
        record.variant,
        number(clock.events_ms) if clock else UNKNOWN,
        *(number(ms) if (ms := _part_ms(record, part)) else UNKNOWN for part in PARTS),
        number(record.launch_ms) if record.launch_ms else UNKNOWN,
        f"{memory / 2**20:,.1f}" if memory else UNKNOWN,
        UNKNOWN if compile_s is None else f"{compile_s:.1f}",
        UNKNOWN if record.graph_breaks is None else f"{record.graph_breaks}",
    )


def _part_ms(record: Record, part: str) -> float | None:
    return record.second_clock.parts_ms.get(part) if record.second_clock else None


def _named(shown: Sequence[Record]) -> list[Sequence[str] | str]:
    """Return rows: of each variant its kernels, largest first, and what the library says that it chose."""
    rows: list[Sequence[str] | str] = []
    for record in shown:
        largest = sorted(record.kernels, key=lambda kernel: -kernel.share)
        named = [kernel for index, kernel in enumerate(largest) if kernel.share >= _LEAST or not index]
        cells = [[f"{k.share:.0%}", k.part or UNKNOWN, short_name(k.name)] for k in named]
        cells = cells or [[UNKNOWN, UNKNOWN, "not profiled"]]
        if others := len(largest) - len(named):
            cells[-1][-1] += f" (and {others} under {_LEAST:.0%})"
        rows += [(record.variant if not index else "", *each) for index, each in enumerate(cells)]
        if record.detail:
            rows += _hanging("its own word", record.detail)
    return rows


def _noted(kernels: set[str], notes: Mapping[str, str]) -> str:
    lines = [line for name, note in notes.items() if name in kernels for line in _hanging(name, note)]
    return "\n".join(["To know of these:", *lines]) if lines else ""


def _hanging(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        f"{name}: {' '.join(text.split())}",
        WRAP,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def short_name(name: str) -> str:
    """Return a kernel's name without return type, arguments and template arguments, cut where it is still too long.

    Of a general kernel that is told what to do by its template arguments, the most telling one of these is kept.

    >>> short_name("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<128> > >(Params)")
    'cutlass::device_kernel<FlashAttnFwdSm90>'
    """
    text = name.replace("(anonymous namespace)::", "").removeprefix("void ").removeprefix("at::native::")
    if text.startswith(("Memcpy", "Memset")):  # the profiler's own: "Memset (Device)"
        return text
    cut = min((place for sign in "<(" if (place := text.find(sign)) > 0), default=len(text))
    plain = text[:cut]
    if _GENERIC.search(plain) and cut < len(text) and (telling := _telling(text[cut:])):
        plain = f"{plain}<{telling}>"
    return plain if len(plain) <= _NAME else f"{plain[: _NAME - 1]}…"


def _telling(arguments: str) -> str | None:
    words = [word for word in re.findall(r"[A-Za-z_]\w*", arguments) if not _TELLS_NOTHING.fullmatch(word)]
    return next((word for pattern in _TELLING for word in words if re.fullmatch(pattern, word)), None)
