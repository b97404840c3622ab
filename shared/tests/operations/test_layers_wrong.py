"""Wrong attention layers are refused, and the right one is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from naive_layers import (
    SHAPES,
    Given,
    case_of,
    precise,
)

from fluxbench import operations
from fluxbench.correctness.judging import judge
from fluxbench.operations.protocol import Tensors


def tiled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    group = q.shape[2] // k.shape[2]
    return precise(q, k.repeat(1, 1, group, 1), v.repeat(1, 1, group, 1), causal=causal)


def swapped(inputs: Tensors) -> Tensors:
    return {**inputs, "w_k": inputs["w_v"], "w_v": inputs["w_k"]}


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {name: x for name, x in tensors.items() if name not in names}


def same(tensors: Tensors) -> Tensors:
    return tensors


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: change(tensors[name])}


GROUPED = {**SHAPES["Qwen3"], "width": 64}  # square weights of q, whose transpose has their shape
Change = Callable[[Tensors], Tensors]
# The attention, what it changes of the inputs and of the outputs, and what the reason begins with.
WRONG: dict[str, tuple[Callable[..., torch.Tensor], Change, Change, str]] = {
    "k and v swapped": (precise, swapped, same, "dx: relative L2 error"),
    "no rotation": (precise, without("table"), same, "dx: relative L2 error"),
    "first token rotated like the last": (precise, changed("table", lambda x: x.roll(1, 0)), same, "dx: relative L2"),
    "kv heads tiled": (tiled, same, same, "dx: relative L2 error"),
    "a weight's gradient missing": (precise, same, without("dw_k_norm"), "the outputs must be dx, "),
    "transposed": (precise, same, changed("dw_q", lambda x: x.mT.contiguous()), "dw_q: relative L2 error"),
    "accumulated": (precise, same, changed("dw_o", lambda x: 2 * x), "dw_o: relative L2 error"),
    "one row is zero": (precise, same, changed("dw_v", lambda x: x.index_fill(1, torch.tensor(3), 0)), "dw_v: "),
    "one row is NaN": (precise, same, changed("dx", lambda x: x.index_fill(1, torch.tensor(3), torch.nan)), "dx: "),
    "of one batch entry": (precise, changed("dy", lambda x: x.index_fill(0, torch.tensor(0), 0)), same, "dx: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_layers_are_refused(name: str) -> None:
    attend, of_inputs, of_outputs, reason = WRONG[name]
    case = case_of(GROUPED, "layer_backward")
    bound = operations.find("layer_backward").bind(Given(attend), GROUPED)
    wrong = judge(of_outputs(dict(bound(of_inputs(case.inputs)))), case)[1]
    assert wrong
    assert wrong.startswith(reason)


def test_the_right_layer_of_these_is_not_refused() -> None:
    case = case_of(GROUPED, "layer_backward")
    assert judge(operations.find("layer_backward").bind(Given(precise), GROUPED)(case.inputs), case)[1] is None
