"""What a variant declares beyond what is measured, tried on the device: small calls, judged as measured ones are."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypedDict

import torch

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.guards import poison
from fluxbench.correctness.judging import judge
from fluxbench.operations.attention import AttentionForward
from fluxbench.operations.precision import EXACT
from fluxbench.operations.protocol import Operation, Tensors
from fluxbench.operations.shapes import AttentionCall
from fluxbench.operations.workload import Shape
from fluxbench.variants._base import YES, Variant
from fluxbench.variants.forms import EAGER, FormedVariant

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 128  # of the small calls; kv heads where they are grouped, head_dim where it is free
LENGTHS = (100, 28, 128)  # tokens of the sequences where their lengths vary; elsewhere one sequence of as many
FURTHER = 64  # the one other head_dim that is tried of a variant that compiles
SENTENCE = 160  # characters of what a library says
_SEED = 0

_Attempt = tuple[Operation, Shape]


class ProbeResult(TypedDict):
    """What came of trying a capability; JSON-able."""

    status: str  # "yes", "wrong" (it ran, with other values) or "no" (it raised)
    reason: str | None  # None where it is "yes"
    rel_l2: float | None  # of the wrong output; None where it is not finite, or not of the right kind
    budget: float | None


class _SeveralSequences(AttentionForward):
    """Attention within each of several sequences, which lie one after the other in one batch entry."""

    def attention(self, shape: Shape) -> AttentionCall:
        return AttentionCall.of(shape, lengths=LENGTHS)

    def reference(self, shape: Shape, inputs: Tensors, dtype: torch.dtype, precision: str = EXACT) -> Tensors:
        parts = zip(*(x.split(LENGTHS, dim=1) for x in inputs.values()), strict=True)
        outs = [
            AttentionForward().reference(
                {**shape, "seq_len_q": tokens, "seq_len_k": tokens},
                dict(zip(inputs, part, strict=True)),
                dtype,
                precision,
            )["out"]
            for tokens, part in zip(LENGTHS, parts, strict=True)
        ]
        return {"out": torch.cat(outs, dim=1)}


def probe(
    variant: Variant,
    device: torch.device,
    attempt: Callable[[str], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> dict[str, ProbeResult]:
    """Return what came of each declared capability.

    Keys are a dtype ("bfloat16", "int8"), "head_dim 64", "causal", "gqa", "backward" and "varlen". What is documented
    alone is left out; so are, of a variant that compiles at its first call (seconds for each shape), its dtypes and all
    head dims but one other. q is `[1, 256, 4, head_dim]`; k and v have 2 heads where they are grouped. Outputs and
    gradients may err as in a measurement.

    Each attempt, which may take seconds, is made in the context that `attempt` returns for its key. What torch has
    compiled before is forgotten outside it, and with that the callbacks of compilations.

    Needs nothing of the calling thread's grad or inference mode and leaves both as they are. Raises a `RuntimeError` of
    CUDA ("CUDA error"), after which the device's context is gone, and nothing else of a library's.
    """
    results = {}
    for key, (operation, shape) in _attempts(variant):
        if "torch._dynamo" in sys.modules:  # which refuses a function after too many shapes
            torch.compiler.reset()
        with attempt(key), torch.inference_mode(not operation.differentiates), torch.set_grad_enabled(False):
            results[key] = _try(variant, operation, shape, device)
    return results


def _attempts(variant: Variant) -> Iterator[tuple[str, _Attempt]]:
    declared = variant.capabilities
    slow = variant.compiles or variant.jit
    usual = HEAD_DIM if HEAD_DIM in declared.head_dims else declared.head_dims[0]
    forward, backward = operations.find("attention"), operations.find("attention_backward")

    def shape(head_dim: int = usual, **changes: int | bool | str) -> Shape:
        tokens = sum(LENGTHS)
        sizes = {"seq_len_q": tokens, "seq_len_k": tokens, "head_dim_qk": head_dim, "head_dim_v": head_dim}
        return {**sizes, "heads": HEADS, "kv_heads": HEADS, "dtype": declared.dtypes[0], **changes}

    for dtype in () if slow else declared.computes_in or declared.dtypes:
        yield dtype, (forward, shape() if declared.computes_in else shape(dtype=dtype))
    others = [head_dim for head_dim in declared.head_dims if head_dim != usual]
    for head_dim in ([FURTHER] if FURTHER in others else others[:1]) if slow else declared.head_dims:
        yield f"head_dim {head_dim}", (forward, shape(head_dim))
    if declared.causal is YES:
        yield "causal", (forward, shape(causal=True))
    if declared.gqa is YES:
        yield "gqa", (forward, shape(kv_heads=KV_HEADS))
    if declared.backward is YES:
        yield "backward", (backward, shape())
    if declared.varlen is YES:
        yield "varlen", (_SeveralSequences(), shape())


def _try(variant: Variant, operation: Operation, shape: Shape, device: torch.device) -> ProbeResult:
    inputs = operation.inputs(shape, operation.input_kinds[0], _SEED, device)
    workload = operations.workload("attention", "probe", shape, group="probe", x=1, x_unit="calls")
    case = Case.of(operation, workload, inputs)
    try:
        bound = operation.bind(FormedVariant(variant, EAGER), shape)
        poison(case)
        errors, wrong = judge(bound(inputs), case, variant.quantized_budget_rel_l2, variant.precision_class)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except Exception as error:
        cause = _cause(error)
        if "CUDA error" in f"{error} {cause}":
            raise
        return {"status": "no", "reason": _sentence(cause), "rel_l2": None, "budget": None}
    over = next((each for each in errors.values() if each.budget_share > 1), None)
    return {
        "status": "wrong" if wrong else "yes",
        "reason": wrong,
        "rel_l2": over.rel_l2 if over else None,
        "budget": over.budget_rel_l2 if over else None,
    }


def _cause(error: BaseException) -> BaseException:
    """Return what an exception came of: torch.compile wraps those of what it compiles."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _sentence(error: BaseException) -> str:
    """Return the first sentence of what an exception says, or its name where it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = lines[0].split(". ")[0].rstrip(".") if lines else type(error).__name__
    return sentence if len(sentence) <= SENTENCE else sentence[: SENTENCE - 1] + "…"
