"""Finds tables and figures by name: the modules of a package that have a certain function."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Sequence
from types import ModuleType

from fluxbench.core.errors import SetupError


def names(package: ModuleType, function: str) -> list[str]:
    """Return the names of a package's modules with a function; the others are what these share."""
    return [module.name for module in pkgutil.iter_modules(package.__path__) if _module(package, module.name, function)]


def find(package: ModuleType, name: str, function: str, what: str) -> ModuleType:
    """Return the module of this name. Raises `SetupError` with the nearest name where there is none."""
    if module := _module(package, name, function):
        return module
    known = names(package, function)
    raise SetupError(f"{what} must be a known name, got {name!r}; {_hint(name, known, what)}")


def _module(package: ModuleType, name: str, function: str) -> ModuleType | None:
    path = f"{package.__name__}.{name}"
    if not name.isidentifier() or importlib.util.find_spec(path) is None:
        return None
    module = importlib.import_module(path)
    return module if hasattr(module, function) else None


def _hint(name: str, known: Sequence[str], what: str) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the {what}s are {', '.join(known)}"
