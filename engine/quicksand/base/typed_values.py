"""Values as JSON, and back, by the types that classes and functions declare.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, Union

T = TypeVar("T")

DEPTH_MAX = 24
"""The greatest depth of a value."""


class ForeignValueError(ValueError):
    """Raised when a value is not of the required type."""


def _is_not_for_others(value: Any) -> typing.NoReturn:
    raise ForeignValueError(f"{type(value).__name__} is not for another machine")


def encode(
    value: Any, depth: int = DEPTH_MAX, others: Callable[[Any], Any] = _is_not_for_others
) -> Any:
    """Return a value as JSON has it; ``others`` does so for values of further types. Raises
    ForeignValueError if JSON cannot hold it."""
    if depth == 0:
        raise ForeignValueError("a value is too deep")
    if isinstance(value, Enum):
        value = value.value
    match value:
        case None | bool() | int() | str() | float():
            # JSON has no infinity; both ends read it with `float`.
            is_plain = not isinstance(value, float) or math.isfinite(value)
            return value if is_plain else str(value)
        case bytes() | bytearray() | memoryview() | Path():
            return str(value) if isinstance(value, Path) else base64.b64encode(value).decode()
        case Mapping():
            return [
                [encode(key, depth - 1, others), encode(one, depth - 1, others)]
                for key, one in value.items()
            ]
        case Sequence() | set() | frozenset():
            return [encode(one, depth - 1, others) for one in value]
    if not _is_made(value):
        return others(value)
    fields = [one.name for one in dataclasses.fields(value) if one.init]
    return {name: encode(getattr(value, name), depth - 1, others) for name in fields}


def encode_changes(before: Any, after: Any, own: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from those of ``before``, or all of them if it
    is None, but for its ``own``. A field that is a dataclass has its own changes as its value."""
    found: dict[str, Any] = {}
    for one in dataclasses.fields(after):
        now = getattr(after, one.name)
        was = None if before is None else getattr(before, one.name)
        if one.name in own or (before is not None and (now is was or now == was)):
            continue
        has_own = _is_made(now) and type(was) is type(now)
        found[one.name] = encode_changes(was, now) if has_own else encode(now)
    return found


