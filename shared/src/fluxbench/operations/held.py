"""Inputs of which a process has one copy, since a second one may not fit on the device.

All calls get the original. It is a function of its name, size and device alone, so it can be filled again after a
kernel has written to it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FROM_BYTES = 256 << 20  # smaller inputs are copied like all others
_AT_ONCE = 1 << 28  # elements that are filled at once

_memory: dict[tuple[object, ...], list[torch.Tensor]] = {}  # the largest piece of each name comes last
_views: dict[tuple[object, ...], tuple[torch.Tensor, ...]] = {}
_sources: dict[int, tuple[str, torch.Tensor, float]] = {}  # by the id of a view: name, memory, standard deviation


def normal(
    name: str, shapes: Sequence[Sequence[int]], dtype: torch.dtype, device: torch.device | str, std: float = 1.0
) -> tuple[torch.Tensor, ...]:
    """Return tensors of normal noise of a standard deviation: the same ones for the same arguments.

    They are parts of one allocation, so either all or none of them are there. Tensors of one name, of whatever shapes,
    share the memory of the largest ones so far. Ask for those first: larger ones that come later get memory of their
    own. Raises `torch.OutOfMemoryError`.
    """
    import torch

    place = name, len(shapes), dtype, str(device), std
    key = *place, *map(tuple, shapes)
    if key not in _views:
        counts = [math.prod(shape) for shape in shapes]
        pieces = _memory.setdefault(place, [])
        if not pieces or len(pieces[-1]) < len(shapes) * max(counts):
            pieces.append(_filled(name, torch.empty(len(shapes) * max(counts), dtype=dtype, device=device), std))
        parts = pieces[-1].view(len(shapes), -1)
        views = (part[:count].view(*shape) for part, count, shape in zip(parts, counts, shapes, strict=True))
        _views[key] = tuple(views)
        _sources.update({id(view): (name, pieces[-1], std) for view in _views[key]})
    return _views[key]


def exist() -> bool:
    """Whether this process has any."""
    return bool(_sources)


def is_held(x: torch.Tensor) -> bool:
    """Whether a tensor is one of these."""
    return id(x) in _sources


def release() -> None:
    """Forget them all."""
    for kept in (_memory, _views, _sources):
        kept.clear()


def fill_again(x: torch.Tensor) -> None:
    """Give a held tensor, and all that shares its memory, the values that it had at first."""
    name, memory, std = _sources[id(x)]
    _filled(name, memory, std)


def sum_of_bits(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of the words of a held tensor, int64, modulo 2**64: it tells that an element has changed.

    Its size must be a multiple of 8 bytes.
    """
    import torch

    return x.view(-1).view(torch.int64).sum()  # of its own type: the sum of another one would be of a converted copy


def _filled(name: str, memory: torch.Tensor, std: float) -> torch.Tensor:
    import torch

    rng = torch.Generator(device=memory.device).manual_seed(zlib.crc32(name.encode()))
    for part in memory.split(_AT_ONCE):
        part.normal_(std=std, generator=rng)
    return memory
