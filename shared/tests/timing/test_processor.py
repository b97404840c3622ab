"""Work of other threads of the process is seen, and waited for."""

from __future__ import annotations

import hashlib
import threading
import time

from fluxbench.timing.processor import wait_for_quiet


class Spinning(threading.Thread):
    """A thread that works for some time, without Python's lock for most of it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(daemon=True)
        self.seconds, self.began, self.ended = seconds, threading.Event(), threading.Event()

    def run(self) -> None:
        block, until = bytes(1 << 22), time.monotonic() + self.seconds
        self.began.set()
        while time.monotonic() < until:
            hashlib.sha256(block).digest()
        self.ended.set()


def test_a_thread_that_works_is_waited_for_and_one_that_sleeps_is_not() -> None:
    sleeping = threading.Thread(target=time.sleep, args=(5,), daemon=True)
    sleeping.start()
    spinning = Spinning(0.1)
    spinning.start()
    spinning.began.wait()
    wait_for_quiet()
    assert spinning.ended.is_set()
    assert sleeping.is_alive()


def test_one_that_never_rests_is_waited_for_no_longer_than_half_a_second() -> None:
    spinning = Spinning(5)
    spinning.start()
    spinning.began.wait()
    wait_for_quiet()
    assert not spinning.ended.is_set()
    spinning.seconds = 0.0
