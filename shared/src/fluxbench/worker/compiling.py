"""The device is given back while torch compiles, which takes seconds on the host alone."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fluxbench.core.device_lock import DeviceLock


@contextlib.contextmanager
def given_back_while_compiling(lock: DeviceLock, compiles: Callable[[bool], None]) -> Iterator[None]:
    """Let other workers use the device whenever torch.compile is at work in this context, which holds it else.

    `compiles` is called with True when a compilation begins, and with False when it has ended and the device is held
    again. What a compilation times on the device (max-autotune) holds it. A torch whose hooks are others, or that has
    not loaded its compiler, keeps the device.
    """
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    benchmarker = getattr(sys.modules.get("torch._inductor.runtime.benchmarking"), "benchmarker", None)
    if handler is None or benchmarker is None:
        yield
        return

    def begins(args: Any) -> None:
        if args.callback_trigger.name != "DYNAMO":  # a CUDA graph is recorded on the device
            return
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        lock.release()
        compiles(True)

    def ended(args: Any) -> None:
        lock.acquire(short=True)
        compiles(False)

    names = [name for name in dir(benchmarker) if name.startswith("benchmark")]
    for name in names:
        setattr(benchmarker, name, _after(lock, getattr(benchmarker, name)))
    handler.register_start_callback(begins)
    handler.register_end_callback(ended)
    try:
        yield
    finally:
        for callbacks, callback in ((handler.start_callbacks, begins), (handler.end_callbacks, ended)):
            if callback in callbacks:  # `torch.compiler.reset` removes them all
                callbacks.remove(callback)
        for name in names:
            delattr(benchmarker, name)


def _after(lock: DeviceLock, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that waits for the device first."""

    @functools.wraps(function)
    def waits(*args: Any, **kwargs: Any) -> Any:
        lock.acquire(short=True)
        return function(*args, **kwargs)

    return waits
