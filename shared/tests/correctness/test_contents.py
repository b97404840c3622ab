"""Contents of timed calls: nobody can know them, their rows are those of the reference, and they judge every call."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import foreseen, tokens
from judged import judge_rows

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.content import Content, changed_inputs, fresh_inputs
from fluxbench.correctness.contents import Contents
from fluxbench.correctness.guards import poison, restore
from fluxbench.correctness.kept import Kept
from fluxbench.correctness.sampling import Sampled
from fluxbench.operations.protocol import Tensors
from fluxbench.operations.workload import Workload

CPU = torch.device("cpu")
GROUPED: dict[str, Any] = {"heads": 6, "kv_heads": 2, "head_dim_qk": 32, "head_dim_v": 16}
SMALL = tokens("small", 40, **GROUPED)
BACKWARD = tokens("backward", 24, "attention_backward", **GROUPED)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    foreseen(monkeypatch)
    monkeypatch.chdir(tmp_path)


def made(workload: Workload = SMALL, most: int = 48) -> tuple[Contents, Case]:
    case = Case.make(workload, "normal", 0, CPU)
    return Contents.make(workload, case, CPU, rotation=2, most=most, share=1.0, kept=Kept(Path("kept"))), case


def test_slots_that_keep_the_graph_of_a_forward_pass_are_few() -> None:
    training = tokens("training", 24, "attention_training", **GROUPED)
    assert [len(made(each)[0].slots) for each in (SMALL, training, BACKWARD)] == [4, 4, 3]


def right(workload: Workload, content: Content) -> Tensors:
    """Return outputs of the inputs' precision."""
    return operations.find(workload.operation).reference(workload.shape, content.inputs, torch.bfloat16)


@pytest.mark.parametrize("workload", [SMALL, BACKWARD], ids=lambda workload: workload.name)
def test_no_two_contents_are_alike_in_no_two_processes_and_rows_are_of_the_reference(workload: Workload) -> None:
    (mine, case), (others, _) = made(workload), made(workload)
    first, *own = mine.pool
    assert [content.expected is None for content in mine.pool] == [False, *[True] * 5]
    assert first.inputs["q"].equal(others.pool[0].inputs["q"])  # a whole reference takes seconds on a CPU
    fresh = [case.inputs["q"], first.inputs["q"], *(each.inputs["q"] for each in own if each.expected is None)]
    fresh += [each.inputs["q"] for each in others.pool if each.expected is None]
    assert len({tuple(q.flatten().tolist()) for q in fresh}) == len(fresh)
    assert len({tuple(each.positions[name].tolist()) for each in mine.pool for name in each.positions}) > 1
    for content in mine.pool:
        whole = operations.find(workload.operation).reference(workload.shape, content.inputs, torch.float64)
        for name, rows in content.rows.items():
            assert rows.shape[:3] == (1, 8, whole[name].shape[2])
            torch.testing.assert_close(rows, whole[name].index_select(1, content.positions[name]))


def test_contents_are_drawn_in_random_order_and_all_before_one_again() -> None:
    contents, _ = made()
    for seed in range(5):
        drawn = contents.draw(15, random.Random(seed))
        assert len(drawn) == 15
        assert all(one is not after for one, after in itertools.pairwise(drawn))
        assert {id(each) for each in drawn[:6]} == {id(each) for each in contents.pool}
        assert any(each.expected for each in contents.draw(2, random.Random(seed)))
    assert contents.draw(6, random.Random(0)) != contents.draw(6, random.Random(1))
    kept = [x.data_ptr() for x in contents.inputs.values()]
    given = contents.put(contents.pool[3])
    assert [x.data_ptr() for x in given.values()] == kept
    assert changed_inputs(given, contents.pool[3]) is None
    given["k"].view(-1)[-1] += 1
    assert changed_inputs(given, contents.pool[3]) == "the kernel changes its inputs: k"
    assert not given["k"].equal(contents.pool[3].inputs["k"])  # a kernel never gets the original


@pytest.mark.parametrize("workload", [SMALL, BACKWARD], ids=lambda workload: workload.name)
def test_rows_of_right_calls_are_right_and_of_one_wrong_call_or_head_are_not(workload: Workload) -> None:
    contents, case = made(workload)
    drawn = contents.draw(40, random.Random(0))
    name = next(iter(case.expected))

    def judged(wrong_call: int | None, change: Any) -> str | None:
        sampled = []
        for call, content in enumerate(drawn):
            outputs = right(workload, content)
            if call == wrong_call:
                outputs[name] = change(outputs[name])
            sampled.append(Sampled.of(outputs, content, case))
        return judge_rows(sampled, case)

    def without_a_head(out: torch.Tensor) -> torch.Tensor:
        return torch.cat([out[:, :, :-1], torch.zeros_like(out[:, :, -1:])], dim=2)

    assert judged(None, None) is None
    over = "relative L2 error 1.00e+00 of sampled rows is over the budget"
    assert str(judged(7, torch.zeros_like)).startswith(over)
    assert str(judged(7, torch.zeros_like)).endswith(" in 1 of 40 calls")
    assert str(judged(39, without_a_head)).endswith(" in 1 of 40 calls")
    assert judged(3, lambda out: out * torch.nan) == "rows of the output are NaN or infinite in 1 of 40 calls"
    assert "must have shape" in str(judged(3, lambda out: out[:, 1:]))
    assert judge_rows([], case) is None


