"""Inputs of which a process has one copy, since a second one may not fit on the device.

All calls get the original. It is a function of its name, size and device alone, so it can be filled again after a
kernel has written to it.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FROM_BYTES = 256 << 20  # smaller inputs are copied like all others
_AT_ONCE = 1 << 28  # elements that are filled at once

_memory: dict[tuple[object, ...], list[torch.Tensor]] = {}  # the largest piece of each name comes last
_views: dict[tuple[object, ...], torch.Tensor] = {}
_sources: dict[int, tuple[str, torch.Tensor, float]] = {}  # by the id of a view: name, memory, standard deviation


def normal(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str, std: float = 1.0
) -> torch.Tensor:
    """Return normal noise of a standard deviation: the same tensor for the same arguments.

    Tensors of one name, of whatever shape, share the memory of the largest one so far. Ask for that one first: a larger
    one that comes later gets memory of its own.
    """
    import torch

    place = name, dtype, str(device), std
    key = *place, shape
    if key not in _views:
        count = torch.Size(shape).numel()
        pieces = _memory.setdefault(place, [])
        if not pieces or pieces[-1].numel() < count:
            pieces.append(_filled(name, torch.empty(count, dtype=dtype, device=device), std))
        _views[key] = pieces[-1][:count].view(shape)
        _sources[id(_views[key])] = name, pieces[-1], std
    return _views[key]


def exist() -> bool:
    """Whether this process has any."""
    return bool(_sources)


def is_held(x: torch.Tensor) -> bool:
    """Whether a tensor is one of these."""
    return id(x) in _sources


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
