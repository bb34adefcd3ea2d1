"""The fields of a JSON object from a file or another process, each of exactly the type that it must
have: ``"false"`` is no truth value, and 7.9 no number of bytes.

By hand, since `exec` and `ps` read records: msgspec would take them 5 ms, which is more than all of
their reading (CONTRIBUTING.md has the figures).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

WHOLE_MAX = 2**63
"""No size, count or process id is this large."""

SHOWN_MAX = 80
"""The most characters of a value in an error."""

_NO_DEFAULT: Any = object()


class Fields:
    """The fields of ``value``; ``what`` names it in errors. Other contents are ignored.

    Every method raises ValueError, naming the field, if it is of another type, or missing and
    without ``default``.
    """

    __slots__ = ("_fields", "_what")

    def __init__(self, value: object, what: str) -> None:
        self._what = what
        if not isinstance(value, dict):
            raise ValueError(f"{what}: it is no JSON object")
        self._fields: dict[str, Any] = value

    def any(self, name: str, *, default: Any = _NO_DEFAULT) -> Any:
        """A value of any type, which the caller checks."""
        found = self._fields.get(name, default)
        if found is _NO_DEFAULT:
            raise ValueError(f"{self._what}: {name} is missing")
        return found

    def has(self, name: str) -> bool:
        """Whether there is such a field, of any type."""
        return name in self._fields

    def text(self, name: str, *, default: str = _NO_DEFAULT) -> str:
        found = self.any(name, default=default)
        return found if isinstance(found, str) else self._refuse(name, found, "no text")

    def flag(self, name: str, *, default: bool = _NO_DEFAULT) -> bool:
        found = self.any(name, default=default)
        return found if isinstance(found, bool) else self._refuse(name, found, "not true or false")

    def whole(self, name: str, *, default: int = _NO_DEFAULT) -> int:
        """A whole number, which may be negative."""
        found = self.any(name, default=default)
        if type(found) is int and abs(found) < WHOLE_MAX:
            return found
        self._refuse(name, found, "no whole number that makes sense")

    def real(self, name: str) -> float:
        """A finite number."""
        found = self.any(name)
        # NaN is not below it either, and a larger number would overflow a float.
        if type(found) in (int, float) and abs(found) <= sys.float_info.max:
            return float(found)
        self._refuse(name, found, "no number that makes sense")

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.any(name)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            self._refuse(name, found, "no list of texts")
        return tuple(found)

    def items(self, name: str) -> list[Any]:
        """A list of anything, which the caller checks."""
        found = self.any(name)
        return found if isinstance(found, list) else self._refuse(name, found, "no list")

    def fields(self, name: str) -> dict[str, Any]:
        """A JSON object with any fields, which the caller checks."""
        found = self.any(name)
        return found if isinstance(found, dict) else self._refuse(name, found, "no JSON object")

    def maybe(self, name: str, read: Callable[[str], T]) -> T | None:
        """None if the field is null, else the result of ``read``, a method of this object."""
        return None if self.any(name) is None else read(name)

    def _refuse(self, name: str, found: object, problem: str) -> NoReturn:
        raise ValueError(f"{self._what}: {name} is {repr(found)[:SHOWN_MAX]}, {problem}")
