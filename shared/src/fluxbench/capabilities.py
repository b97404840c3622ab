"""Placeholder, replaced by the merge."""

from typing import Any


def probe(variant: Any, device: Any) -> dict[str, str]:
    return {}
