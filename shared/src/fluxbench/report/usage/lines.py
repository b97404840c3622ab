"""Reads the lines of all variants: `torch.toml` says what the fields are."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Lines:
    """How one variant is called in its eager form, and in diffusers."""

    code: str
    short: str
    layout: str  # of what `short` takes
    backend: str = ""
    before: str = ""
    after: str = ""
    needs: str = ""
    otherwise: str = ""
    note: str = ""
    copy_backend: str | None = None  # None: as `backend`
    copy_note: str = ""
    compiled: str = ""
    operator: bool = False
    hub: str = ""
    one_shape: bool = False
    gradients: bool = True
    install: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    checkout: bool = False


def of_variant(name: str) -> Lines | None:
    """Return the lines of a variant by its name without a form, or None."""
    return _all().get(name)


TOKENS_FIRST = "[batch, seq_len, heads, head_dim]"  # as all `code` takes q, k and v
# torch's own functions take heads first, the libraries take them after the tokens.
_LAYOUTS = {"torch": "[batch, heads, seq_len, head_dim]", "libraries": TOKENS_FIRST}


@functools.cache
def _all() -> dict[str, Lines]:
    found: dict[str, Lines] = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            found[name] = Lines(layout=_LAYOUTS[path.stem], **{key: _value(value) for key, value in entry.items()})
    return found


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip("\n")
    return tuple(value) if isinstance(value, list) else value
