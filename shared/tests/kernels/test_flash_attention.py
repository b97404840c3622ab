"""Our Triton attention as others use it, in the interpreter: as variants, an operator of torch, and a repository.

Outputs and gradients are judged as measured ones are; copies of the repository that are wrong must be refused. The
interpreter runs this file as a script.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from calls import tensors, wrong  # noqa: E402
from compiled import SHARED_MEMORY_KIB, compiled  # noqa: E402

from fluxbench import variants  # noqa: E402
from fluxbench.kernels import attention, flash_backward, flash_forward, flash_tensors, package  # noqa: E402
from fluxbench.kernels.flash_backward_keys import flash_backward_keys_kernel  # noqa: E402
from fluxbench.kernels.flash_backward_queries import flash_backward_queries_kernel  # noqa: E402
from fluxbench.kernels.flash_forward_kernel import flash_forward_kernel  # noqa: E402
from fluxbench.variants import hf_local, triton_flash  # noqa: E402
from fluxbench.variants._base import Variant  # noqa: E402

SHAPES: dict[int, dict[str, Any]] = {
    16: {"tokens": 70, "heads": 2, "kv_heads": 1, "causal": True},
    32: {"tokens": 150, "seq_len_q": 50, "heads": 1, "causal": True},
    64: {"tokens": 33, "heads": 2, "kv_heads": 1, "batch": 2},
    128: {"tokens": 70, "heads": 1, "causal": True},
}
RIGHT = [
    (name, {"dim": dim, "dtype": dtype, **SHAPES[dim]})
    for name, dtype, dims in (
        ("triton_flash", "float32", (16, 32, 128)),
        ("triton_flash_tf32", "float32", (32, 64)),
        ("triton_flash", "bfloat16", (16, 32)),
        ("triton_flash", "float16", (32,)),
    )
    for dim in dims
]
BOTH = "attention_training"  # the output and the gradients


FORWARD, KERNEL = "flash_forward.py", "flash_forward_kernel.py"
KEYS, QUERIES = "flash_backward_keys.py", "flash_backward_queries.py"
CAUSAL = SHAPES[16]
FULL = CAUSAL | {"causal": False}
# A file, what is written there, what a wrong copy has in its place, and a call that shows it.
WRONG: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "scale": (FORWARD, "1 / math.sqrt(head_dim)", "1 / head_dim", FULL),
    "last block": (FORWARD, "seq_len_k % block_n != 0 and not causal", "False", FULL),
    "diagonal": (KERNEL, "<= (query + ahead)[:, None]", "<= (query + ahead + 1)[:, None]", CAUSAL),
    "blocks before the diagonal": (KERNEL, "(start_m + ahead + 1) // BLOCK_N", "last", CAUSAL),
    "weights of bfloat16": (
        KERNEL,
        "weights.to(v.dtype)",
        "weights.to(tl.bfloat16).to(v.dtype)",
        FULL | {"dtype": "float16"},
    ),
    "lse": (KERNEL, "tl.log2(total)", "tl.log(total)", FULL),
    "scale of dk": (KEYS, "(dk * scale)", "dk", FULL),
    "diagonal of dk": (KEYS, "<= (query + ahead)[None, :]", "<= (query + ahead + 1)[None, :]", CAUSAL),
    "first block of queries": (KEYS, "// BLOCK_M  #", "// BLOCK_M + 1  #", CAUSAL),
    "one head of a group": (KEYS, "kv_head * GROUP + step // count", "kv_head * GROUP", FULL),
    "last keys of dq": (QUERIES, "tl.cdiv(seen, BLOCK_N)", "seen // BLOCK_N", FULL),
    "diagonal of dq": (QUERIES, "<= (query + ahead)[:, None]", "< (query + ahead)[:, None]", CAUSAL),
}


def copied(folder: Path, name: str = "flash_attention.py", written: str = "", instead: str = "") -> Variant:
    """Return a variant of a copy of the repository, in which a text of one file is another."""
    from kernels import get_local_kernel

    package.write(folder)
    build = folder / "build" / "torch-universal"
    text = (build / name).read_text(encoding="utf-8")
    assert written in text
    (build / name).write_text(text.replace(written, instead) if written else text, encoding="utf-8")
    metadata = build / "metadata.json"
    identity = re.sub(r'"id": "(\w+)"', rf'"id": "\1_{folder.name}"', metadata.read_text(encoding="utf-8"))
    metadata.write_text(identity, encoding="utf-8")
    kernel = get_local_kernel(folder)
    return replace(hf_local.VARIANT, load=lambda call: partial(kernel.attention, causal=call.causal))


def of_copies() -> dict[str, str | None]:
    """Return why each copy is wrong, or None; one of them is right."""
    with tempfile.TemporaryDirectory() as folder:
        right = copied(Path(folder, "right"))
        found = {"right": wrong(right, BOTH, **FULL) or wrong(right, BOTH, **CAUSAL)}
        for index, (name, (*change, shape)) in enumerate(WRONG.items()):
            operation = BOTH if name == "lse" or change[0] in (KEYS, QUERIES) else "attention"
            found[name] = wrong(copied(Path(folder, f"wrong{index}"), *change), operation, **shape)
    return found


def leaves(**changes: Any) -> tuple[Any, ...]:
    return tuple(x.requires_grad_() for x in tensors(tokens=33, heads=2, kv_heads=1, dim=16, **changes))


def gradients(attend: Any, *inputs: Any) -> tuple[Any, ...]:
    return tuple(torch.autograd.grad(attend(*inputs).float().square().sum(), inputs))


def compiled_in_one_graph() -> bool:
    """Return whether code around two calls, compiled without a break, has the gradients of eager code."""

    def block(q: Any, k: Any, v: Any) -> Any:
        return attention(attention(q * 2, k, v, causal=True), k + v, v)

    whole = torch.compile(block, fullgraph=True, backend="aot_eager")
    pairs = zip(gradients(block, *leaves()), gradients(whole, *leaves()), strict=True)
    return all(torch.equal(eager, compiled_) for eager, compiled_ in pairs)


def scaled() -> list[bool]:
    """Return whether a scale of twice the default has the bits of a q that is doubled, and half the gradient of it."""
    q, k, v = leaves()
    twice = partial(attention, causal=True, scale=2 / 4)
    once = gradients(partial(attention, causal=True), (2 * q).detach().requires_grad_(), k, v)
    dq, dk, dv = gradients(twice, q, k, v)
    return [torch.equal(dq, 2 * once[0]), torch.equal(dk, once[1]), torch.equal(dv, once[2])]


def checked_operator() -> dict[str, str]:
    """Return what torch's own check of an operator says: schema, fake, autograd."""
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    operator = torch.ops.fluxbench_kernels.flash_attention.default
    return dict(
        torch.library.opcheck(operator, (*leaves(), True, None, False, True, None, None, False), test_utils=checks)
    )


