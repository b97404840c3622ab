"""Kernels in Gluon checked and timed in child processes, since a wrong barrier hangs.

A child that prints nothing for 20 s is killed and reported. Its lines are printed as they come. Times are
milliseconds of a call and TFLOP/s: burst, the median of 10 calls of a rested GPU, and sustained, the mean of the last
0.2 s of 0.3 s without a pause.
"""

from __future__ import annotations

import math
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from statistics import median
from typing import Any

import torch

SILENCE_S = 20
START_S = 60  # for the first line of a child: importing torch, and compiling


def burst_ms(call: Callable[[], object]) -> float:
    """Return the median time of 10 calls after a rest."""
    call()
    torch.cuda.synchronize()
    time.sleep(0.2)
    torch.cuda._sleep(4_000_000)  # so that no call waits for the host
    events = [torch.cuda.Event(enable_timing=True) for _ in range(11)]
    for event in events[:-1]:
        event.record()
        call()
    events[-1].record()
    torch.cuda.synchronize()
    return median(float(a.elapsed_time(b)) for a, b in pairwise(events))


def sustained_ms(call: Callable[[], object], about_ms: float) -> float:
    """Return the mean time of the last two thirds of the calls of 0.3 s."""
    third = math.ceil(100 / about_ms)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for index in range(3 * third):
        if index == third:
            events[0].record()
        call()
    events[1].record()
    torch.cuda.synchronize()
    return float(events[0].elapsed_time(events[1])) / (2 * third)


def time_shape(shape: str, flops: float, calls: Iterable[tuple[str, Callable[[], object]]], skipped: list[str]) -> None:
    """Time the calls of a shape that are not skipped."""
    for name, call in calls:
        label = f"{shape:<14} {name}"
        if label in skipped:
            continue
        print(f"START {label}", flush=True)
        try:
            began = time.perf_counter()
            call()
            torch.cuda.synchronize()
            first_s = time.perf_counter() - began
            began = time.perf_counter()
            for _ in range(10):
                call()
            host_us = (time.perf_counter() - began) * 1e5
            burst = burst_ms(call)
            sustained = sustained_ms(call, burst)
        except (RuntimeError, ValueError) as error:
            print(f"{label:<42} failed: {str(error).strip().splitlines()[-1][:120]}", flush=True)
            continue
        print(
            f"{label:<42} burst {burst:7.3f} ms {flops / burst / 1e9:6.1f}   sustained {sustained:7.3f} ms "
            f"{flops / sustained / 1e9:6.1f}   (first call {first_s:.1f} s, host {host_us:.0f} us)",
            flush=True,
        )


def watch(script: str, *arguments: str, hear: Callable[[str], None] = lambda line: None) -> tuple[list[str], str]:
    """Run a script as a child until it is silent for too long. Return its lines, and how it ended if not well.

    `hear` gets each line as it comes.
    """
    child = subprocess.Popen(
        [sys.executable, script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert child.stdout is not None
    read: queue.Queue[str] = queue.Queue()

    def pump(lines: Any) -> None:
        for line in lines:
            read.put(line.rstrip())

    reader = threading.Thread(target=pump, args=(child.stdout,), daemon=True)
    reader.start()
    lines: list[str] = []
    heard = time.monotonic()
    while reader.is_alive() or not read.empty():
        try:
            lines.append(read.get(timeout=0.2))
            hear(lines[-1])
            heard = time.monotonic()
        except queue.Empty:
            limit_s = SILENCE_S if lines else START_S
            if time.monotonic() - heard > limit_s:
                child.kill()
                child.wait()
                return lines, f"killed after {limit_s} s of silence"
    return lines, "" if child.wait() == 0 else f"exit status {child.returncode}"


def check_all(script: str, asked: list[tuple[str, ...]]) -> None:
    """Check every group, several at a time. Print what is not good as it comes, and a line for each group that ends.

    Lines that begin with "at" are printed too.
    """

    def check(group: tuple[str, ...]) -> None:
        name = f"{' '.join(group):<48}"

        def hear(line: str) -> None:
            if line.startswith(("BAD", "at ")):
                print(f"{name} {line}", flush=True)

        lines, ended = watch(script, "--check", *group, hear=hear)
        good, bad = (sum(line.startswith(word) for line in lines) for word in ("ok", "BAD"))
        last = "\n    " + " | ".join(line[:200] for line in lines[-3:]) if ended else ""
        print(f"{name} {good} ok, {bad} bad {ended}{last}", flush=True)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, asked))


def time_groups(script: str) -> None:
    """Time everything in one child, and in a next one what comes after a candidate at which it ended."""

    def hear(line: str) -> None:
        if not line.startswith("START"):
            print(line, flush=True)

    skipped: list[str] = []
    for _ in range(6):
        lines, ended = watch(script, "--time", *skipped, hear=hear)
        started = [line.removeprefix("START ") for line in lines if line.startswith("START")]
        if not ended or not started:
            print(ended, flush=True)
            return
        print(f"{started[-1]:<42} {ended}: {lines[-1][:160]}", flush=True)
        skipped += started
