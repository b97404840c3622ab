"""The backward kernel in Gluon on a GPU of compute capability 9.0."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gluon_gradients import CASES, ROUNDING, Case, of_autograd, relative_l2, strided  # noqa: E402

from fluxbench.kernels import attention, flash_gluon  # noqa: E402
from fluxbench.kernels.flash_gluon_backward import Tiling, gluon_backward  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="needs a GPU of compute capability 9.0",
    ),
]
OF_GPU = [
    Case(
        n, n, causal=bool(seed // 6 % 2), batch=1 + seed % 3, heads=8, kv_heads=(8, 4, 1)[seed // 3 % 3],
        head_dim=(64, 128)[seed // 2 % 2], dtype=(torch.bfloat16, torch.float16)[seed // 5 % 2],
    )
    for seed in range(36)
    for n in ((2, 33, 123, 1024, 4097, 4415)[seed % 6],)
]  # fmt: skip
TILINGS = [Tiling(split=False)]


def on_gpu(case: Case) -> tuple[Any, Any, Any, Any]:
    """Return gradients, the same once more, exact ones, and those of unfused attention."""
    generator = torch.Generator().manual_seed(case.seq_len_q)
    of = (case.head_dim, generator, case.dtype)
    q, dout = (strided(case.batch, case.seq_len_q, case.heads, *of).cuda() for _ in "qd")
    k, v = (strided(case.batch, case.seq_len_k, case.kv_heads, *of).cuda() for _ in "kv")
    asked: dict[str, Any] = {"causal": case.causal, "scale": case.scale}
    out, lse = flash_gluon.gluon_forward_with_lse(q, k, v, **asked)
    twice = [
        gluon_backward(dout, q, k, v, out, lse, tiling=case.tiling, deterministic=case.deterministic, **asked)
        for _ in range(2)
    ]
    exact = of_autograd(case, q.double(), k.double(), v.double(), dout.double())[:3]
    return twice[0], twice[1], exact, of_autograd(case, q, k, v, dout)[:3]


@pytest.mark.parametrize(
    "case",
    [
        *(case._replace(deterministic=True) for case in OF_GPU[::2]),
        *OF_GPU,
        *(Case(1000, 1100, causal, 2, 4, 2, 128, tiling=tiling) for tiling in TILINGS for causal in (False, True)),
        *(case for case in CASES if case.seq_len_k > 1),
    ],
    ids=str,
)
def test_gradients_on_the_gpu_are_within_their_budgets_and_those_of_k_and_v_have_the_same_bits_twice(
    case: Case,
) -> None:
    got, again, exact, unfused = on_gpu(case)
    fixed = 0 if case.deterministic else 1
    assert all(torch.equal(x, y) for x, y in zip(got[fixed:], again[fixed:], strict=True))
    for x, expected, other in zip(got, exact, unfused, strict=True):
        assert relative_l2(x, expected) <= 2 * relative_l2(other, expected) + ROUNDING[case.dtype]


@pytest.mark.parametrize("causal", [False, True])
def test_deterministic_gradients_have_the_same_bits_each_time(causal: bool) -> None:
    case = Case(4415, 4415, causal, heads=8, kv_heads=2, head_dim=128)
    q, k, v, dout = (torch.randn(1, 4415, n, 128, device="cuda").bfloat16() for n in (8, 2, 2, 8))
    out, lse = flash_gluon.gluon_forward_with_lse(q, k, v, causal=case.causal)
    first = gluon_backward(dout, q, k, v, out, lse, causal=causal, deterministic=True)
    for _ in range(100):
        again = gluon_backward(dout, q, k, v, out, lse, causal=causal, deterministic=True)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


@pytest.mark.parametrize("compiled", [False, True])
def test_torchs_switch_gives_gradients_of_the_same_bits_each_time(compiled: bool) -> None:
    q, k, v = (torch.randn(1, 4415, n, 128, device="cuda").bfloat16().requires_grad_() for n in (8, 2, 2))
    dout = torch.randn_like(q)
    attend = torch.compile(attention, fullgraph=True) if compiled else attention
    torch.use_deterministic_algorithms(True)
    try:
        first, *others = (torch.autograd.grad(attend(q, k, v), (q, k, v), dout) for _ in range(20))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(x, y) for again in others for x, y in zip(first, again, strict=True))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("names", ["q", "k", "qkv"])
def test_autograd_takes_it_where_it_runs(names: str, deterministic: bool) -> None:
    inputs = [torch.randn(2, 300, n, 64, device="cuda").bfloat16() for n in (4, 2, 2)]
    found = []
    for backward in (None, "triton"):
        q, k, v = (x.clone().requires_grad_(name in names) for name, x in zip("qkv", inputs, strict=True))
        out = attention(q, k, v, causal=True, backward=backward, deterministic=deterministic)
        out.backward(torch.ones_like(out))  # of no strides that the TMA unit takes, once expanded
        found.append([x.grad for x in (q, k, v) if x.grad is not None])
    for x, y in zip(*found, strict=True):
        assert relative_l2(x, y.double()) < 0.02


def test_more_than_two_to_the_31_elements_reach_the_last_rows() -> None:
    q, dout = (torch.zeros(1, 460_000, 40, 128, dtype=torch.bfloat16, device="cuda") for _ in "qd")
    k, v = (torch.randn(1, 64, 40, 128, device="cuda").bfloat16() for _ in "kv")
    for x in (q, dout):
        x[:, -5:] = torch.randn(1, 5, 40, 128)
    out, lse = flash_gluon.gluon_forward_with_lse(q, k, v)
    dq, *of_keys = gluon_backward(dout, q, k, v, out, lse)
    assert dq is not None
    case = Case(5, 64, heads=40, kv_heads=40, head_dim=128)
    exact = of_autograd(case, q[:, -5:].double(), k.double(), v.double(), dout[:, -5:].double())
    for x, expected in zip((dq[:, -5:], *of_keys), exact[:3], strict=True):
        assert relative_l2(x, expected) < 0.01
