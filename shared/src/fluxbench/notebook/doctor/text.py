"""An examination as lines for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fluxbench.device.describe import describe

if TYPE_CHECKING:
    from fluxbench.notebook.doctor.examination import Examination

_WIDTH = 118


def of(examination: Examination) -> str:
    """Return the whole text."""
    how = "configured in" if examination.target_is_named else "not in"
    fallback = "" if examination.target_is_named else ", so as [any]"
    lines = [f"Device: target {examination.target}, {how} environment/targets.toml{fallback}"]
    lines += _rows(dict(describe(examination.device)))
    tools = {tool.name: " ".join(filter(None, (tool.version, tool.path))) for tool in examination.tools}
    lines += ["", "Tools", *_rows(tools)]
    source = (
        f"by uv from {examination.lock or 'no lock'}" if examination.way == "uv" else "as FLUXBENCH_PYTHON has them"
    )
    if examination.packages:
        lines += ["", f"Measured packages, {source}", *_rows(examination.packages)]
    pins = _grouped((" ".join(packages), name) for name, packages in examination.cells.items())
    lines += [f"  pinned: {packages} by {', '.join(names)}" for packages, names in pins.items()]
    count = examination.environments
    cache = f" in {count} environment{'' if count == 1 else 's'}"
    disk = {place.name: place.text() + cache * (place.name == "cache") for place in examination.places}
    lines += ["", "Disk", *_rows(disk)]
    if examination.settings:
        lines += ["", "Settings in force", *_rows(examination.settings)]
    lines += ["", f"Variants at {', '.join(examination.workloads) or 'no workload'}"]
    reasons = _grouped((here.reason or "", here.variant) for here in examination.variants)
    lines += [f"  {', '.join(reasons[reason])}: {reason or 'will run'}" for reason in sorted(reasons, key=bool)]
    named = _grouped((notebook, here.variant) for here in examination.variants for notebook in here.notebooks)
    lines += [f"  {notebook} names {len(names)} of {len(examination.variants)}" for notebook, names in named.items()]
    if examination.remarks:
        lines += ["", "Notes:", *(f"  - {remark}" for remark in examination.remarks)]
    if examination.lacking:
        lines += ["", "What is lacking:", *(f"  - {sentence}" for sentence in examination.lacking)]
    else:
        lines += ["", "Nothing is lacking."]
    return "\n".join(map(_wrapped, lines))


def _rows(rows: Mapping[str, str | None]) -> list[str]:
    width = max(map(len, rows), default=0)
    return [f"  {name:<{width}}  {value or 'none'}" for name, value in rows.items()]


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the values of each key, both in the order in which they come."""
    groups: dict[str, list[str]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
