"""Launches of our kernels at less cost for the host than Triton's own: for Gluon some 15 us instead of 40.

For each launch Triton looks at every argument to find out which compiled kernel takes it, and writes the layouts of
descriptors as text for that. Here a short key finds the kernel, and Triton launches it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from types import NoneType
from typing import Any

import triton
from triton.compiler import CompiledKernel
from triton.tools.tensor_descriptor import TensorDescriptor

try:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
except ImportError:  # a Triton without Gluon
    GluonDescriptor = TensorDescriptor

# Versions whose compiled kernels take all arguments in order, constants included; others launch as Triton does.
_KNOWN = [int(part) for part in re.findall(r"\d+", triton.__version__)[:2]] in ([3, 6], [3, 7])
_NO_POINTERS = {int, float, NoneType, TensorDescriptor, GluonDescriptor}
_ALIGNMENT_BYTES = 16  # by which Triton tells pointers apart
_MOST = 4096  # launches that are kept, of some 500 bytes each
_compiled: dict[tuple[Hashable, ...], CompiledKernel] = {}


def launch(
    kernel: Any,
    key: tuple[Hashable, ...],
    programs: int,
    arguments: tuple[Any, ...],
    constants: dict[str, Any],
    /,
    **options: int,
) -> None:
    """Launch `kernel[(programs,)](*arguments, **constants, **options)` on the current device.

    key: what decides, with the types of the arguments and the alignment of pointers, which compiled kernel that is: the
         device, the dtypes, the blocks of descriptors as far as constants do not fix them, and the integers that are
         not in the kernel's `do_not_specialize`
    """
    kinds = [
        type(argument) if type(argument) in _NO_POINTERS else argument.data_ptr() % _ALIGNMENT_BYTES
        for argument in arguments
    ]
    whole = (id(kernel), *key, *kinds, *constants.values(), *options.values())
    if compiled := _compiled.get(whole):
        compiled[programs, 1, 1](*arguments, *constants.values())
        return
    compiled = kernel[(programs,)](*arguments, **constants, **options)  # None in the interpreter
    if _KNOWN and isinstance(compiled, CompiledKernel) and [*constants] == kernel.arg_names[len(arguments) :]:
        if len(_compiled) >= _MOST:  # of more shapes than a process is likely to see
            _compiled.clear()
        _compiled[whole] = compiled  # which keeps the function, so its id is not given to another one


def unchecked(kind: Any, **fields: Any) -> Any:
    """Return a descriptor of Triton's, of tensors that `fits_descriptor` accepts: its own checks take 2 us for each."""
    descriptor = kind.__new__(kind)
    descriptor.__dict__.update(fields)
    return descriptor
