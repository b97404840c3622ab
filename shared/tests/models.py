"""Small models of each family, which a CPU runs in a few milliseconds."""

from __future__ import annotations

from typing import Any

from fluxbench import operations
from fluxbench.operations.workload import Workload

_SIZES = {"heads": 4, "head_dim": 32, "height": 6, "width": 6, "text_tokens": 12, "text_dim": 64, "dtype": "bfloat16"}
SHAPES: dict[str, dict[str, Any]] = {
    "flux1": {**_SIZES, "model": "flux1", "layers": 1, "single_layers": 1},
    "flux2": {**_SIZES, "model": "flux2", "layers": 1, "single_layers": 1},
    "qwen-image": {**_SIZES, "model": "qwen-image", "layers": 2},
    "wan": {**_SIZES, "model": "wan", "layers": 2, "heads": 5, "frames": 2, "height": 4, "width": 4},
}
FLUX1 = SHAPES["flux1"]


def step(shape: dict[str, Any]) -> Workload:
    return operations.workload("model_step", "step", shape, group="step", x=1, x_unit="px")
