"""A call that is too long for a whole reference is judged by rows: right outputs pass, wrong ones do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fakes import tokens
from judged import judge_rows

from fluxbench import operations
from fluxbench.correctness.allowance import FIRST
from fluxbench.correctness.case import SAMPLED, Case
from fluxbench.correctness.contents import Contents
from fluxbench.correctness.judging import judge
from fluxbench.correctness.sampling import Sampled
from fluxbench.worker.prepared import PreparedWorkload

CPU = torch.device("cpu")
OPERATIONS = ("attention", "attention_backward", "attention_training")
Change = Callable[[torch.Tensor, torch.Tensor], object]  # of an output, and the tokens that are judged


def by_rows(operation: str, dtype: str = "bfloat16") -> Case:
    case = Case.by_rows(tokens("long", 300, operation, causal=True, dtype=dtype), "normal", 0, CPU)
    assert case
    return case


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rows_of_random_tokens_are_those_of_the_whole_reference(operation: str) -> None:
    case, other = by_rows(operation), by_rows(operation)
    assert case.positions
    assert other.positions
    whole = case.operation.reference(case.shape, case.inputs, torch.float64)
    for name, rows in case.expected.items():
        at = case.positions[name]
        assert (int(at[0]), int(at[-1])) == (0, 299)
        assert at[:FIRST].tolist() == list(range(FIRST))  # under a causal mask these hold most of the norm
        assert SAMPLED <= len(at) <= SAMPLED + FIRST + 1
        assert not torch.equal(at, other.positions[name])
        torch.testing.assert_close(rows, whole[name].index_select(1, at))
        assert case.sizes[name] == tuple(whole[name].shape)


WRONG: dict[str, Change] = {
    "zero": lambda out, at: out.zero_(),
    "a head": lambda out, at: out[:, :, 1].mul_(1.05),
    "a row that is judged": lambda out, at: out[0, int(at[5]), 0].mul_(-1),
    "nan in a row that is not": lambda out, at: out[0, _unseen(at), 0].fill_(torch.nan),
}


def _unseen(at: torch.Tensor) -> int:
    return next(token for token in range(300) if token not in at.tolist())


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_right_outputs_pass_and_wrong_ones_do_not(operation: str, dtype: str) -> None:
    case = by_rows(operation, dtype)
    assert case.positions
    right = case.operation.reference(case.shape, case.inputs, getattr(torch, dtype))
    errors, wrong = judge(right, case)
    assert wrong is None
    assert all(0 < of.rel_l2 <= of.budget_rel_l2 for of in errors.values() if of.rel_l2 is not None)
    for what, change in WRONG.items():
        for name in right:
            spoiled = {each: x.clone() for each, x in right.items()}
            change(spoiled[name], case.positions[name])
            assert judge(spoiled, case)[1], (what, name)
    short = {name: x[:, :-1] for name, x in right.items()}
    assert "must have shape" in str(judge(short, case)[1])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_contents_of_timed_calls_have_rows_alone_which_find_a_wrong_call(operation: str) -> None:
    case = by_rows(operation)
    workload = tokens("long", 300, operation, causal=True)
    contents = Contents.make(workload, case, CPU, rotation=2, most=4, share=1.0)
    assert all(content.expected is None for content in contents.pool)
    outputs = [
        operations.find(operation).reference(workload.shape, content.inputs, torch.bfloat16)
        for content in contents.pool
    ]
    right = [Sampled.of(of, content, case) for of, content in zip(outputs, contents.pool, strict=True)]
    assert judge_rows(right, case) is None
    swapped = [Sampled.of(outputs[1], contents.pool[0], case), *right[1:]]
    assert judge_rows(swapped, case)


def test_only_calls_with_more_scores_are_judged_by_rows() -> None:
    workload = tokens("long", 100, heads=2)  # 20,000 scores
    for whole_up_to, is_whole in ((None, True), (20_000, True), (19_999, False)):
        made = PreparedWorkload.make(workload, CPU, 0, all_kinds=True, whole_up_to=whole_up_to)
        assert (made.case.positions is None) is is_whole
        assert list(made.cases) == (["normal", "flux", "peaked", "tailed"] if is_whole else ["normal"])
    layer: dict[str, Any] = {
        "kind": "separate",
        "batch": 1,
        "seq_len": 24,
        "width": 32,
        "heads": 2,
        "kv_heads": 2,
        "head_dim": 16,
    }
    of_layer = operations.workload("layer", "layer", {**layer, "dtype": "bfloat16"}, group="l", x=24, x_unit="tokens")
    assert Case.by_rows(of_layer, "normal", 0, CPU) is None  # which knows no rows apart
