"""A matplotlib figure -> an SVG that sits inside an HTML page as if it had been written there.

What matplotlib writes is a document of its own: black text, fixed points, and ids and a style rule that would reach
the whole page. Here text and axes take the page's colour, variants the page's series colours (`--s1` ..., drawn for its
theme), the figure its container's width, and every id a prefix that no other figure has. A mark shows its numbers where
the pointer rests on it. The same figure gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from fluxbench.report.figures.style import COLOURS, INK

WIDTH_PT = 720.0
SMALL_PT = 9.0
ADVANCE = 0.602  # of every character in DejaVu Sans Mono, as a share of the font's size
CHARACTER_PT = ADVANCE * SMALL_PT


@dataclass(frozen=True)
class Layout:
    """For which screen a figure is drawn: its width and the size of its text in points."""

    width_pt: float
    text_pt: float

    @property
    def character_pt(self) -> float:
        """The width of a character."""
        return ADVANCE * self.text_pt


# A page shows the wide one from 800 CSS pixels on, the narrow one from 360 on: text is never under 10 pixels.
WIDE = Layout(WIDTH_PT, SMALL_PT)
NARROW = Layout(360.0, 10.0)

# Fonts of equal advance, so that text keeps the room it was given whichever of them the reader has.
_FONTS = "'Cascadia Mono', 'JetBrains Mono', 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fluxbench",
    "font.family": "DejaVu Sans Mono",
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "text.parse_math": False,
}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_TOOLTIP = "tooltip:"  # begins the id of an artist that has a tooltip; the id's rest is its text
_DROPPED = ("metadata", "style")  # elements; their rules would reach the whole page
_PAINT = {INK: "currentColor"} | {colour: f"var(--k{number})" for number, colour in enumerate(COLOURS, start=1)}
_INHERITED = {"fill": "currentColor", "stroke-linejoin": "round"}  # from the root, so that no text repeats it
_LENGTHS = ("d", "x", "y", "width", "height", "transform")  # attributes that hold numbers
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"#([^)]+)")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Strip:
    """A strip of a figure: its height in points, and what draws it below a distance in points from the figure's top."""

    height_pt: float
    draw: Callable[[Any, float], None]


def tooltip(artist: Any, text: str) -> None:
    """Show a text where the pointer rests on an artist."""
    artist.set_gid(_TOOLTIP + text)


def render(
    strips: Sequence[Strip],
    title: str,
    description: str,
    *,
    name: str,
    width_pt: float = WIDTH_PT,
    text_pt: float = SMALL_PT,
) -> str:
    """Return strips drawn below one another as an inline SVG.

    Figures of one page have ids of their own if their names differ, or what they show. Title and description are for a
    reader who does not see it. Text has the size that is given, where its artist does not have another.
    """
    with matplotlib.rc_context(_SETTINGS | {"font.size": text_pt}):
        height = sum(strip.height_pt for strip in strips)
        figure = Figure(figsize=(width_pt / 72, height / 72), dpi=72, facecolor="none")
        FigureCanvasSVG(figure)
        top = 0.0
        for strip in strips:
            strip.draw(figure, top)
            top += strip.height_pt
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=_NO_METADATA)
    document = _NOT_XML.sub("\ufffd", text.getvalue())
    prefix = f"f{hashlib.sha256((name + title + document).encode(errors='replace')).hexdigest()[:10]}"
    return _inline(document, prefix, title, description)


