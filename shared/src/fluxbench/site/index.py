"""Targets -> the page that people meet first: a card each, with the verdict of each notebook."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from markupsafe import Markup

from fluxbench import studies
from fluxbench.analysis import shared
from fluxbench.analysis import verdict as analysis
from fluxbench.analysis.grid import grids
from fluxbench.analysis.groups import Group
from fluxbench.analysis.verification.origin import device_of
from fluxbench.core.formatting import listed
from fluxbench.notebook.publish import OF_NO_DEVICE
from fluxbench.records.schema import Record
from fluxbench.report import verdict_words as words
from fluxbench.report.figures.verdict import chart
from fluxbench.report.sentences import title
from fluxbench.report.tables import parallel
from fluxbench.report.tables.grid_words import sentence
from fluxbench.report.verdict import late
from fluxbench.site.collect import Notebook, Target, device_name
from fluxbench.site.page import page
from fluxbench.site.uses import Recommended, recommended

_SHAPES = 2  # of a notebook whose verdict is shown
_SENTENCE = 1200  # characters of a problem
_WITHOUT = {OF_NO_DEVICE: "Published figures"}  # titles of targets without a device
_CERTIFICATE = "certificate"  # the notebook
_FACT = 200  # characters of a fact
_TITLE = "fluxbench: attention kernels on real devices"
_ABOUT = (
    "Attention kernels at the shapes of diffusion and language models, measured on real devices. Each kernel is "
    "checked against a float64 reference, then timed in fresh processes."
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a card says of one group of records; `chart` is an inline SVG, empty where nothing is compared."""

    sentence: str
    chart: Markup
    caption: str


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """What a card says of one notebook, and how many more shapes that has."""

    name: str
    page: str | None
    own: str  # its own sentence, where it has no records to be compared
    shapes: Sequence[Shape]
    more_shapes: int
    late: str = ""  # what there was no time to measure


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the page shows of a target; paths are relative to `reports/`."""

    name: str
    title: str  # the device
    facts: Sequence[tuple[str, str]]  # none where there are no records
    recommended: Recommended | None  # which kernel for which use; None where no use was measured
    notebooks: Sequence[Verdicts]
    problems: Sequence[str]
    compare: str  # the address of its rows in the comparison; empty where it has none
    files: Sequence[tuple[str, Sequence[str]]]  # what they are, and their paths


def draw(targets: Sequence[Target]) -> str:
    """Return the page."""
    certified = {device_name(one.records) for one in targets if any(its.name == _CERTIFICATE for its in one.notebooks)}
    return page("index.html", title=_TITLE, about=_ABOUT, cards=[_card(target, certified) for target in targets])


def _card(target: Target, certified: Collection[str]) -> Card:
    measured_first = sorted(target.notebooks, key=lambda notebook: not notebook.records)
    files = (
        ("CSV", [path for notebook in target.notebooks for path in notebook.tables]),
        ("Records", [path for notebook in target.notebooks for path in notebook.files]),
    )
    return Card(
        name=target.name,
        title=_shortened(device_name(target.records), _FACT)
        if target.records
        else _WITHOUT.get(target.name, target.name),
        facts=[*_facts(target.records), _method(target, certified)] if target.records else (),
        recommended=recommended(target),
        notebooks=[_verdicts(notebook, target) for notebook in measured_first],
        problems=[_shortened(problem) for problem in target.problems],
        compare=f"compare.html#{urlencode({'target': target.name}, errors='replace')}" if target.records else "",
        files=[(words, paths) for words, paths in files if paths],
    )


def _facts(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return what was measured, with what and when, as terms and words."""
    days = sorted({record.measured_at[:10] for record in records})
    watts = _distinct(record.fingerprint.get("power_limit_w") for record in records)
    software = [
        f"{name} {versions}"
        for package, name in (("torch", "torch"), ("cudnn", "cuDNN"), ("triton", "Triton"))
        if (versions := _versions(records, package))
    ]
    statuses = Counter(record.status for record in records)
    counts = ", ".join(f"{count:,} {status.value}" for status, count in statuses.most_common())
    facts = [
        ("device", _shortened(device_name(records), _FACT) + (f", power limit {watts} W" if watts else "")),
        ("driver", _versions(records, "driver")),
        ("software", ", ".join(software)),
        ("measured", " to ".join(dict.fromkeys((days[0], days[-1])))),
        ("records", counts),
    ]
    return [(term, words) for term, words in facts if words]


