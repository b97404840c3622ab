"""Whether the fields of a dataclass hold what their annotations say: what comes from a file may be anything."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

_Fits = Callable[[Any], bool]
_WORDS = {str: "a text", int: "a whole number", float: "a finite number", bool: "true or false", type(None): "null"}


def check(instance: Any) -> None:
    """Raise `TypeError` with the field and its value where one of a dataclass, or of one within it, does not fit."""
    for name, fits, words in _fields(type(instance)):
        value = getattr(instance, name)
        if not fits(value):
            raise TypeError(f"{name} must be {words}, got {repr(value)[:60]}")


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, _Fits, str], ...]:
    hints = typing.get_type_hints(kind)
    return tuple((each.name, _fits(hints[each.name]), _words(hints[each.name])) for each in dataclasses.fields(kind))


def _fits(hint: Any) -> _Fits:
    """Return the question whether a value is of a type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        choices = [_fits(each) for each in inner]
        return lambda value: any(fits(value) for fits in choices)
    if origin is tuple:
        each = [_fits(kind) for kind in inner if kind is not Ellipsis]
        if Ellipsis in inner:
            return lambda value: isinstance(value, tuple) and all(map(each[0], value))
        return lambda value: (
            isinstance(value, tuple) and len(value) == len(each) and all(f(v) for f, v in zip(each, value, strict=True))
        )
    if origin is Mapping:
        key, held = map(_fits, inner)
        return lambda value: isinstance(value, Mapping) and all(map(key, value)) and all(map(held, value.values()))
    if hint is float:
        return lambda value: type(value) in (int, float) and math.isfinite(value)
    if hint is int:
        return lambda value: type(value) is int
    if dataclasses.is_dataclass(hint):
        return lambda value: isinstance(value, hint) and _whole(value)
    return lambda value: isinstance(value, hint)


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
