"""Forms of a kernel that are measurably slower than the kernel as it is, at the longest workload."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fluxbench.analysis.findings.evidence import LEAST, believed, plain, significant, weight
from fluxbench.analysis.findings.finding import Case, Part
from fluxbench.analysis.groups import Group
from fluxbench.analysis.ranking import order
from fluxbench.records.schema import Record
from fluxbench.stats.intervals import Estimate
from fluxbench.stats.significance import chance_over, estimate


@dataclass(frozen=True)
class Pair:
    """A form that is measurably slower, and the kernel as it is."""

    form: Record
    plain: Record
    slower: Estimate  # the form's time over the other's

    def case(self, group: Group, part: Part | None) -> Case:
        """Return the case of the form, with a part of its call; it weighs as much as the kernel as it is."""
        return Case(
            variant=self.form.variant,
            against=self.plain.variant,
            workloads=(group.longest,),
            value=self.slower,
            part=part,
            weight=weight(group, self.plain.variant, self.slower),
        )


def slower_forms(group: Group, forms: Collection[str], level: float) -> list[Pair]:
    """Return which records in these forms are measurably slower than those of their kernels as they are."""
    records, sustained = believed(group, group.longest), order(group, group.longest)
    eager = {record.kernel: record for record in plain(records)}
    pairs = [(record, eager[record.kernel]) for record in records if record.form in forms and record.kernel in eager]
    effects = {form.variant: (form, other, sustained.difference(form, other)) for form, other in pairs}
    chances = {variant: chance_over(effect, LEAST) for variant, (_, _, effect) in effects.items()}
    return [Pair(*effects[variant][:2], estimate(effects[variant][2])) for variant in significant(chances, level)]
