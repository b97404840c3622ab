"""Inputs with the outputs that they must give, and how far an output may be off.

The yardstick is unfused attention that rounds all that a precision class may round, and nothing else
(`operations.precision`). Budgets follow from its errors:

- **The whole output and each head** may err as much as the yardstick and one rounding more. The root mean square error
  of rounding to nearest is `u / sqrt(6)`, relative, with the unit roundoff u (Higham, Accuracy and Stability of
  Numerical Algorithms, 2nd ed., section 2.1): the absolute error is uniform within half a unit in the last place, and
  relative to a significand x uniform in [1, 2) that is `u / sqrt(3) * sqrt(mean of 1/x^2)`. For heads the yardstick's
  worst head counts, because a head of few rows has an error that depends on chance.
- **Twice the yardstick** and one rounding where errors depend on the order of operations rather than on a few
  roundings: gradients, whose sums cancel; float32, where only sums round; and the classes `rounded` and `tf32`.
- **A row** may err by sqrt(6) times as much as follows in the same way from the yardstick's worst row, because that is
  the ratio of the largest error of a rounding, u, to its root mean square.
- **A head of n rows** may err by sqrt(1 + 5 / n) times as much as follows so: one of its rows at its largest error,
  with six times the usual square, and n - 1 usual ones. This matters where a head has few queries, as in decoding.
- **A call too long for a whole reference** is judged by the rows of `SAMPLED` random tokens of each output, the first
  and the last among them. The yardstick is of these rows too.
- **A quantized variant** declares the budget of the whole. Heads and rows may exceed it as far as the yardstick's do
  the yardstick's whole; rows again sqrt(6) times.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from fluxbench import operations
from fluxbench.correctness import allowance
from fluxbench.correctness.allowance import FIRST, LARGEST_OVER_RMS, Allowed, Bin
from fluxbench.correctness.deviation import Deviation, Limits, Worst
from fluxbench.correctness.questions import answers
from fluxbench.operations import host_numbers
from fluxbench.operations.precision import CLASSES, EXACT, QUANTIZED, TF32
from fluxbench.operations.protocol import KnowsRows, Operation, Tensors
from fluxbench.operations.workload import Shape, Workload

SAMPLED = 64  # tokens of each output whose rows are judged where the whole is too long


class Yardstick(NamedTuple):
    """The errors of unfused attention of a precision class, by output; `bins` where rows have error scales."""

    worst: Mapping[str, Worst]
    bins: Mapping[str, tuple[Bin, ...]]


Yardsticks = dict[str, Yardstick]  # by precision class


@dataclass(frozen=True)
class Case:
    """Inputs with their reference, against which any number of outputs can be judged."""

    operation: Operation
    shape: Shape
    inputs: Tensors
    expected: Tensors  # by output, float64 or as `stored`; of the tokens at `positions` alone where there are such
    dtype: torch.dtype  # of the inputs and the outputs
    yardsticks: Yardsticks = field(default_factory=dict)  # once they are needed
    positions: Tensors | None = None  # by output, [count], int64: the tokens whose rows are judged; None: all
    known_scales: Tensors = field(default_factory=dict)  # those of these inputs, by output, once they are needed

    @classmethod
    def of(cls, operation: Operation, workload: Workload, inputs: Tensors, known: Yardsticks | None = None) -> Case:
        """Compute the reference of these inputs. Raises `ValueError` where the operation has none.

        `known`: yardsticks that are not computed again, of other inputs of this kind and shape.
        """
        dtype = getattr(torch, operation.attention(workload.shape).dtype)
        expected = operation.reference(workload.shape, inputs, torch.float64)
        case = cls(operation, workload.shape, inputs, expected, dtype, dict(known or {}))
        if not expected or case.yardstick(EXACT).keys() != expected.keys():
            raise ValueError(f"operation {operation.name!r} must have a reference with the same outputs in each dtype")
        return case.expecting(stored(operation, dtype, expected))

    @classmethod
    def make(
        cls, workload: Workload, kind: str, seed: int, device: torch.device, known: Yardsticks | None = None
    ) -> Case:
        """Return a case of a workload with inputs of one kind; `known` is that of `of`."""
        operation = operations.find(workload.operation)
        return cls.of(operation, workload, operation.inputs(workload.shape, kind, seed, device), known)

    @classmethod
    def by_rows(
        cls, workload: Workload, kind: str, seed: int, device: torch.device, known: Yardsticks | None = None
    ) -> Case | None:
        """Return a case of which rows at random tokens are known; None where the operation knows no rows apart.

        `known` is that of `of`.
        """
        operation = operations.find(workload.operation)
        if not isinstance(operation, KnowsRows):
            return None
        tokens = operation.tokens_of_outputs(workload.shape)
        first = FIRST if workload.shape.get("causal") else 1
        positions = {name: some_tokens(count, SAMPLED, device, first=first) for name, count in tokens.items()}
        inputs = operation.inputs(workload.shape, kind, seed, device)
        expected = operation.reference_rows(workload.shape, inputs, positions, torch.float64)
        dtype = getattr(torch, workload.dtype)
        return cls(operation, workload.shape, inputs, expected, dtype, dict(known or {}), positions)

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the whole outputs."""
        found = {name: tuple(x.shape) for name, x in self.expected.items()}
        if self.positions is None or not isinstance(self.operation, KnowsRows):
            return found
        tokens = self.operation.tokens_of_outputs(self.shape)
        return {name: (batch, tokens[name], *rest) for name, (batch, _, *rest) in found.items()}

    def judged(self, name: str, out: torch.Tensor) -> torch.Tensor:
        """Return what of an output is judged: all of it, or its rows at `positions`."""
        return out if self.positions is None else out.index_select(1, self.positions[name])

    @property
    def content(self) -> Any:
        """What `from_content` makes the case of again: plain values and tensors."""
        of_classes = self.yardsticks.items()
        yardsticks = {name: {key: vars(worst) for key, worst in of.worst.items()} for name, of in of_classes}
        bins = {name: {key: list(map(tuple, each)) for key, each in of.bins.items()} for name, of in of_classes}
        return self.inputs, self.expected, self.dtype, yardsticks, bins

    @classmethod
    def from_content(cls, content: Any, workload: Workload) -> Case:
        """Return the case of a workload with this `content`."""
        inputs, expected, dtype, kept, kept_bins = content
        yardsticks = {
            name: Yardstick(
                {key: Worst(**worst) for key, worst in of.items()},
                {key: tuple(Bin(*each) for each in its) for key, its in kept_bins[name].items()},
            )
            for name, of in kept.items()
        }
        return cls(operations.find(workload.operation), workload.shape, inputs, expected, dtype, yardsticks)

    def without(self, outputs: Collection[str]) -> Case:
        """Return the case without some of its outputs; both share their error scales."""
        return replace(self, expected={name: x for name, x in self.expected.items() if name not in outputs})

    def expecting(self, expected: Tensors) -> Case:
        """Return the case with other right outputs."""
        return replace(self, expected=expected)

    def with_content(self, expected: Tensors, scales: Tensors | None) -> Case:
        """Return the case with the right outputs of other inputs, whose rows have these error scales."""
        return replace(self, expected=expected, known_scales=dict(scales or {}))

    @property
    def scales(self) -> Tensors | None:
        """Error scales of the rows that are judged, `[batch, count, heads]` by output; None where rows are alike."""
        given = self.operation, self.shape, self.inputs, self.expected.keys(), self.positions
        return allowance.error_scales(*given, self.known_scales)

    def tokens(self, name: str) -> torch.Tensor:
        """The tokens of an output whose rows are judged, `[count]`, int64."""
        x = self.expected[name]
        return torch.arange(x.shape[1], device=x.device) if self.positions is None else self.positions[name]

    def yardstick(self, precision: str) -> Mapping[str, Worst]:
        """Return the errors of unfused attention of a precision class, by output."""
        return self._of_class(precision).worst

    def _of_class(self, precision: str) -> Yardstick:
        """Return the yardstick of a precision class; it is computed where an output of this case is not known yet."""
        known = self.yardsticks.get(precision, Yardstick({}, {}))
        if self.expected.keys() - known.worst.keys() or (self.expected.keys() - known.bins.keys() and self.scales):
            outputs = self._unfused(precision)
            found = {
                name: Deviation(out, self.expected[name]) for name, out in outputs.items() if name in self.expected
            }
            answers([each.question() for each in found.values()])
            scales = self.scales or {}
            # A row whose weight is one key's has dq = P (dP - D) k = 0. The yardstick takes D from P and dP, and their
            # errors cancel; a fused kernel takes it from dout and the output, so that TF32's error is in dP alone.
            least = CLASSES[precision].unit_roundoff["float32"] if precision == TF32 else 0.0
            bins = {
                name: allowance.bins_of(found[name].errors, scales[name], self.tokens(name), least)
                for name in scales
                if name in found
            }
            self.yardsticks[precision] = Yardstick({name: each.worst for name, each in found.items()}, bins)
        return self.yardsticks[precision]

    def _unfused(self, precision: str) -> Tensors:
        """Return the outputs of unfused attention of a precision class, or the judged rows of them."""
        more = () if precision == EXACT else (precision,)
        if self.positions is None:
            return self.operation.reference(self.shape, self.inputs, self.dtype, *more)
        assert isinstance(self.operation, KnowsRows)
        return self.operation.reference_rows(self.shape, self.inputs, self.positions, self.dtype, *more)

    def budget(self, output: str, quantized_budget: float | None = None, precision: str = EXACT) -> float:
        """Return the relative L2 error that is accepted of a whole output."""
        return self.budgets(output, quantized_budget, precision).rel_l2

    def budgets(self, output: str, quantized_budget: float | None = None, precision: str = EXACT) -> Worst:
        """Return the relative L2 errors that are accepted of an output, its heads and its rows.

        `quantized_budget` is what a quantized variant declares; `precision` is a variant's class.
        """
        of = self.yardstick(class_of_yardstick(precision, quantized_budget))[output]
        if quantized_budget is not None:
            uneven = quantized_budget / of.rel_l2 if of.rel_l2 else 0.0
            head, row = (max(quantized_budget, uneven * error) for error in (of.head, of.row))
            return Worst(quantized_budget, self._few_rows(output) * head, LARGEST_OVER_RMS * row)
        times, rounding = self._beyond_yardstick(output, precision)
        whole, head, row = (times * error + rounding for error in (of.rel_l2, of.head, of.row))
        return Worst(whole, self._few_rows(output) * head, LARGEST_OVER_RMS * row)

    def limits(
        self, output: str, deviation: Deviation, quantized_budget: float | None = None, precision: str = EXACT
    ) -> Worst | Limits:
        """Return the relative L2 errors that are accepted of an output, and of its heads and rows, as it deviates.

        These are the `budgets`, but for rows with error scales, see `correctness.allowance`.
        """
        scales = None if quantized_budget is not None else self.scales
        if scales is None:
            return self.budgets(output, quantized_budget, precision)
        of = self.allowed(output, scales[output], deviation.norms, self.tokens(output), precision)
        return allowance.limits(of, deviation)

    def allowed(
        self, output: str, scales: torch.Tensor, norms: torch.Tensor, tokens: torch.Tensor, precision: str = EXACT
    ) -> Allowed:
        """Return what rows of an output may err that have these error scales and norms, as `allowance.allowed`."""
        precision = class_of_yardstick(precision)
        times, rounding = self._beyond_yardstick(output, precision)
        bins = self._of_class(precision).bins[output]
        return allowance.allowed(bins, scales, norms, tokens, times=times, rounding=rounding)

    def _beyond_yardstick(self, output: str, precision: str) -> tuple[int, float]:
        """Return how often the yardstick's error is allowed, and the root mean square of one rounding beyond it."""
        is_gradient = self.operation.differentiates and output != "out"
        differs = is_gradient or getattr(self.operation, "is_deep", False)
        once = precision == EXACT and self.dtype != torch.float32 and not differs
        return 1 if once else 2, CLASSES[precision].unit_roundoff[str(self.dtype).removeprefix("torch.")] / math.sqrt(6)

    def _few_rows(self, output: str) -> float:
        """Return by how much more a head may err than one of many rows; 1 of an output without heads."""
        expected = self.expected[output]
        return math.sqrt(1 + (LARGEST_OVER_RMS**2 - 1) / expected.shape[1]) if expected.ndim == 4 else 1.0


def class_of_yardstick(precision: str, quantized_budget: float | None = None) -> str:
    """Return the precision class of unfused attention by whose errors a variant of a class is judged."""
    return EXACT if precision == QUANTIZED or quantized_budget is not None else precision


def stored(operation: Operation, dtype: torch.dtype, expected: Tensors) -> Tensors:
    """Return a whole float64 reference as a process stores it: in float32 where outputs of 16 bits are differentiated.

    Kernels round these 2**13 times as coarsely or more. References are most of what a process that checks gradients
    holds on a device: in float64 23 GiB of `notebooks/backward.md`.
    """
    if not operation.differentiates or dtype.itemsize > 2:
        return expected
    return {name: x.float() for name, x in expected.items()}


def some_tokens(tokens: int, count: int, device: torch.device, *, first: int = 0) -> torch.Tensor:
    """Return random tokens in ascending order, `[count]` or all, int64; with the `first` ones the last one too."""
    chosen = set(random.SystemRandom().sample(range(tokens), min(count, tokens)))
    ends = {*range(min(first, tokens)), tokens - 1} if first else set()
    return host_numbers.moved(torch.tensor(sorted(chosen | ends), dtype=torch.int64), device)
