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


def teach_the_interpreter_rounding() -> None:
    """Make the interpreter (3.6, 3.7) round as a GPU does.

    By itself it multiplies matrices of bfloat16 by their bits, taken as integers, and casts to it by cutting bits off.
    A tensor core ignores the 13 bits that TF32 lacks. Without tensor cores, float32 products are added one by one, each
    with one rounding; a matrix product of numpy adds in another order for each shape.
    """
    from triton import language as tl
    from triton._C.libtriton import ir
    from triton.runtime import interpreter

    dot = interpreter.InterpreterBuilder.create_dot

    def widen(x: Any, precision: Any) -> Any:
        if x.dtype == tl.float32 and precision == ir.INPUT_PRECISION.TF32:
            return interpreter.TensorHandle((x.data.view(np.uint32) & 0xFFFFE000).view(np.float32), tl.float32)
        if x.dtype != tl.bfloat16:
            return x
        return interpreter.TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def cut(self: Any, x: Any, to: Any) -> Any:
        if (x.dtype.scalar, to.scalar) != (tl.float32, tl.bfloat16):
            return self.cast_impl(x, to)
        bits = x.data.view(np.uint32)
        nearest_even = bits + 0x7FFF + (bits >> 16 & 1)
        return interpreter.TensorHandle((nearest_even >> 16).astype(np.uint16), tl.bfloat16)

    def multiply(self: Any, a: Any, b: Any, sums: Any, precision: Any, most: Any) -> Any:
        if a.dtype != tl.float32 or precision != ir.INPUT_PRECISION.IEEE:
            return dot(self, widen(a, precision), widen(b, precision), sums, precision, most)
        left, right, total = a.data.astype(np.float64), b.data.astype(np.float64), sums.data
        for index in range(left.shape[1]):
            total = (total + left[:, index, None] * right[index]).astype(np.float32)
        return interpreter.TensorHandle(total, tl.float32)

    interpreter.InterpreterBuilder.create_dot = multiply
    interpreter.InterpreterBuilder.create_fp_trunc = cut


def teach_the_interpreter_float8() -> None:
    """Make the interpreter (3.7) round to float8 as a GPU does: by itself it drops a carry into the exponent."""
    import torch
    from triton import language as tl
    from triton.runtime import interpreter

    by_itself = interpreter.InterpreterBuilder.create_fp_to_fp

    def cast(self: Any, x: Any, to: Any, rounding: Any) -> Any:
        if (x.dtype.scalar, to.scalar) != (tl.float32, tl.float8e4nv):
            return by_itself(self, x, to, rounding)
        nearest = torch.from_numpy(x.data).to(torch.float8_e4m3fn).view(torch.uint8)
        return interpreter.TensorHandle(nearest.numpy(), tl.float8e4nv)

    interpreter.InterpreterBuilder.create_fp_to_fp = cast
