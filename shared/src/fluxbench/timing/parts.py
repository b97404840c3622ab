"""The parts of a GPU's burst round: calls of about one length, the shortest first, and few of long ones.

After a call of 20 ms or more a card at its power limit is slower for up to 0.2 s. On an H200's page whose rounds had
calls of 0.03 to 170 ms in random order (`scaling`, 2026-11-27) the samples of a series differed by 6 to 9% (median) and
by up to 24%.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from fluxbench.operations.workload import Workload

_ALIKE = 2.0  # the most operations of a workload of a part over the fewest
_PART_MS = 10.0  # of a part's calls, as far as they are known; one call may be longer

Key = tuple[str, str]  # variant, workload


def parts_of(workloads: Iterable[Workload]) -> dict[str, int]:
    """Return by workload in which part of a round its calls are, from 0, by their operations."""
    found: dict[str, int] = {}
    part, least = -1, -1.0
    for workload in sorted(workloads, key=lambda one: one.cost.min_flops):
        if part < 0 or workload.cost.min_flops > _ALIKE * least:
            part, least = part + 1, workload.cost.min_flops
        found[workload.name] = part
    return found


def first_key(keys: Iterable[Key], part_of: Mapping[str, int]) -> Key:
    """Return the first key that has a workload, of the first part; of none that has, the first one."""
    return min(keys, key=lambda key: (not key[1], part_of.get(key[1], 0)))


def in_parts(
    keys: Iterable[Key], part_of: Mapping[str, int], last_ms: Mapping[Key, float], rng: random.Random
) -> list[list[Key]]:
    """Return keys in random order, by part; those of which none is known are in the first one.

    Where there are several, each is divided by what its calls took last, as far as that is known.
    """
    found: dict[int, list[Key]] = {}
    for key in keys:
        found.setdefault(part_of.get(key[1], 0), []).append(key)
    parts = [found[part] for part in sorted(found)]
    for part in parts:
        rng.shuffle(part)
    return [some for part in parts for some in _divided(part, last_ms)] if len(parts) > 1 else parts


def _divided(part: Sequence[Key], last_ms: Mapping[Key, float]) -> list[list[Key]]:
    divided: list[list[Key]] = [[]]
    busy_ms = 0.0
    for key in part:
        own_ms = last_ms.get(key, 0.0)
        if divided[-1] and busy_ms + own_ms > _PART_MS:
            divided.append([])
            busy_ms = 0.0
        divided[-1].append(key)
        busy_ms += own_ms
    return divided
