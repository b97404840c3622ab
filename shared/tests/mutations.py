"""Seeded mutations of what others wrote: of bytes, and of values in JSON. `FUZZ=2000` tries as many of each kind."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from typing import Any

COUNT = int(os.environ.get("FUZZ", "100"))
PIECES = (
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\\ud800", b"1e999", b"-1", b"NaN", b"null", b'"', b"{", b"[" * 5000),
    *(b"9" * 5000, b"../", b"\n", b"---\n", b"```", b"```python id=", b"# ///\n", b"requires-python = 1\n", b": ["),
    *(b"<b>", b",", b"1e300", b"-0.5"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, "", "x", "a" * 300, "\x1b[2J\n", "os:abort", "exact", "burst", [], {}, [[]], {"a": {"b": [1]}}),
    *(0, 1, -1, 2**63, -(10**30), 10**400, 0.5, 5e-324, 1e-200, 1e-9, 1e9, 1e200, 1.7e308, -1e308),
)


def of_bytes(content: bytes, count: int = COUNT) -> Iterator[bytes]:
    """Yield a text with one to three pieces of it removed, repeated, or replaced by something else."""
    chance = random.Random(1)
    for _ in range(count):
        mutated = content
        for _ in range(chance.randint(1, 3)):
            begin = chance.randrange(len(mutated) + 1)
            end = begin + chance.choice((0, 1, 8, 200))
            piece = chance.choice((*PIECES, b"", mutated[begin:end] * 2, bytes([chance.randrange(256)])))
            mutated = mutated[:begin] + piece + mutated[end:]
        yield mutated


def of_json(content: bytes) -> Iterator[bytes]:
    """Yield JSON, or lines of it, with mutated bytes, and as often with one to three values of it changed or gone."""
    yield from of_bytes(content, COUNT // 2)
    chance = random.Random(2)
    lines = [json.loads(line) for line in content.splitlines()]
    for _ in range(COUNT - COUNT // 2):
        mutated = copy.deepcopy(lines)
        for _ in range(chance.randint(1, 3)):
            _change(chance, mutated)
        yield b"".join(json.dumps(line).encode() + b"\n" for line in mutated)


def _change(chance: random.Random, value: Any) -> None:
    """Change a value in nested dicts and lists, at random depth."""
    while value:
        key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        below = value[key]
        if isinstance(below, dict | list) and below and chance.random() < 0.9:
            value = below
            continue
        if chance.random() < 0.1:
            del value[key]
        elif isinstance(below, int | float) and abs(below) < 1e300 and chance.random() < 0.3:
            value[key] = below * chance.choice((-1, 0.5, 0.999, 1.001, 2, 1e6))
        else:
            value[key] = copy.deepcopy(chance.choice(VALUES))
        return
