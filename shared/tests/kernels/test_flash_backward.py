"""The gradient of our Triton attention, judged as a measured one is: in Triton's interpreter, and on a GPU.

The interpreter is chosen by the environment when triton is imported, so it runs in a process of its own: this file
as a script, which prints one JSON object.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from compiled import SHARED_MEMORY_KIB, compiled  # noqa: E402
from judged import verdict  # noqa: E402

from fluxbench import operations  # noqa: E402
from fluxbench.correctness.case import Case  # noqa: E402
from fluxbench.kernels import (  # noqa: E402
    attention,
    flash_backward_keys,
    flash_backward_queries,
    flash_forward,
    flash_tensors,
)
from fluxbench.kernels import flash_backward as kernel  # noqa: E402


class Asked(NamedTuple):
    """One gradient: the shape, how tensors lie in memory, and how kernels load."""

    seq_len_q: int
    seq_len_k: int
    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 64
    dtype: str = "bfloat16"
    causal: bool = False
    memory: str = "contiguous"
    small: bool = False  # blocks of 32 and 64, by pointers; else the device's own tiling
    seed: int = 0


MEMORY = ("transposed", "unaligned", "in the head_dim")
ASKED = [
    *(
        Asked(n, n, batch=batch, causal=causal, head_dim=head_dim, dtype=dtype, small=small, seed=n)
        for n, batch in ((1, 3), (33, 2), (123, 1), (257, 1))
        for causal, head_dim, dtype, small in (
            (False, 64, "bfloat16", False),
            (True, 128, "bfloat16", False),
            (False, 128, "float16", True),
            (True, 64, "float16", True),
        )
    ),
    *(
        Asked(n, m, heads=heads, kv_heads=kv_heads, causal=n < m, small=small, seed=heads)
        for n, m in ((70, 200), (1, 130), (200, 70))
        for heads, kv_heads, small in ((4, 1, True), (2, 2, False))
    ),
    *(Asked(123, 123, batch=2, heads=4, kv_heads=2, causal=seed == 2, seed=seed) for seed in (1, 2)),
    *(
        Asked(65, 97, heads=4, kv_heads=2, batch=2, memory=memory, small=small)
        for memory in MEMORY
        for small in (False, True)
    ),
]
SMALL = kernel.Tiling(
    keys=kernel.Part(block_m=32, block_n=64, warps=4, stages=2, descriptors=False),
    queries=kernel.Part(block_m=64, block_n=32, warps=4, stages=2, descriptors=False),
)


def laid_out(x: Any, memory: str) -> Any:
    """Return the same values with other strides."""
    if memory == "transposed":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if memory == "unaligned":
        return torch.nn.functional.pad(x, (1, 2))[..., 1:-2]
    return x


def case_of(asked: Asked, device: str, kind: str = "normal") -> Case:
    shape = {name: getattr(asked, name) for name in ("seq_len_q", "seq_len_k", "batch", "heads", "kv_heads", "dtype")}
    shape |= {"head_dim_qk": asked.head_dim, "head_dim_v": asked.head_dim, "causal": bool(asked.causal)}
    workload = operations.workload("attention_backward", "small", shape, group="small", x=1, x_unit="calls")
    return Case.make(workload, kind, asked.seed, torch.device(device))


BY_TRITON: dict[str, Any] = {"forward": "triton", "backward": "triton"}  # on Hopper it would be Gluon


def gradients(asked: Asked, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return dq, dk and dv, by autograd where the tiling is the device's own."""
    q, k, v = (laid_out(inputs[name], asked.memory).detach() for name in "qkv")
    dout = laid_out(inputs["dout"], asked.memory)
    if asked.memory == "in the head_dim":  # the gradient's alone may have one
        dout = dout.mT.contiguous().mT
    if asked.small:
        out, lse = flash_forward.flash_forward_with_lse(q, k, v, causal=bool(asked.causal))
        found = kernel.flash_backward(dout, q, k, v, out, lse, causal=bool(asked.causal), tiling=SMALL)
    else:
        leaves = tuple(x.requires_grad_() for x in (q, k, v))
        found = torch.autograd.grad(attention(*leaves, causal=bool(asked.causal), **BY_TRITON), leaves, dout)
    return dict(zip(("dq", "dk", "dv"), found, strict=True))


