"""Arguments of public functions, compared with the types that they declare. A wrong one is refused
before anything happens: None for a note, or a text for a switch, would otherwise be found by what
reads the record that it was written to.

Declarations are read as text, since their modules import many names only for type checkers. A type
that is not in the table, such as a class, is what its function has to check.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from quicksand.base.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

SHOWN_MAX = 80
"""The most characters of a value in an error."""

_BARS_OUTSIDE = re.compile(r" \| (?![^\[]*\])")
"""Bars between types, but not those within brackets."""


class _Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: Any, *kinds: type) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
    return is_list and all(isinstance(one, kinds) for one in value)


def _is_mapping(value: Any) -> bool:
    is_mapping = isinstance(value, Mapping)
    return is_mapping and all(isinstance(one, str) for pair in value.items() for one in pair)


def _is_source(value: Any) -> bool:
    return hasattr(value, "read") or isinstance(value, Iterable | AsyncIterable)


_FUNCTION = _Kind("a function", callable)
_BYTES = _Kind("bytes", lambda value: isinstance(value, bytes | bytearray | memoryview))

_KINDS: Mapping[str, _Kind] = {
    "str": _Kind("a string", lambda value: isinstance(value, str)),
    "bool": _Kind("True or False", lambda value: isinstance(value, bool)),
    "int": _Kind("a whole number", _is_whole),
    "float": _Kind("a number", lambda value: _is_whole(value) or isinstance(value, float)),
    "bytes": _BYTES,
    "memoryview": _BYTES,
    "StdinSource": _Kind("text, bytes, a file or what yields them", _is_source),
    "Path": _Kind("a path", lambda value: isinstance(value, os.PathLike)),
    "Sequence[str]": _Kind("a list of strings", lambda value: _is_list(value, str)),
    "Sequence[str | None]": _Kind(
        "a list of strings and Nones", lambda value: _is_list(value, str, type(None))
    ),
    "Mapping[str, str]": _Kind("a mapping of strings to strings", _is_mapping),
    "AsyncIterable[Extent]": _Kind(
        "an asynchronous iterable", lambda value: isinstance(value, AsyncIterable)
    ),
    "BinaryIO": _Kind("an open file", lambda value: hasattr(value, "read")),
    "Progress": _FUNCTION,
    "Report": _FUNCTION,
    "None": _Kind("None", lambda value: value is None),
}


class _Declared(NamedTuple):
    kinds: Mapping[str, tuple[_Kind, ...]]
    """The kinds that each parameter takes; none where it is not checked."""
    places: tuple[str, ...]
    """The parameters that take arguments without a name, in order."""
    rest: str
    """The one that takes all further ones; "" if there is none."""


@functools.cache
def _declared(function: Callable[..., Any]) -> _Declared:
    found: dict[str, tuple[_Kind, ...]] = {}
    places, rest = [], ""
    for name, one in inspect.signature(function).parameters.items():
        declared = _BARS_OUTSIDE.split(str(one.annotation))
        kinds = [_FUNCTION if d.startswith("Callable[") else _KINDS.get(d) for d in declared]
        is_checked = None not in kinds and one.kind is not one.VAR_KEYWORD
        found[name] = tuple(kind for kind in kinds if kind) if is_checked else ()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            places.append(name)
        elif one.kind is one.VAR_POSITIONAL:
            rest = name
    return _Declared(found, tuple(places), rest)


def check_arguments(
    function: Callable[..., Any], words: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """Raise ConfigError for an argument that is of no type that ``function`` declares for it."""
    kinds_of, places, rest = _declared(function)
    given = zip((*places, *[rest] * (len(words) - len(places))), words, strict=False)
    for name, value in (*given, *named.items()):
        kinds = kinds_of.get(name, ())
        if kinds and not any(kind.fits(value) for kind in kinds):
            wanted = " or ".join(dict.fromkeys(kind.words for kind in kinds))
            raise ConfigError(f"{name} must be {wanted}, not {_shown(value)}")


def _shown(value: Any) -> str:
    try:
        return repr(value)[:SHOWN_MAX]
    except ValueError:  # a number of too many digits
        return f"of the type {type(value).__name__}"


def checked(function: F) -> F:
    """Make a function check its arguments first."""

    def call(*words: Any, **named: Any) -> Any:
        check_arguments(function, words, named)
        return function(*words, **named)

    async def await_call(*words: Any, **named: Any) -> Any:
        return await call(*words, **named)

    made = await_call if inspect.iscoroutinefunction(function) else call
    return cast("F", functools.wraps(function)(made))


def checked_methods(cls: C) -> C:
    """Make all public methods of a class, and its constructor, check their arguments first."""
    for name, member in tuple(vars(cls).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, staticmethod | classmethod):
            setattr(cls, name, type(member)(checked(member.__func__)))
        elif inspect.isfunction(member):
            setattr(cls, name, checked(member))
    return cls
