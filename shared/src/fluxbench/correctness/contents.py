"""What timed calls get: contents that nobody can know before the process makes them, with what their outputs must be.

Seeds and positions come from the system's own source of randomness. Of each content a few rows of the right outputs are
known in float64, of at least one all. Contents are copied into tensors whose addresses stay; a kernel never gets the
originals. Inputs that are the same in every content, such as weights, are there once for all; of those that exist once
in a process (`operations.held`) calls get the originals.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

import torch

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.content import Content, changes, fresh_inputs, positions_in
from fluxbench.correctness.kept import Kept, name_of_case
from fluxbench.correctness.questions import Question
from fluxbench.operations import held
from fluxbench.operations.protocol import KnowsSymmetries, Tensors
from fluxbench.operations.workload import Workload

_VARIED_POOL = 8  # contents that follow from one whole reference
_WHOLE_POOL = 4  # contents of an operation that knows neither single rows nor symmetries
_FEW, _FEW_FROM_FLOPS = 2, 10**12  # contents of such a call that is so long that references would take most of the time
_CPU_POOL = 6
_SMALL_BYTES = 16 << 20  # of a tensor, whose differences from another may be held for a moment
_MEMORY_SHARE = 0.2  # of a GPU's free memory, for the contents of all workloads
_MOST_BYTES = 8 << 30  # of the contents and slots of several workloads; more where two contents of each take more
_REFERENCE_BYTES = 16 << 30  # that the references of a workload's contents read together, of more than two contents


class Contents:
    """The contents of a workload in one process, shared by its variants, and the tensors that calls get.

    `inputs` are of single calls. `slots` are of calls in succession: `rotation` of them exceed twice the cache.
    """

    def __init__(self, pool: Sequence[Content], rotation: int, slots: int) -> None:
        self.pool = pool
        self.rotation = rotation
        first = pool[0].inputs
        common = {name for name, x in first.items() if all(content.inputs[name] is x for content in pool[1:])}
        self._common = {name: first[name] if held.is_held(first[name]) else first[name].clone() for name in common}
        self._count = slots
        self.inputs = self._empty()
        self.put(pool[0])
        self._whole = [content for content in pool if content.expected is not None]
        self.held: list[Content] = []  # by the slots, once they are filled

    @cached_property
    def slots(self) -> list[Tensors]:
        """What calls in succession get; made once there are such calls, since a call as long as a row has none."""
        return [self._empty() for _ in range(self._count)]

    def _empty(self) -> Tensors:
        first, common = self.pool[0].inputs, self._common
        return {name: common[name] if name in common else torch.empty_like(x) for name, x in first.items()}

    @classmethod
    def make(
        cls,
        workload: Workload,
        case: Case,
        device: torch.device,
        *,
        rotation: int,
        most: int,
        share: float,
        sustained: bool = True,
        kept: Kept | None = None,
        derived: bool = False,
        unseen: bool = False,
    ) -> Contents:
        """Return new contents: `most` at most, within `share` of what all workloads may take of a GPU's free memory.

        There are slots where calls are `sustained`. Contents that have a whole reference, which may take seconds, may
        be those that an earlier process `kept`; on a GPU one of them is then the case itself, whose reference is known.
        `derived`: all follow from the case, where its operation knows symmetries, and no other reference is computed.
        `unseen`: nobody can know the inputs of the case, whose whole outputs are known, so it is one of them.
        """
        on_cpu = device.type == "cpu"
        operation = operations.find(workload.operation)
        symmetric = operation if isinstance(operation, KnowsSymmetries) else None
        follows = derived and case.positions is None and symmetric is not None
        if follows:
            source = Content(case.inputs, {}, {}, case.expected, {True: case.known_scales})
        elif unseen:
            source = Content.of(case.inputs, positions_in(case), case.expected, case.known_scales)
        else:
            source = _whole(workload, 0, case, device, kept)
        first = source.varied(symmetric, workload.shape, whole=True) if symmetric and follows else source
        if unseen:  # symmetries are of operations all of whose inputs vary
            common = set() if symmetric else {*_same(case.inputs, fresh_inputs(workload, device))}
        else:
            common = {name for name, x in first.inputs.items() if x is case.inputs[name]}
        memory = math.inf if on_cpu else _MEMORY_SHARE * share * torch.cuda.mem_get_info(device)[0]
        for_all = memory if share == 1 else min(memory, share * _MOST_BYTES)  # other cells' processes need memory too
        fitting = 2 * _CPU_POOL if on_cpu else int(for_all / _bytes(first, common))
        slots = max(rotation + 1, min(2 * rotation + 4, fitting // 3)) if sustained else 0
        if slots and (operation.attention(workload.shape).retain_graph or most <= _FEW):
            slots = rotation + 1  # each keeps what its forward pass saved, or would hold what another holds
        by_rows = None if follows else operation.reference_at(workload.shape, first.inputs, first.positions)
        if by_rows is None and source.expected is not None and symmetric:
            count = max(2, min(most, _CPU_POOL if on_cpu else _VARIED_POOL, fitting - slots))
            others = [source.varied(symmetric, workload.shape) for _ in range(count - 1)]
            return cls([first, *others], rotation, slots)
        if by_rows is None:
            is_long = case.positions is not None or workload.cost.flops > _FEW_FROM_FLOPS
            count = _FEW if on_cpu or is_long else min(most, _WHOLE_POOL)
            of_outputs = sum(x.nbytes for x in case.expected.values())
            others = []
            if kept and not on_cpu:
                others.append(Content.of(case.inputs, first.positions, case.expected))
            for index in range(1, 1 if others else count):
                content = _whole(workload, index, case, device, kept)
                others.append(content if count * of_outputs <= memory else replace(content, expected=None))
            return cls([first, *others], rotation, slots)
        by_time = _REFERENCE_BYTES // workload.cost.min_bytes
        count = _CPU_POOL if on_cpu else max(2, min(most, fitting - slots, by_time))
        by_row = (Content.make(workload, case, device, whole=False) for _ in range(count - 1))
        return cls([first, *by_row], rotation, slots)

    def without(self, outputs: Collection[str], *, sustained: bool) -> Contents:
        """Return the same contents without some of their outputs, with other tensors for calls and few slots."""
        pool = [content.without(outputs) for content in self.pool]
        return Contents(pool, self.rotation, self.rotation + 1 if sustained else 0)

    @cached_property
    def apart(self) -> Contents:
        """The same contents, with other tensors for calls: of a kernel that takes turns with another."""
        return Contents(self.pool, self.rotation, self._count)

    def put(self, content: Content, into: Tensors | None = None) -> Tensors:
        """Copy a content into `inputs`, or into a slot, in the order of the stream; return that."""
        if into is None:
            into, self.present = self.inputs, content  # by what is in `inputs`
        for name, x in into.items():
            if name not in self._common:
                x.copy_(content.inputs[name])
        return into

    def fill(self, held: Sequence[Content]) -> None:
        """Copy a content into each slot, in the order of the stream: all at once, as short calls have many slots."""
        self.held = list(held)
        pairs = [
            (x, content.inputs[name])
            for slot, content in zip(self.slots, held, strict=True)
            for name, x in slot.items()
            if name not in self._common
        ]
        if pairs:
            torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))

    def put_into(self, slot: int, content: Content) -> Tensors:
        """Copy a content into a slot, in the order of the stream; return that."""
        self.held[slot] = content
        return self.put(content, self.slots[slot])

    def changed(self) -> Question[str | None]:
        """Ask which inputs a kernel changed in the slots, if any."""
        differ = []
        for name in self.inputs:
            pairs = {
                (id(slot[name]), id(content.inputs[name])): (slot[name], content.inputs[name])
                for slot, content in zip(self.slots, self.held, strict=True)
                if slot[name] is not content.inputs[name]  # what exists once is nobody's copy
            }
            differ.append(_differ(list(pairs.values())) if pairs else self.inputs[name].new_zeros((), dtype=torch.bool))

        def answer(numbers: Sequence[float]) -> str | None:
            return changes([name for name, is_other in zip(self.inputs, numbers, strict=True) if is_other])

        return Question(torch.stack(differ).double(), answer)

    def draw(self, count: int, rng: random.Random) -> list[Content]:
        """Return contents in random order, no two in succession the same; with whole outputs one at least, if any has.

        None twice unless there are fewer; then all before any comes again.
        """
        drawn: list[Content] = []
        while len(drawn) < count:
            pool = rng.sample(self.pool, len(self.pool))
            if drawn and drawn[-1] is pool[0]:
                pool.append(pool.pop(0))
            drawn += pool
        if self._whole and all(content.expected is None for content in drawn[:count]):
            drawn[rng.randrange(count)] = self.whole(rng)
        return drawn[:count]

    def other(self, than: Content, rng: random.Random) -> Content:
        """Return a random content that is not this one."""
        return rng.choice([content for content in self.pool if content is not than])

    def whole(self, rng: random.Random, than: Content | None = None) -> Content:
        """Return a random content whose whole outputs are known, another than this one where there are several.

        Any content where all are known by rows alone.
        """
        known = self._whole or self.pool
        return rng.choice([content for content in known if content is not than] or known)


def _differ(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Return whether any two tensors differ, one bool on their device; small ones are compared together."""
    small = [(one, other) for one, other in pairs if one.is_floating_point() and one.nbytes <= _SMALL_BYTES]
    differ = [(one != other).any() for one, other in pairs if not one.is_floating_point() or one.nbytes > _SMALL_BYTES]
    if small:
        ones, others = map(list, zip(*small, strict=True))
        differences = torch._foreach_norm(torch._foreach_sub(ones, others), math.inf)
        differ.append(~(torch.stack(differences) == 0).all())  # nor where they are not numbers
    return torch.stack(differ).any()


