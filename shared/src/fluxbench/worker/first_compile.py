"""How long compiling takes from empty caches: measured once, and kept beside what the compilers made.

Later runs load what the first one compiled, so their own first calls say nothing of it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from fluxbench.operations.workload import Workload
from fluxbench.records import fingerprint

_PACKAGE = Path(__file__).resolve().parents[1]
_COMPILED = ("kernels", "operations", "variants")  # folders of the package whose code is compiled
_TIMED = "first call less a warm one"  # another text where that changes: times that are kept are of the old way


class FirstCompile:
    """The first compilation of a variant at a workload, with these versions, whose caches lie in `folder`.

    The first process that begins one measures it; where that was interrupted, the caches hold a part and nobody does.
    """

    def __init__(self, folder: Path, variant: str, workload: Workload, versions: Mapping[str, str]) -> None:
        key = json.dumps([_TIMED, variant, repr(workload), sorted(versions.items()), *sources()])
        self._kept = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"
        self._is_first = not self._kept.exists()
        if self._is_first:
            self._kept.write_text("null", encoding="utf-8")

    def seconds(self, measured_s: float | None) -> float | None:
        """Return how long the first compilation took, in s; `measured_s` is this process's own.

        None where nothing is compiled, or it is not known.
        """
        if self._is_first:
            new = self._kept.with_suffix(".new")
            new.write_text(json.dumps(measured_s), encoding="utf-8")
            new.replace(self._kept)
        try:
            kept = json.loads(self._kept.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return kept if isinstance(kept, float) else None


@functools.cache
def sources() -> tuple[str, ...]:
    """Return hashes of what may be compiled, or decide what is."""
    return tuple(fingerprint.hash_of(_PACKAGE / room) for room in _COMPILED)
