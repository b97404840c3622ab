"""Which kernel for which use: the verdict at each workload that stands for a use, among what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fluxbench.analysis import verdict
from fluxbench.analysis.groups import Group
from fluxbench.analysis.verdict import Verdict
from fluxbench.operations.workload import Workload
from fluxbench.records.fingerprint import Incomparable, not_comparable
from fluxbench.records.schema import Record


@dataclass(frozen=True, kw_only=True)
class Representative:
    """The workload of a notebook that stands for a use, and where the notebook's page shows it."""

    notebook: str
    operation: str
    groups: tuple[str, ...]  # of its workloads: of a GPU, then of a CPU; the first that was measured counts
    x_max: int | None = None  # the longest workload up to here counts; None: the longest
    what: str  # is timed
    section: str  # id of a heading of the notebook

    def find(self, groups: Sequence[Group]) -> tuple[Group, Workload] | None:
        """Return its workload on one device among a notebook's groups, with its group."""
        by_name = {group.name: group for group in groups if group.operation == self.operation}
        group = next((by_name[name] for name in self.groups if name in by_name), None)
        fitting = [one for one in group.workloads if self._fits(one)] if group else []
        return (group, fitting[-1]) if group and fitting else None

    def _fits(self, workload: Workload) -> bool:
        return workload.ranks == 1 and (self.x_max is None or workload.x <= self.x_max)


# FlashAttention's versions (notebook `versions`) are no answer to any: other kernels are not beside them.
USES: Mapping[str, tuple[Representative, ...]] = {
    "Image generation": (
        Representative(
            notebook="flux", operation="attention", groups=("flux1-1024px", "flux1-512px"),
            what="attention", section="ranking",
        ),
        Representative(
            notebook="model", operation="model_step", groups=("flux1-step",), x_max=1024,
            what="a step of the whole model", section="what-the-kernel-gains",
        ),
    ),
    "Training": (
        Representative(
            notebook="backward", operation="attention_training", groups=("llama3-8b-training", "llama3.2-1b-training"),
            what="attention, forward + backward", section="ranking",
        ),
        Representative(
            notebook="layers", operation="layer_training", groups=("llama3-8b",),
            what="an attention layer, forward + backward", section="the-layers",
        ),
    ),
    "Long context": (
        Representative(
            notebook="scaling", operation="attention", groups=("wan2.1-14b-lengths",),
            what="attention", section="ranking",
        ),
        Representative(
            notebook="decode", operation="decode", groups=("llama3-8b-decode",),
            what="attention of one token to its cache", section="how-fast-the-cache-is-read",
        ),
    ),
    "Short sequences": (
        Representative(
            notebook="sdpa", operation="attention", groups=("sdpa-b8-h12-d64-bf16",), x_max=128,
            what="attention", section="speedup-over-eager",
        ),
        Representative(
            notebook="sdpa", operation="attention_training", groups=("sdpa-b8-h12-d64-bf16-training",), x_max=128,
            what="attention, forward + backward", section="speedup-over-eager",
        ),
    ),
    "Serving": (
        Representative(
            notebook="decode", operation="decode", groups=("llama3-8b-decode-b32", "decode-small-b4"), x_max=4096,
            what="attention of one token to its cache", section="how-fast-the-cache-is-read",
        ),
        Representative(
            notebook="decode", operation="decode_model", groups=("llama3-8b-decode-model-b32",), x_max=4096,
            what="a token of the whole model", section="tokens-per-second-of-a-whole-model",
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The verdict at a representative; instead of one why its records must not be ranked together."""

    representative: Representative
    workload: Workload
    verdict: Verdict | Incomparable
    records: tuple[Record, ...]  # that are ranked


def recommendations(
    of_use: Sequence[Representative], groups: Mapping[str, Sequence[Group]]
) -> Iterator[Recommendation]:
    """Yield what is recommended at each representative of a use that was measured; `groups` are by notebook."""
    for one in of_use:
        if found := one.find(groups.get(one.notebook, ())):
            group, workload = found
            trusted = (group.trusted(variant, workload) for variant in group.variants)
            records = tuple(record for record in trusted if record)
            found_verdict = _incomparable(records) or verdict.of(group, workload)
            yield Recommendation(representative=one, workload=workload, verdict=found_verdict, records=records)


def _incomparable(records: Sequence[Record]) -> Incomparable | None:
    """Return why two of the records must not be compared, such as two models of device."""
    first, *others = [(record.fingerprint, record.method_version) for record in records] or [({}, 0)]
    return next((why for other in others if (why := not_comparable(first, other))), None)
