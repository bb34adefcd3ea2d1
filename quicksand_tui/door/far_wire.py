"""What the request `watch` sends: the sandboxes of a machine, and then what changes, a JSON object
in each line. Both ends are here: what one writes, the other reads.

A line has only the fields that differ from those of the lines before it. The other machine is not
trusted: each value must be of its field's type, texts are sanitised and cut, and amounts bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from quicksand_tui.model.checkpoints import CheckpointTree
from quicksand_tui.model.frozen import frozen
from quicksand_tui.model.sandboxes import ImageView, SandboxView, State, UseHistory
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import HostView, World

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

LINE_MAX = 4 * 1024 * 1024
"""Bytes of one line. A sandbox takes some 500, a checkpoint 300."""
LINES_MAX = 64 * 1024 * 1024
"""Bytes of all that is kept of one machine, counted as they came."""
SANDBOXES_MAX = 5000
ITEMS_MAX = 10_000
"""Items of a list, such as the checkpoints of a sandbox."""
TEXT_MAX = 1000
"""Characters of a text."""
KEY_MAX = 4096
"""Characters of the path of a mount, which is sent back as it is."""
NUMBER_MAX = 2**63
READINGS_MAX = 120
"""How many readings a history holds, as with sandboxes of this machine."""

ID = re.compile(r"[0-9a-f]{8,64}")
"""The id of a sandbox, as the engine makes them."""

OWN = frozenset({"id", "host", "away", "history", "traffic"})
"""Fields of a sandbox that are not sent: this end fills them in."""
RAW = frozenset({"key"})
"""Texts that are sent back, and never shown."""


class WireError(ValueError):
    """The other machine has sent something that makes no sense."""


@frozen
class FarWorld:
    """What is known of another machine. Ids and names are those of that machine."""

    sandboxes: Mapping[str, SandboxView]
    images: tuple[ImageView, ...] = ()
    host: HostView = HostView()
    error: str = ""
    """Why its sandboxes, or some of them, could not be read."""
    now: float = 0.0
    """Unix time there when it told this."""


# The far end


def difference(before: World | None, after: World) -> dict[str, Any]:
    """Returns what one who knows ``before`` must be told to know ``after``; {} if that is
    nothing."""
    known = {} if before is None else {view.id: view for view in before.sandboxes}
    told: dict[str, Any] = {}
    changed = {}
    for view in after.sandboxes:
        was = known.get(view.id)
        if view is not was and ID.fullmatch(view.id) and (found := _changed(was, view)):
            changed[view.id] = found
    if changed:
        told["sandboxes"] = changed
    if gone := sorted(known.keys() - {view.id for view in after.sandboxes}):
        told["gone"] = gone
    for name in ("images", "host", "error"):
        now = getattr(after, name)
        if before is None or now != getattr(before, name):
            told[name] = _plain(now)
    return {**told, "now": round(after.taken, 3)} if told else {}


def _changed(before: Any, after: Any) -> dict[str, Any]:
    """Returns the fields of ``after`` that differ; all of them if there was nothing before."""
    found: dict[str, Any] = {}
    for one in fields(after):
        now = getattr(after, one.name)
        was = None if before is None else getattr(before, one.name)
        if one.name in OWN and isinstance(after, SandboxView):
            continue
        if before is not None and (now is was or now == was):
            continue
        if isinstance(now, CheckpointTree):
            found[one.name] = _changed(was, now)
        else:
            found[one.name] = _plain(now)
    return found


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
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


class Learner:
    """Keeps what a machine has told."""

    def __init__(self) -> None:
        self.world = FarWorld(sandboxes={})
        self._sizes: dict[str, int] = {}

    def learn(self, line: bytes) -> FarWorld:
        """Takes a line, and returns what is known then. Raises WireError; then nothing that it
        says is kept."""
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            raise WireError("it sent a line that is no JSON") from None
        if not isinstance(told, dict):
            raise WireError("it sent a line that is no JSON object")
        sandboxes = dict(self.world.sandboxes)
        changed, gone = told.get("sandboxes", {}), told.get("gone", [])
        if not isinstance(changed, dict) or not isinstance(gone, list):
            raise WireError("its list of sandboxes is none")
        for id_ in gone:
            sandboxes.pop(id_ if isinstance(id_, str) else "", None)
        for id_, facts in changed.items():
            if not ID.fullmatch(id_):
                raise WireError(f"{sanitise(id_, limit=80)!r} is no id of a sandbox")
            sandboxes[id_] = _learned(id_, sandboxes.get(id_), facts)
        if len(sandboxes) > SANDBOXES_MAX:
            raise WireError(f"it has more than {SANDBOXES_MAX} sandboxes")
        self._count(line, sandboxes, changed)
        now = self.world
        self.world = FarWorld(
            sandboxes=sandboxes,
            images=_read(tuple[ImageView, ...], told, "images", now.images),
            host=_read(HostView, told, "host", now.host),
            error=_read(str, told, "error", now.error),
            now=_read(float, told, "now", now.now),
        )
        return self.world

    def _count(
        self, line: bytes, sandboxes: Mapping[str, object], changed: Mapping[str, object]
    ) -> None:
        """Bounds what is kept: each sandbox counts as the largest line that it came in, shared with
        the others of that line."""
        share = len(line) // max(1, len(changed))
        for id_ in changed:
            self._sizes[id_] = max(self._sizes.get(id_, 0), share)
        self._sizes = {id_: size for id_, size in self._sizes.items() if id_ in sandboxes}
        if sum(self._sizes.values()) > LINES_MAX:
            raise WireError(f"it told more than {LINES_MAX} bytes of its sandboxes")


def _learned(id_: str, before: SandboxView | None, facts: object) -> SandboxView:
    if not isinstance(facts, dict):
        raise WireError("what it tells of a sandbox is no JSON object")
    known = before or SandboxView(id=id_, name=id_, state=State.BROKEN)
    now = _with(known, {name: told for name, told in facts.items() if name not in OWN})
    if before is not None and not facts.keys() & {"cpu_percent", "memory_used", "disk"}:
        return now
    return replace(now, history=_longer(now)) if now.cpu_percent is not None else now


def _longer(view: SandboxView) -> UseHistory:
    before = view.history
    return UseHistory(
        cpu=(*before.cpu, view.cpu_percent or 0.0)[-READINGS_MAX:],
        memory=(*before.memory, view.memory_used or 0)[-READINGS_MAX:],
        disk=(*before.disk, view.disk or 0)[-READINGS_MAX:],
    )


def _with(known: T, facts: Mapping[str, Any]) -> T:
    """Returns a value with other fields. Those that this version does not know are left out."""
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
            changed[name] = _with(was, told)
        else:
            changed[name] = _decoded(hints[name], told, name)
    found: T = replace(known, **changed)  # type: ignore[type-var]
    return found


def _read(hint: Any, told: Mapping[str, Any], name: str, otherwise: T) -> T:
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
    if isinstance(value, dict):
        if origin is not None:  # a mapping
            if len(value) > ITEMS_MAX:
                raise _wrong(name, value)
            return {_text(key, name): _decoded(inner[1], one, name) for key, one in value.items()}
        if is_dataclass(hint):
            return _made(hint, value, name)
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(value)
        except ValueError:
            raise _wrong(name, value) from None
    raise _wrong(name, value)


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
    return WireError(f"{sanitise(name, limit=80)} of a sandbox, an image or the host is {shown}")
