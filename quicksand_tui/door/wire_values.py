"""Values of the model as lines of JSON between two machines, for `far_wire` and `saves_wire`: both
ends are here.

A line has only the fields that differ from those of earlier lines. The other machine is not
trusted: each value must be of its field's type, texts are sanitised and cut, and amounts bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from quicksand_tui.model.checkpoints import CheckpointTree
from quicksand_tui.model.text import sanitise

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

LINE_MAX = 4 * 1024 * 1024
"""The most bytes of one line. A sandbox takes some 500, a checkpoint 300, a save 1000."""
LINES_MAX = 64 * 1024 * 1024
"""The most bytes kept of one machine, counted as they came."""
ITEMS_MAX = 10_000
"""The most items of a list, such as the checkpoints of a sandbox."""
TEXT_MAX = 1000
"""The most characters of a text."""
KEY_MAX = 4096
"""The most characters of the path of a mount or a save, which is sent back unchanged."""
NUMBER_MAX = 2**63

RAW = frozenset({"key"})
"""Texts that are sent back, and never shown."""


class WireError(ValueError):
    """Raised when the other machine has sent something that makes no sense."""


# The far end


def changed_fields(before: Any, after: Any, own: Collection[str] = ()) -> dict[str, Any]:
    """Returns the fields of ``after`` that differ, or all if there was nothing before, except its
    ``own``, which the near end fills in."""
    found: dict[str, Any] = {}
    for one in fields(after):
        now = getattr(after, one.name)
        was = None if before is None else getattr(before, one.name)
        if one.name in own:
            continue
        if before is not None and (now is was or now == was):
            continue
        if isinstance(now, CheckpointTree):
            found[one.name] = changed_fields(was, now)
        else:
            found[one.name] = plain(now)
    return found


def plain(value: Any) -> Any:
    """Returns a value in the form for JSON."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: plain(one) for key, one in value.items()}
        return [[plain(key), plain(one)] for key, one in value.items()]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    return value


def encode_line(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


# The near end


class Lines:
    """Cuts a stream into lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the lines that are complete. Raises WireError for one that is too long."""
        begin = len(self._rest)
        self._rest += data
        while (end := self._rest.find(b"\n", begin)) >= 0:
            line = bytes(self._rest[:end])
            del self._rest[: end + 1]
            begin = 0
            if len(line) > LINE_MAX:
                break
            yield line
        if len(self._rest) > LINE_MAX or (end >= 0):
            raise WireError(f"it sent a line of more than {LINE_MAX} bytes")


class Kept:
    """Bounds the data kept of a machine: each thing counts as the largest line that it came in,
    shared with the other things of that line."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def count(self, line: bytes, changed: Collection[str], there: Collection[str]) -> None:
        """Counts a line with the keys that it has ``changed``, of those that are ``there`` now.
        Raises WireError if the sum is too large."""
        share = len(line) // max(1, len(changed))
        for key in changed:
            self._sizes[key] = max(self._sizes.get(key, 0), share)
        self._sizes = {key: size for key, size in self._sizes.items() if key in there}
        if sum(self._sizes.values()) > LINES_MAX:
            raise WireError(f"it told more than {LINES_MAX} bytes")


def parse_object(line: bytes) -> dict[str, Any]:
    """Reads a line. Raises WireError."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        raise WireError("it sent a line that is no JSON") from None
    if not isinstance(told, dict):
        raise WireError("it sent a line that is no JSON object")
    return told


def with_facts(known: T, facts: Mapping[str, Any]) -> T:
    """Returns a value with other fields, without those that this version does not know."""
    kind: Any = type(known)
    hints = _hints(kind)
    changed: dict[str, Any] = {}
    for name, told in facts.items():
        if name not in hints:
            continue
        was = getattr(known, name)
        if isinstance(was, CheckpointTree):
            if not isinstance(told, dict):
                raise WireError("the checkpoints of a sandbox are no JSON object")
            changed[name] = with_facts(was, told)
        else:
            changed[name] = _decoded(hints[name], told, name)
    found: T = replace(known, **changed)  # type: ignore[type-var]
    return found


def read_field(hint: Any, told: Mapping[str, Any], name: str, otherwise: T) -> T:
    if name not in told:
        return otherwise
    found: T = _decoded(hint, told[name], name)
    return found


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    known = get_type_hints(kind)
    of_class: Any = kind
    return {one.name: known[one.name] for one in fields(of_class)}


def _decoded(hint: Any, value: Any, name: str) -> Any:
    """Returns a value of the type ``hint``. Raises WireError for any other."""
    read = _SIMPLE.get(hint)
    if read is not None:
        return read(value, name)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [one for one in inner if one is not type(None)]
        return None if value is None else _decoded(kinds[0], value, name)
    if origin is tuple:
        return _items(inner, value, name)
    if origin is not None:
        return _mapping(inner, value, name)
    if isinstance(value, dict):
        if is_dataclass(hint):
            return _made(hint, value, name)
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(value)
        except ValueError:
            raise _wrong(name, value) from None
    raise _wrong(name, value)


def _mapping(inner: Sequence[Any], value: Any, name: str) -> dict[Any, Any]:
    """Returns a mapping. One whose keys are no texts comes as pairs, unless it is empty."""
    if isinstance(value, list) and inner[0] is not str:
        pair: Any = tuple[inner[0], inner[1]]  # type: ignore[valid-type]
        return dict(_items((pair, ...), value, name))
    if not isinstance(value, dict) or len(value) > ITEMS_MAX or (value and inner[0] is not str):
        raise _wrong(name, value)
    return {_text(key, name): _decoded(inner[1], one, name) for key, one in value.items()}


def _items(inner: Sequence[Any], value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > ITEMS_MAX:
        raise _wrong(name, value)
    if inner[-1] is ...:
        return tuple(_decoded(inner[0], one, name) for one in value)
    if len(value) != len(inner):
        raise _wrong(name, value)
    return tuple(_decoded(kind, one, name) for kind, one in zip(inner, value, strict=True))


def _made(kind: Any, value: Mapping[str, Any], name: str) -> Any:
    hints = _hints(kind)
    for one in fields(kind):
        has_default = one.default is not MISSING or one.default_factory is not MISSING
        if one.name not in value and not has_default:
            raise WireError(f"{name} lacks {one.name}")
    return kind(
        **{key: _decoded(hints[key], one, key) for key, one in value.items() if key in hints}
    )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value)
    if name in RAW:
        if len(value) > KEY_MAX or "\0" in value:
            raise _wrong(name, value)
        return value
    return sanitise(value[: 4 * TEXT_MAX], limit=TEXT_MAX)


def _whole(value: Any, name: str) -> int:
    if type(value) is int and abs(value) < NUMBER_MAX:
        return value
    raise _wrong(name, value)


def _real(value: Any, name: str) -> float:
    # NaN is no number below it either.
    if type(value) in (int, float) and abs(value) < NUMBER_MAX:
        return float(value)
    raise _wrong(name, value)


def _flag(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(name, value)


_SIMPLE: dict[Any, Callable[[Any, str], Any]] = {
    str: _text,
    int: _whole,
    float: _real,
    bool: _flag,
}


def _wrong(name: str, value: object) -> WireError:
    shown = sanitise(repr(value)[:320], limit=80)
    return WireError(f"{sanitise(name, limit=80)} of what it tells is {shown}")
