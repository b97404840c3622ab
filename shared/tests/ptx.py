"""Addresses in compiled kernels: where in shared memory each product of matrices reads."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

_OPERATIONS: dict[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "mad": lambda a, b, c: a * b + c,
    "bfe": lambda a, start, length: (a >> start) & ((1 << length) - 1),
}


class Product(NamedTuple):
    """Where each instruction of a product reads: byte offsets of both operands; those of registers are None."""

    a: Sequence[int | None]
    b: Sequence[int | None]


def products(ptx: str) -> list[Product]:
    """Return the products in the order of the text, those of loops as in the first turn. Shared memory begins at 0."""
    found = re.findall(r"^\s*(?:@%p\d+ )?(\w+)\.([\w.]+)\s+(%\w+), ([^;{}]+);", ptx, re.M)
    first: dict[str, tuple[str, str, list[str]]] = {}
    for operation, kind, name, operands in found:
        if operation in _OPERATIONS:
            first.setdefault(name, (operation, kind, operands.split(", ")))

    @functools.cache
    def value(name: str) -> int:
        if not name.startswith("%"):
            return 0 if name == "global_smem" else int(name, 0)
        if name not in first:
            return 0
        operation, kind, operands = first[name]
        return _OPERATIONS[operation](*map(value, operands)) & ((1 << (64 if "64" in kind else 32)) - 1)

    def address(operand: str) -> int | None:
        return (value(operand) & 0x3FFF) << 4 if operand.startswith("%rd") else None

    groups = []
    for text in ptx.split("wgmma.commit_group")[:-1]:
        issued = re.findall(r"wgmma\.mma_async\S+ \{[^}]*\}, (\{[^}]*\}|%rd\d+), (%rd\d+)", text)
        groups.append(Product([address(a) for a, _ in issued], [address(b) for _, b in issued]))
    return groups
