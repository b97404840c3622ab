"""Which kernel for which use: the verdict at each workload that stands for a use, among what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fluxbench.analysis import verdict
from fluxbench.analysis.grid import Point
from fluxbench.analysis.groups import Group, is_replayed, ranking_regime
from fluxbench.analysis.verdict import Verdict
from fluxbench.operations.precision import EXACT
from fluxbench.operations.workload import Workload
from fluxbench.records.fingerprint import Incomparable
from fluxbench.records.schema import Record


@dataclass(frozen=True, kw_only=True)
class Representative:
    """The workload of a notebook that stands for a use, and where the notebook's page shows it."""

    notebook: str
    workloads: tuple[str, ...]  # of a GPU, then of a CPU; the first that was measured counts
    what: str  # is timed
    section: str  # id of a heading of the notebook

    def find(self, groups: Sequence[Group]) -> tuple[Group, Workload] | None:
        """Return its workload among a notebook's groups, with its group; None where it was not measured."""
        measured = {workload.name: (group, workload) for group in groups for workload in group.workloads}
        return next((measured[name] for name in self.workloads if name in measured), None)


# FlashAttention's versions (notebook `versions`) are no answer to any: other kernels are not beside them.
USES: Mapping[str, tuple[Representative, ...]] = {
    "Image generation": (
        Representative(
            notebook="flux",
            workloads=("flux1-1024px-t512", "flux1-256px-t512"),
            what="attention",
            section="ranking",
        ),
        Representative(
            notebook="model",
            workloads=("flux1-1024px-step",),
            what="a step of the whole model",
            section="what-the-kernel-gains",
        ),
    ),
    "Training": (
        Representative(
            notebook="backward",
            workloads=("llama3-8b-16384-training", "llama3.2-1b-256-training"),
            what="attention, forward + backward",
            section="ranking",
        ),
        Representative(
            notebook="layers",
            workloads=("llama3-8b-layer-training",),
            what="an attention layer, forward + backward",
            section="the-layers",
        ),
    ),
    "Long context": (
        Representative(
            notebook="scaling",
            workloads=("wan2.1-14b-lengths-75600",),
            what="attention",
            section="ranking",
        ),
        Representative(
            notebook="decode",
            workloads=("llama3-8b-decode-131072",),
            what="attention of one token to a contiguous cache",
            section="how-fast-the-cache-is-read",
        ),
    ),
    "Short sequences": (
        Representative(
            notebook="sdpa",
            workloads=("sdpa-b8-s128-h12-d64-bf16",),
            what="attention",
            section="speedup-over-eager",
        ),
        Representative(
            notebook="sdpa",
            workloads=("sdpa-b8-s128-h12-d64-bf16-training",),
            what="attention, forward + backward",
            section="speedup-over-eager",
        ),
    ),
    "Serving": (
        # Caches of 32 layers, beside 16 GB of weights in bfloat16: 69 GB in pages (an H100 of 80 GB holds both with
        # weights in 8 bits), and 17 GB in one piece.
        Representative(
            notebook="decode",
            workloads=("llama3-8b-decode-p16-b128-4096", "decode-small-p16-b4-2048"),
            what="attention of one token to a cache in pages",
            section="a-cache-in-pages",
        ),
        Representative(
            notebook="decode",
            workloads=("llama3-8b-decode-b32-4096", "decode-small-b4-2048"),
            what="attention of one token to a contiguous cache",
            section="how-fast-the-cache-is-read",
        ),
        Representative(
            notebook="decode",
            workloads=("llama3-8b-decode-model-b32-4096",),
            what="a token of the whole model",
            section="tokens-per-second-of-a-whole-model",
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The verdict at a representative; instead of one why its records must not be ranked together."""

    representative: Representative
    workload: Workload
    verdict: Verdict | Incomparable
    records: tuple[Record, ...]  # that are ranked
    point: Point

    @property
    def called(self) -> Mapping[str, float]:
        """The times of exact kernels' calls as the host launches them, in ms, by variant, shortest first.

        These are means without an interval. Empty where no calls were replayed as CUDA graphs: the times that rank are
        of launched calls then.
        """
        regime = ranking_regime(self.records)
        if not any(is_replayed(record, regime) for record in self.records):
            return {}
        exact = {record.variant for record in self.records if record.precision_class == EXACT}
        return {variant: ms for variant, ms in self.point.called.items() if variant in exact}


def recommendations(
    of_use: Sequence[Representative], groups: Mapping[str, Sequence[Group]]
) -> Iterator[Recommendation]:
    """Yield what is recommended at each representative of a use that was measured; `groups` are by notebook."""
    for one in of_use:
        if found := one.find(groups.get(one.notebook, ())):
            group, workload = found
            found_verdict = verdict.of(group, workload)
            yield Recommendation(
                representative=one,
                workload=workload,
                verdict=found_verdict.incomparable or found_verdict,
                records=tuple(group.ranked_at(workload)),
                point=Point(group, workload),
            )
