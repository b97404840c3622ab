"""What a process takes of its reference on a GPU: all for its own record, blocks alone for the others'."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import tokens
from successions import like_a_gpu
from workers import QUICK, checks, given, honest, trials

from fluxbench.bench.events import Timed

BOTH = tokens("training", 33, "attention_training"), tokens("backward", 33, "attention_backward")
ASKED: Any = {"workloads": BOTH, "burst_alone": ("backward",), "plan": QUICK}


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    like_a_gpu(monkeypatch)


def seen(monkeypatch: pytest.MonkeyPatch, **request: Any) -> dict[str, Timed]:
    """Return the trials of a process by variant."""
    return {one.variant: one for one in trials(given(monkeypatch, honest, **ASKED, **request))}


def test_a_reference_without_a_record_has_a_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen(monkeypatch, variants=("made_up",))
    reference, own = found["torch_math"], found["made_up"]
    assert reference.workloads == own.workloads == ("training", "backward")
    assert (reference.burst, reference.repeated_over_new) == (None, {})
    assert own.burst is not None
    for one in (reference, own):
        assert [block.samples_ms.keys() for block in one.blocks] == [{"training"}]
    assert own.burst.reference_ms.keys() == own.repeated_over_new.keys() == {"training", "backward"}


def test_where_nothing_is_sustained_a_reference_without_a_record_has_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen(monkeypatch, variants=("made_up",), sustained=False)
    assert found.keys() == {"made_up"}
    assert found["made_up"].burst is not None
    assert found["made_up"].burst.reference_ms.keys() == {"training", "backward"}


@pytest.mark.parametrize(("process", "repeated"), [(0, 2), (1, 2), (2, 0)])
def test_for_its_own_record_all_is_taken_of_it(monkeypatch: pytest.MonkeyPatch, process: int, repeated: int) -> None:
    reference = seen(monkeypatch, process=process)["torch_math"]
    assert reference.burst is not None
    assert reference.blocks
    assert len(reference.repeated_over_new) == repeated


@pytest.mark.parametrize(("variants", "looked_at"), [(("made_up",), False), (("made_up", "torch_math"), True)])
def test_kernels_of_a_reference_are_looked_at_for_its_own_record_alone(
    monkeypatch: pytest.MonkeyPatch, variants: tuple[str, ...], looked_at: bool
) -> None:
    found = checks(given(monkeypatch, honest, **ASKED, variants=variants))
    assert (found["torch_math"].thorough, bool(found["torch_math"].kernels)) == (looked_at, looked_at)
    assert (found["made_up"].thorough, bool(found["made_up"].kernels)) == (True, True)
    for one in found.values():  # right on all kinds, or it is no reference
        assert list(one.errors["dq"].rel_l2_by_inputs) == ["normal", "flux", "peaked"]
