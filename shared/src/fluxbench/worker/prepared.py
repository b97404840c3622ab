"""A workload in one process: what is checked, by kind of inputs, and the contents of timed calls."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from fluxbench import operations
from fluxbench.correctness.allowance import Bin
from fluxbench.correctness.case import Case, Yardstick, Yardsticks
from fluxbench.correctness.content import fresh_inputs
from fluxbench.correctness.contents import Contents
from fluxbench.correctness.deviation import Worst
from fluxbench.correctness.kept import Kept, name_of_case
from fluxbench.operations import held
from fluxbench.operations.workload import Workload
from fluxbench.records.status import Status
from fluxbench.timing.graph import AGREE_WITHIN
from fluxbench.timing.plan import Plan
from fluxbench.timing.rows import Row
from fluxbench.timing.stopwatch import last_level_cache_bytes
from fluxbench.worker.failures import Wrong, wrong_of
from fluxbench.worker.request import Request, inputs_of

SEEDS_PER_PROCESS = 100
_LEAST_SHARES = 10  # into which the memory for contents is divided: a workload alone needs the rest of it for its calls
_FEW_FLOPS = 5 * 10**10  # 0.05 s of unfused attention in float32 with a head_dim of 16 on an H100


class PreparedWorkload:
    """One workload in one process: `case` is checked, timed calls get `contents`.

    `other_kinds` are cases of the other kinds of inputs, of the process alone that checks them.
    """

    def __init__(self, workload: Workload, case: Case, contents: Contents, other_kinds: Mapping[str, Case]) -> None:
        self.workload = workload
        self.case = case
        self.contents = contents
        self.other_kinds = other_kinds
        self.rows: dict[str, Row | str | None] = {}  # of references, by their name, see `worker.rows`

    @classmethod
    def make(
        cls,
        workload: Workload,
        device: torch.device,
        process: int,
        *,
        most: int = Plan.contents,
        share: float = 1.0,
        all_kinds: bool = False,
        slots: bool = True,
        cases: Kept | None = None,
        contents: Kept | None = None,
        whole_up_to: int | None = None,
        one_reference: bool = False,
        known: Yardsticks | None = None,
        judges: bool = True,
    ) -> PreparedWorkload:
        """Return a workload with the inputs of one process.

        There are `most` contents at most, and `slots` of calls in succession, see `Contents.make`. Where references
        take seconds, all processes have the same seed: `cases` are kept for any later process, `contents` for those of
        this cell, or of this build. Of a call with more scores than `whole_up_to` rows are judged, on the first kind
        of inputs alone. `one_reference`: contents follow from the case. `known`: yardsticks of the first kind. Of a
        process that `judges` no call before it is timed, the case is one of the contents: attention then has one whole
        reference.
        """
        operation = operations.find(workload.operation)
        first, *others = operation.input_kinds
        seed = 0 if device.type == "cpu" or cases else process * SEEDS_PER_PROCESS
        by_rows = Case.by_rows(workload, first, seed, device, known) if _is_long(workload, whole_up_to) else None
        unseen = not (judges or by_rows or cases or one_reference)
        if by_rows:
            case = by_rows
        elif unseen:
            case = Case.of(operation, workload, fresh_inputs(workload, device), known)
        else:
            case = _case(workload, first, seed, device, cases, known)
        if by_rows or any(held.is_held(x) for x in case.inputs.values()):  # there is no room for others
            others = []
        other_kinds = {kind: _case(workload, kind, seed, device, cases) for kind in others} if all_kinds else {}
        if cases and not all_kinds:
            for kind in others:
                cases.vouch(name_of_case(workload, kind, seed))
        rotation = _rotation_length(workload, device)
        made = Contents.make(
            workload, case, device, rotation=rotation, most=most, share=share, sustained=slots, kept=contents,
            derived=one_reference and contents is None, unseen=unseen,
        )  # fmt: skip
        return cls(workload, case, made, other_kinds)

    @classmethod
    def part_of(cls, whole: PreparedWorkload, workload: Workload, *, slots: bool) -> PreparedWorkload:
        """Return a workload whose operation is part of that of another, which is prepared already."""
        lacks: tuple[str, ...] = getattr(operations.find(workload.operation), "lacks", ())
        other_kinds = {kind: case.without(lacks) for kind, case in whole.other_kinds.items()}
        return cls(workload, whole.case.without(lacks), whole.contents.without(lacks, sustained=slots), other_kinds)

    @property
    def replays_within(self) -> dict[str, float]:
        """How far a replay may differ from a call, relative L2 by output, where that may be over `AGREE_WITHIN`.

        In a model of many layers two right orders of summation are as far apart as either is from the right output: a
        library may take another one in a graph.
        """
        is_deep = getattr(operations.find(self.workload.operation), "is_deep", False)
        return {name: max(AGREE_WITHIN, self.case.budget(name)) for name in self.case.expected} if is_deep else {}

    @property
    def cases(self) -> dict[str, Case]:
        """The cases by kind of inputs, that of timed calls first."""
        return {operations.find(self.workload.operation).input_kinds[0]: self.case, **self.other_kinds}


def prepare(
    some: Sequence[Workload],
    request: Request,
    device: torch.device,
    plan: Plan,
    kept: Callable[[str | None], Kept | None],
    begin: Callable[[Workload], None],
    fail: Callable[[Workload, Wrong], None],
) -> dict[str, PreparedWorkload]:
    """Return workloads by name, prepared for one process; `fail` gets those that there is no memory for.

    `begin` gets each before it is prepared, `kept` returns what is kept in a folder. Memory for contents is shared by
    workloads that are prepared together.
    """
    workloads: dict[str, PreparedWorkload] = {}
    wholes: dict[tuple[str, str], PreparedWorkload] = {}
    share = 1 / max(len(set(map(inputs_of, some))), _LEAST_SHARES if request.effort.held_bytes else 1)
    largest_first = any(map(fills_memory, some))  # what exists once is allocated for the largest
    for workload in sorted(some, key=lambda one: -one.cost.min_bytes) if largest_first else some:
        begin(workload)
        slots = request.sustains(workload.name) or bool(plan.row_s)
        try:
            if whole := wholes.get(inputs_of(workload)):
                workloads[workload.name] = PreparedWorkload.part_of(whole, workload, slots=slots)
                continue
            made = PreparedWorkload.make(
                workload, device, request.process, most=plan.contents, share=share,
                all_kinds=request.is_thorough and request.is_full(workload.name), slots=slots,
                cases=kept(request.cases), contents=kept(request.contents), whole_up_to=request.whole_up_to,
                one_reference=request.effort.one_reference, known=known_yardsticks(request, workload.name),
                judges=request.process <= request.thorough_in,
            )  # fmt: skip
            workloads[workload.name] = made
            if workload.operation == operations.whole_of(workload.operation):
                wholes[inputs_of(workload)] = made
            continue
        except Exception as error:
            wrong = wrong_of(error, "while inputs and reference were made: ")
            if wrong.status is not Status.OUT_OF_MEMORY:
                raise
        fail(workload, wrong._replace(of_inputs=True))
        release()
    if not request.effort.one_reference:  # else it may keep what it has reserved, see `DeviceUse.reserve`
        torch.cuda.empty_cache()  # on a GPU what references took, which its other workers need
    return {workload.name: workloads[workload.name] for workload in some if workload.name in workloads}


def cheapest(workloads: Iterable[Workload]) -> list[str]:
    """Return the names of those with the fewest operations, of which all together are few; of one at least."""
    by_cost = sorted(workloads, key=lambda one: one.cost.min_flops)
    total = itertools.accumulate(one.cost.min_flops for one in by_cost)
    few = [one.name for one, so_far in zip(by_cost, total, strict=True) if so_far <= _FEW_FLOPS]
    return few or [one.name for one in by_cost[:1]]


def fills_memory(workload: Workload) -> bool:
    """Whether an operation says that inputs of a workload exist once, since a copy may not fit on the device."""
    holds = getattr(operations.find(workload.operation), "holds", None)
    return bool(holds and holds(workload.shape))


def release(*, keeps: bool = False) -> None:
    """Give back memory that nothing needs any more; of a GPU what torch keeps for later too, unless it `keeps` that."""
    gc.collect()
    if not keeps:
        torch.cuda.empty_cache()


def known_yardsticks(request: Request, workload: str) -> Yardsticks:
    """Return the yardsticks of a workload that the first process told."""
    return {
        precision: Yardstick(
            {name: Worst(*worst) for name, worst in told["worst"].items()},
            {name: tuple(Bin(int(start), *rest) for start, *rest in bins) for name, bins in told["bins"].items()},
        )
        for precision, told in request.yardsticks.get(workload, {}).items()
    }


def _rotation_length(workload: Workload, device: torch.device) -> int:
    """Return how many sets of inputs exceed twice the cache; two on a CPU, whose calls outlast any refill."""
    if device.type == "cpu":
        return 2
    return max(2, -(-2 * last_level_cache_bytes(device) // workload.cost.min_bytes) + 1)


def _is_long(workload: Workload, whole_up_to: int | None) -> bool:
    """Whether a call has more scores than this, in all heads."""
    call = operations.find(workload.operation).attention(workload.shape)
    scores = call.batch * call.heads * call.seq_len_q * call.seq_len_k
    return whole_up_to is not None and scores > whole_up_to


def _case(
    workload: Workload,
    kind: str,
    seed: int,
    device: torch.device,
    kept: Kept | None,
    known: Yardsticks | None = None,
) -> Case:
    """Return seeded inputs with their reference: what is kept, or new ones, which then are."""
    if kept is None:
        return Case.make(workload, kind, seed, device, known)
    name = name_of_case(workload, kind, seed)
    if (found := kept.load(name)) is None:
        with kept.computing(name):  # another cell may need it at the same time
            if (found := kept.load(name)) is None:
                case = Case.make(workload, kind, seed, device)
                kept.save(name, case.content)
                return case
    return Case.from_content(found, workload)
