"""How far cells differ beyond their processes, and that this is no rank."""

from __future__ import annotations

import itertools

import pytest
from rankings import places, short, timed
from sample_records import changed

from fluxbench.analysis import cells
from fluxbench.records.schema import Record


@pytest.mark.parametrize("over_reference", [False, True])
def test_what_differs_between_cells_as_the_reference_does_is_no_rank(*, over_reference: bool) -> None:
    """One kernel is in two cells, and as fast in both: the device drifts, or a process holds other kernels."""

    def measured(name: str, cell: str, ms: float, reference_ms: float) -> Record:
        by = (0.99, 1.0, 1.01) if over_reference else (0.9995, 1.0, 1.0005)
        beside = [(reference_ms * one,) for one in (by if over_reference else (0.995, 1.0, 1.005))]
        return changed(timed(name, *(ms * one for one in by), reference_ms=beside), cell=cell)

    def ranks(*drift: float) -> list[tuple[str, int | None, bool]]:
        others = [measured(f"v{place}", f"other{place}", 2.0, of) for place, of in enumerate(drift)]
        first = [measured("same", "first", 1.005, 1.0), measured("one", "first", 1.0, 1.0)]
        return short(places(*first, measured("twin", "second", 1.005, drift[0]), *others))[:3]

    assert ranks(1.0, 1.0, 1.0) == [("one", 1, False), ("same", 2, True), ("twin", 2, True)]
    told = ranks(1.02, 0.985, 1.012)
    assert ("twin", 1, True) in told
    assert ("one", 1, True) in told
    assert ("same", 2, True) in told  # within a cell it is still slower
    assert ranks(1.0, 1.0, 1.0, 1.3) == [("one", 1, False), ("same", 2, True), ("twin", 2, True)]  # of one of six cells


def test_how_far_cells_differ_does_not_depend_on_the_order_of_their_records() -> None:
    """In burst each variant has rounds of its own with the reference, and unequally many processes."""
    made = [
        changed(
            timed(f"v{cell}{place}", *(0.5 * ms for ms in beside), reference_ms=[(ms,) for ms in beside]),
            cell=f"cell{cell}",
        )
        for cell, level in enumerate((1.0, 1.03, 0.98, 1.01))
        for place, beside in enumerate(([level, 1.01 * level, level], [1.02 * level, level]))
    ]
    found = {
        cells.between(cells.references([made[place] for place in order])) for order in itertools.permutations(range(4))
    }
    some = cells.between(cells.references(made))
    assert some == cells.between(cells.references(made[::-1]))
    assert some.value > 0
    assert some.df == 3
    assert len(found) == 1
    assert [len(one.logs) for one in cells.references(made)] == [3] * 4
