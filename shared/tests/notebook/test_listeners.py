"""What a person sees of a build while it runs, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from fluxbench.core.progress import Progress
from fluxbench.notebook import listeners
from fluxbench.notebook.listeners import Bar, Display, Lines, Times


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
        listener.plan({"sdpa": ["driver 1 -> 2", "b", "c", "d", "e"], "figure": []}, {"sdpa": 100.0, "figure": 30.0})
        listener.advanced("sdpa", 40.0, Progress(share=0.5, step="flex at flux1-1024px-t512"))
        listener.ended("sdpa", 90.0, None)
        listener.advanced("figure", 0.0, Progress(share=None, step="[markup] at x"))
        listener.ended("figure", None, "it needs sdpa, which failed")
    text = stream.getvalue()
    assert "cell sdpa will run: driver 1 -> 2; b; c and 2 more" in text
    assert "cell figure will run: it was asked for" in text
    assert "[1/2] sdpa" in text
    assert "flex at flux1-1024px-t512" in text
    assert "about 1:30 left" in text  # 60 s of this one, and the next
    assert "sdpa done in 90.0 s" in text
    assert "[2/2] figure" in text
    assert "[markup] at x" in text
    assert "about 0:30 left" in text
    assert "figure not run: it needs sdpa, which failed" in text


def test_lines_are_few_while_a_cell_runs() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    lines.plan({"sdpa": []}, {"sdpa": 60.0})
    for tick in range(150):
        lines.advanced("sdpa", tick / 5, Progress(share=None, step=f"step {tick}"))
    printed = stream.getvalue().splitlines()
    assert len(printed) == 1 + 3
    assert printed[-1] == "[1/1] sdpa step 100, about 0:40 left"


@pytest.mark.parametrize(
    ("cell", "elapsed_s", "share", "left_s"),
    [
        ("a", 10.0, 0.9, None),  # as b was never timed
        ("b", 10.0, None, None),
        ("b", 10.0, 0.25, 35.0),
        ("c", 2.0, None, 3.0),
        ("c", 10.0, None, 0.0),
        ("c", 10.0, 0.5, 10.0),  # it takes longer than the last time
    ],
)
def test_the_time_left_follows(cell: str, elapsed_s: float, share: float | None, left_s: float | None) -> None:
    assert Times({"a": 100.0, "b": None, "c": 5.0}).left_s(cell, elapsed_s, share) == left_s
