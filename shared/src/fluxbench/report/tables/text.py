"""What every text table is made of: aligned columns, and lists of what holds for which variants and lengths."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from fluxbench.analysis.ranking import Group, distrusted
from fluxbench.analysis.remarks import failures
from fluxbench.operations.workloads import Workload

WRAP = 110  # characters of a line of prose under a table
_RULE = 44  # characters of the rule below the last column, at most; the others' tell a page where columns begin


def grid(header: Sequence[str], rows: Sequence[Sequence[str] | str], left: Sequence[int] = (0,)) -> str:
    """Return aligned columns below a header and a rule; a row that is a text stands across all columns.

    A column's heading may have several lines.
    """
    heads = [text.split("\n") for text in header]
    height = max(map(len, heads))
    over = list(zip(*([""] * (height - len(lines)) + lines for lines in heads), strict=True))
    cells: list[Sequence[str]] = [*over, *(row for row in rows if not isinstance(row, str))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        aligned = (
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    rule = "  ".join("─" * width for width in [*widths[:-1], min(widths[-1], _RULE)])
    return "\n".join([*map(line, over), rule, *(row if isinstance(row, str) else line(row) for row in rows)])


def entries(group: Group, title: str, found: Iterable[tuple[str, str, Sequence[str], Sequence[Workload]]]) -> list[str]:
    """Return lines: a title, and of each (what, why, variants, workloads) what holds where, why, and of whom."""
    lines = [title]
    for what, why, variants, workloads in found:
        if len(workloads) == len(group.workloads):
            where = "everywhere"
        else:
            where = f"at {', '.join(f'{group.length(workload):,}' for workload in workloads)} {group.axis}"
        said = f"{what} {where}: {why}" if why else f"{what}, {where}:"
        for indent, text in (("  ", said), ("      ", ", ".join(variants))):
            further = "    " if indent == "  " else indent
            lines += textwrap.wrap(text, WRAP, initial_indent=indent, subsequent_indent=further, break_long_words=False)
    return lines


def not_passed(group: Group) -> str:
    """Return what did not pass, one entry per reason; empty where all passed."""
    found = failures(group)
    if not found:
        return ""
    said = [(failure.status.value, failure.reason, failure.variants, failure.workloads) for failure in found]
    lines = entries(group, f"Did not pass ({group.name}):", said)
    if any(group.curve(variant) for variant in {record.variant for record in group.records if distrusted(record)}):
        lines += [
            "  A variant that is INCORRECT at any length, or whose time there cannot be believed, has no rank at the",
            "  others.",
        ]
    return "\n".join(lines)


def prose(*sentences: str) -> str:
    """Return sentences as wrapped lines, empty ones left out."""
    return textwrap.fill(" ".join(filter(None, sentences)), WRAP, break_long_words=False, break_on_hyphens=False)
