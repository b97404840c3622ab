"""Functions of libraries that run on a GPU alone, as fakes that take what the real ones take.

`signatures/*.toml` holds signatures, read from the packages' own sources: a table for each function, with the package,
its version, and its parameters as Python writes them; a default that is no literal is written `...`.
"""

from __future__ import annotations

import importlib.machinery
import inspect
import sys
import tomllib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORDED: dict[str, dict[str, str]] = {
    name: entry
    for path in sorted((Path(__file__).parent / "signatures").glob("*.toml"))
    for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
}
Answer = Callable[..., Any]


def signature(name: str) -> inspect.Signature:
    """Return the signature of a function, `flash_attn.flash_attn_func`."""
    made: dict[str, Any] = {}
    exec(f"def function{RECORDED[name]['parameters'].strip()}: ...", made)
    return inspect.signature(made["function"])


def install(monkeypatch: pytest.MonkeyPatch, name: str, answer: Answer) -> list[dict[str, Any]]:
    """Let `name` be importable; return the arguments of its calls, by parameter, as they come.

    A call that the real function would not take raises `TypeError`; any other returns `answer(**arguments)`.
    """
    expected = signature(name)
    calls: list[dict[str, Any]] = []

    def function(*positional: Any, **keywords: Any) -> Any:
        bound = expected.bind(*positional, **keywords)
        calls.append(dict(bound.arguments))
        return answer(**bound.arguments)

    module_name, _, function_name = name.rpartition(".")
    setattr(module(monkeypatch, module_name), function_name, function)
    return calls


def module(monkeypatch: pytest.MonkeyPatch, name: str) -> types.ModuleType:
    """Return a made-up module that can be imported, and so can what it lies in."""
    found = sys.modules.get(name)
    if found is None or not getattr(found, "made_up", False):
        found = types.ModuleType(name)
        found.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        found.__path__ = []
        found.made_up = True  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, found)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(module(monkeypatch, parent), child, found)
    return found
