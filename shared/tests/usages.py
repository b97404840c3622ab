"""How to use a variant whose record names made-up versions."""

from __future__ import annotations

import sample_records

from fluxbench import variants
from fluxbench.records.schema import Record
from fluxbench.report import usage
from fluxbench.report.usage import Usage

NAMES = [  # of a forward pass
    name
    for name in variants.NAMES
    if not (variants.find(name).variant.deterministic_of or variants.find(name).variant.only_decodes)
]
VERSIONS = {"torch": "2.11.0+cu130", "cuda": "13.0", "python": "3.12.3"}
# What was measured where every variant's library is there.
EVERYTHING = {
    "flash-attn": "2.8.3.post2", "flash-attn-3": "3.0.0", "flash-attn-4": "4.0.0b36", "kernels": "0.17.2",
    "nvidia-cudnn-frontend": "1.32.0", "nvidia-cutlass-dsl": "4.8.1", "quack-kernels": "0.6.5", "triton": "3.6.0",
    "sageattention": "2.2.0", "transformer-engine": "2.20.2", "xformers": "0.0.35",
}  # fmt: skip


def record(name: str, **versions: str) -> Record:
    return sample_records.record(name, versions={**VERSIONS, **versions})


def used(name: str, **versions: str) -> Usage:
    found = usage.of(record(name, **{key.replace("_", "-"): value for key, value in versions.items()}))
    assert found
    return found


def with_fa3(name: str) -> Usage:
    """Return the usage of a variant where fa3-fwd was measured."""
    return used(name, fa3_fwd="0.0.3")
