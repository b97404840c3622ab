"""One content of timed calls: inputs that nobody can know before, and what their outputs must be."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import torch

from fluxbench import operations
from fluxbench.correctness.allowance import error_scales
from fluxbench.correctness.case import Case, some_tokens, stored
from fluxbench.correctness.derived import Derived, Expected, Origin
from fluxbench.operations.protocol import KnowsRows, KnowsSymmetries, Tensors
from fluxbench.operations.workload import Shape, Workload

POSITIONS = 8  # tokens of each content whose rows are judged, in every batch entry and head


@dataclass(frozen=True, eq=False)
class Content:
    """Inputs of a call, and rows of its right outputs at some tokens."""

    inputs: Tensors
    positions: Tensors  # by output, [count], int64, ascending
    rows: Tensors  # by output, [batch, count, ...], float64
    expected: Expected | None  # the whole outputs, float64 or as `stored`, where they are known
    known_scales: dict[bool, Tensors] = field(default_factory=dict)  # of all rows or not, by output, once needed
    origin: Origin | None = None  # what it follows from

    @classmethod
    def make(cls, workload: Workload, case: Case, device: torch.device, *, whole: bool) -> Content:
        """Return a new content for the outputs of a case; `whole`: with the whole outputs, unless the case has rows."""
        operation, shape = operations.find(workload.operation), workload.shape
        inputs, positions = fresh_inputs(workload, device), positions_in(case)
        rows = None if whole and case.positions is None else operation.reference_at(shape, inputs, positions)
        if rows is None and case.positions is not None and isinstance(operation, KnowsRows):
            rows = operation.reference_rows(shape, inputs, positions, torch.float64)
        if rows is not None:
            return cls(inputs, positions, rows, None)
        expected = operation.reference(shape, inputs, torch.float64)
        return replace(cls.of(inputs, positions, expected), expected=stored(operation, case.dtype, expected))

    @classmethod
    def of(cls, inputs: Tensors, positions: Tensors, expected: Tensors, known_scales: Tensors | None = None) -> Content:
        """Return a content whose whole outputs are known; so are `known_scales` of all rows, once they are needed."""
        rows = {name: x.index_select(1, positions[name]).double() for name, x in expected.items()}
        return cls(inputs, positions, rows, expected, {} if known_scales is None else {True: known_scales})

    def varied(self, operation: KnowsSymmetries, shape: Shape, *, whole: bool = False) -> Content:
        """Return another content that follows from this one, whose whole outputs are known; `whole`: with its own."""
        assert isinstance(self.expected, dict)
        positions = {name: some_tokens(x.shape[1], POSITIONS, x.device) for name, x in self.expected.items()}
        seed = os.urandom(16)
        inputs, rows = operation.varied(shape, self.inputs, self.expected, positions, random.Random(seed))
        rows = {name: x.double() for name, x in rows.items()}
        origin = Origin(self, operation, shape, seed)
        return Content(inputs, positions, rows, Derived(origin) if whole else None, origin=origin)

    def scales(self, case: Case, *, whole: bool) -> Tensors | None:
        """Return error scales, see `Case.scales`, of its outputs: of all their rows or of the known ones.

        Those of a content that follows from another follow from the other's, which take a pass over all scores.
        """
        names, known = self.rows or self.expected or {}, self.known_scales.setdefault(whole, {})
        positions = None if whole else self.positions
        if self.origin is None:
            return error_scales(case.operation, case.shape, self.inputs, names.keys(), positions, known)
        of_origin = self.origin.content.scales(case, whole=True)
        if of_origin is None:
            return None
        if missing := {name: x for name, x in of_origin.items() if name in names and name not in known}:
            known.update(self.origin.scales(missing, positions or {}))
        return {name: known[name] for name in names}

    def as_case(self, case: Case) -> Case:
        """Return the case with the whole outputs of this content, which must be known."""
        assert self.expected is not None
        expected = self.expected.made() if isinstance(self.expected, Derived) else dict(self.expected)
        return case.with_content(expected, self.scales(case, whole=True))

    def without(self, outputs: Collection[str]) -> Content:
        """Return the content without some of its outputs; both share their error scales."""

        def rest(of: Expected) -> Tensors:
            return {name: x for name, x in of.items() if name not in outputs}

        expected = self.expected and rest(self.expected)
        return Content(self.inputs, rest(self.positions), rest(self.rows), expected, self.known_scales, self.origin)


def positions_in(case: Case) -> Tensors:
    """Return random tokens of each output of a case, those of a content whose rows are judged."""
    device = next(iter(case.inputs.values())).device
    return {name: some_tokens(size[1], POSITIONS, device) for name, size in case.sizes.items()}


def fresh_inputs(workload: Workload, device: torch.device) -> Tensors:
    """Return inputs of a workload's first kind that nobody can have seen before, of a random magnitude."""
    operation = operations.find(workload.operation)
    seed = int.from_bytes(os.urandom(6), "little")
    inputs = operation.inputs(workload.shape, operation.input_kinds[0], seed, device)
    operation.rescale(workload.shape, inputs, unforeseen())
    return inputs


def unforeseen() -> random.Random:
    """Return a generator that nobody can foresee."""
    return random.Random(os.urandom(16))


def changed_inputs(inputs: Tensors, content: Content) -> str | None:
    """Return which inputs a kernel changed that was given a content, or None."""
    return changes([name for name, x in inputs.items() if not x.equal(content.inputs[name])])


def changes(names: Sequence[str]) -> str | None:
    """Return why a kernel is wrong that changes these inputs, or None where there are none."""
    return f"the kernel changes its inputs: {', '.join(names)}" if names else None
