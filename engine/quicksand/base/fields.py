"""The fields of a JSON object from a file or another process, each of exactly the type that it must
have: ``"false"`` is no truth value, and 7.9 no number of bytes. A record on disk (`JsonRecord`)
says once what its fields are, and is checked, written and read by that.

By hand, since `exec` and `ps` read records: msgspec would take them 5 ms, which is more than all of
their reading (CONTRIBUTING.md has the figures).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from quicksand.base.error_text import reason_of
from quicksand.base.errors import ConfigError

if TYPE_CHECKING:
    from typing import Self

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


Read = Callable[[Any], Any]
"""Makes a value of what JSON has. Raises ValueError, TypeError, ConfigError."""

_PLAIN: Mapping[str, Callable[[Fields, str], Any]] = {
    "str": Fields.text,
    "int": Fields.whole,
    "float": Fields.real,
    "bool": Fields.flag,
    "tuple[str, ...]": Fields.texts,
    "dict[str, Any]": Fields.fields,
}
_OR_NONE = " | None"


def read_by(read: Read) -> dict[str, Any]:
    """The metadata of a field of `JsonRecord` that ``read`` makes; null stays None."""
    return {"read": read}


def each_by(read: Read) -> dict[str, Any]:
    """The metadata of a field of `JsonRecord` that is a list of such values."""
    return {"read": read, "each": True}


def later(meant: Any, **more: Any) -> dict[str, Any]:
    """The metadata of a field of `JsonRecord` that older versions lack: they meant this."""
    return {"older": meant, **more}


class JsonRecord:
    """A record that stands on disk as a JSON object: a dataclass whose fields are of plain types
    (`_PLAIN`), each or None, or have metadata that say how they are read. A field must be there
    unless it is `later`, whatever its default."""

    __slots__ = ()

    WHAT: ClassVar[str]
    """Its name in errors."""
    VERSION: ClassVar[int | None] = None
    """The ``schema_version`` that it must have."""

    def to_json(self) -> dict[str, Any]:
        plain = {name: _plain(getattr(self, name)) for name in _readers(type(self))}
        return plain if self.VERSION is None else {"schema_version": self.VERSION, **plain}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Parse and check a record. Raises ValueError naming what is wrong."""
        return cls._read(value)

    @classmethod
    def _read(cls, value: Any, **by: Read) -> Self:
        """Parse a record, with some fields read ``by`` other functions than they say."""
        if cls.VERSION is not None:
            check_version(value, cls.VERSION)
        found = Fields(value, cls.WHAT)
        try:
            read = {
                name: by[name](found.any(name)) if name in by else reader(found, name)
                for name, reader in _readers(cls).items()
            }
            made = cls(**read)
        except (TypeError, ConfigError, RecursionError) as error:
            raise ValueError(f"{cls.WHAT}: {reason_of(error)}") from error
        made.check()
        return made

    def check(self) -> None:
        """Raise ValueError unless all that was read fits together."""


def check_version(value: Any, version: int) -> None:
    """Raise ValueError unless ``value`` is a JSON object of that schema version."""
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    if value.get("schema_version") != version:
        raise ValueError(f"schema_version {value.get('schema_version')!r} is not {version}")


_READERS: dict[type, dict[str, Callable[[Fields, str], Any]]] = {}


def _readers(record: Any) -> dict[str, Callable[[Fields, str], Any]]:
    """Return how each field of a class of records is read."""
    if record not in _READERS:
        _READERS[record] = {one.name: _reader(one) for one in dataclasses.fields(record)}
    return _READERS[record]


def _reader(one: dataclasses.Field[Any]) -> Callable[[Fields, str], Any]:
    said, kind = one.metadata, str(one.type)
    plain = _PLAIN.get(kind.removesuffix(_OR_NONE))
    if (made := said.get("read")) is not None:
        plain = _each(made) if "each" in said else lambda found, name: made(found.any(name))
    assert plain is not None, f"{one.name}: {kind} is no plain type"
    required = _or_none(plain) if kind.endswith(_OR_NONE) else plain
    return _or_older(required, said["older"]) if "older" in said else required


def _each(read: Read) -> Callable[[Fields, str], Any]:
    return lambda found, name: tuple(read(one) for one in found.items(name))


def _or_none(read: Callable[[Fields, str], T]) -> Callable[[Fields, str], T | None]:
    return lambda found, name: None if found.any(name) is None else read(found, name)


def _or_older(read: Callable[[Fields, str], Any], meant: Any) -> Callable[[Fields, str], Any]:
    return lambda found, name: read(found, name) if found.has(name) else meant


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "to_json"):
        return value.to_json()
    is_made = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.asdict(value) if is_made else value