def test_a_head_that_is_a_little_wrong_in_every_call_shows_over_all_calls() -> None:
    contents, case = made()
    sampled = []
    for content in contents.draw(30, random.Random(0)):
        out = right(SMALL, content)["out"]
        out[:, :, 2] *= 1 + 1.2 * case.budget("out")
        sampled.append(Sampled.of({"out": out}, content, case))
    assert str(judge_rows(sampled, case)).endswith(" in 1 of 6 heads")


def test_a_row_of_few_keys_that_is_most_of_a_sample_errs_as_a_row_may() -> None:
    workload = tokens(
        "causal", 512, "attention_training", heads=2, kv_heads=1, head_dim_qk=64, head_dim_v=64, causal=True
    )
    operation, case = operations.find(workload.operation), Case.make(workload, "normal", 0, CPU)
    for seed in range(1, 7):
        inputs = operation.inputs(workload.shape, "normal", seed, CPU)
        expected = operation.reference(workload.shape, inputs, torch.float64)
        outputs = operation.reference(workload.shape, inputs, torch.bfloat16)
        for first in range(6):
            positions = {name: torch.tensor([first, *range(100, 500, 57)]) for name in expected}
            content = replace(Content.of(inputs, positions, expected), expected=None)
            assert judge_rows([Sampled.of(outputs, content, case)], case) is None
            twice = {name: 2 * x for name, x in outputs.items()}
            assert judge_rows([Sampled.of(twice, content, case)], case)


def test_changed_inputs_are_put_back_and_memory_is_poisoned_as_outputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = made()[1].inputs
    kept = {name: x.clone() for name, x in inputs.items()}
    assert restore(inputs, kept) is None
    inputs["q"].view(-1)[0] += 1
    inputs["v"].view(-1)[-1] += 1
    assert restore(inputs, kept) == "the kernel changes its inputs: q, v"
    assert all(x.equal(kept[name]) for name, x in inputs.items())
    filled: list[torch.Tensor] = []
    full = torch.full

    def recorded(*given: Any, **options: Any) -> torch.Tensor:
        filled.append(full(*given, **options))
        return filled[-1]

    monkeypatch.setattr(torch, "full", recorded)
    case = Case.make(BACKWARD, "normal", 0, CPU)
    filled.clear()
    poison(case)
    assert {(tuple(x.shape), x.dtype) for x in filled} == {
        (tuple(x.shape), torch.bfloat16) for x in case.expected.values()
    }
    assert all(bool(x.isnan().all()) for x in filled)


LAYER: dict[str, Any] = {
    **{"kind": "separate", "batch": 2, "seq_len": 24, "width": 32, "heads": 2, "kv_heads": 2, "head_dim": 16},
    "dtype": "bfloat16",
}
OF_LAYER = operations.workload("layer_backward", "layer", LAYER, group="layer", x=24, x_unit="tokens")


@pytest.mark.parametrize("unseen", [False, True], ids=["beside the case", "the case is one"])
def test_weights_are_held_once_for_all_contents_and_once_for_calls_which_may_spoil_theirs(*, unseen: bool) -> None:
    contents, case = made(OF_LAYER)
    if unseen:
        case = Case.of(operations.find(OF_LAYER.operation), OF_LAYER, fresh_inputs(OF_LAYER, CPU))
        contents = Contents.make(OF_LAYER, case, CPU, rotation=2, most=48, share=1.0, unseen=True)
        assert contents.pool[0].expected is case.expected
    originals = [*[case.inputs] * (not unseen), *(content.inputs for content in contents.pool)]
    given = [contents.inputs, *contents.slots]
    for name in case.inputs:
        held = [{id(inputs[name]) for inputs in some} for some in (originals, given)]
        counts = [1, 1] if name.startswith("w_") else [len(originals), len(given)]
        assert ([len(ids) for ids in held], held[0] & held[1]) == (counts, set()), name
    inputs = contents.put(contents.pool[1])
    assert changed_inputs(inputs, contents.pool[1]) is None
    inputs["w_o"][0, 0] += 1
    assert changed_inputs(inputs, contents.pool[1]) == "the kernel changes its inputs: w_o"


def test_there_are_slots_for_sustained_calls_alone() -> None:
    case = Case.make(SMALL, "normal", 0, CPU)
    without = Contents.make(SMALL, case, CPU, rotation=2, most=48, share=1.0, sustained=False)
    assert (len(without.slots), len(made()[0].slots)) == (0, 4)


def test_rows_of_outputs_without_heads_are_judged_whole() -> None:
    contents, case = made(OF_LAYER)
    sampled = [Sampled.of(right(OF_LAYER, content), content, case) for content in contents.pool]
    assert judge_rows(sampled, case) is None
    wrong = right(OF_LAYER, contents.pool[1])
    wrong["dw_v"][:, contents.pool[1].positions["dw_v"][2]] *= 1.1
    sampled[1] = Sampled.of(wrong, contents.pool[1], case)
    assert "in 1 of" in (judge_rows(sampled, case) or "")
