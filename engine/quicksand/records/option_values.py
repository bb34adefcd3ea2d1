"""Reading the values of options: words from a command line, and values from Python and JSON."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from quicksand.base.error_text import choose
from quicksand.base.errors import ConfigError, UnknownOptionError
from quicksand.base.paths import expand


def parse_choice(kind: type[Any], value: object, what: str, *, extra: Iterable[str] = ()) -> Any:
    """Returns the member of the StrEnum ``kind`` that ``value`` names. Raises ConfigError, which
    lists the members and ``extra``."""
    try:
        return kind(str(value).lower().replace("-", "_"))
    except ValueError:
        choices = [*extra, *(str(member.value) for member in kind)]
        raise ConfigError(f"{what} {str(value)!r} is unknown: {choose(choices)}") from None


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raises UnknownOptionError for the first of ``given`` that is not in ``known``, and suggests a
    name."""
    accepted = frozenset(known)
    for name in given:
        if name not in accepted:
            names = sorted(accepted)
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
            raise UnknownOptionError(
                f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                hint=f"the options are {', '.join(names)}",
            )


def reader(kind: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    """Makes a reader of one typed value. Raises ConfigError saying that it is not ``what``."""

    def read(word: str) -> Any:
        try:
            return kind(word)
        except ValueError:
            raise ConfigError(f"{word!r} is not {what}") from None

    return read


def split_arguments(text: str) -> list[str]:
    """Splits a text into words as a shell does. Raises ConfigError."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"the quotes do not match: {error}") from None


def decode_items(name: str, decode: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Makes a decoder for the list that is given as ``name``; None is an empty list."""

    def decode_all(value: Any) -> tuple[Any, ...]:
        if value is None:
            return ()
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ConfigError(f"{name} must be a list, not {value!r}")
        return tuple(decode(item) for item in value)

    return decode_all


def decode_directory(value: object) -> str | None:
    """Returns the whole path of a directory. Raises ConfigError, PathError."""
    if value is None:
        return None
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ConfigError(f"{value!r} is no path of a directory")
    return str(expand(str(value)).absolute())
