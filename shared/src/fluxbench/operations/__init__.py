"""What is measured: operations, the workloads they run at, and how fast a device could run them at most.

To add one: a class like those here (`protocol.Operation`) and a line in `NAMES`. One outside of this package is named
`module:attribute`, for a module that the workers can import.
"""

from __future__ import annotations

import difflib
import importlib
from typing import cast

from fluxbench.operations.protocol import Operation
from fluxbench.operations.workload import Shape, Workload

NAMES = {
    "attention": "fluxbench.operations.attention:AttentionForward",
    "attention_backward": "fluxbench.operations.attention_backward:AttentionBackward",
    "attention_training": "fluxbench.operations.attention_training:AttentionTraining",
    "decode": "fluxbench.operations.decode:Decode",
    "decode_model": "fluxbench.operations.decode_model:DecodeModel",
    "language": "fluxbench.operations.language:LanguageForward",
    "language_backward": "fluxbench.operations.language:LanguageBackward",
    "language_training": "fluxbench.operations.language:LanguageTraining",
    "layer": "fluxbench.operations.layer:Layer",
    "layer_backward": "fluxbench.operations.layer_gradients:LayerBackward",
    "layer_training": "fluxbench.operations.layer_gradients:LayerTraining",
    "model_step": "fluxbench.operations.model_step:ModelStep",
    "shared_step": "fluxbench.operations.shared_step:SharedStep",
}
_NEEDED = (
    "name",
    "input_kinds",
    "parts",
    "differentiates",
    "cost",
    "attention",
    "inputs",
    "rescale",
    "reference",
    "reference_at",
    "bind",
)


def whole_of(name: str) -> str:
    """Return the operation that one is part of, else itself. Raises `ValueError` as `find` does."""
    return getattr(find(name), "part_of", None) or name


def find(name: str) -> Operation:
    """Return an operation. Raises `ValueError` with a sentence where there is none, or it lacks a part."""
    module, _, attribute = NAMES.get(name, name).partition(":")
    if not attribute:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the operations are {', '.join(NAMES)}"
        raise ValueError(f"operation must be a known name or module:attribute, got {name!r}; {hint}")
    try:
        found = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"operation {name!r} cannot be loaded: {error}") from error
    if missing := [part for part in _NEEDED if not hasattr(found, part)]:
        raise ValueError(f"operation {name!r} must have {', '.join(missing)}; see fluxbench.operations.protocol")
    return cast(Operation, found)


def workload(operation: str, name: str, shape: Shape, *, group: str, x: int, x_unit: str, ranks: int = 1) -> Workload:
    """Return a workload with its cost. Raises `ValueError` where the operation has no such shape."""
    try:
        cost = find(operation).cost(shape)
    except ValueError as error:
        raise ValueError(f"workload {name!r}: {error}") from error
    return Workload(
        operation=operation, name=name, group=group, x=x, x_unit=x_unit, shape=shape, cost=cost, ranks=ranks
    )
