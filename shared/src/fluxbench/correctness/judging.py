"""Output and reference to errors and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from fluxbench.correctness import reference
from fluxbench.operations.inputs import Inputs
from fluxbench.records.schema import Correctness

# Rounding a number to nearest once errs by u / sqrt(6), relative and root-mean-square, with the unit roundoff u
# (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 2.1): the absolute error is uniform within
# half a unit in the last place, and relative to a significand x uniform in [1, 2) that is
# u / sqrt(3) * sqrt(mean of 1/x^2).
# A fused kernel rounds the probabilities to the inputs' dtype before the second product; math attention does not.
UNIT_ROUNDOFF = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-24}


@dataclass(frozen=True)
class Case:
    """Inputs with their reference, against which any number of outputs can be judged."""

    inputs: Inputs
    expected: torch.Tensor  # [batch, seq_len, heads, head_dim], float64
    math_rel_l2: float  # the error of same-precision math attention

    @classmethod
    def of(cls, inputs: Inputs, *, causal: bool = False) -> Case:
        """Compute the reference of these inputs."""
        expected = reference.attention(inputs, causal=causal)
        math_out = reference.math_attention(inputs, causal=causal)
        return cls(inputs, expected, _relative_l2(math_out, expected))

    def save(self, path: Path) -> None:
        """Keep the case in a file."""
        torch.save((self.inputs, self.expected, self.math_rel_l2), path)

    @classmethod
    def load(cls, path: Path) -> Case:
        """Return the case that `save` kept."""
        inputs, expected, math_rel_l2 = torch.load(path)
        return cls(tuple(inputs), expected, math_rel_l2)

    @property
    def exact_budget(self) -> float:
        """Relative L2 error that an exact kernel may make: twice that of math attention, plus rounding noise."""
        return 2 * self.math_rel_l2 + UNIT_ROUNDOFF[self.inputs[0].dtype] / math.sqrt(6)


def judge(
    out: object, case: Case, *, precision_class: str = "exact", quantized_budget: float | None = None
) -> tuple[Correctness | None, str | None]:
    """Return the errors of `out` and why it is wrong, or None where it is right.

    The errors are None where `out` is not even of the right kind, shape, dtype or layout.
    """
    wrong_kind = _wrong_kind(out, case)
    if wrong_kind:
        return None, wrong_kind
    assert isinstance(out, torch.Tensor)
    budget = _budget(case, precision_class, quantized_budget)
    nan_count = int((~torch.isfinite(out)).sum())
    if nan_count:
        errors = Correctness(
            rel_l2=None, max_abs=None, mean_abs=None, mse=None, cosine=None,
            nan_count=nan_count, budget_rel_l2=budget, precision_class=precision_class,
        )  # fmt: skip
        return errors, f"{nan_count} of {out.numel()} output elements are NaN or infinite"
    precise = out.to(case.expected.dtype)
    difference = (precise - case.expected).abs_()
    rel_l2 = _relative_l2(out, case.expected)
    norms = float(precise.norm()) * float(case.expected.norm())
    errors = Correctness(
        rel_l2=rel_l2,
        max_abs=float(difference.max()),
        mean_abs=float(difference.mean()),
        mse=float(difference.square_().mean()),
        cosine=float((precise * case.expected).sum()) / norms if norms else None,
        nan_count=0,
        budget_rel_l2=budget,
        precision_class=precision_class,
    )
    return errors, _over(rel_l2, budget)


def refusal(
    out: object, case: Case, *, precision_class: str = "exact", quantized_budget: float | None = None
) -> str | None:
    """Return why `out` is wrong, or None: the verdict of `judge`, in a fraction of its time."""
    if wrong_kind := _wrong_kind(out, case):
        return wrong_kind
    assert isinstance(out, torch.Tensor)
    return _over(_relative_l2(out, case.expected), _budget(case, precision_class, quantized_budget))


def _budget(case: Case, precision_class: str, quantized_budget: float | None) -> float:
    budget = quantized_budget if precision_class == "quantized" else case.exact_budget
    assert budget is not None, "a quantized variant must declare its budget"
    return budget


def _over(rel_l2: float, budget: float) -> str | None:
    if rel_l2 <= budget:
        return None
    if not math.isfinite(rel_l2):
        return "elements of the output are NaN or infinite"
    return f"relative L2 error {rel_l2:.2e} is over the budget {budget:.2e}"


def poison(like: torch.Tensor) -> None:
    """Fill memory that a caching allocator is about to hand out with NaN, so that an element never written shows.

    The CPU's allocator returns large blocks to the system, where they come back as zeros: there, what is never
    written shows as an error instead.
    """
    blocks = [torch.full(like.shape, float("nan"), dtype=like.dtype, device=like.device) for _ in range(2)]
    del blocks


def restore(inputs: Inputs, kept: tuple[torch.Tensor, ...]) -> str | None:
    """Put back what a call changed of its inputs, which the next variant gets; return why it is wrong, or None."""
    changed = [(name, x, before) for name, x, before in zip("qkv", inputs, kept, strict=True) if not x.equal(before)]
    for _, x, before in changed:
        x.copy_(before)
    return f"the kernel changes its inputs: {', '.join(name for name, _, _ in changed)}" if changed else None


def _wrong_kind(out: object, case: Case) -> str | None:
    q = case.inputs[0]
    if not isinstance(out, torch.Tensor):
        return f"the output must be one tensor, got {type(out).__name__}"
    if type(out) is not torch.Tensor:  # whose values a subclass may compute when they are first asked for
        return f"the output must be a plain torch.Tensor, got {type(out).__name__}"
    if out.shape != q.shape:
        return f"the output must have shape {list(q.shape)}, got {list(out.shape)}"
    if out.dtype != q.dtype:
        return f"the output must be {q.dtype}, got {out.dtype}"
    if out.device != q.device:
        return f"the output must be on {q.device}, got {out.device}"
    if not out.is_contiguous():
        return f"the output must be contiguous as [batch, seq_len, heads, head_dim], got strides {list(out.stride())}"
    return None


def _relative_l2(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.to(expected.dtype) - expected).norm() / expected.norm())
