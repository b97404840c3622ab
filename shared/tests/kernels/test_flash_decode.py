"""Our decoding kernel against a float64 oracle: in Triton's interpreter on the CPU, and on a GPU where there is one.

The interpreter is chosen by the environment when triton is imported, so it runs in a process of its own: this file as a
script, which measures every case and prints one JSON object.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from compiled import SHARED_MEMORY_KIB, compiled  # noqa: E402

from fluxbench.kernels import flash_decode as kernel  # noqa: E402

# Half a unit in the last place of bfloat16 and of float16, as the standard deviation of a uniform error.
ROUNDING = {"bfloat16": 2**-8 / math.sqrt(6), "float16": 2**-11 / math.sqrt(6)}


class Case(NamedTuple):
    """One call: its shape, the pages of its cache (0: contiguous), and among how many programs its keys are split."""

    seq_len: int
    page_size: int = 0
    splits: int = 1
    batch: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    dtype: str = "bfloat16"
    strided: bool = False


CASES = [
    *(Case(seq_len=n, splits=splits) for n in (1, 64, 65, 333) for splits in (1, 3)),
    *(
        Case(seq_len=333, page_size=page, splits=2, strided=strided)
        for page in (1, 16, 256)
        for strided in (False, True)
    ),
    Case(seq_len=130, heads=20, kv_heads=1, head_dim=128, splits=2, dtype="float16"),
    Case(seq_len=130, heads=3, kv_heads=3, page_size=48, dtype="float16"),
    Case(seq_len=65, splits=9, strided=True),
]


def make_inputs(case: Case, device: str) -> tuple[Any, Any, Any, Any]:
    """Return q, k, v and the table; pages that none has are NaN, and so is what lies beyond the end of a sequence."""
    generator = torch.Generator().manual_seed(0)
    dtype, kv = getattr(torch, case.dtype), (case.kv_heads, case.head_dim)
    q = torch.randn(case.batch, 1, case.heads, case.head_dim, generator=generator).to(dtype)
    k, v = (torch.randn(case.batch, case.seq_len, *kv, generator=generator).to(dtype) for _ in "kv")
    table = None
    if case.page_size:
        pages = -(-case.seq_len // case.page_size)
        table = torch.randperm(case.batch * pages + 3, generator=generator, dtype=torch.int32)[: case.batch * pages]
        table = table.view(case.batch, pages)
        k, v = (_in_pages(x, table, case.page_size) for x in (k, v))
    if case.strided:
        k, v = (torch.stack((x.new_ones(x.shape), x), dim=2)[:, :, 1] for x in (k, v))
    return tuple(x if x is None else x.to(device) for x in (q, k, v, table))  # type: ignore[return-value]


def _in_pages(x: Any, table: Any, page_size: int) -> Any:
    stored = x.new_full((table.numel() + 3, page_size, *x.shape[2:]), math.nan)
    for entry, of_entry in enumerate(x):
        for page, part in zip(table[entry].tolist(), of_entry.split(page_size), strict=True):
            stored[page, : len(part)] = part
    return stored


def exactly(case: Case, q: Any, k: Any, v: Any, table: Any, dtype: Any) -> Any:
    """Return unfused attention in a dtype, of whatever cache."""
    if table is not None:
        k, v = (x[table.long()].flatten(1, 2)[:, : case.seq_len] for x in (k, v))
    q, k, v = (x.to(dtype).transpose(1, 2) for x in (q, k, v))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)


def measure(case: Case, device: str) -> dict[str, Any]:
    """Run one case; return its error, its budget, and what else the output must be."""
    inputs = make_inputs(case, device)
    exact = exactly(case, *inputs, torch.float64)
    out = kernel.flash_decode(*inputs, seq_len=case.seq_len, splits=case.splits)
    unfused = exactly(case, *inputs, inputs[0].dtype).double()
    return {
        "error": float((out.double() - exact).norm() / exact.norm()),
        "budget": 2 * float((unfused - exact).norm() / exact.norm()) + ROUNDING[case.dtype],
        "form": [list(out.shape), str(out.dtype), out.is_contiguous()],
    }


def check(case: Case, result: dict[str, Any]) -> None:
    assert result["form"] == [[case.batch, 1, case.heads, case.head_dim], f"torch.{case.dtype}", True]
    assert result["error"] <= result["budget"]


@pytest.fixture(scope="module")
def interpreted() -> dict[str, dict[str, Any]]:
    from interpreted import printed

    return printed(__file__)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interpreted_output_is_within_twice_the_error_of_math_attention(
    case: Case, interpreted: dict[str, dict[str, Any]]
) -> None:
    check(case, interpreted[str(case)])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", [*CASES, Case(seq_len=32768, batch=3, head_dim=128, page_size=16, splits=7)], ids=str)
def test_output_on_the_gpu_is_within_twice_the_error_of_math_attention(case: Case) -> None:
    check(case, measure(case, "cuda"))
    check(case, measure(case._replace(splits=None), "cuda"))  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("page_size", [0, 16])
def test_offsets_past_two_to_the_31_reach_the_last_sequence(page_size: int) -> None:
    case = Case(seq_len=131_072, page_size=page_size, batch=17, heads=32, kv_heads=8, head_dim=128)  # 2.3e9 elements
    k = torch.zeros(17, 131_072, 8, 128, dtype=torch.bfloat16, device="cuda")
    k[-1] = torch.randn(131_072, 8, 128, dtype=torch.bfloat16, device="cuda")
    q = torch.randn(17, 1, 32, 128, dtype=torch.bfloat16, device="cuda")
    table = None
    if page_size:
        k = k.view(-1, page_size, 8, 128)
        table = torch.arange(len(k), dtype=torch.int32, device="cuda").view(17, -1)
    out = kernel.flash_decode(q, k, k, table, seq_len=case.seq_len)[-1:]
    last = k.view(17, 131_072, 8, 128)[-1:]
    exact = exactly(case, q[-1:].double(), last.double(), last.double(), None, torch.float64)
    assert float((out.double() - exact).norm() / exact.norm()) < 0.01


@pytest.mark.parametrize("page", [0, 16])
@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (9, 0)])
def test_it_compiles_into_the_shared_memory_of_its_device(capability: tuple[int, int], page: int) -> None:
    constants: dict[str, Any] = {"GROUP": 4, "ROWS": 16, "HEAD_DIM": 128, "BLOCK": kernel.BLOCK, "PAGE": page}
    constants |= {} if page else {"table_pointer": None}
    done = compiled(kernel.flash_decode_kernel, capability, constants, {}, 4, 3)
    assert done.metadata.shared <= SHARED_MEMORY_KIB[capability] * 1024


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.zeros(2, 2, 4, 64).bfloat16()}, "takes one query a sequence, got 2; call flash_forward"),
        ({"q": torch.zeros(2, 1, 4, 96).bfloat16()}, "of head_dim 64 or 128, got torch.bfloat16 of 96"),
        ({"q": torch.zeros(2, 1, 4, 64)}, "must be bfloat16 or float16 of head_dim 64 or 128, got torch.float32 of 64"),
        ({"q": torch.zeros(2, 1, 4, 32).bfloat16()}, "of head_dim 64 or 128, got torch.bfloat16 of 32"),
        ({"v": torch.zeros(2, 8, 1, 64).bfloat16()}, "k and v must have one shape"),
        ({"seq_len": 9}, r"k must hold 2 sequences of 9 tokens, got \[2, 8, 2, 64\]; pass a table"),
        ({"table": torch.zeros(2, 2, dtype=torch.int32)}, r"table must be int32, of 2 sequences .* got \[2, 2\]"),
    ],
)
def test_wrong_input_is_refused_with_the_rule_and_the_value(changes: dict[str, Any], message: str) -> None:
    right = {"q": torch.zeros(2, 1, 4, 64).bfloat16(), "seq_len": 8}
    right |= dict.fromkeys("kv", torch.zeros(2, 8, 2, 64).bfloat16())
    with pytest.raises(ValueError, match=message):
        kernel.flash_decode(**{**right, **changes}, splits=1)


if __name__ == "__main__":
    from interpreted import teach_the_interpreter_rounding

    teach_the_interpreter_rounding()
    print(json.dumps({str(case): measure(case, "cpu") for case in CASES}))
