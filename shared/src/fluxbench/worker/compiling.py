"""The device is given back while a compiler is at work, which takes seconds on the host alone."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from fluxbench import variants
from fluxbench.core.device_lock import DeviceLock

_ON_THE_HOST = ("DYNAMO", "LAZY_BACKWARD")  # why torch compiles; a CUDA graph is recorded on the device
_IDLE_S = 0.2  # between two measurements of max-autotune, after which the device is given back again


@contextlib.contextmanager
def given_back_while_compiling(lock: DeviceLock, compiles: Callable[[bool], None]) -> Iterator[None]:
    """Let other workers use the device, which is held else, while a compiler of `_compilers` or torch is at work.

    `compiles` is called with True when a compilation begins, and with False when it has ended and the device is held
    again. What a compilation times on the device (max-autotune) has it alone. A compiler whose hooks are others, or
    that has not been imported yet, keeps the device.
    """
    tuning = _Tuning(lock)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_while_torch_compiles(tuning, compiles))
        stack.enter_context(_choices_compiled_before_they_are_timed())
        for owner, method in _compilers():
            stack.enter_context(_while_method_compiles(owner, method, tuning, compiles))
        yield


def forget_compiled(names: Iterable[str]) -> None:
    """Forget what torch.compile has made, if it has for one of these variants: their functions share code objects."""
    if any(variants.find(name).compiles for name in names):
        torch.compiler.reset()  # takes seconds where a library has loaded dynamo


@contextlib.contextmanager
def _while_torch_compiles(tuning: _Tuning, compiles: Callable[[bool], None]) -> Iterator[None]:
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    benchmarker = getattr(sys.modules.get("torch._inductor.runtime.benchmarking"), "benchmarker", None)
    if handler is None or benchmarker is None:
        yield
        return

    def begins(args: Any) -> None:
        if args.callback_trigger.name not in _ON_THE_HOST:
            return
        tuning.give_back()
        compiles(True)

    def ended(args: Any) -> None:
        tuning.hold()
        compiles(False)

    names = [name for name in dir(benchmarker) if name.startswith("benchmark")]
    for name in names:
        setattr(benchmarker, name, tuning.holding(getattr(benchmarker, name)))
    handler.register_start_callback(begins)
    handler.register_end_callback(ended)
    try:
        yield
    finally:
        tuning.hold()
        for callbacks, callback in ((handler.start_callbacks, begins), (handler.end_callbacks, ended)):
            if callback in callbacks:  # `torch.compiler.reset` removes them all
                callbacks.remove(callback)
        for name in names:
            delattr(benchmarker, name)


@contextlib.contextmanager
def _choices_compiled_before_they_are_timed() -> Iterator[None]:
    """Let max-autotune compile its choices before it times the first, while others may use the device.

    Inductor's own processes have compiled them with torch's ptxas. This one does so again with Triton's, a second for
    each, and would in the first call of each measurement, which has the device alone.
    """
    owner = getattr(sys.modules.get("torch._inductor.select_algorithm"), "AlgorithmSelectorCache", None)
    name = "benchmark_choices"
    own = vars(owner).get(name) if owner else None
    if not isinstance(own, classmethod):
        yield
        return

    def compiled_before(cls: type, choices: Any, *args: Any, **kwargs: Any) -> Any:
        for choice in choices:
            with contextlib.suppress(Exception):  # it has none, or fails again when it is timed
                choice.bmreq.precompile()
        return own.__func__(cls, choices, *args, **kwargs)

    setattr(owner, name, classmethod(compiled_before))
    try:
        yield
    finally:
        setattr(owner, name, own)


def _compilers() -> Iterator[tuple[type, str]]:
    """Yield the methods by which libraries compile their own kernels, where these can be wrapped.

    That of `cutlass.cute.compile`, an object with options that FlashAttention-4 calls at its first calls; what a Triton
    function calls for arguments of new types; what makes the plan of a graph of cuDNN's frontend; and what lets nvcc
    compile FlashInfer's kernels.
    """
    cute = type(getattr(sys.modules.get("cutlass.cute"), "compile", None))
    triton = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    cudnn = getattr(sys.modules.get("cudnn"), "pygraph", None)
    nvcc = getattr(sys.modules.get("flashinfer.jit.core"), "JitSpecNvcc", None)
    for owner, method in ((cute, "__call__"), (triton, "_do_compile"), (cudnn, "build"), (nvcc, "build")):
        if isinstance(owner, type) and isinstance(vars(owner).get(method), types.FunctionType):
            yield owner, method


@contextlib.contextmanager
def _while_method_compiles(
    owner: type, method: str, tuning: _Tuning, compiles: Callable[[bool], None]
) -> Iterator[None]:
    call = vars(owner)[method]

    @functools.wraps(call)
    def gives_back(*args: Any, **kwargs: Any) -> Any:
        if not tuning.is_shared:  # torch compiles, and has given it back, or times on the device
            return call(*args, **kwargs)
        tuning.give_back()
        compiles(True)
        try:
            return call(*args, **kwargs)
        finally:
            tuning.hold()
            compiles(False)

    setattr(owner, method, gives_back)
    try:
        yield
    finally:
        setattr(owner, method, call)


class _Tuning:
    """The device while a compilation runs: held by each measurement, and for a moment after it, for the next one."""

    def __init__(self, lock: DeviceLock) -> None:
        self._lock = lock
        self._uses = threading.RLock()
        self._timer: threading.Timer | None = None

    @property
    def is_shared(self) -> bool:
        """Whether this worker may use the device now, and others may too."""
        return self._lock.is_held and not self._lock.is_alone

    def hold(self, *, alone: bool = False) -> None:
        """Hold the device until it is given back."""
        with self._uses:
            self._stop_timer()
            if alone and not self._lock.is_alone:
                self.give_back()
            self._lock.acquire(short=True, alone=alone)

    def give_back(self) -> None:
        """Let others use the device, once it is done."""
        with self._uses:
            self._stop_timer()
            if self._lock.is_held and torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self._lock.release()

    def holding(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that holds the device, and gives it back soon after if nothing else holds it."""

        @functools.wraps(function)
        def holds(*args: Any, **kwargs: Any) -> Any:
            with self._uses:
                was_held = self._lock.is_held and self._timer is None
                self.hold(alone=True)
                try:
                    return function(*args, **kwargs)
                finally:
                    if not was_held:
                        self._timer = threading.Timer(_IDLE_S, self._expire)
                        self._timer.daemon = True
                        self._timer.start()

        return holds

    def _expire(self) -> None:
        with self._uses:
            if self._timer is threading.current_thread():
                self.give_back()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
