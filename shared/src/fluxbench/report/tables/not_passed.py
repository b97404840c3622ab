"""What did not pass in a group of records: below each table that leaves it out."""

from __future__ import annotations

from fluxbench.analysis.failures import failures
from fluxbench.analysis.groups import Group
from fluxbench.report.blocks import Block, Bullets, Paragraph
from fluxbench.report.sentences import title, where


def not_passed(group: Group) -> list[Block]:
    """Return what did not pass, one item per reason; nothing where all passed."""
    items = [
        (f"{failure.status.value} {where(group, failure.workloads)}: {failure.reason}", ", ".join(failure.variants))
        for failure in failures(group)
    ]
    if not items:
        return []
    blocks: list[Block] = [Bullets(f"Did not pass ({title(group)}):", items)]
    if any(group.curve(variant) for variant in group.distrusted):
        blocks.append(
            Paragraph(
                "A variant that is INCORRECT at any workload, or whose time there cannot be believed, has no rank at "
                "the others."
            )
        )
    return blocks