def _inline(document: str, prefix: str, title: str, description: str) -> str:
    """Return matplotlib's document made fit for the inside of an HTML page; its ids begin with a prefix."""
    source = ET.fromstring(document)
    elements = _Elements(source, prefix)
    drawn = [element for child in source for element in elements.converted(child)]
    series = "".join(
        f"; --k{number}: var(--s{number}, {colour})"
        for number, colour in enumerate(COLOURS, start=1)
        if colour in elements.colours
    )
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": source.attrib["viewBox"],
            "width": "100%",
            "role": "img",
            "aria-labelledby": f"{prefix}-title {prefix}-desc",
            "style": f"fill: currentColor; stroke-linejoin: round; stroke-linecap: butt; font-family: {_FONTS}{series}",
        },
    )
    for tag, words in (("title", title), ("desc", description)):
        ET.SubElement(root, tag, id=f"{prefix}-{tag}").text = _NOT_XML.sub("\ufffd", words)
    root.extend(drawn)
    for element in root.iter():
        if element.text is None and len(element):
            element.text = "\n"
        element.tail = "\n"
    return ET.tostring(root, encoding="unicode")


class _Elements:
    """Converts the elements of one document, and keeps which series colours they have."""

    def __init__(self, source: ET.Element, prefix: str) -> None:
        values = [value for element in source.iter() for value in element.attrib.values()]
        used = dict.fromkeys(match[1] for value in values if "#" in value for match in _REFERENCE.finditer(value))
        by_id = {element.get("id"): element for element in source.iter() if element.get("id") in used}
        self._ids = {old: f"{prefix}-{number}" for number, old in enumerate(name for name in used if name in by_id)}
        self._targets = {f"#{name}": _declarations(element) for name, element in by_id.items()}
        self.colours: set[str] = set()

    def converted(self, source: ET.Element) -> Iterator[ET.Element]:
        """Yield what an element becomes: nothing, itself, or its children where it is a group without a purpose."""
        tag = _local(source.tag)
        children = [element for child in source for element in self.converted(child)]
        style = self._style(source)
        if tag in _DROPPED or (tag in ("g", "defs") and not children):
            return
        if tag == "path" and style.get("fill") == "none" and "stroke" not in style:
            return  # the invisible background of a figure or of axes
        attributes = {_local(name): self._value(name, value) for name, value in source.attrib.items()}
        attributes = {name: value for name, value in attributes.items() if value and name != "style"}
        words = source.get("id", "")
        if words.startswith(_TOOLTIP):
            attributes["class"] = "mark"
            title = ET.Element("title")
            title.text = words.removeprefix(_TOOLTIP)
            children.insert(0, title)
        if style:
            attributes["style"] = ";".join(f"{name}:{value}" for name, value in style.items())
        if tag == "g" and not attributes:
            yield from children
            return
        element = ET.Element(tag, attributes)
        element.text = source.text if tag == "text" else None
        element.extend(children)
        yield element

    def _value(self, name: str, value: str) -> str:
        """Return an attribute's value; empty where it goes."""
        name = _local(name)
        if name == "id":
            return self._ids.get(value, "")
        if name in ("href", "clip-path"):
            return _REFERENCE.sub(lambda match: f"#{self._ids[match[1]]}", value)
        if name == "transform" and value.startswith("rotate(-0 "):
            return ""  # which matplotlib writes of every text that stands upright
        if name in _LENGTHS:
            return _LONG_NUMBER.sub(_rounded, " ".join(value.split()))
        return value

    def _style(self, source: ET.Element) -> dict[str, str]:
        """Return what an element's style must say: in the page's colours, without what it has from elsewhere anyway."""
        style = _declarations(source)
        self.colours.update(set(style.values()) & set(COLOURS))
        style = {name: _PAINT.get(value, value) for name, value in style.items() if name != "font-family"}
        if _local(source.tag) == "use":  # what its target says of itself has no effect here
            href = next(value for name, value in source.attrib.items() if _local(name) == "href")
            style = {name: value for name, value in style.items() if name not in self._targets.get(href, {})}
        return {name: value for name, value in style.items() if _INHERITED.get(name) != value}


def _declarations(element: ET.Element) -> dict[str, str]:
    """Return the properties of a style attribute by their name."""
    pairs = (declaration.partition(":") for declaration in element.get("style", "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _rounded(match: re.Match[str]) -> str:
    """Return a number of a drawing to a hundredth of a point."""
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _local(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition("}")[2]
