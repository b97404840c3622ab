"""What to type to install the measured versions of a variant's packages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fluxbench.report.usage.lines import Lines

# A version as pip takes it; a published record may hold any text, and a reader copies these lines into a shell.
_VERSION = re.compile(r"\d[0-9A-Za-z.!_-]*(\+[0-9A-Za-z.]+)?")
# Distributions that no registry has from a version on.
_UNPUBLISHED = {"flash-attn-3": "0", "sageattention": "2"}
_CHECKOUT = "pip install --no-deps ./shared"


def commands(of: Lines, packages: Sequence[str], versions: Mapping[str, str]) -> tuple[str, str]:
    """Return the lines for a shell, and what to know of them.

    Empty where the record does not say which torch there was.
    """
    known = {name: version for name, version in versions.items() if _VERSION.fullmatch(version)}
    if "torch" not in known:
        return "", ""
    notes = []
    if "+" in known["torch"]:
        notes.append(f"Measured with torch {known['torch']}.")
    together: list[str] = []
    built: list[str] = []
    for asked in (*(of.install or packages), "diffusers"):
        name, bracket, extra = asked.partition("[")
        if name not in known:
            continue
        if name in _UNPUBLISHED and not is_older(known[name], _UNPUBLISHED[name]):
            notes.append(f"{name} {known[name]} is not published as a package: build it from its source.")
            continue
        pinned = f"{name}{bracket}{extra}=={known[name].partition('+')[0]}"
        (built if asked in of.build else together).append(_with_cuda(pinned, known))
    typed = [f"pip install {' '.join(together)}"]
    typed += [f"pip install --no-build-isolation {' '.join(built)}"] if built else []
    if of.checkout:
        typed.append(_CHECKOUT)
        notes.append(
            "The last line installs fluxbench, in a clone of its repository; its kernels need torch and Triton alone."
        )
    return "\n".join(typed), " ".join(notes)


def has(versions: Mapping[str, str], needed: str) -> bool:
    """Return whether a package is there that is new enough: "xformers>=0.0.29"."""
    name, _, oldest = needed.partition(">=")
    return name in versions and not is_older(versions[name], oldest)


def is_older(version: str, other: str) -> bool:
    """Return whether a version comes before another, by their numbers."""
    return _numbers(version) < _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])][:3]


def _with_cuda(pinned: str, known: Mapping[str, str]) -> str:
    """Return a requirement whose extra names the major version of CUDA, in quotes; without it where that is unknown."""
    if "[" not in pinned:
        return pinned
    major = known.get("cuda", "").partition(".")[0]
    if "$cu" in pinned and not major:
        return re.sub(r"\[[^\]]*\]", "", pinned)
    return f'"{pinned.replace("$cu", f"cu{major}")}"'
