"""A reference that is not a variant of the cell: it is timed beside the others, and not for a record of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clocks import small_cache
from fakes import TINIER
from workers import QUICK, events_of

from fluxbench.worker.request import Request
from fluxbench.worker.trial import Trial


@pytest.mark.parametrize("names", [("torch_native",), ("torch_math",)])
def test_calls_are_repeated_and_profiled_of_the_cell_s_own_variants_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: tuple[str, ...]
) -> None:
    seen: list[tuple[str, str]] = []

    def noted(step: str) -> Any:
        def note(trial: Trial) -> dict[str, float]:
            seen.append((step, trial.name))
            return {}

        return note

    small_cache(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for step in ("repeat", "cupti"):
        monkeypatch.setattr(Trial, step, noted(step))
    asked = Request(device="cpu", workloads=(TINIER,), variants=names, references=("torch_math",), sustained=False)
    events_of(asked, QUICK)
    assert seen == [("repeat", names[0]), ("cupti", names[0])]
