"""A workload: an operation at one shape, where it stands on a curve, and what a call of it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Shape = Mapping[str, int | float | bool | str]  # what an operation takes, by its own names; JSON

BYTES_PER_ELEMENT = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a call costs: floating-point operations and bytes of device memory."""

    flops: int  # by the convention of the field, in which TFLOP/s are given
    min_flops: int  # the fewest that an exact algorithm needs
    min_bytes: int  # each input read once, each output written once


@dataclass(frozen=True, kw_only=True)
class Workload:
    """An operation at one shape.

    Workloads of one `group` form a curve over `x`, whose unit is `x_unit`.
    """

    operation: str  # a name of `operations.NAMES`, or module:attribute
    name: str
    group: str
    x: int
    x_unit: str
    shape: Shape
    cost: Cost
    ranks: int = field(default=1)  # processes that share one call, each on a device of its own

    def __post_init__(self) -> None:
        """Raise `ValueError` where a name is empty or a size is not a positive integer."""
        for name in ("operation", "name", "group", "x_unit"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"{name} of a workload must be a non-empty string, got {getattr(self, name)!r}")
        for name in ("x", "ranks"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} of workload {self.name!r} must be a positive integer, got {value!r}")
        if min(self.cost.flops, self.cost.min_flops, self.cost.min_bytes) < 0:
            raise ValueError(f"the cost of workload {self.name!r} must not be negative, got {self.cost}")

    def __hash__(self) -> int:
        """Return the hash of its name: two workloads of one name are seldom compared."""
        return hash((self.operation, self.name))

    @property
    def dtype(self) -> str:
        """The dtype of its inputs."""
        return str(self.shape.get("dtype", "unknown"))