def _method(target: Target, certified: Collection[str]) -> tuple[str, str]:
    """Return by which versions of the method a target was measured, and that its model of device has no certificate."""
    own = sorted({record.method_version for record in target.records})
    is_certified = device_name(target.records) in certified
    without = "" if is_certified else "; no certificate of this device says how reliable that is"
    return f"method version{'s' * (len(own) > 1)}", listed([*map(str, own)]) + without


def _verdicts(notebook: Notebook, target: Target) -> Verdicts:
    if _is_grid(notebook):
        answers = [Shape(sentence=sentence(grid), chart=Markup(""), caption="") for grid in grids(notebook.records)]
        return Verdicts(
            name=notebook.name, page=notebook.page, own="", shapes=answers, more_shapes=len(notebook.groups)
        )
    shapes = []
    of_kernels = [group for group in notebook.groups if group.operation != shared.OPERATION]
    for group in sorted(of_kernels, key=_head_dim, reverse=True)[:_SHAPES]:
        verdict = analysis.of(group)
        drawn = chart(verdict, f"{target.name}/{notebook.name}/{group.name}") if verdict.is_compared else ""
        caption = words.caption(verdict, device_name(group.records)) if drawn else ""
        which = f"For {title(group)}:" if len(of_kernels) > 1 else ""
        sentences = " ".join(filter(None, (which, words.sentence(verdict), words.unavailable(verdict))))
        shapes.append(Shape(sentence=sentences, chart=Markup(drawn), caption=caption))
    return Verdicts(
        name=notebook.name,
        page=notebook.page,
        own="" if shapes else _own(notebook),
        shapes=shapes,
        more_shapes=len(notebook.groups) - len(shapes),
        late=late(notebook.groups),
    )


def _head_dim(group: Group) -> int:
    """Return the head_dim of a group's attention, 0 of layers and models: the largest one is nearest to theirs."""
    return int(group.longest.shape.get("head_dim_qk", 0))


def _is_grid(notebook: Notebook) -> bool:
    """Whether a notebook's answer is that over all shapes of a grid: a verdict on two of them would say little."""
    return notebook.name in studies.NAMES and "grid" in studies.find(notebook.name).tables


def _own(notebook: Notebook) -> str:
    """Return what a card says of a notebook that compares no kernels: by its records, or by its summary."""
    if any(record.workload.operation == shared.OPERATION for record in notebook.records):
        return parallel.lead(shared.shared_records(notebook.records), device_of(notebook.records[0]))
    return notebook.verdict


def _versions(records: Iterable[Record], package: str) -> str:
    return _distinct(_plain(package, record.versions.get(package)) for record in records)


def _plain(package: str, version: str | None) -> str | None:
    """Return a version as its makers write it: cuDNN calls its 9.19.0 91900."""
    if package == "cudnn" and version and version.isdecimal() and len(version) == 5:
        return f"{version[0]}.{int(version[1:3])}.{int(version[3:])}"
    return version


def _distinct(values: Iterable[object]) -> str:
    texts = sorted({f"{value:g}" if isinstance(value, float) else str(value) for value in values if value})
    return _shortened(" and ".join(texts), _FACT)


def _shortened(text: str, most: int = _SENTENCE) -> str:
    return text if len(text) <= most else textwrap.shorten(text, most, placeholder=" …")
