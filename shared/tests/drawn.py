"""What tests look up in an inline SVG: its texts, tooltips and lines, and values by their place on an axis."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence

_SVG = "{http://www.w3.org/2000/svg}"
_POINT = re.compile(r"[ML] (-?[\d.]+) (-?[\d.]+)")


def texts(svg: str) -> list[str]:
    """Return every text that is drawn."""
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter(f"{_SVG}text")]


def words(svg: str) -> str:
    """Return all texts that are drawn in one line."""
    return " ".join(texts(svg))


def _groups(svg: str) -> list[ET.Element]:
    return [element for element in ET.fromstring(svg).iter(f"{_SVG}g") if element.get("class") == "mark"]


def tooltips(svg: str) -> list[str]:
    """Return the tooltips of all marks."""
    return [group[0].text or "" for group in _groups(svg)]


def places(svg: str, text: str) -> list[tuple[float, float]]:
    """Return where a text is drawn, in points from the top left corner."""
    elements = (one for one in ET.fromstring(svg).iter(f"{_SVG}text") if "".join(one.itertext()) == text)
    return [(float(one.attrib["x"]), float(one.attrib["y"])) for one in elements]


def lines(svg: str, colour: str = r"var\(--k\d\)") -> list[list[tuple[float, float]]]:
    """Return the points of each line of a colour (a pattern), by default of any variant's."""
    return [
        [(float(x), float(y)) for x, y in _POINT.findall(path.attrib["d"])]
        for path in _outside_defs(ET.fromstring(svg))
        if re.search(rf"stroke:{colour}(;|$)", path.get("style", ""))
    ]


def _outside_defs(element: ET.Element) -> Iterator[ET.Element]:
    """Yield the paths that are drawn, and not those that marks are made of."""
    for child in element:
        if child.tag == f"{_SVG}path":
            yield child
        elif child.tag != f"{_SVG}defs":
            yield from _outside_defs(child)


def marks(svg: str) -> dict[str, tuple[float, float]]:
    """Return where each mark is drawn, by its tooltip."""
    uses = {group[0].text or "": next(group.iter(f"{_SVG}use"), None) for group in _groups(svg)}
    return {text: (float(use.attrib["x"]), float(use.attrib["y"])) for text, use in uses.items() if use is not None}


def bars(svg: str) -> dict[str, tuple[float, float]]:
    """Return the left and the right end of each bar, by its tooltip."""
    found = {}
    for group in _groups(svg):
        if (path := next(group.iter(f"{_SVG}path"), None)) is not None:
            x = [float(x) for x, _ in _POINT.findall(path.attrib["d"])]
            found[group[0].text or ""] = (min(x), max(x))
    return found


Box = tuple[str, float, float, float, float]  # a text, and its left, upper, right and lower end


def text_box(element: ET.Element) -> Box | None:
    """Return what room a text takes, in a font whose characters are all of one width; None for another element."""
    if element.tag != f"{_SVG}text":
        return None
    text, style = "".join(element.itertext()), element.get("style", "")
    size = float(re.findall(r"([\d.]+)px", style)[0])
    width = 0.602 * size * len(text)
    anchor = (re.findall(r"text-anchor:(\w+)", style) or ["start"])[0]
    left = float(element.attrib["x"]) - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
    baseline = float(element.attrib["y"])
    return text, left, baseline - 0.72 * size, left + width, baseline + 0.2 * size


def overlap(one: Box, other: Box) -> bool:
    """Whether two texts are written over each other."""
    return one[1] < other[3] and other[1] < one[3] and one[2] < other[4] and other[2] < one[4]


def scale(ticks: Sequence[tuple[float, float]], *, log: bool) -> Callable[[float], float]:
    """Return the function from a place to a value, of an axis with these ticks: pairs of value and place."""
    (low, start), *_, (high, end) = sorted(ticks)
    if log:
        return lambda place: math.exp(math.log(low) + math.log(high / low) * (place - start) / (end - start))
    return lambda place: low + (high - low) * (place - start) / (end - start)