def wrong(asked: Asked, case: Case, found: dict[str, Any]) -> str | None:
    """Return why gradients are wrong, or None. Those of a single key are zero but for float32's rounding of dP."""
    if asked.seq_len_k == 1:
        q, k, v, dout = (float(case.inputs[name].abs().max()) for name in ("q", "k", "v", "dout"))
        most = 1e-5 * asked.heads * max(q, k) * v * dout
        found |= {name: case.expected[name].to(x.dtype) for name, x in found.items() if float(x.abs().max()) <= most}
    return verdict(found, case)


def judged(asked: Asked, device: str) -> list[str | None]:
    """Return why gradients are wrong, or None, on each kind of inputs where q has 33 rows; the other cases on one."""
    kinds = operations.find("attention_backward").input_kinds
    cases = [case_of(asked, device, kind) for kind in (kinds if asked.seq_len_q == 33 else kinds[:1])]
    return [wrong(asked, case, gradients(asked, case.inputs)) for case in cases]


def interpret() -> None:
    """Print what the interpreter says of every case, and of autograd."""
    from interpreted import teach_the_interpreter_rounding

    teach_the_interpreter_rounding()
    found: dict[str, Any] = {str(asked): judged(asked, "cpu") for asked in ASKED}
    found |= {"of some": of_some_inputs(), "of a sum": of_a_sum()}
    print(json.dumps(found | {"float64": in_float64()}))


def leaves_of(names: str = "qkv") -> tuple[Any, ...]:
    inputs = case_of(Asked(33, 40, heads=4, causal=True), "cpu").inputs
    return tuple(inputs[name].detach().clone().requires_grad_(name in names) for name in "qkv")


