"""Workers of tests run in this process, in a folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker keeps cases where it is started."""
    monkeypatch.chdir(tmp_path)
