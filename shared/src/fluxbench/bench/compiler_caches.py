"""What compilers made, kept for the later processes and runs of a cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from fluxbench.worker import first_compile


def variables(folder: Path, depends: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which compilers keep what they made in a folder.

    Inductor and Triton tell by the content of their own entries what another version of theirs has made.
    FlashAttention-4 does not look at the version of `quack-kernels`, nor at the device for some kernels: its folder is
    named by `depends`, and by the sources that `first_compile` names its times by. Without its variable it keeps
    nothing, and each process compiles anew.
    """
    key = hashlib.sha256(json.dumps([sorted(depends.items()), *first_compile.sources()]).encode()).hexdigest()[:16]
    names = {
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": f"flash-attn-4-{key}",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",  # where ninja tells what is old
    }
    folders = {variable: str((folder / name).absolute()) for variable, name in names.items()}
    return {**folders, "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1"}
