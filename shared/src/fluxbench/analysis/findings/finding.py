"""What a finding is."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fluxbench.operations.workload import Workload
from fluxbench.stats.intervals import Estimate
from fluxbench.variants import NAMES, find
from fluxbench.variants.forms import simplicity


class Kind(enum.StrEnum):
    """What a finding says; `Case.value` and `Case.second` are ratios of times unless it says otherwise."""

    FALLS_OFF = "falls_off"  # value: time per operation over that at the lengths beside
    SLOWER_COMPILED = "slower_compiled"  # value: compiled over eager; part: what most of the difference is
    COPIES = "copies"  # value: with copies of q, k and v over without; part: the copies
    REGIMES = "regimes"  # value: burst, of the variant over the other; second: sustained
    QUANTIZING = "quantizing"  # value: quantized over the fastest exact; part: quantizing; slower: measurably
    ENERGY = "energy"  # value: energy of a call over the other's; second: its time over the other's
    LAUNCH_BOUND = "launch_bound"  # value: sustained over burst; of CUDA graphs launched over replayed, no interval


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a profiled burst call, by the names of its kernels."""

    name: str  # of the operation's parts
    ms: float
    call_ms: float

    @property
    def share(self) -> float:
        """The share of the call's time."""
        return self.ms / self.call_ms


@dataclass(frozen=True, kw_only=True)
class Case:
    """One variant of which a finding holds; its intervals are 95%, uncorrected."""

    variant: str
    against: str = ""  # the variant that it is compared with; itself, at other lengths or on the host, where empty
    workloads: tuple[Workload, ...]
    value: Estimate
    second: Estimate | None = None
    part: Part | None = None
    slower: bool = False  # of QUANTIZING: measurably slower than the other; else not measurably faster
    waited: tuple[int, int] | None = None  # of LAUNCH_BOUND: in how many processes the device waited, of how many
    weight: float  # effect times relevance, see `evidence.weight`


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that holds of one or more variants."""

    kind: Kind
    cases: tuple[Case, ...]  # those first that matter most
    cell: str  # the id of the page's cell that shows it: the name of its table or figure, or a measuring cell
    form: str = ""  # of SLOWER_COMPILED: the form of all cases
    multiple: int | None = None  # of FALLS_OFF: what separates the lengths; the others are multiples of so many tokens

    @property
    def weight(self) -> float:
        """How much it matters to a reader."""
        return self.cases[0].weight


def finding(kind: Kind, cases: list[Case], cell: str, *, form: str = "", multiple: int | None = None) -> Finding:
    """Return a finding of at least one case: by weight, and the simplest forms first where that is nearly the same."""

    def place(case: Case) -> tuple[float, int, int]:
        form = find(case.variant).form.name if case.variant in NAMES else ""
        return -round(case.weight, 2), simplicity(form), NAMES.index(case.variant) if case.variant in NAMES else -1

    return Finding(kind=kind, cases=tuple(sorted(cases, key=place)), cell=cell, form=form, multiple=multiple)
