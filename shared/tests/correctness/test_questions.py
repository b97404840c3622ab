"""Questions to a device that are answered together."""

from __future__ import annotations

import pytest
import torch

from fluxbench.correctness.questions import Question, answers, known


def test_answers_come_in_order_and_the_device_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0
    tolist = torch.Tensor.tolist

    def counted(tensor: torch.Tensor) -> object:
        nonlocal waits
        waits += 1
        return tolist(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", counted)
    first, none, last = (Question(torch.tensor(each, dtype=torch.float64), tuple) for each in ([1.0, 2.0], [], [5.0]))
    assert answers([first, known("known"), none, last]) == [(1.0, 2.0), "known", (), (5.0,)]
    assert waits == 1
    assert answers([known("known")]) == ["known"]
    assert waits == 1
