"""What a person sees of a build while it runs, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from fluxbench.core.progress import Progress
from fluxbench.notebook import listeners
from fluxbench.notebook.listeners import Bar, Display, Lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[Lines, Bar])
def seen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[io.StringIO, Display]:
    """A stream, and the listener that fits it."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if request.param is Bar else io.StringIO()
    listener = listeners.on(stream)
    assert type(listener) is request.param
    return stream, listener


def test_the_cell_its_variant_and_the_time_left_are_seen(seen: tuple[io.StringIO, Display]) -> None:
    stream, listener = seen
    with listener:
        listener.plan({"sdpa": ["driver 1 -> 2", "b", "c", "d", "e"], "te": [], "figure": []})
        listener.advanced("sdpa", 40.0, Progress(share=0.5, step="flex at flux1-1024px-t512"), 90.0)
        listener.advanced("te", 1.0, Progress(share=None, step="[markup] at x"), 30.0)
        listener.note("the page grows")
        listener.ended("sdpa", 90.0, None)
        listener.ended("te", None, None)
        listener.advanced("figure", 0.1, Progress(share=None, step=""), 0.0)
        listener.ended("figure", None, "it needs sdpa, which failed")
    text = stream.getvalue()
    assert "cell sdpa will run: driver 1 -> 2; b; c and 2 more" in text
    assert "cell figure will run: requested" in text
    assert "[1/3] sdpa" in text
    assert "flex at flux1-1024px-t512" in text
    assert "about 1:30 left" in text
    assert "sdpa done in 90.0 s" in text
    assert "[2/3] te" in text  # beside the first
    assert "[markup] at x" in text
    assert "about 0:30 left" in text
    assert "about 0:00 left" not in text  # of cells that show no time is known
    assert "the page grows" in text
    assert "te unchanged" in text
    assert "figure not run: it needs sdpa, which failed" in text


def test_lines_are_few_while_cells_run() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.plan({"sdpa": [], "te": []})
    for tick in range(150):
        for cell_id in ("sdpa", "te"):
            lines.advanced(cell_id, tick / 5, Progress(share=None, step=f"step {tick}"), 60.0 - tick / 5)
    printed = stream.getvalue().splitlines()
    assert len(printed) == 2 * (1 + 3)
    assert printed[-2:] == [f"[{place} step 100, about 0:40 left" for place in ("1/2] sdpa", "2/2] te")]
