"""The memory of calls beside the model of what they must hold, and on which cards they fit."""

from __future__ import annotations

from fluxbench import operations, variants
from fluxbench.operations.attention_memory import Held, held
from fluxbench.records.schema import Record

# MiB by nvidia-smi of a card sold with so many GB: RTX 4090, A100 by older drivers (by newer ones 40,960), H100, H200.
CARDS_MIB = {24: 24_564, 40: 40_536, 80: 81_559, 141: 143_771}
# That nvidia-smi lists and torch does not see: an H200 has 140.40 and 139.80 GiB, an H100 79.65 and 79.2.
UNSEEN_GIB = 0.6
_SAME_CARD = 0.02  # by which the memory of two cards of one size differs at most: ECC, drivers
_ROUNDED = 0.01  # by which what torch sees of a card may differ from `room_bytes`
_PASSES = {"attention": False, "attention_backward": True, "attention_training": True}  # whether a backward one too


def model_of(record: Record) -> Held | None:
    """Return what a record's call must hold; None of another operation, or of a variant that is not known here."""
    backward = _PASSES.get(record.workload.operation)
    try:
        formed = variants.find(record.variant)
    except ValueError:
        return None
    if backward is None:
        return None
    call = operations.find(record.workload.operation).attention(record.workload.shape)
    return held(call, fused=not formed.variant.holds_scores, backward=backward)


def seen_bytes(device_bytes: int) -> int:
    """Return the bytes that torch sees of a device, of which nvidia-smi lists so many."""
    return int(device_bytes - UNSEEN_GIB * 2**30)


def room_bytes(card_gb: int) -> int:
    """Return the bytes that torch sees on a card of `CARDS_MIB`."""
    return seen_bytes(CARDS_MIB[card_gb] * 2**20)


def card_of(device_bytes: int | None) -> int | None:
    """Return which card of `CARDS_MIB` a device is by its memory, as nvidia-smi lists it; None where it is none."""
    if device_bytes is None:
        return None
    sizes = {card: mib * 2**20 for card, mib in CARDS_MIB.items()}
    return next((card for card, size in sizes.items() if abs(device_bytes / size - 1) <= _SAME_CARD), None)


def fits_on(record: Record, device_bytes: int | None) -> int | None:
    """Return the smallest card, in GB, that has all that torch needed for a call; None where none of them has.

    What passed on a device of so many bytes fits on such a card.
    """
    assert record.memory
    own, needed = card_of(device_bytes), record.memory.needed_bytes
    return next((card for card in CARDS_MIB if needed <= room_bytes(card) or card == own), None)


def is_as_large(total_bytes: int, card_gb: int) -> bool:
    """Whether a device, of which torch sees so many bytes, has as much memory as a card."""
    return total_bytes >= (1 - _ROUNDED) * room_bytes(card_gb)
