"""Fakes of what lies at the edges: uv, a provisioned interpreter, a worker, devices, targets; a clean environment."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import socket
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fluxbench import operations
from fluxbench.device.model import Device
from fluxbench.device.targets import BetweenRuns, Request, Target
from fluxbench.operations.workload import Workload

REPOSITORY = Path(__file__).resolve().parents[2]
CPU = Device(kind="cpu", name="made-up CPU", cpu="made-up CPU", cores=2)
GPU = Device(
    kind="cuda",
    name="NVIDIA Made Up",
    driver="580.65.06",
    cuda="13.0",
    compute_capability=(9, 0),
    cpu="made-up CPU",
    cores=2,
)
NEWER_DRIVER = dataclasses.replace(GPU, driver="580.159.04")
SPREADS = tuple(each.name for each in dataclasses.fields(Target) if each.type == BetweenRuns.__name__)


def made_up_target(runs: BetweenRuns, cards: BetweenRuns | None = None, slurm: Request | None = None) -> Target:
    """Return a target whose runs on one card differ by `runs`, and on two by `cards`, in both regimes."""
    spreads: dict[str, Any] = {name: cards if cards and name.startswith("cards") else runs for name in SPREADS}
    return Target(name="made-up", locks=(), exclude=(), required=(), **spreads, slurm=slurm)


def spreads_toml(spread: BetweenRuns) -> str:
    """Return the lines of a table of `targets.toml` in which all spreads are the same."""
    fields = ", ".join(f"{name} = {json.dumps(value)}" for name, value in dataclasses.asdict(spread).items())
    return "".join(f"{name} = {{ {fields} }}\n" for name in SPREADS)


def tokens(name: str, seq_len: int, operation: str = "attention", **shape: int | bool | str) -> Workload:
    """Return the attention of some tokens to themselves: two heads of 64, bfloat16, unless `shape` has others."""
    heads = shape.get("heads", 2)
    whole = {
        "batch": 1, "seq_len_q": seq_len, "seq_len_k": seq_len, "heads": heads, "kv_heads": heads, "head_dim_qk": 64,
        "head_dim_v": 64, "dtype": "bfloat16", "causal": False,
    }  # fmt: skip
    return operations.workload(operation, name, {**whole, **shape}, group=name, x=seq_len, x_unit="tokens")


TINY = tokens("tiny", 96)
TINIER = tokens("tinier", 33)


def executable(path: Path, body: str) -> Path:
    """Write a Python script that can be started by its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}", encoding="utf-8")
    path.chmod(0o755)
    return path


def interpreter(path: Path, *, version: str = "3.12.3", **have: str) -> Path:
    """Write an interpreter that says it has these packages (`_` for `-`), and runs no code."""
    packages = {name.lower().replace("_", "-"): each for name, each in have.items()}
    said = json.dumps({"version": version, "have": packages, "folders": [str(path.parent)]})
    return executable(path, f"print({said!r})")


_UV = """
import json, os, pathlib, subprocess, sys

command, *rest = sys.argv[1:]
with open(os.environ["FAKE_UV_LOG"], "a") as log:
    variables = {name: value for name, value in os.environ.items() if name.startswith("UV_")}
    print(json.dumps({"arguments": sys.argv[1:], "variables": variables}), file=log)
if message := os.environ.get(f"FAKE_UV_FAILS_AT_{command.upper()}"):
    sys.exit(message)
if command == "cache":
    print(os.environ["FAKE_UV_LOG"] + ".cache")
elif command == "venv":
    pathlib.Path(rest[-1], "bin").mkdir(parents=True, exist_ok=True)
elif command == "run":
    sys.exit(subprocess.call([sys.executable, rest[0]]))
"""


def fake_uv(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a uv in place that makes empty environments, runs scripts in this interpreter and logs its calls.

    Where `FAKE_UV_FAILS_AT_<COMMAND>` is set, that command prints it and fails. See `uv_calls` for the log.
    """
    log = folder / "uv.log"
    log.touch()
    uv = executable(folder / "bin" / "uv", _UV)
    monkeypatch.setenv("UV", str(uv))
    monkeypatch.setenv("FAKE_UV_LOG", str(log))
    return log


def uv_calls(log: Path) -> list[dict[str, Any]]:
    """Return the calls of a fake uv: its arguments and the UV_* variables that it got."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away every setting of fluxbench, uv and pip that the machine has."""
    for name in os.environ:
        if name.startswith(("FLUXBENCH_", "UV_", "UVNOTE_", "PIP_")) or name == "UV":
            monkeypatch.delenv(name)


def foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw contents of timed calls from one seed: chance would decide now and then what a tolerance says of them."""
    source = random.Random(0)
    monkeypatch.setattr("fluxbench.correctness.content.os", SimpleNamespace(urandom=source.randbytes))
    monkeypatch.setattr("fluxbench.correctness.case.random", SimpleNamespace(SystemRandom=lambda: source))


def without_uv(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Leave no uv to be found: neither on PATH nor beside the interpreter."""
    clean(monkeypatch)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def until(condition: Callable[[], object], limit_s: float = 120.0) -> bool:
    """Wait until something holds, and return whether it did within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def port_keeper(host: str = "127.0.0.1") -> socket.socket:
    """Return a socket that keeps a free port from other programs of this machine, except one that may reuse it."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind((host, 0))
    return keeper


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie, which nobody has waited for, does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
