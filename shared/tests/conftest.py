"""Machines, folders and a browser that other modules here make, for every test that asks for one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Small tensors on several threads take many times longer where other processes use the cores as well.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if TYPE_CHECKING:  # which needs uvnote: a host that runs the GPU tests alone may have none
    from browser import Browser
    from clocks import Clock
    from notebooks import Machine

    from fluxbench.device.targets import Target


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Nothing was run on it yet."""
    from notebooks import made_up

    return made_up(tmp_path, monkeypatch)


@pytest.fixture
def built(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine on which everything was built."""
    from notebooks import with_results

    return with_results(machine, tmp_path_factory)


@pytest.fixture
def growing(machine: Machine) -> Machine:
    """A machine with two measuring cells and two that show, whose page grows."""
    from grown import grow

    return grow(machine)


@pytest.fixture
def usual_spreads(monkeypatch: pytest.MonkeyPatch) -> Target:
    """Let unchanged runs of any device differ as those of an H200 were once known to, whatever is published now."""
    from fakes import made_up_target

    from fluxbench.analysis.comparison import between
    from fluxbench.device.targets import BetweenRuns

    runs = BetweenRuns(variant=0.00044, workload=0.0, df=15, source="six runs")
    cards = BetweenRuns(variant=0.0022, workload=0.0013, df=10, source="two cards")
    target = made_up_target(runs, cards)
    monkeypatch.setattr(between, "_target", lambda device: target)
    return target


@pytest.fixture
def one_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a notebook of one cell that was never run, see `commands.py`."""
    import commands

    commands.one_cell(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless browser for all tests of the session, see `browser.py`."""
    import browser as browsers

    if reason := browsers.missing():
        pytest.skip(reason)
    with browsers.started() as found:
        yield found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock in the modules that take times, which a test moves by hand."""
    from clocks import start_clock

    return start_clock(monkeypatch)
