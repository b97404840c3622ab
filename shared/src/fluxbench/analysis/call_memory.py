"""The memory of calls beside the model of what they must hold, and on which cards they fit."""

from __future__ import annotations

from fluxbench import operations, variants
from fluxbench.operations.attention_memory import Held, held
from fluxbench.records.schema import Record

CARDS_GB = (24, 40, 80, 141)  # of 10**9 bytes: RTX 4090 or A10G, A100 of 40 and of 80 GB or H100, H200
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


def fits_on(record: Record) -> int | None:
    """Return the smallest card, in GB, that has all that torch needed for a call; None where none of them has."""
    assert record.memory
    return next((card for card in CARDS_GB if record.memory.needed_bytes <= card * 10**9), None)