def differentiated_twice() -> str:
    """Return why there is no second derivative."""
    q, k, v = leaves()
    (dq,) = torch.autograd.grad(attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError) as refusal:
        dq.sum().backward()
    return str(refusal.value)


def refused(**kernels: Any) -> str:
    """Return why a kernel does not take tensors of the CPU."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  (the test reads the message)
        gradients(partial(attention, **kernels), *leaves())
    return str(refusal.value)


def interpret() -> None:
    """Print why each case is wrong, or None; and the same of TF32 where IEEE 754 is asked for."""
    from interpreted import teach_the_interpreter_rounding

    teach_the_interpreter_rounding()
    reasons = [wrong(variants.find(name).variant, BOTH, **asked) for name, asked in RIGHT]
    as_exact = replace(triton_flash.TF32, precision_class="exact")
    found: dict[str, Any] = {"right": reasons, "tf32 as exact": wrong(as_exact, dtype="float32", tokens=33, heads=2)}
    found |= {"copies": of_copies(), "local": wrong(hf_local.VARIANT, **FULL), "scaled": scaled()}
    found["refused"] = [refused(**{which: name}) for which in ("forward", "backward") for name in ("gluon", "cuda")]
    found["twice"] = differentiated_twice()
    print(json.dumps(found | {"graph": compiled_in_one_graph(), "operator": checked_operator()}))


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    from interpreted import printed

    return printed(__file__)


@pytest.mark.parametrize("index", range(len(RIGHT)), ids=[f"{name} {asked}" for name, asked in RIGHT])
def test_a_variant_is_within_the_budget_of_its_class(index: int, interpreted: dict[str, Any]) -> None:
    assert interpreted["right"][index] is None


def test_tf32_is_no_exact_product_of_float32(interpreted: dict[str, Any]) -> None:
    assert "over the budget" in interpreted["tf32 as exact"]
    assert "within that of class tf32" in interpreted["tf32 as exact"]


def test_a_copy_of_the_repository_is_right_until_something_in_it_is_wrong(interpreted: dict[str, Any]) -> None:
    copies = interpreted["copies"]
    assert copies.pop("right") is None
    assert copies.keys() == WRONG.keys()
    assert [name for name, reason in copies.items() if reason is None] == []
    assert interpreted["local"] is None


def test_torch_compiles_calls_into_one_graph_and_accepts_the_operator(interpreted: dict[str, Any]) -> None:
    assert interpreted["graph"]
    assert set(interpreted["operator"].values()) == {"SUCCESS"}


def test_a_second_derivative_is_refused(interpreted: dict[str, Any]) -> None:
    assert "differentiate twice" in interpreted["twice"]


def test_a_scale_is_that_of_the_scores(interpreted: dict[str, Any]) -> None:
    assert interpreted["scaled"] == [True] * 3


def test_a_kernel_that_is_asked_for_runs_or_is_refused(interpreted: dict[str, Any]) -> None:
    assert interpreted["refused"] == [
        "head_dim must be 64 or 128, got 16; use the Triton kernel",
        "forward must be 'gluon', 'triton' or None, got 'cuda'",
        "head_dim must be 64 or 128, got 16; use the Triton kernel",
        "backward must be 'gluon', 'triton' or None, got 'cuda'",
    ]


def test_the_repository_names_no_module_of_this_package(tmp_path: Path) -> None:
    package.write(tmp_path)
    for path in (tmp_path / "build" / "torch-universal").glob("*.py"):
        assert not re.search(r"^\s*(from|import) fluxbench", path.read_text(encoding="utf-8"), re.M), path.name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [2, 33, 123, 1024, 4097])  # of one, dq and dk are what rounding leaves of zero
@pytest.mark.parametrize("dim", SHAPES)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("triton_flash", "float32"), ("triton_flash_tf32", "float32"), ("triton_flash", "bfloat16")],
)
def test_a_variant_on_the_gpu_is_within_the_budget_of_its_class(
    name: str, dtype: str, dim: int, tokens: int, causal: bool
) -> None:
    asked: dict[str, Any] = {"dim": dim, "dtype": dtype, "tokens": tokens, "causal": causal, "kv_heads": 2}
    # On peaked inputs a few rows make up the error. Of 33 rows in float32 those of one right order of sums err by up to
    # 1.3 times the budget that follows from another order, emulated on a CPU; of 256 by 0.7 times. Of two causal tokens
    # in bfloat16, a single row, right orders are refused on 16 of 240 peaked or flux inputs; of nine on 1.
    kinds = 1 if tokens == 2 or (tokens < 123 and dtype == "float32") else None
    assert wrong(variants.find(name).variant, BOTH, device="cuda", kinds=kinds, **asked) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gradients_of_more_than_two_to_the_31_elements_reach_the_last_rows() -> None:
    q, k, v, dout = last_rows(460_000, 40, 128, "cuda")
    got = torch.autograd.grad(attention(q, k, v), (q, k, v), dout)
    few = [x.detach().double().requires_grad_() for x in (q[:, -5:], k, v)]
    exact = torch.autograd.grad(plain(*few), few, dout[:, -5:].double())
    for x, expected in zip((got[0][:, -5:], *got[1:]), exact, strict=True):
        assert float((x.double() - expected).norm() / expected.norm()) < 0.01


def last_rows(tokens: int, heads: int, dim: int, device: str) -> tuple[Any, ...]:
    """Return q, k, v of 64 keys and dout, bfloat16; of q and dout all but the last five tokens are zero."""
    q, dout = (torch.zeros(1, tokens, heads, dim, dtype=torch.bfloat16, device=device) for _ in range(2))
    for x in (q, dout):
        x[:, -5:] = torch.randn(1, 5, heads, dim)
    k, v = (torch.randn(1, 64, heads, dim, device=device).bfloat16() for _ in range(2))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), dout


def plain(q: Any, k: Any, v: Any) -> Any:
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5, -1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def test_the_largest_blocks_of_float32_fit_into_the_smallest_shared_memory() -> None:
    precision, head_dim = "tf32", 128
    forward = flash_tensors.of_device(flash_forward.FLOAT32_TILINGS[precision], (8, 6), head_dim)
    backward = flash_tensors.of_device(flash_backward.FLOAT32_TILINGS[precision], (8, 6), head_dim)
    for kernel, tiling in (
        (flash_forward_kernel, forward),
        (flash_backward_keys_kernel, backward.keys),
        (flash_backward_queries_kernel, backward.queries),
    ):
        constants = {
            **{"HEADS": 24, "GROUP": 1, "HEAD_DIM": head_dim, "BLOCK_M": tiling.block_m, "BLOCK_N": tiling.block_n},
            **{"RAGGED": False, "DESCRIPTORS": False, "CAUSAL": False, "INPUT_PRECISION": precision},
            **({"OVERLAP": False, "lse_pointer": None} if tiling is forward else {}),
        }
        done = compiled(kernel, (8, 6), constants, {}, tiling.warps, tiling.stages, "fp32")
        assert done.metadata.shared <= min(SHARED_MEMORY_KIB.values()) * 1024


if __name__ == "__main__":
    interpret()
