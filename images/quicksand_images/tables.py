"""Reads a recipe's TOML: every value is of exactly its type, and every error names line and
field."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from quicksand.base.errors import ImageError, QuicksandError
from quicksand.records.machine_options import parse_size

RECIPE_MAX = 1024 * 1024
"""Bytes of a recipe."""

SHOWN_MAX = 100
"""Characters of a wrong value that an error shows."""

_HEADER = re.compile(r"\s*\[\s*([^\[\]#]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_QUOTES = ('"""', "'" * 3)

T = TypeVar("T")


class RecipeError(ImageError):
    """Raised when a recipe is wrong. ``line`` counts from 1; it and ``field`` are 0 and "" if the
    fault is in the file as a whole."""

    def __init__(self, path: Path, reason: str, *, line: int = 0, field: str = "") -> None:
        where = f"{path}, line {line}" if line else str(path)
        what = f"{field} {reason}" if field else reason
        super().__init__(f"the recipe is wrong: {where}: {what}")
        self.path, self.line, self.field = path, line, field


class Table:
    """A table of a recipe. Its methods take a key out; `end` refuses the rest."""

    def __init__(self, path: Path, text: str, values: Mapping[str, Any], name: str = "") -> None:
        self._path, self._text = path, text
        self._values = dict(values)
        self._known: list[str] = []
        self._name = name

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def line(
        self, key: str, *, pattern: re.Pattern[str] | None = None, default: str | None = None
    ) -> str:
        """Take a line of text that matches ``pattern``. Raises RecipeError, also without it and a
        ``default``."""
        value = self._take(key, default)
        if not isinstance(value, str) or not value.isprintable():
            raise self.bad(key, "is not a line of text")
        if pattern is not None and value != default and not pattern.fullmatch(value):
            raise self.bad(key, f"cannot be {_shown(value)}")
        return value

    def text(self, key: str) -> str:
        """Take a text of several lines, "" by default. Raises RecipeError."""
        value = self._take(key, "")
        if not isinstance(value, str) or "\0" in value:
            raise self.bad(key, "is not a text")
        return value

    def lines(
        self, key: str, *, pattern: re.Pattern[str] | None = None, required: bool = False
    ) -> tuple[str, ...]:
        """Take a list of lines of text, each matching ``pattern``. Raises RecipeError."""
        value = self._take(key, None if required else [])
        if not isinstance(value, list):
            raise self.bad(key, "is not a list of texts")
        for item in value:
            if not isinstance(item, str) or not item or "\0" in item:
                raise self.bad(key, f"is not a list of texts: {_shown(item)}", item)
            if pattern is not None and not pattern.fullmatch(item):
                raise self.bad(key, f"cannot contain {_shown(item)}", item)
        return tuple(value)

    def whole(self, key: str, *, least: int, most: int) -> int:
        """Take a whole number. Raises RecipeError."""
        value = self._take(key, None)
        if type(value) is not int or not least <= value <= most:
            raise self.bad(key, f"is not a whole number from {least} to {most}")
        return value

    def flag(self, key: str) -> bool:
        """Take true or false, the default. Raises RecipeError."""
        value = self._take(key, False)
        if not isinstance(value, bool):
            raise self.bad(key, "is neither true nor false")
        return value

    def size(self, key: str, *, default: str | None = None) -> int:
        """Take a size such as "8G"; return bytes. Raises RecipeError."""
        value = self._take(key, default)
        return self.checked(key, lambda: parse_size(value, what=self.field(key)))

    def table(self, key: str, *, required: bool = False) -> Table:
        """Take a table, an empty one by default. Raises RecipeError."""
        value = self._take(key, None if required else {})
        if not isinstance(value, dict):
            raise self.bad(key, "is not a table")
        return Table(self._path, self._text, value, self.field(key))

    def names(self, key: str) -> tuple[str, ...]:
        """Take one line of text, or a list of them. Raises RecipeError."""
        if isinstance(self._values.get(key), list):
            return self.lines(key)
        return (self.line(key),)

    def replace_parts(self, chosen: str, others: Collection[str]) -> None:
        """Replace the values in ``[part]`` by those in ``[chosen.part]``, and drop the tables named
        in ``others``. Raises RecipeError."""
        parts = self.table(chosen)
        for key in others:
            self.table(key)
        for part, values in parts.rest().items():
            if not isinstance(values, dict) or not isinstance(self._values.get(part), dict):
                raise parts.bad(part, f"replaces nothing: there is no [{part}]")
            self._values[part] = {**self._values[part], **values}

    def rest(self) -> dict[str, Any]:
        """Take the rest, unchecked."""
        values, self._values = self._values, {}
        return values

    def checked(self, key: str, check: Callable[[], T]) -> T:
        """Return the result of ``check``; its error for a wrong value becomes a RecipeError."""
        try:
            return check()
        except (ValueError, TypeError, OSError, QuicksandError) as error:
            raise self.bad(key, f"is wrong: {error}") from error

    def end(self) -> None:
        """Refuse keys that nobody has taken. Raises RecipeError."""
        for key in self._values:
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise self.bad(key, f"is unknown{hint}")

    def bad(self, key: str, reason: str, item: object = None) -> RecipeError:
        """Return the error for a key, or for one item of its list."""
        line = find_line(self._text, self._name, key, item)
        return RecipeError(self._path, reason, line=line, field=self.field(key))

    def field(self, key: str) -> str:
        """Return the whole name of a key."""
        return f"{self._name}.{key}" if self._name else key

    def _take(self, key: str, default: Any) -> Any:
        self._known.append(key)
        if key in self._values:
            return self._values.pop(key)
        if default is None:
            raise self.bad(key, "is missing")
        return default


def read_tables(path: Path) -> Table:
    """Read a recipe's file. Raises RecipeError."""
    try:
        with path.open("rb") as file:
            data = file.read(RECIPE_MAX + 1)
        if len(data) > RECIPE_MAX:
            raise ValueError(f"it has more than {RECIPE_MAX} bytes")
        text = data.decode("utf-8")
        return Table(path, text, tomllib.loads(text))
    except OSError as error:
        raise RecipeError(path, f"it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecipeError(path, str(error)) from error


def find_line(text: str, table: str, key: str, item: object = None) -> int:
    """Return the line of ``key`` in ``table``, or of that ``item`` in its list. If it is missing,
    return the line of the table's header; 0 if there is none."""
    lines = text.splitlines()
    wanted = f"{table}.{key}" if table else key
    header = 0
    for number, name, is_header in _names(lines):
        if is_header and name == table:
            header = number
        if name == wanted or (not is_header and wanted.startswith(f"{name}.")):
            if isinstance(item, str):
                behind = enumerate(lines[number - 1 :], number)
                return next((at for at, line in behind if item in line), number)
            return number
    return header


def _names(lines: list[str]) -> Iterator[tuple[int, str, bool]]:
    """Yield for each definition its line, its whole name and whether it is a table's header; texts
    of several lines are skipped."""
    table, quote = "", ""
    for number, line in enumerate(lines, 1):
        if quote:
            quote = "" if quote in line else quote
            continue
        if found := _HEADER.match(line):
            table = _plain(found[1])
            yield number, table, True
        elif found := _KEY.match(line):
            name = _plain(found[1])
            yield number, f"{table}.{name}" if table else name, False
            quote = next((one for one in _QUOTES if line.count(one) % 2), "")


def _plain(name: str) -> str:
    return ".".join(word.strip().strip("\"'") for word in name.split("."))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"
