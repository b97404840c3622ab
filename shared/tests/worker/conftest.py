"""Workers of tests run in this process, in a folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker keeps cases where it is started."""
    monkeypatch.chdir(tmp_path)
