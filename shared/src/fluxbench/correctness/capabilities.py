"""What a variant declares beyond what is measured, tried on the device: small calls, judged as measured ones are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fluxbench.correctness import reference
from fluxbench.correctness.judging import Case, judge, poison
from fluxbench.operations.inputs import Inputs, make
from fluxbench.operations.workloads import Workload
from fluxbench.variants._base import Attention, Variant

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 128  # of the small calls; kv heads where they are grouped, head_dim where it is free
LENGTHS = (100, 28, 128)  # tokens of the sequences where their lengths vary; elsewhere one sequence of as many
FURTHER = 64  # the one other head_dim that is tried of a variant that compiles
SENTENCE = 160  # characters of what a library says
_DTYPES = ("bfloat16", "float16", "float32")  # of inputs
_SEED = 0

_Wrong = str | None
_Attempt = Callable[[], _Wrong]


def probe(variant: Variant, device: torch.device, begin: Callable[[str], object] = str) -> dict[str, str]:
    """Return what came of each declared capability: "yes", "wrong: ..." with the error, "no: ..." with the exception.

    Keys are a dtype ("bfloat16", "int8"), "head_dim 64", "causal", "gqa", "backward" and "varlen". What is declared
    without a way to call it is left out; so are, of a variant that compiles at its first call (seconds for each shape),
    its dtypes and all head dims but one other. q is `[1, 256, 4, head_dim]`; k and v have 2 heads where they are
    grouped. Outputs may err as in a measurement. A gradient may err twice as much as that of math attention in the same
    precision does, plus the rounding of one more step, against float64 autograd of the same inputs.

    `begin` is told the key before each attempt, which may take seconds.

    Needs nothing of the calling thread's grad or inference mode and leaves both as they are. Raises a `RuntimeError` of
    CUDA ("CUDA error"), after which the device's context is gone, and nothing else of a library's.
    """
    found = {}
    with torch.inference_mode():
        for key, attempt in _attempts(variant, device):
            begin(key)
            found[key] = _outcome(attempt, device)
    return found


def _attempts(variant: Variant, device: torch.device) -> Iterator[tuple[str, _Attempt]]:
    declared = variant.capabilities
    if declared is None:
        return
    slow = variant.compiles or variant.jit
    dtype = next((name for name in _DTYPES if name in declared.dtypes), _DTYPES[0])
    usual = HEAD_DIM if HEAD_DIM in declared.head_dims else declared.head_dims[0]

    def plain(dtype: str = dtype, head_dim: int = usual) -> _Wrong:
        case = _case(device, dtype, head_dim)
        return _judged(variant, _call(variant.load(), case.inputs), case)

    for name in () if slow else declared.dtypes:
        if name in _DTYPES:
            yield name, partial(plain, dtype=name)
        elif name.startswith(("float8", "int8")):  # quantized within the call, from 16 bits
            yield name, plain
    others = [head_dim for head_dim in declared.head_dims if head_dim != usual]
    if slow:
        others = [FURTHER] if FURTHER in others else others[:1]
    for head_dim in others if slow else declared.head_dims:
        yield f"head_dim {head_dim}", partial(plain, head_dim=head_dim)
    causal, gqa, backward, varlen = declared.causal, declared.gqa, declared.backward, declared.varlen
    if callable(causal):
        yield "causal", lambda: _of_case(variant, causal, _case(device, dtype, usual, causal=True))
    if callable(gqa):
        yield "gqa", lambda: _of_case(variant, gqa, _case(device, dtype, usual, kv_heads=KV_HEADS))
    if callable(backward):
        yield "backward", lambda: _backward(variant, backward, _inputs(device, dtype, usual))
    if callable(varlen):
        yield "varlen", lambda: _of_case(variant, lambda: varlen(LENGTHS), _several(_inputs(device, dtype, usual)))


def _outcome(attempt: _Attempt, device: torch.device) -> str:
    if "torch._dynamo" in sys.modules:  # which refuses a function after too many shapes
        torch.compiler.reset()
    try:
        wrong = attempt()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except Exception as error:
        cause = _cause(error)
        if "CUDA error" in f"{error} {cause}":
            raise
        return f"no: {_sentence(cause)}"
    return f"wrong: {wrong}" if wrong else "yes"


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


def _inputs(device: torch.device, dtype: str, head_dim: int, kv_heads: int = HEADS) -> Inputs:
    shape = Workload(
        name="capabilities", seq_len=sum(LENGTHS), heads=HEADS, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype
    )
    return make(shape, "normal", _SEED, device)


def _case(device: torch.device, dtype: str, head_dim: int, *, kv_heads: int = HEADS, causal: bool = False) -> Case:
    return Case.of(_inputs(device, dtype, head_dim, kv_heads), causal=causal)


def _several(inputs: Inputs) -> Case:
    """Return inputs of several sequences, one after the other, with the answer in which each sees itself alone."""
    parts = [tuple(part) for part in zip(*(x.split(LENGTHS, dim=1) for x in inputs), strict=True)]
    expected = torch.cat([reference.attention((q, k, v)) for q, k, v in parts], dim=1)
    math_out = torch.cat([reference.math_attention((q, k, v)) for q, k, v in parts], dim=1)
    return Case(inputs, expected, _relative_l2(math_out, expected))


def _of_case(variant: Variant, load: Callable[[], Attention], case: Case) -> _Wrong:
    return _judged(variant, _call(load(), case.inputs), case)


def _call(attention: Attention, inputs: Inputs) -> torch.Tensor:
    poison(inputs[0])
    return attention(*inputs)


def _judged(variant: Variant, out: object, case: Case) -> _Wrong:
    """Return why an output, or a gradient of the same shape, is wrong, or None."""
    budget = variant.quantized_budget_rel_l2
    _, wrong = judge(out, case, precision_class=variant.precision_class, quantized_budget=budget)
    return wrong


def _backward(variant: Variant, load: Callable[[], Attention], inputs: Inputs) -> _Wrong:
    """Differentiate the sum of the output times fixed noise with respect to q, k and v, and judge all three."""
    with torch.inference_mode(False), torch.enable_grad():
        inputs = (inputs[0].clone(), inputs[1].clone(), inputs[2].clone())  # inference tensors cannot be saved
        upstream = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(_SEED)).to(inputs[0])
        dtype = reference.precise_dtype(upstream.device)
        q, k, v = (x.to(dtype) for x in inputs)
        expected = _gradients(_precise_attention, (q, k, v), upstream.to(dtype))
        of_math = _gradients(_math_attention, inputs, upstream)
        found = _gradients(load(), inputs, upstream)
        for name, want, same_precision, got in zip("qkv", expected, of_math, found, strict=True):
            if got is None or want is None or same_precision is None:
                return f"the output has no gradient with respect to {name}"
            case = Case(inputs, want, _relative_l2(same_precision, want))
            if wrong := _judged(variant, got.contiguous(), case):
                return f"gradient of {name}: {wrong}"
    return None


def _gradients(
    attention: Attention, inputs: Inputs, upstream: torch.Tensor
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    q, k, v = (x.detach().requires_grad_() for x in inputs)
    out = attention(q, k, v)
    if not out.requires_grad:
        return None, None, None
    of_q, of_k, of_v = torch.autograd.grad(out, (q, k, v), upstream, allow_unused=True)
    return of_q, of_k, of_v


def _precise_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, dim=-1), v)


def _math_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


def _relative_l2(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.to(expected.dtype) - expected).norm() / expected.norm())
