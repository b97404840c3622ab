"""A step that several processes share gives the output of one, by diffusers' context parallelism over gloo on a CPU."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from models import FLUX1, SHAPES
from models import step as workload_of

from fluxbench import variants
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.sharing import Sharing
from fluxbench.variants.forms import EAGER, FormedVariant
from fluxbench.worker.ranks import RankFailed, in_ranks

pytest.importorskip("diffusers")
RANKS = 4
CPU = torch.device("cpu")
ULYSSES, RING, BOTH = Sharing(ulysses=4), Sharing(ring=4), Sharing(ulysses=2, ring=2)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = (torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * q.shape[-1] ** -0.5).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v.float()).to(q.dtype).contiguous()


def registered(attend: Callable[..., torch.Tensor] = attention) -> FormedVariant:
    of = variants.find("torch_native").variant
    return FormedVariant(replace(of, name="mine", load=lambda call: attend, diffusers=""), EAGER)


def like_a_gpu() -> None:
    """Give this rank what diffusers asks of a GPU: a count of devices, and torch's flash attention under its name."""
    on_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    def flash(*, query: Any, key: Any, value: Any, scale: Any, **_: Any) -> tuple[Any, ...]:
        out, lse = on_cpu(query, key, value, scale=scale)
        return (out, lse, *[None] * 7)

    torch.accelerator.device_count = lambda: 1
    torch.ops.aten._scaled_dot_product_flash_attention = flash


def shared(case: Case, kernel: FormedVariant, sharing: Sharing, folder: Path, before: Any = lambda rank: None) -> Any:
    """Run one step in four processes; return what each of them gives."""
    from fluxbench.operations.models.step import step

    def work(rank: int) -> None:
        like_a_gpu()
        rendezvous = f"file://{folder / 'rendezvous'}"
        torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=RANKS)
        with torch.inference_mode():
            called = step(kernel, ModelShape.of(case.shape), CPU, sharing)
            before(rank)
            torch.save(called(case.inputs), folder / f"{rank}.pt")
        torch.distributed.destroy_process_group()

    in_ranks(RANKS, work)
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


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


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("how", ["killed", "raises", "exits"])
def test_a_rank_that_dies_ends_the_others_with_one_sentence(how: str, tmp_path: Path) -> None:
    def work(rank: int) -> None:
        (tmp_path / str(rank)).write_text(str(os.getpid()), encoding="utf-8")
        while len(list(tmp_path.iterdir())) < RANKS:
            time.sleep(0.01)
        if rank == 2:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "exits":
                os._exit(7)
            raise ValueError("the link is down\nwith more lines")
        time.sleep(600)

    causes = {
        "killed": "it ended with signal SIGKILL",
        "raises": "the link is down",
        "exits": "it ended with exit code 7",
    }
    with pytest.raises(RankFailed) as raised:
        in_ranks(RANKS, work)
    assert str(raised.value) == f"rank 2 of 4 failed, so the others were ended: {causes[how]}"
    assert not any(alive(int((tmp_path / str(rank)).read_text(encoding="utf-8"))) for rank in range(RANKS))


def test_a_shared_step_is_judged_and_timed_by_its_slowest_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fluxbench.worker import shared_step

    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    path = tmp_path / "out.json"
    assert shared_step.main("flux1-small-128px-step", "torch_native", "4", "1", str(path), "3") == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert 0.4 < found["error_over_budget"] < 0.95
    assert found["median_ms"] == statistics.median(found["samples_ms"])
    assert (found["ulysses"], found["parts"], len(found["samples_ms"])) == (4, [], 3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("flux1-small-128px-step", "torch_native", "3", "1"), "heads must be a multiple of the ulysses degree, got 4"),
        (("flux1-small-128px-step", "torch_native", "two", "1"), "invalid literal"),
        (("flux1-small-128px-stop", "torch_native", "2", "1"), "did you mean 'flux1-small-128px-step'?"),
        (
            ("flux1-small-128px-step", "torch_cudnn", "2", "1"),
            "ranks must be at most the GPUs of this host, got 2 ranks and 0 GPUs",
        ),
    ],
)
def test_a_shared_step_that_cannot_be_says_why_in_one_sentence(
    arguments: tuple[str, str, str, str], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from fluxbench.worker import shared_step

    assert shared_step.main(*arguments, str(tmp_path / "out.json")) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("fluxbench: ")
    assert sentence in last
    assert not (tmp_path / "out.json").exists()


def test_ranks_that_torchrun_started_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from fluxbench.worker import shared_step

    started = {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    path = tmp_path / "out.json"
    assert shared_step.main("flux1-small-128px-step", "torch_native", "1", "1", str(path), "2") == 0
    assert json.loads(path.read_text(encoding="utf-8"))["median_ms"] > 0
    assert shared_step.main("flux1-small-128px-step", "torch_native", "2", "1", str(path)) == 1
    assert capfd.readouterr().err.splitlines()[-1] == "fluxbench: torchrun must start 2 ranks, got 1"


def test_waiting_is_what_a_rank_s_communication_takes_beyond_the_shortest() -> None:
    from fluxbench.worker.shared_step import Parts, parts_of

    assert parts_of([(80.0, 10.0, 95.0), (84.0, 6.0, 95.0)]) == [
        Parts(computing_ms=80.0, communicating_ms=6.0, waiting_ms=4.0, span_ms=95.0),
        Parts(computing_ms=84.0, communicating_ms=6.0, waiting_ms=0.0, span_ms=95.0),
    ]
