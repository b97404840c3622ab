"""The backward kernel in Gluon: emulated on the CPU against float64, and refused inputs.

The emulation (`emulated.py`) runs the sources of the kernel. Copies of them that are wrong must be found.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from emulated import Launched, load  # noqa: E402
from gluon_gradients import (  # noqa: E402
    ALONE,
    ALONE_CAUSAL,
    CASES,
    CAUSAL,
    FULL,
    GREEDY,
    LONG,
    LOW,
    ROUNDING,
    SPLIT,
    Case,
    of_autograd,
    relative_l2,
    strided,
)
from partitions import Stuck  # noqa: E402

from fluxbench.kernels import flash_attention, flash_gluon, flash_gluon_backward  # noqa: E402
from fluxbench.kernels.flash_gluon_backward import gluon_backward  # noqa: E402

OF_BACKWARD = ("sums", "consumer", "kernel", "queries")
MODULES = ("flash_gluon_tiles", "flash_gluon_barriers", *(f"flash_gluon_backward_{name}" for name in OF_BACKWARD))
OF_FORWARD = tuple(f"flash_gluon_{name}" for name in ("tiles", "parts", "softmax", "barriers", "consumer", "kernel"))
DQ_IS_DONE = "dq, ds = warpgroup_mma_wait(0, deps=(dq_ahead, ds))"
GIVE_K_BACK = "mbarrier.arrive(k_empty.index(before), count=1)"
SOURCES = Path(flash_gluon_backward.__file__).parent


def emulate(monkeypatch: pytest.MonkeyPatch, *change: str, **order: bool) -> None:
    """Put emulated kernels in the place of those of the backward pass."""
    for module in load(SOURCES, "fluxbench.kernels", MODULES, *change).values():
        for name, kernel in vars(module).items():
            if re.fullmatch(r"gluon_backward_\w*kernel", name):
                monkeypatch.setattr(flash_gluon_backward, name, Launched(kernel, **order))
    monkeypatch.setattr(flash_gluon_backward, "unsupported", lambda q, k, v: None)


def run(case: Case, monkeypatch: pytest.MonkeyPatch, *change: str, **options: bool) -> tuple[Any, Any, Any]:
    """Return the gradients of the emulated kernels, exact ones, and those of unfused attention in the same dtype."""
    emulate(monkeypatch, *change, backwards=case.backwards, greedy=case.greedy)
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda x, shape, **form: x.new_full(shape, math.nan, **form))
    generator = torch.Generator().manual_seed(0)
    of = (case.head_dim, generator, case.dtype)
    q, dout = (strided(case.batch, case.seq_len_q, case.heads, *of) for _ in "qd")
    k, v = (strided(case.batch, case.seq_len_k, case.kv_heads, *of) for _ in "kv")
    if case.low:
        q[..., 0], k[..., 0] = 64, -64
    *exact, out, lse = of_autograd(case, q.double(), k.double(), v.double(), dout.double())
    got = gluon_backward(
        dout, q, k, v, out.to(case.dtype).contiguous(), lse.float().contiguous(),
        causal=case.causal, scale=case.scale, deterministic=case.deterministic,
        tiling=replace(case.tiling, programs=case.programs), **options,
    )  # fmt: skip
    return got, exact, of_autograd(case, q, k, v, dout)[:3]


def is_right(case: Case, monkeypatch: pytest.MonkeyPatch, *change: str) -> bool:
    """Say whether gradients are within their budgets. Those of a single key are zero but for rounding."""
    assert not change or any(change[0] in (SOURCES / f"{name}.py").read_text(encoding="utf-8") for name in MODULES)
    try:
        found = zip(*run(case, monkeypatch, *change), strict=True)
        if case.seq_len_k == 1:
            dq, dk, dv = found
            return max(float(x[0].abs().max()) for x in (dq, dk)) < 0.05 and relative_l2(*dv[:2]) < 1e-3
        return all(
            relative_l2(got, exact) <= 2 * relative_l2(unfused, exact) + ROUNDING[case.dtype]
            for got, exact, unfused in found
        )
    except (Stuck, AssertionError, IndexError):
        return False


@pytest.mark.parametrize("case", CASES, ids=str)
def test_emulated_gradients_are_within_twice_the_error_of_math_attention(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_right(case, monkeypatch)


@pytest.mark.parametrize(
    ("case", "written", "instead"),
    [
        (FULL, "((step // STAGES) & 1) ^ 1", "(step // STAGES) & 1"),
        (FULL, "phase = (step // STAGES) & 1\n", "phase = 0\n"),
        (FULL, "head = kv_head * group + member", "head = kv_head * group"),
        (FULL, "pair = kv_pair * group + member\n", "pair = kv_pair * group\n"),
        (LOW, "(key < seq_len_k)", "(key <= seq_len_k)"),
        (LOW, "gl.where(start_n + 2 * ROWS > seq_len_k, end, first)", "first"),
        (FULL, "row + 1, 0]", "row, 0]"),
        (FULL, "-lse / scale_log2", "-lse"),
        (FULL, 'other=float("inf")', "other=-1000.0"),
        (FULL, "dk * scale", "dk"),
        (FULL, "values * scale", "values"),
        (GREEDY, "ds_buffers.index(step % 2)", "ds_buffers.index(0)"),
        (FULL, ".store(rounded)\n        fence_async_shared()", ".store(rounded)"),
        (FULL, "        _meet()  # all", "        pass  # all"),
        (LONG, "    _meet()  # nobody", "    pass  # nobody"),
        (FULL, "tma.store_wait(0)  # the chunk", "pass  # the chunk"),
        (FULL, "chunk + CONSUMER", "chunk"),
        (FULL, "is not None:\n        CLEARED", "is None:\n        CLEARED"),
        (FULL, "init(q_empty.index(stage), count=2)", "init(q_empty.index(stage), count=1)"),
        (FULL, "dv, dq, p = warpgroup_mma_wait(1", "dv, dq, p = warpgroup_mma_wait(2"),
        (FULL, "row += part * 64", "row += 0"),
        (FULL, "slice(CONSUMER * ROWS, ROWS, 1)", "slice(0, ROWS, 1)"),
        (LONG, "column += part * 64", "column += 0"),
        (LONG, "slice(CONSUMER * 64, 64, 1)", "slice(0, 64, 1)"),
        (CAUSAL, "<= query[None, :]", "< query[None, :]"),
        (CAUSAL, "gl.cdiv(last_key, BLOCK_M)", "(last_key // BLOCK_M)"),
        (CAUSAL, "0) // BLOCK_M\n", "0) // BLOCK_M + 1\n"),
        (CAUSAL, "kv_pairs - section * at_once", "at_once"),
        (ALONE, "before = (step + STAGES - 1) % STAGES", "before = stage"),
        (ALONE, f"{DQ_IS_DONE}\n        {GIVE_K_BACK}", f"{GIVE_K_BACK}\n        {DQ_IS_DONE}"),
        (ALONE, "head // group, start_n", "head * 0, start_n"),
        (ALONE, "row // ROWS_BLOCK", "row * 0"),
        (ALONE, "(dq * scale)", "dq"),
        (ALONE, "mbarrier.init(v_empty.index(stage), count=2)", "mbarrier.init(v_empty.index(stage), count=1)"),
        (ALONE._replace(low=True), "(key < seq_len_k)[None", "(key <= seq_len_k)[None"),
        (ALONE_CAUSAL, "key[None, :] <= query", "key[None, :] < query"),
        (ALONE_CAUSAL, "seq_len_q + 1) // BLOCK_N", "seq_len_q + BLOCK_N) // BLOCK_N"),
        (SPLIT, "kept % parts * blocks_m // parts", "0"),
        (SPLIT, "(kept % parts + 1) * blocks_m // parts", "blocks_m"),
        (SPLIT, "whole + (tile - whole) // parts", "whole"),
        (SPLIT, "        part += 2 * 128 * HEAD_DIM", "        pass"),
        (SPLIT, "share % SHARES * KEYS", "share % SHARES"),
        (SPLIT, "gl.program_id(0) - of_parts", "gl.program_id(0)"),
    ],
)
def test_a_wrong_copy_of_it_is_found(case: Case, written: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_right(case, monkeypatch, written, instead)


@pytest.mark.parametrize("case", [FULL, CAUSAL, SPLIT], ids=str)
def test_the_others_have_the_same_bits_without_dq(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *both = run(case, monkeypatch)[0]
    dq, *alone = run(case._replace(greedy=True), monkeypatch, of_q=False)[0]
    assert dq is None
    assert all(torch.equal(x, y) for x, y in zip(both, alone, strict=True))


@pytest.mark.parametrize("case", [ALONE, ALONE_CAUSAL], ids=str)
def test_dq_has_the_same_bits_alone_and_whichever_program_runs_first(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_others, *_ = run(case, monkeypatch)[0]
    dq, *others = run(case._replace(backwards=True, greedy=True), monkeypatch, of_kv=False)[0]
    assert others == [None, None]
    assert torch.equal(dq, with_others)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("names", ["q", "v", "qkv"])
def test_autograd_takes_it_where_it_runs(names: str, deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    forward = load(SOURCES, "fluxbench.kernels", OF_FORWARD)["flash_gluon_kernel"].gluon_forward_kernel
    monkeypatch.setattr(flash_gluon, "gluon_forward_kernel", Launched(forward))
    for module in (flash_attention, flash_gluon):
        monkeypatch.setattr(module, "unsupported", lambda q, k, v: None)
    for module in (flash_gluon, flash_gluon_backward):
        monkeypatch.setattr(module, "multiprocessors", lambda _: 3)
    case = Case(70, 140, causal=True, heads=4, kv_heads=2)
    generator = torch.Generator().manual_seed(0)
    shapes = {"q": (1, 70, 4, 64), "k": (1, 140, 2, 64), "v": (1, 140, 2, 64)}
    leaves = {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in shapes.items()}
    q, k, v = leaves.values()
    exact = of_autograd(case, q.double(), k.double(), v.double(), torch.ones(shapes["q"]).double())
    for name, leaf in leaves.items():
        leaf.requires_grad_(name in names)
    out = flash_attention.attention(q, k, v, causal=True, deterministic=deterministic)
    out.sum().backward()  # one element that is expanded
    for x, expected, name in zip((q, k, v), exact[:3], "qkv", strict=True):
        assert (x.grad is not None) == (name in names)
        assert x.grad is None or relative_l2(x.grad, expected) < 0.01


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("switched", [False, True])
def test_gradients_are_deterministic_where_the_call_or_torchs_switch_asks_for_it(
    switched: bool, asked: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch is on during the backward pass, and where torch.compile wants it alike during the forward pass."""
    found = []

    def backward(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *, deterministic: bool, **options: Any) -> Any:
        found.append(deterministic)
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)

    monkeypatch.setattr(flash_attention, "gluon_backward", backward)
    monkeypatch.setattr(flash_attention, "unsupported", lambda q, k, v: None)
    of_forward = torch.zeros(1, 8, 2, 64).bfloat16(), torch.zeros(1, 2, 8)
    monkeypatch.setattr(flash_attention, "gluon_forward_with_lse", lambda q, k, v, **_: [x.clone() for x in of_forward])
    attend = partial(flash_attention.attention, deterministic=asked)
    attend = torch.compile(attend, backend="aot_eager", fullgraph=True) if compiled else attend
    q = torch.zeros(1, 8, 2, 64).bfloat16().requires_grad_()
    try:
        torch.use_deterministic_algorithms(switched and compiled)
        out = attend(q, q, q)
        torch.use_deterministic_algorithms(switched)
        out.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert found == [switched or asked]


ZEROS = torch.zeros(1, 8, 2, 64).bfloat16()
RIGHT = {**dict.fromkeys(("dout", "q", "k", "v", "out"), ZEROS), "lse": torch.zeros(1, 2, 8)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "q must be on a GPU of compute capability 9.0, got cpu; use the Triton kernel"),
        ({"k": ZEROS[:, :0]}, "k must be .* no empty dimension"),
        ({"lse": torch.zeros(1, 8, 2)}, r"lse must be \[1, 2, 8\], torch.float32, on cpu, got \[1, 8, 2\]"),
        ({"q": ZEROS.expand(2, 8, 2, 64)[:1, :, :, :32]}, "k must have the batch and head_dim of q"),
    ],
)
def test_input_that_it_cannot_take_is_refused_with_the_rule_and_the_value(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        gluon_backward(**{**RIGHT, **changes})