def _is_made(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


class Bounds(NamedTuple):
    """Which values are taken of the other end."""

    text: Callable[[str, str], str] = lambda _, text: text
    """Makes a text of the text that was sent for the field of that name; "" is no field. Raises
    ForeignValueError."""
    items: float = math.inf
    """The most items of a list or a mapping."""
    whole: int = 2**64
    """Whole numbers are below it, and above its negative."""
    real: float | None = None
    """The same of other numbers, which are finite then; None for all numbers."""


class Decoder:
    """Makes values of declared types from what `encode` made of them."""

    def __init__(
        self,
        names: Mapping[str, Any],
        bounds: Bounds = Bounds(),  # noqa: B008
        others: Mapping[Any, Callable[[Any, str], Any]] = types.MappingProxyType({}),
    ) -> None:
        """``names`` are those in declarations that their modules import only for type checkers;
        ``others`` reads values of further types."""
        self._names = dict(names)
        self._bounds = bounds
        self._hints: dict[Any, dict[str, Any]] = {}
        self._plain: Mapping[Any, Callable[[Any, str], Any]] = {
            str: self._text,
            bool: _flag,
            int: self._whole,
            float: self._real,
            bytes: _bytes,
            Path: _path,
            type(None): _none,
            **others,
        }

    def hints_of(self, declared: Any) -> dict[str, Any]:
        """Return the types that a class or a function declares."""
        if declared not in self._hints:
            self._hints[declared] = typing.get_type_hints(declared, localns=self._names)
        return self._hints[declared]

    def decode(self, value: Any, wanted: Any, name: str = "") -> Any:
        """Return the value of the type ``wanted`` that `encode` was given, for the field of that
        name. Raises ForeignValueError."""
        return self._decode(value, wanted, name, DEPTH_MAX)

    def change(self, known: T, told: Any) -> T:
        """Return a dataclass with the fields that `encode_changes` told. Raises
        ForeignValueError."""
        found: T = self._change(known, told, DEPTH_MAX)
        return found

    def _change(self, known: Any, told: Any, depth: int) -> Any:
        if not isinstance(told, dict) or depth == 0:
            _refuse(told, type(known).__name__)
        hints, changed = self.hints_of(type(known)), {}
        for name in (one.name for one in dataclasses.fields(known) if one.name in told):
            was = getattr(known, name)
            if _is_made(was) and isinstance(told[name], dict):
                changed[name] = self._change(was, told[name], depth - 1)
            else:
                changed[name] = self._decode(told[name], hints[name], name, depth - 1)
        return _made(lambda: dataclasses.replace(known, **changed))

    def _decode(self, value: Any, wanted: Any, name: str, depth: int) -> Any:
        if depth == 0:
            raise ForeignValueError("a value is too deep")
        if (read := self._plain.get(wanted)) is not None:
            return read(value, name)
        origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
        if origin in (Union, types.UnionType):
            return self._decode_any(value, inner, name, depth)
        if origin is Literal:
            return value if value in inner else _refuse(value, wanted)
        if origin is not None:
            return self._decode_items(value, wanted, name, depth)
        return self._decode_made(value, wanted, depth)

    def _decode_items(self, value: Any, wanted: Any, name: str, depth: int) -> Any:
        origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
        if origin is tuple and (len(inner) != 2 or inner[1] is not Ellipsis):
            items = zip(self._items(value, wanted, len(inner)), inner, strict=True)
            return tuple(self._decode(one, of, name, depth - 1) for one, of in items)
        if issubclass(origin, Mapping):
            pair: Any = tuple[inner[0], inner[1]]  # type: ignore[valid-type]
            return dict(self._decode(one, pair, name, depth) for one in self._items(value, wanted))
        if not issubclass(origin, Sequence):
            raise ForeignValueError(f"{wanted} is not for another machine")
        found = [self._decode(one, inner[0], name, depth - 1) for one in self._items(value, wanted)]
        return tuple(found) if origin is tuple else found

    def _decode_any(self, value: Any, kinds: Sequence[Any], name: str, depth: int) -> Any:
        """Decode a value as the first of several types that fits."""
        if value is None and type(None) in kinds:
            return None
        for kind in kinds:
            try:
                return self._decode(value, kind, name, depth)
            except ForeignValueError:
                continue
        _refuse(value, kinds)

    def _decode_made(self, value: Any, wanted: Any, depth: int) -> Any:
        if isinstance(wanted, type) and issubclass(wanted, Enum):
            try:
                return wanted(value)
            except ValueError:
                _refuse(value, wanted)
        if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
            return self._decode_fields(value, wanted, depth)
        if wanted is Any:
            return value
        raise ForeignValueError(f"{wanted} is not for another machine")

    def _decode_fields(self, value: Any, wanted: Any, depth: int) -> Any:
        if not isinstance(value, dict):
            _refuse(value, wanted)
        hints = self.hints_of(wanted)
        known = {one.name for one in dataclasses.fields(wanted) if one.init}
        fields = {
            name: self._decode(one, hints[name], name, depth - 1)
            for name, one in value.items()
            if name in known
        }
        return _made(lambda: wanted(**fields))

    def _text(self, value: Any, name: str) -> str:
        if not isinstance(value, str):
            _refuse(value, str, name)
        return self._bounds.text(name, value)

    def _whole(self, value: Any, name: str) -> int:
        if type(value) is int and abs(value) < self._bounds.whole:
            return value
        _refuse(value, int, name)

    def _real(self, value: Any, name: str) -> float:
        limit = self._bounds.real
        if limit is not None:
            # NaN is no number below it either.
            is_sound = type(value) in (int, float) and abs(value) < limit
            return float(value) if is_sound else _refuse(value, float, name)
        if type(value) in (int, float) or value in ("inf", "-inf", "nan"):
            try:
                return float(value)
            except OverflowError:
                pass
        _refuse(value, float, name)

    def _items(self, value: Any, wanted: Any, count: int | None = None) -> list[Any]:
        if not isinstance(value, list) or count not in (None, len(value)):
            _refuse(value, wanted)
        if len(value) > self._bounds.items:
            raise ForeignValueError(
                f"there are {len(value)} items, of at most {self._bounds.items}"
            )
        return value


def _made(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ForeignValueError:
        raise
    except (TypeError, ValueError) as error:
        raise ForeignValueError(str(error)) from None


def _flag(value: Any, name: str) -> bool:
    return value if isinstance(value, bool) else _refuse(value, bool, name)


def _bytes(value: Any, name: str) -> bytes:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    _refuse(value, bytes, name)


def _path(value: Any, name: str) -> Path:
    is_path = isinstance(value, str) and "\0" not in value
    return Path(value) if is_path else _refuse(value, Path, name)


def _none(value: Any, name: str) -> None:
    return None if value is None else _refuse(value, None, name)


def _refuse(value: Any, wanted: Any, name: str = "") -> typing.NoReturn:
    about = f"{name}: " if name else ""
    raise ForeignValueError(f"{about}{value!r:.80} is not what is wanted: {wanted}")
