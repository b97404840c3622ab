"""Streams of a GPU on which work can be left."""

from __future__ import annotations

import time

import torch


def stream_beside() -> torch.cuda.Stream:
    """Return a stream for which the current one does not wait: torch's streams share the queues of a GPU."""
    for _ in range(32):
        aside, done = torch.cuda.Stream(), torch.cuda.Event()
        torch.cuda.synchronize()
        with torch.cuda.stream(aside):
            torch.cuda._sleep(10**8)  # cycles, 50 ms
        done.record()
        time.sleep(0.01)
        if done.query():
            return aside
    raise AssertionError("the current stream waits for every other one")
