"""What the audit finds, as values: a judgement, a kind, the arithmetic. `report/audit/words.py` has the sentences."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Value = float | int | str | bool


class Judgement(enum.StrEnum):
    """What a figure is, the gravest first."""

    IMPOSSIBLE = "impossible"  # no kernel could do it on that card
    CONTRADICTORY = "contradictory"  # another figure of the same document, or a formula, says otherwise
    CONDITIONAL = "wrong under an assumption"  # impossible or contradictory, if what the source does not state holds
    IMPLAUSIBLE = "implausible"  # possible, but far from what anybody measures
    UNDECIDABLE = "not decidable"
    FINE = "fine"

    @property
    def is_flagged(self) -> bool:
        """Whether something speaks against such a figure."""
        return self in FLAGGED


CERTAIN = (Judgement.IMPOSSIBLE, Judgement.CONTRADICTORY)  # wrong whatever a source does not state
WRONG = (*CERTAIN, Judgement.CONDITIONAL)
FLAGGED = (*WRONG, Judgement.IMPLAUSIBLE)


class Kind(enum.StrEnum):
    """What is wrong with a figure."""

    TOO_FAST = "too fast"  # shorter than attention's own operations or bytes take
    TOO_FAST_LAYER = "too fast with the projections"
    RATE_OVER_PEAK = "rate over the peak"
    TRAINING_OVER_PEAK = "training over the peak"
    GENERATION_OVER_BANDWIDTH = "generation over the bandwidth"
    TIME_AND_RATE = "time and rate"
    SPEEDUP = "speedup"
    SPEEDUP_RANGE = "range of speedups"
    TOTAL_UNDER_PART = "total under a part"
    TOTAL_UNDER_SUM = "total under its parts"
    MEMORY_TOTAL = "total of memory"
    BACKWARD_SHORTER = "backward shorter than forward"
    TWO_VALUES = "two values of one thing"
    PEAKS_DIFFER = "several peaks"
    PEAK_UNKNOWN = "not the card's peak"
    ATTENTION_MATRIX = "attention matrix"
    CACHE = "kv cache"
    WEIGHTS = "weights larger than the memory"
    WEIGHTS_AND_CACHE = "weights and cache larger than the memory"
    WEIGHTS_AND_GRADIENTS = "weights and gradients larger than the memory"
    PER_TOKEN_GROWTH = "growth per token"
    GROWTHS_DIFFER = "two growths"
    PER_TOKEN_TOTAL = "per token and total"
    NEAR_PEAK = "near the peak"
    TRAINING_NEAR_PEAK = "training near the peak"
    TOO_SLOW = "slower than unfused attention"


BEYOND_CARD = {  # the kinds by which a figure is impossible
    *(Kind.TOO_FAST, Kind.TOO_FAST_LAYER, Kind.RATE_OVER_PEAK),
    *(Kind.TRAINING_OVER_PEAK, Kind.GENERATION_OVER_BANDWIDTH),
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong with the figure of one line, and by which numbers."""

    kind: Kind
    judgement: Judgement
    values: Mapping[str, Value] = field(default_factory=dict)
    lines: tuple[int, ...] = ()  # of the other figures that it was held against
    assumed: str = ""  # what its source does not state and what it rests on


def impossible(kind: Kind, **values: Value) -> Finding:
    """Return a finding that no card allows."""
    return Finding(kind=kind, judgement=Judgement.IMPOSSIBLE, values=values)


def contradictory(kind: Kind, *lines: int, **values: Value) -> Finding:
    """Return a finding against other lines or a formula."""
    return Finding(kind=kind, judgement=Judgement.CONTRADICTORY, values=values, lines=lines)


def resting_on(assumed: Sequence[str], finding: Finding) -> Finding:
    """Return a finding that holds only if all that is assumed does; the same one where that is nothing."""
    if not assumed:
        return finding
    return dataclasses.replace(finding, judgement=Judgement.CONDITIONAL, assumed=" and ".join(assumed))


def implausible(kind: Kind, **values: Value) -> Finding:
    """Return a finding that is possible and unlikely."""
    return Finding(kind=kind, judgement=Judgement.IMPLAUSIBLE, values=values)