def of_some_inputs() -> dict[str, list[Any]]:
    """Return, by the inputs that require a gradient, which have one that equals that of all, and the outputs' sizes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorded(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if "fluxbench_kernels::" in func.name():
                sizes.append([x.numel() for x in result])
            return result

    every = leaves_of()
    attention(*every, causal=True).float().square().sum().backward()
    found = {}
    for names in ("", "q", "k", "v", "kv"):
        sizes: list[list[int]] = []
        leaves = leaves_of(names)
        with Recorded():
            out = attention(*leaves, causal=True)
            if names:
                out.float().square().sum().backward()
        pairs = zip(leaves, every, strict=True)
        same = [leaf.grad is not None and torch.equal(leaf.grad, full.grad) for leaf, full in pairs]
        found[names] = [same, sizes]
    return found


def of_a_sum() -> list[bool]:
    """Return whether the gradient of a sum, one element that is expanded, gives what ones do."""
    summed, ones = leaves_of(), leaves_of()
    attention(*summed).sum().backward()
    out = attention(*ones)
    out.backward(torch.ones_like(out))
    return [torch.equal(one.grad, other.grad) for one, other in zip(summed, ones, strict=True)]


def in_float64() -> bool:
    """Return what `torch.autograd.gradcheck` says of the kernels with float64 in place of float32 and of 16 bits."""
    from fluxbench.kernels import flash_forward_kernel

    for module in (flash_forward_kernel, kernel, flash_backward_keys, flash_backward_queries):
        vars(module)["SUMS"] = triton.language.float64
    vars(flash_tensors)["DTYPES"] = (torch.float64,)
    semantic = triton.language.semantic.TritonSemantic
    dot = semantic.dot
    semantic.dot = lambda *args: dot(*args[:-1], triton.language.float64)  # the last is the dtype of its sums
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(1, n, heads, 64, dtype=torch.float64, generator=generator).requires_grad_()
        for n, heads in ((5, 2), (9, 1), (9, 1))
    ]
    return bool(torch.autograd.gradcheck(lambda *qkv: attention(*qkv, causal=True), inputs, fast_mode=True))


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    from interpreted import printed

    return printed(__file__)


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_interpreted_gradients_are_within_their_budgets(asked: Asked, interpreted: dict[str, Any]) -> None:
    assert set(interpreted[str(asked)]) == {None}


def test_only_the_gradients_that_are_asked_for_are_computed_and_nothing_is_kept_without_one(
    interpreted: dict[str, Any],
) -> None:
    of_q, of_kv, lse = 33 * 4 * 64, 40 * 2 * 64, 33 * 4
    assert interpreted["of some"] == {
        "": [[False, False, False], [[of_q, 0]]],
        "q": [[True, False, False], [[of_q, lse], [of_q]]],
        "k": [[False, True, False], [[of_q, lse], [of_kv, of_kv]]],
        "v": [[False, False, True], [[of_q, lse], [of_kv, of_kv]]],
        "kv": [[False, True, True], [[of_q, lse], [of_kv, of_kv]]],
    }


def test_an_expanded_gradient_gives_the_same_bits(interpreted: dict[str, Any]) -> None:
    assert interpreted["of a sum"] == [True] * 3


def test_float64_derivatives_are_those_of_finite_differences(interpreted: dict[str, Any]) -> None:
    assert interpreted["float64"]


GPU_LENGTHS = (1, 33, 123, 1024, 4097, 4415)
OF_GPU = [
    Asked(
        n, n, batch=1 + seed % 3, heads=8, kv_heads=(8, 4, 1)[seed // 3 % 3], causal=bool(seed // 6 % 2), seed=seed,
        head_dim=(64, 128)[seed // 2 % 2], dtype=("bfloat16", "float16")[seed // 5 % 2],
    )
    for seed in range(100)
    for n in (GPU_LENGTHS[seed % len(GPU_LENGTHS)],)
]  # fmt: skip


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("asked", [*ASKED, *OF_GPU], ids=str)
def test_gradients_on_the_gpu_are_within_their_budgets_and_have_the_same_bits_twice(asked: Asked) -> None:
    case = case_of(asked, "cuda")
    found, again = (gradients(asked, case.inputs) for _ in range(2))
    assert all(torch.equal(found[name], again[name]) for name in found)
    assert wrong(asked, case, found) is None


@pytest.mark.parametrize("capability", list(kernel.TILINGS))
@pytest.mark.parametrize("head_dim", [64, 128])  # smaller ones have the blocks of 64
def test_tiling_compiles_into_the_shared_memory_of_its_device(capability: tuple[int, int], head_dim: int) -> None:
    tiling = kernel.TILINGS[capability][head_dim]
    for of, part in (
        (flash_backward_keys.flash_backward_keys_kernel, tiling.keys),
        (flash_backward_queries.flash_backward_queries_kernel, tiling.queries),
    ):
        constants = {
            **{"HEADS": 24, "GROUP": 4, "HEAD_DIM": head_dim, "BLOCK_M": part.block_m, "BLOCK_N": part.block_n},
            **{"RAGGED": True, "DESCRIPTORS": part.descriptors, "CAUSAL": True, "INPUT_PRECISION": "ieee"},
        }
        rows = dict.fromkeys(("q", "dout", "dq"), part.block_m) | dict.fromkeys(("k", "v", "dk", "dv"), part.block_n)
        done = compiled(of, capability, constants, rows, part.warps, part.stages)
        assert done.metadata.shared <= SHARED_MEMORY_KIB[capability] * 1024


ZEROS = torch.zeros(1, 8, 2, 64).bfloat16()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "q must be on an NVIDIA GPU, got cpu; move"),
        ({"q": ZEROS.double()}, "q must be bfloat16, float16 or float32"),
        ({"dout": ZEROS[:, :7]}, r"dout must be \[1, 8, 2, 64\], torch.bfloat16, on cpu, got \[1, 7, 2, 64\]"),
        ({"dout": ZEROS.half()}, "dout must be .*, got .* torch.float16"),
        ({"out": ZEROS.float()}, "out must be .*, got .* torch.float32"),
        ({"out": ZEROS.mT.contiguous().mT}, "out and lse must be contiguous, got other strides; pass"),
        ({"lse": torch.zeros(1, 8, 2)}, r"lse must be \[1, 2, 8\], torch.float32, on cpu, got \[1, 8, 2\]"),
        (
            dict.fromkeys(("q", "dout", "out"), ZEROS.expand(1, 8, 2, 64)) | dict.fromkeys("kv", ZEROS[:, :7]),
            "causal q",
        ),
    ],
)
def test_wrong_input_is_refused_with_the_rule_and_the_value(changes: dict[str, Any], message: str) -> None:
    right = {**dict.fromkeys(("dout", "q", "k", "v", "out"), ZEROS), "lse": torch.zeros(1, 2, 8)}
    with pytest.raises(ValueError, match=message):
        kernel.flash_backward(**{**right, **changes}, causal=True)


if __name__ == "__main__":
    interpret()
