"""What a verdict says of records."""

from __future__ import annotations

from fluxbench.analysis import verdict
from fluxbench.analysis.groups import groups
from fluxbench.records.schema import Record
from fluxbench.report import verdict_words


def said(*records: Record) -> str:
    """Return the sentence on records of one group."""
    [group] = groups(records)
    return verdict_words.sentence(verdict.of(group))
