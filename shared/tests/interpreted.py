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
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def teach_the_interpreter_bfloat16() -> None:
    """Make the interpreter (3.6, 3.7) do what a GPU does with bfloat16.

    By itself it multiplies matrices of bfloat16 by their bits, taken as integers, and casts to it by cutting bits off.
    """
    from triton import language as tl
    from triton.runtime import interpreter

    dot = interpreter.InterpreterBuilder.create_dot

    def widen(x: Any) -> Any:
        if x.dtype != tl.bfloat16:
            return x
        return interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def cut(self: Any, x: Any, to: Any) -> Any:
        if (x.dtype.scalar, to.scalar) != (tl.float32, tl.bfloat16):
            return self.cast_impl(x, to)
        bits = x.data.view(np.uint32)
        nearest_even = bits + 0x7FFF + (bits >> 16 & 1)
        return interpreter.TensorHandle((nearest_even >> 16).astype(np.uint16), tl.bfloat16)

    interpreter.InterpreterBuilder.create_dot = lambda self, a, b, *rest: dot(self, widen(a), widen(b), *rest)
    interpreter.InterpreterBuilder.create_fp_trunc = cut
