"""Values of the methods of `Sandbox` as JSON, and back, by the types that the methods declare.

A value from another machine becomes an object of its declared type and of no other class, and each
field of a dataclass is checked. Unknown fields are skipped: the other end may be newer.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union

from quicksand.hosted.names import NAMES

DEPTH_MAX = 24
"""The greatest depth of a value."""


class ForeignValueError(ValueError):
    """Raised when a value is not of the required type."""


def encode(value: Any, depth: int = DEPTH_MAX) -> Any:
    """Return a value as JSON has it. Raises ForeignValueError if JSON cannot hold it."""
    if depth == 0:
        raise ForeignValueError("a value is too deep")
    if isinstance(value, Enum):
        value = value.value
    match value:
        case None | bool() | int() | str() | float():
            # JSON has no infinity; both ends read it with `float`.
            is_plain = not isinstance(value, float) or math.isfinite(value)
            return value if is_plain else str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case Path():
            return str(value)
        case Mapping():
            return [[encode(key, depth - 1), encode(one, depth - 1)] for key, one in value.items()]
        case Sequence() | set() | frozenset():
            return [encode(one, depth - 1) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {one.name: encode(getattr(value, one.name), depth - 1) for one in fields if one.init}
    raise ForeignValueError(f"{type(value).__name__} is not for another machine")


def decode(value: Any, wanted: Any, depth: int = DEPTH_MAX) -> Any:
    """Return the value of the type ``wanted`` that `encode` was given. Raises ForeignValueError."""
    if depth == 0:
        raise ForeignValueError("a value is too deep")
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (Union, types.UnionType):
        return _decode_any(value, inner, depth)
    if origin is Literal:
        return value if value in inner else _refuse(value, wanted)
    if origin is tuple and (len(inner) != 2 or inner[1] is not Ellipsis):
        items = _items(value, wanted, len(inner))
        return tuple(decode(one, of, depth - 1) for one, of in zip(items, inner, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        pairs = [_items(one, wanted, 2) for one in _items(value, wanted)]
        return {
            decode(key, inner[0], depth - 1): decode(one, inner[1], depth - 1) for key, one in pairs
        }
    if origin is not None and issubclass(origin, Sequence):
        found = [decode(one, inner[0], depth - 1) for one in _items(value, wanted)]
        return tuple(found) if origin is tuple else found
    return _decode_plain(value, wanted, depth)


def _decode_any(value: Any, kinds: Sequence[Any], depth: int) -> Any:
    """Decode a value as the first of several types that fits."""
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        try:
            return decode(value, kind, depth)
        except ForeignValueError:
            continue
    _refuse(value, kinds)


def _decode_plain(value: Any, wanted: Any, depth: int) -> Any:
    if wanted in _PLAIN:
        return _PLAIN[wanted](value)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        try:
            return wanted(value)
        except ValueError:
            _refuse(value, wanted)
    if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
        return _decode_fields(value, wanted, depth)
    if wanted is Any:
        return value
    raise ForeignValueError(f"{wanted} is not for another machine")


def _decode_fields(value: Any, wanted: Any, depth: int) -> Any:
    if not isinstance(value, dict):
        _refuse(value, wanted)
    hints = hints_of(wanted)
    known = {one.name for one in dataclasses.fields(wanted) if one.init}
    fields = {
        name: decode(one, hints[name], depth - 1) for name, one in value.items() if name in known
    }
    try:
        return wanted(**fields)
    except (TypeError, ValueError) as error:
        raise ForeignValueError(f"{wanted.__name__}: {error}") from None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse(value, str)


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(value, bool)


def _whole(value: Any) -> int:
    return value if type(value) is int and abs(value) < 2**64 else _refuse(value, int)


def _real(value: Any) -> float:
    if type(value) in (int, float) or value in ("inf", "-inf", "nan"):
        try:
            return float(value)
        except OverflowError:
            pass
    _refuse(value, float)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        _refuse(value, bytes)


def _path(value: Any) -> Path:
    text = _text(value)
    return Path(text) if "\0" not in text else _refuse(value, Path)


def _none(value: Any) -> None:
    return None if value is None else _refuse(value, None)


_PLAIN: Mapping[Any, Callable[[Any], Any]] = {
    str: _text,
    bool: _flag,
    int: _whole,
    float: _real,
    bytes: _bytes,
    Path: _path,
    type(None): _none,
}


def _items(value: Any, wanted: Any, count: int | None = None) -> list[Any]:
    if not isinstance(value, list) or count not in (None, len(value)):
        _refuse(value, wanted)
    return value


def _refuse(value: Any, wanted: Any) -> typing.NoReturn:
    raise ForeignValueError(f"{value!r:.80} is not what is wanted: {wanted}")


@cache
def hints_of(declared: Any) -> dict[str, Any]:
    """Return the types that a class or a function declares, including those that its module imports
    only for type checkers."""
    return typing.get_type_hints(declared, localns=dict(NAMES))
