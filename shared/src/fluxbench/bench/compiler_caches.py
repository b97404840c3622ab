"""What compilers made, kept for the later processes and runs of a cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fluxbench.worker import first_compile


def variables(folder: Path, depends: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which compilers keep what they made in a folder.

    Inductor and Triton tell by the content of their own entries what another version of theirs has made. But Inductor
    keeps what max-autotune has chosen by its times over a new driver, so its folder is named by device and driver.
    FlashAttention-4 does not look at the version of `quack-kernels`, nor at the device for some kernels: its folder is
    named by `depends`, and by the sources that `first_compile` names its times by. Without its variable it keeps
    nothing, and each process compiles anew.
    """
    key = _digest([sorted(depends.items()), *first_compile.sources()])
    timed_on = _digest([depends.get("device"), depends.get("driver")])
    names = {
        "TORCHINDUCTOR_CACHE_DIR": f"inductor-{timed_on}",
        "TRITON_CACHE_DIR": "triton",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": f"flash-attn-4-{key}",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",  # where ninja tells what is old
    }
    folders = {variable: str((folder / name).absolute()) for variable, name in names.items()}
    return {**folders, "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1"}


def _digest(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]
