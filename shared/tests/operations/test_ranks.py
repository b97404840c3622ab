"""The ranks that share a step: fresh processes that give the output of one, and that end together."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import pytest
import torch
from fakes import until
from models import FLUX1

from fluxbench import operations, variants
from fluxbench.correctness.case import Case
from fluxbench.correctness.judging import judge
from fluxbench.correctness.kept import name_of_case
from fluxbench.device.model import Device
from fluxbench.operations.model_shape import ModelShape
from fluxbench.operations.sharing import Sharing
from fluxbench.operations.workload import Shape, Workload
from fluxbench.records.status import Status
from fluxbench.worker.failures import classify

pytest.importorskip("diffusers")
CPU, NATIVE = torch.device("cpu"), variants.find("torch_native")
SHARED = operations.find("shared_step")
TWO_GPUS = Device(kind="cuda", name="NVIDIA H200", count=2)


def shaped(ulysses: int, ring: int, gpus: int, **model: int) -> Shape:
    return {**FLUX1, "heads": 24, "head_dim": 32, **model, "ulysses": ulysses, "ring": ring, "gpus": gpus}


def workload(operation: str, shape: Shape, name: str = "step") -> Workload:
    return operations.workload(operation, name, shape, group="step", x=1, x_unit="GPUs")


def test_ranks_give_the_output_of_one_process_or_one_reason_and_die_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from fluxbench.operations.models.ranks import Ranks

    said: list[str] = []
    shape = ModelShape.of(FLUX1)
    with torch.inference_mode():
        case, other = (Case.make(workload("model_step", FLUX1), "normal", seed, CPU) for seed in (0, 1))
        ranks = Ranks(2, CPU, said.append)
        try:
            ulysses, ring = (ranks.shared(NATIVE, shape, Sharing(**{way: 2})) for way in ("ulysses", "ring"))
            sent = ranks.send(case.inputs)
            errors, wrong = judge({"out": ulysses(sent)}, case)
            assert (wrong, errors["out"].budget_share < 0.95) == (
                None,
                True,
            )  # of weights that are the same bits in both

            replies: list[dict[str, Any]] = []
            take = ranks._replies.get

            def taken(timeout: float) -> dict[str, Any]:
                replies.append(take(timeout=timeout))
                return replies[-1]

            monkeypatch.setattr(ranks._replies, "get", taken)
            with ranks.profiled() as found:
                assert replies == [{"profiles": True}]  # before a call, which would wait for it
                ulysses(sent)
            assert found == [0.0]  # of NCCL's kernels

            with pytest.raises(NotImplementedError) as raised:  # on both, which then go on
                ring(sent)
            assert classify(raised.value)[0] is Status.UNSUPPORTED
            assert "ring attention needs the log-sum-exp, which this backend lacks" in str(raised.value)

            mine = {name: x.clone() for name, x in other.inputs.items()}
            assert judge({"out": ulysses(replace(sent, inputs=mine))}, other)[
                1
            ]  # of which the other rank knows nothing
            for name, x in case.inputs.items():
                x.copy_(mine[name])
            assert judge({"out": ulysses(ranks.send(case.inputs))}, other)[1] is None  # at the same addresses

            assert (os.environ["NCCL_NVLS_ENABLE"], said) == ("0", [])
            [pid] = ranks.pids
            os.kill(pid, signal.SIGKILL)
            assert until(lambda: said)
            assert said == ["rank 1 of 2 failed, so the others were ended: it ended with signal SIGKILL"]
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        finally:
            ranks.close()
            torch.distributed.destroy_process_group()


def test_a_failure_is_waited_for_by_itself_and_not_by_the_time_of_an_earlier_one() -> None:
    from fluxbench.operations.models.ranks import Ranks

    ended: list[str] = []
    ranks: Any = Ranks.__new__(Ranks)
    ranks._end = lambda rank, reason: ended.append(reason)
    first, later = (" ".join(["it", "fails"]) for _ in range(2))  # of two steps, in the same words
    ranks._failed = {1: later}
    ranks._end_if_alone(1, first)
    assert ended == []
    ranks._end_if_alone(1, later)
    assert ended == [later]


def test_a_rank_that_cannot_meet_the_others_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from fluxbench.operations.models import ranks

    said: list[str] = []
    start = ranks._start
    monkeypatch.setattr(ranks, "_start", lambda rank, count, device, _: start(rank, count, device, "none://"))
    monkeypatch.setattr(ranks, "meet", lambda *_: None)
    monkeypatch.setattr(ranks.Ranks, "_begin_together", lambda _: None)
    ranks.Ranks(2, CPU, said.append)
    assert until(lambda: said, 300)  # it imports torch first
    assert "rank 1 of 2 failed, so the others were ended: it ended with exit code 1: No rendezvous handler" in said[0]


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        (shaped(5, 1, 5), "needs 5 GPUs in one host; this one has 2"),
        (shaped(1, 1, 4), "needs 4 GPUs in one host; this one has 2"),  # it is measured beside that of 4 GPUs
        (shaped(2, 1, 2, heads=3), "heads must be a multiple of the ulysses degree, got 3 heads on 2 ranks"),
        (shaped(1, 2, 2, text_tokens=513), "text tokens must be a multiple of the ranks, got 513 tokens on 2 ranks"),
        (shaped(2, 1, 2), None),
    ],
)
def test_what_a_host_cannot_share_says_why_before_anything_is_started(shape: Shape, sentence: str | None) -> None:
    assert SHARED.refuses(shape, TWO_GPUS) == sentence  # type: ignore[attr-defined]


def test_a_cpu_has_a_core_for_each_rank() -> None:
    cpu = Device(kind="cpu", name="a CPU", cores=2)
    assert SHARED.refuses(shaped(4, 1, 4), cpu) == "needs 4 cores in one host; this one has 2"  # type: ignore[attr-defined]


def test_a_shape_that_does_not_say_how_it_is_shared_is_refused() -> None:
    with pytest.raises(ValueError, match="whole numbers of ring, gpus"):
        SHARED.attention({**FLUX1, "ulysses": 2})


def test_a_shared_step_has_the_case_of_the_step_on_one_gpu() -> None:
    def name(of: Workload, seed: int = 0) -> str:
        return name_of_case(of, "normal", seed)

    alone = workload("model_step", FLUX1)
    shared = workload("shared_step", {**FLUX1, "ulysses": 2, "ring": 1, "gpus": 2})
    assert name(shared) == name(alone) != name(shared, 1)


def test_the_step_on_one_gpu_that_others_are_compared_with_is_launched_as_they_are() -> None:
    kernel = variants.find("torch_math")
    alone, both = (SHARED.bind(kernel, {**FLUX1, "ulysses": ranks, "ring": 1, "gpus": 2}) for ranks in (1, 2))
    assert [(bound.can_be_captured, bound.idle) for bound in (alone, both)] == [(False, True)] * 2
