"""What the calls of a sustained block get."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import ON_CPU
from fakes import tokens
from judged import judge_rows

from fluxbench import operations
from fluxbench.correctness.case import Case
from fluxbench.correctness.contents import Contents
from fluxbench.correctness.questions import answers
from fluxbench.operations.protocol import Bound
from fluxbench.timing.rotation import Rotation

SMALL = tokens("small", 24)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Contents, Case]:
    """Six contents and their four slots, of which two are in rotation."""
    monkeypatch.chdir(tmp_path)
    case = Case.make(SMALL, "normal", 0, ON_CPU)
    return Contents.make(SMALL, case, ON_CPU, rotation=2, most=48, share=1.0), case


def test_slots_are_used_two_to_six_times_in_turn_and_then_another_takes_their_place(made: Any) -> None:
    contents, case = made
    numbers = {id(slot): number for number, slot in enumerate(contents.slots)}
    identity = Bound(lambda given: given)
    places, others = (
        [numbers[id(given)] for given in Rotation(identity, contents, case, 400, random.Random(seed)).turn(400)]
        for seed in (0, 1)
    )
    assert places != others
    assert all(one != after for one, after in itertools.pairwise(places))
    for start in (0, 1):
        *runs, _ = (len(list(group)) for _, group in itertools.groupby(places[start::2]))
        assert set(runs) == {2, 3, 4, 5, 6}


def test_the_last_call_of_a_turn_gets_contents_that_its_slot_did_not_hold(made: Any) -> None:
    """So whoever keeps outputs by address, or returns an earlier one, is wrong there."""
    contents, case = made
    bound = operations.find("attention").bind(Attends(), SMALL.shape)
    kept: dict[int, Any] = {}
    for keeps, said in ((False, None), (True, "over the budget")):
        rotation = Rotation(bound, contents, case, 100, random.Random(0))
        for _ in range(10):
            before = {id(slot): slot["q"].clone() for slot in contents.slots}
            *_, last = rotation.turn(5)
            assert not last["q"].equal(before[id(last)])
            out = bound(last)
            rotation.keep(kept.setdefault(id(last), out) if keeps else out)
        assert answers([rotation.changed()]) == [None]
        assert (said or "None") in str(judge_rows(rotation.sampled, case))
    last["v"].mul_(2)
    assert answers([rotation.changed()]) == ["the kernel changes its inputs: v"]


class Attends:
    compiles = compiles_model = compiles_blocks = False
    diffusers = ""

    def eager(self, call: Any) -> Any:
        return self.attention(call)

    def in_form(self, call: Any, function: Any) -> Any:
        return function

    def attention(self, call: Any) -> Any:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            heads = (x.transpose(1, 2) for x in (q, k, v))
            return torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).contiguous()

        return attend
