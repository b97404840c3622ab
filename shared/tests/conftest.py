"""The made-up machine of `notebooks.py` and the browser of `browser.py`, for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # which needs uvnote: a host that runs the GPU tests alone may have none
    from browser import Browser
    from notebooks import Machine


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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless browser for all tests of the session, see `browser.py`."""
    import browser as browsers

    if reason := browsers.missing():
        pytest.skip(reason)
    with browsers.started() as found:
        yield found
