"""An examination as lines for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fluxbench.core.formatting import first, wrapped
from fluxbench.device.describe import describe

if TYPE_CHECKING:
    from fluxbench.notebook.doctor.examination import Examination, VariantHere

_FEW = 6  # variants that a line names
_MORE = "`make doctor NOTEBOOK=notebooks/flux.md` lists its variants, workloads and pins, and the tools and folders."


def of(examination: Examination, *, detailed: bool) -> str:
    """Return what the machine is, what it lacks, and what will run; with all details only of a single notebook."""
    lines = [*_machine(examination), "", *_lacking(examination), ""]
    if detailed:
        lines += [*_variants(examination), "", *_details(examination)]
    else:
        lines += [*_notebooks(examination), "", _MORE]
    return "\n".join(map(wrapped, lines))


def _machine(examination: Examination) -> list[str]:
    how = "configured in" if examination.target_is_named else "not in"
    fallback = "" if examination.target_is_named else ", so as [any]"
    lines = [f"Device: target {examination.target}, {how} environment/targets.toml{fallback}"]
    rows = dict(describe(examination.device))
    if torch := examination.packages.get("torch"):
        rows["torch"] = f"{torch}, {_source(examination)}"
    if examination.settings:
        rows["settings"] = " ".join(f"{name}={value}" for name, value in examination.settings.items())
    return lines + _rows(rows)


def _source(examination: Examination) -> str:
    return f"by uv from {examination.lock or 'no lock'}" if examination.way == "uv" else "as FLUXBENCH_PYTHON has it"


def _lacking(examination: Examination) -> list[str]:
    lines = ["What is lacking:"] if examination.lacking else ["Nothing is lacking."]
    lines += [f"  - {sentence}" for sentence in examination.lacking]
    if examination.remarks:
        lines += ["", "Notes:", *(f"  - {remark}" for remark in examination.remarks)]
    return lines


def _notebooks(examination: Examination) -> list[str]:
    """Return a line or two for each notebook, and how many variants will not run for which reason."""
    few = {notebook: _few(named) for notebook, named in examination.by_notebook.items()}
    lines = ["What will run of the variants that each notebook names", *(_rows(few) or ["  none"])]
    will_not = {
        (here.reason, here.variant) for named in examination.by_notebook.values() for here in named if here.reason
    }
    reasons = Counter(reason for reason, _ in sorted(will_not))
    if reasons:
        whys = (f"  {count:>3}  {reason}" for reason, count in reasons.most_common())
        lines += ["", "Why the others will not", *whys]
    return lines


def _few(named: Sequence[VariantHere]) -> str:
    """Return how many variants will run, with a few names of these or of the others, whichever are fewer."""
    will, will_not = ([here.variant for here in named if bool(here.reason) is fails] for fails in (False, True))
    count = f"{len(will)} of {len(named)}"
    if not (will and will_not):
        return count
    names = min(will, will_not, key=len)
    return f"{count}{', without' if names is will_not else ':'} {first(names, _FEW)}"


def _variants(examination: Examination) -> list[str]:
    """Return all variants that a notebook names, by why they will not run."""
    reasons = _grouped((here.reason or "", here.variant) for here in examination.variants if here.notebooks)
    lines = [f"  {', '.join(reasons[reason])}: {reason or 'will run'}" for reason in sorted(reasons, key=bool)]
    return ["Variants", *(lines or ["  none"])]


def _details(examination: Examination) -> list[str]:
    """Return the workloads, the packages, the tools and the folders."""
    lines = ["Workloads", f"  {', '.join(examination.workloads) or 'none'}"]
    if examination.packages:
        lines += ["", f"Measured packages, {_source(examination)}", *_rows(examination.packages)]
    pins = _grouped((" ".join(packages), name) for name, packages in examination.cells.items())
    lines += [f"  pinned: {packages} by {', '.join(names)}" for packages, names in pins.items()]
    tools = {tool.name: " ".join(filter(None, (tool.version, tool.path))) for tool in examination.tools}
    lines += ["", "Tools", *_rows(tools)]
    count = examination.environments
    cache = f" in {count} environment{'' if count == 1 else 's'}"
    disk = {place.name: place.text() + cache * (place.name == "cache") for place in examination.places}
    return [*lines, "", "Disk", *_rows(disk)]


def _rows(rows: Mapping[str, str | None]) -> list[str]:
    width = max(map(len, rows), default=0)
    return [f"  {name:<{width}}  {value or 'none'}" for name, value in rows.items()]


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the values of each key, both in the order in which they come."""
    groups: dict[str, list[str]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