def _whole(workload: Workload, number: int, case: Case, device: torch.device, kept: Kept | None) -> Content:
    """Return a content with its whole outputs: that which is kept, or a new one, which then is.

    Workloads of one case have the same ones: a step on one GPU and on several.
    """
    content = _kept(workload, number, case, device, kept) if kept else Content.make(workload, case, device, whole=True)
    return replace(content, inputs={**content.inputs, **_same(case.inputs, content.inputs)})


def _kept(workload: Workload, number: int, case: Case, device: torch.device, kept: Kept) -> Content:
    """Return the content that is kept, or a new one, which then is: another cell may need it at the same time."""
    name = f"content-{name_of_case(workload, 'timed', number)}"
    if found := kept.load(name):
        return Content(*found)
    with kept.computing(name):
        if found := kept.load(name):
            return Content(*found)
        content = Content.make(workload, case, device, whole=True)
        kept.save(name, (content.inputs, content.positions, content.rows, content.expected))
        return content


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or (one.shape == other.shape and bool(one.equal(other)))


def _same(inputs: Tensors, others: Tensors) -> Tensors:
    """Return the inputs that are the same in others, such as weights."""
    return {name: x for name, x in inputs.items() if _are_equal(x, others[name])}


def _bytes(content: Content, common: Collection[str]) -> int:
    """Return how many bytes a content takes, without inputs that are `common` to all."""
    own = [x for name, x in content.inputs.items() if name not in common]
    return sum(x.nbytes for x in (*own, *content.rows.values()))
