"""A test file run as a program under Triton's interpreter, which must be chosen before a kernel is defined."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton


def printed(file: str) -> dict[str, Any]:
    """Return the JSON object that a file prints last; skips where this Triton's interpreter does not fit numpy."""
    if triton.__version__ < "3.7" and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        pytest.skip("the interpreter of Triton before 3.7 cannot read loop bounds with numpy 2.4")
    done = subprocess.run(
        [sys.executable, str(Path(file).resolve())],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))
