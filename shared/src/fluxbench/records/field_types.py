"""Whether the fields of a dataclass hold what their annotations say: what comes from a file may be anything."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

_Fits = Callable[[Any], bool]
_KNOWN: dict[type, tuple[tuple[str, _Fits, str], ...]] = {}
_WORDS = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false", type(None): "null"}


def check(instance: Any) -> None:
    """Raise `TypeError` with the field and its value where one of a dataclass, or of one within it, does not fit."""
    kind = type(instance)
    if kind not in _KNOWN:
        _KNOWN[kind] = _fields(kind)
    for name, fits, words in _KNOWN[kind]:
        value = getattr(instance, name)
        if not fits(value):
            raise TypeError(f"{name} must be {words}, got {repr(value)[:60]}")


def _fields(kind: type) -> tuple[tuple[str, _Fits, str], ...]:
    hints = typing.get_type_hints(kind)  # of fields alone: a dataclass annotates nothing else
    return tuple((name, _fits(hint), _words(hint)) for name, hint in hints.items())


def _fits(hint: Any) -> _Fits:
    """Return the question whether a value is of a type. Of many values it asks for the set of their types first."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if plain := _plain(hint):
        return lambda value: type(value) in plain and (type(value) is not float or math.isfinite(value))
    if origin in (types.UnionType, typing.Union):
        choices = [_fits(each) for each in inner]
        return lambda value: any(fits(value) for fits in choices)
    if origin is tuple:
        count = None if Ellipsis in inner else len(inner)
        each = _all_fit(inner[0])
        return lambda value: type(value) is tuple and count in (None, len(value)) and each(value)
    if origin is Mapping:
        keys, values = map(_all_fit, inner)
        return lambda value: isinstance(value, Mapping) and keys(value) and values(value.values())
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return lambda value: isinstance(value, hint) and _whole(value)
    return lambda value: isinstance(value, hint)


def _all_fit(hint: Any) -> Callable[[Collection[Any]], bool]:
    """Return the question whether all of some values are of a type."""
    if plain := _plain(hint):
        return lambda values: (
            (found := {*map(type, values)}) <= plain
            and (float not in found or all(math.isfinite(value) for value in values if type(value) is float))
        )
    fits = _fits(hint)
    return lambda values: all(map(fits, values))


def _plain(hint: Any) -> frozenset[type]:
    """Return the types that a value may be of, where it is of none but these of JSON; else none."""
    inner = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    if not all(each in _WORDS for each in inner):
        return frozenset()
    return frozenset(inner) | ({int} if float in inner else set())


def _whole(instance: Any) -> bool:
    check(instance)
    return True


def _words(hint: Any) -> str:
    """Return a type in words."""
    inner = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(map(_words, inner))
    if typing.get_origin(hint) is tuple:
        return f"a list, each {_words(inner[0])}" if Ellipsis in inner else f"a list of {len(inner)}"
    if typing.get_origin(hint) is Mapping:
        return f"an object, each value {_words(inner[1])}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return f"one of {', '.join(each.value for each in hint)}"
    return _WORDS.get(hint, "an object")
