"""A step that several processes share gives the output of one, by diffusers' context parallelism over gloo on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import RankFailed, in_ranks
from models import FLUX1, SHAPES
from models import step as workload_of

from fluxbench import variants
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.sharing import Sharing
from fluxbench.variants.forms import EAGER, FormedVariant

pytest.importorskip("diffusers")
CPU = torch.device("cpu")
ULYSSES, RING, BOTH = Sharing(ulysses=4), Sharing(ring=4), Sharing(ulysses=2, ring=2)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = (torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * q.shape[-1] ** -0.5).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v.float()).to(q.dtype).contiguous()


def registered(attend: Callable[..., torch.Tensor] = attention) -> FormedVariant:
    of = variants.find("torch_native").variant
    return FormedVariant(replace(of, name="mine", load=lambda call: attend, diffusers=""), EAGER)


def like_a_gpu() -> None:
    """Give this rank what diffusers asks of a GPU: torch's flash attention under its name."""
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def flash(*, query: Any, key: Any, value: Any, scale: Any, **_: Any) -> tuple[Any, ...]:
        out, lse = on_cpu(query, key, value, scale=scale)
        return (out, lse, *[None] * 7)

    torch.ops.aten._scaled_dot_product_flash_attention = flash


def shared(case: Case, kernel: FormedVariant, sharing: Sharing, folder: Path, before: Any = lambda rank: None) -> Any:
    """Run one step in as many processes as share it; return what each of them gives."""
    from fluxbench.operations.models.step import step

    def work(rank: int) -> None:
        if not kernel.compiles:  # which a tracer would look into
            like_a_gpu()
        rendezvous = f"file://{folder / 'rendezvous'}"
        torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=sharing.ranks)
        with torch.inference_mode():
            called = step(kernel, ModelShape.of(case.shape), CPU, sharing)
            before(rank)
            torch.save(called(case.inputs), folder / f"{rank}.pt")
        torch.distributed.destroy_process_group()

    in_ranks(sharing.ranks, work)
    return [torch.load(folder / f"{rank}.pt") for rank in range(sharing.ranks)]


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    with torch.inference_mode():
        return {name: Case.make(workload_of(SHAPES[name]), "normal", 0, CPU) for name in ("flux1", "wan")}


@pytest.mark.parametrize(
    ("name", "sharing", "family"),
    [
        ("torch_native", ULYSSES, "flux1"), ("torch_flash", ULYSSES, "flux1"), ("torch_flash", RING, "flux1"),
        ("torch_flash", BOTH, "flux1"), ("torch_flash", RING, "wan"),
    ],
)  # fmt: skip
def test_four_processes_give_the_output_of_one(
    name: str, sharing: Sharing, family: str, cases: dict[str, Case], tmp_path: Path
) -> None:
    outputs = shared(cases[family], variants.find(name), sharing, tmp_path)
    for out in outputs:
        errors, wrong = judge({"out": out}, cases[family])
        assert wrong is None
        assert errors["out"].budget_share < 0.95
    assert all(torch.equal(out, outputs[0]) for out in outputs)


def test_compiled_blocks_are_shared_too_where_diffusers_splits_the_tokens_in_the_first_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_module = torch.nn.Module.compile
    traced = lambda self, **options: compile_module(self, backend="eager", **options)  # noqa: E731
    monkeypatch.setattr(torch.nn.Module, "compile", traced)
    with torch.inference_mode():
        case = Case.make(workload_of({**SHAPES["wan"], "heads": 4}), "normal", 0, CPU)
    [out, *_] = shared(case, variants.find("torch_native_blocks"), Sharing(ulysses=2), tmp_path)
    assert judge({"out": out}, case)[1] is None


def test_a_registered_kernel_is_shared_by_heads(cases: dict[str, Case], tmp_path: Path) -> None:
    heads: list[int] = []

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads.append(q.shape[2])
        assert heads[-1] == 1
        return attention(q, k, v)

    [out, *_] = shared(cases["flux1"], registered(attend), ULYSSES, tmp_path)
    assert judge({"out": out}, cases["flux1"])[1] is None


def test_a_registered_kernel_refuses_the_ring(cases: dict[str, Case], tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match="ring attention needs the log-sum-exp of the scores, which this kernel keeps"):
        shared(cases["flux1"], registered(), RING, tmp_path)


def test_a_rank_that_attends_to_its_own_tokens_alone_is_refused(
    cases: dict[str, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffusers.models import attention_dispatch

    monkeypatch.setattr(attention_dispatch, "_all_to_all_single", lambda x, group: x)
    [out, *_] = shared(cases["flux1"], variants.find("torch_native"), ULYSSES, tmp_path)
    assert "is over the budget" in (judge({"out": out}, cases["flux1"])[1] or "accepted")


def test_a_backend_that_diffusers_cannot_share_is_refused(cases: dict[str, Case], tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match=r"rank \d of 4 failed, .*diffusers cannot share it: .*_native_math"):
        shared(cases["flux1"], variants.find("torch_math"), ULYSSES, tmp_path)


@pytest.mark.parametrize(
    ("changes", "sharing", "sentence"),
    [
        ({"heads": 24}, Sharing(ulysses=5), "heads must be a multiple of the ulysses degree, got 24 heads on 5 ranks"),
        ({"height": 5, "width": 5}, RING, "image tokens must be a multiple of the ranks, got 25 tokens on 4 ranks"),
        ({"text_tokens": 513}, BOTH, "text tokens must be a multiple of the ranks, got 513 tokens on 4 ranks"),
        ({"heads": 24}, Sharing(ulysses=2), None),
        ({"model": "wan", "single_layers": 0, "text_tokens": 513}, RING, None),  # its text is not split
    ],
)
def test_ranks_that_cannot_share_a_step_say_so(changes: dict[str, Any], sharing: Sharing, sentence: str | None) -> None:
    assert sharing.problem(ModelShape.of({**FLUX1, **changes})) == sentence
