"""Targets -> the page that people meet first: a card each, with the records' own headline and a small figure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

from fluxbench.analysis.ranking import Group, correctness_of, launch_bound
from fluxbench.records.schema import Record, Status
from fluxbench.report.headline import answer
from fluxbench.report.sentences import shape
from fluxbench.site import chart
from fluxbench.site.collect import Notebook, Target, device_name
from fluxbench.site.page import link, page, text

_SHAPES = 2  # of a notebook that have a headline of their own
_SENTENCE = 1200  # characters of a headline: of many failures not each reason is named
_ABOUT = (
    "Attention kernels on the shapes of FLUX.1 and its kin, measured on real devices. Each kernel is checked against a "
    "float64 reference, then timed in fresh processes. Every number here is drawn from record files that anyone can "
    "make again."
)
_NOTHING = (
    "<p>Nothing was measured yet: there are no records under <code>reports/</code>. "
    "<code>make publish</code> measures this machine and takes its records in.</p>"
)
_OWN = """<section aria-labelledby="own"><h2 id="own">Add your own machine</h2>
<p>In a checkout of this repository, on the machine to be measured:</p>
<pre tabindex="0"><code>make report    # measures, and draws site/flux.html
.venv/bin/fluxbench add site    # checks the records, and takes them in as a new target
make site      # draws these pages anew</code></pre>
<p>A folder of records from elsewhere is taken in the same way: <code>fluxbench add FOLDER --target NAME</code>. It is
refused, a sentence for each reason, where a record breaks the schema, a time is faster than its device can be (where
its peak rate is known), or it does not say what it was measured with.</p></section>"""


def draw(targets: Sequence[Target], notes: Mapping[str, str]) -> str:
    """Return the page; `notes` says by kernel what a reader must know of it."""
    cards = "".join(_card(target, notes) for target in targets)
    body = f'<h1>Which attention kernel is fastest, on which device?</h1>\n<p class="about">{_ABOUT}</p>\n'
    if targets:
        body += '<p><a class="button" href="compare.html">Compare kernels and targets</a></p>\n'
        body += f'<div class="cards">{cards}</div>'
    else:
        body += _NOTHING
    return page("index.html", "fluxbench: attention kernels on real devices", _ABOUT, f"{body}\n{_OWN}")


def _card(target: Target, notes: Mapping[str, str]) -> str:
    records = target.records
    parts = [f'<h2 id="card-{text(target.name)}">{text(target.name)}</h2>']
    if records:
        parts.append(_facts(records))
    measuring = [notebook for notebook in target.notebooks if notebook.records]
    for notebook in measuring:
        if len(measuring) > 1:
            parts.append(f"<h3>{text(notebook.name)}</h3>")
        parts.append(_headlines(notebook, notes))
    if target.problems:
        faults = "".join(f"<li>{text(_short(problem))}</li>" for problem in target.problems)
        parts.append(f'<div class="faults"><p>Left out:</p><ul>{faults}</ul></div>')
    parts.append(_links(target))
    return f'<article class="card" aria-labelledby="card-{text(target.name)}">{"".join(parts)}</article>\n'


def _facts(records: Sequence[Record]) -> str:
    """Return what was measured, with what and when, as a list of terms."""
    days = sorted({record.measured_at[:10] for record in records})
    watts = _distinct(record.fingerprint.get("power_limit_w") for record in records)
    software = [
        f"{words} {_versions(records, package)}"
        for package, words in (("torch", "torch"), ("cudnn", "cuDNN"), ("triton", "Triton"))
        if _versions(records, package)
    ]
    statuses = Counter(record.status for record in records)
    counts = ", ".join(f"{count:,} {status.value}" for status, count in statuses.most_common())
    facts = {
        "device": _short(device_name(records), 200) + (f", power limit {watts} W" if watts else ""),
        "driver": _versions(records, "driver"),
        "software": ", ".join(software),
        "measured": days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}",
        "records": f"{counts}; ranked by the sustained regime",
    }
    rows = "".join(f"<dt>{term}</dt><dd>{text(said)}</dd>" for term, said in facts.items() if said)
    return f'<dl class="facts">{rows}</dl>'


def _headlines(notebook: Notebook, notes: Mapping[str, str]) -> str:
    found = notebook.groups
    parts = []
    for group in found[:_SHAPES]:
        first, *others = answer(group.records, device_name(group.records), notes)
        parts.append(f'<p class="answer">{text(_short(first))}</p>')
        parts += [f"<p>{text(_short(other))}</p>" for other in others]
        parts.append(_figure(group))
    if len(found) > _SHAPES:
        parts.append(f"<p>More shapes, in the comparison: {len(found) - _SHAPES:,}.</p>")
    return "".join(parts)


def _figure(group: Group) -> str:
    drawn = chart.times(group)
    if not drawn:
        return ""
    passed = {record.variant for record in group.records if record.status is Status.PASSED}
    more = len(passed) - drawn.count("<g>")
    rest = f" {more:,} more variants passed." if more > 0 else ""
    late = [record.variant for record in chart.in_order(group) if launch_bound(record)]
    launching = "launching is what was timed in one process or more, the host was hardly ahead of the device"
    timed = f" Of {', '.join(late)}: {launching}, so they come last (h) or are left out." if late else ""
    of_both = any(correctness_of(record).precision_class == "quantized" for record in chart.fastest(group))
    words = (
        f"The fastest kernels{', exact and quantized' if of_both else ''}, each in the simplest form that none of its "
        f"other ranked forms beats, and the reference, at {shape(group)}.{timed}{rest}"
    )
    return f"<figure>{drawn}<figcaption>{text(words)}</figcaption></figure>"


def _links(target: Target) -> str:
    """Return the ways from a card: its pages, its rows in the comparison, its records and tables."""
    measuring_first = sorted(target.notebooks, key=lambda notebook: not notebook.records)
    pages = [link(notebook.page, f"{notebook.name} page") for notebook in measuring_first if notebook.page]
    if target.records:
        to = "compare.html#" + urlencode({"target": target.name}, errors="replace")
        pages.append(f'<a href="{text(to)}">compare</a>')
    tables = [link(table, table.rpartition("/")[2]) for notebook in target.notebooks for table in notebook.tables]
    files = [link(file, file.rpartition("/")[2]) for notebook in target.notebooks for file in notebook.files]
    listed = "".join(
        f"<p>{words}: {', '.join(found)}</p>" for words, found in (("CSV", tables), ("Records", files)) if found
    )
    more = f"<details><summary>Records and tables</summary>{listed}</details>" if listed else ""
    return f'<p class="links">{" ".join(pages)}</p>{more}'


def _versions(records: Iterable[Record], package: str) -> str:
    return _distinct(_plain(package, record.versions.get(package)) for record in records)


def _plain(package: str, version: str | None) -> str | None:
    """Return a version as its makers write it: cuDNN says 91900 of its 9.19.0."""
    if package == "cudnn" and version and version.isdecimal() and len(version) == 5:
        return f"{version[0]}.{int(version[1:3])}.{int(version[3:])}"
    return version


def _distinct(values: Iterable[object]) -> str:
    found = sorted({f"{value:g}" if isinstance(value, float) else str(value) for value in values if value})
    return _short(" and ".join(found), 200)


def _short(said: str, most: int = _SENTENCE) -> str:
    return said if len(said) <= most else textwrap.shorten(said, most, placeholder=" …")
