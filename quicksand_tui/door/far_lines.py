"""Tells the app of another machine, in lines of JSON: its sandboxes (the request `watch`), and its
saves with the trash (`watch_saves`). Both ends are here: the one writes, the other reads.

A line has things by their keys, each with the fields that differ from those of earlier lines, and
facts about the machine. The other machine is not trusted: each value must be of its field's type,
texts are sanitised and cut, and amounts bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quicksand.base.typed_values import Bounds, Decoder, ForeignValueError, encode, encode_changes
from quicksand.things.frozen import frozen
from quicksand.things.image_info import ImageInfo
from quicksand.things.save import SaveFacts, TrashFacts
from quicksand.things.status import Status

from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.shown_saves import SavesView
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import HostView, World

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
ROUGHLY = 256 * 1024
"""Bytes from which on a line of saves is long enough, so that the next one begins."""

SANDBOXES_MAX = 5000
SAVES_MAX = 20_000
"""The most saves of one machine, and the most things in its trash."""
NAME_LIMIT = 200
"""The most characters of a save's name, as of those of this machine."""

WATCH_SAVES = "watch_saves"
"""The request, and its capability."""
LOG = "log"
"""The request for a log that is followed."""
LOOK, LEAVE = "look", "leave"
"""Events of the client: it wants all to be read anew, or no more events."""

KEY = "key"
"""The field that is sent back, and never shown."""
ID = re.compile(r"[0-9a-f]{8,64}")
"""The id of a sandbox, as the engine makes them."""
KINDS = ("save", "sandbox")
"""Kinds of things in the trash."""
ORDER = ("workspace", "user", "here", "")
"""Places of saves in the order in which they are listed."""


def _harmless(name: str, text: str) -> str:
    if name != KEY:
        return sanitise(text[: 4 * TEXT_MAX], limit=TEXT_MAX)
    if len(text) > KEY_MAX or "\0" in text:
        raise ForeignValueError(f"{text!r:.80} is no path")
    return text


DECODER = Decoder({}, Bounds(_harmless, ITEMS_MAX, NUMBER_MAX, NUMBER_MAX))


class Lines:
    """Cuts a stream into lines."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the lines that are complete. Raises ForeignValueError for one that is too long."""
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
            raise ForeignValueError(f"it sent a line of more than {LINE_MAX} bytes")


def encode_line(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def _parse(line: bytes) -> dict[str, Any]:
    """Reads a line. Raises ForeignValueError."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        raise ForeignValueError("it sent a line that is no JSON") from None
    if not isinstance(told, dict):
        raise ForeignValueError("it sent a line that is no JSON object")
    return told


@frozen
class Table:
    """Things of one kind in the lines."""

    name: str
    """The key of those that have changed, which is their name in errors."""
    gone: str
    """The key of those that are gone."""
    new: Callable[[str], Any]
    """Makes a thing of which nothing but its key is told."""
    is_key: Callable[[str], bool]
    own: Collection[str]
    """Fields that are not sent: the near end fills them in."""
    most: int
    learned: Callable[[Any, Any, Mapping[str, Any]], Any]
    """Makes the thing that is kept, of the thing before (None: it is new), the thing now, and the
    facts. Raises ForeignValueError."""

    def lost(self, before: Iterable[Any], after: Iterable[Any]) -> dict[str, Any]:
        """Returns the keys that are gone, for a line."""
        gone = {one.key for one in before} - {one.key for one in after}
        return {self.gone: sorted(gone)} if gone else {}

    def changes(self, before: Iterable[Any], after: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        """Yields the keys of what differs, with the fields that do."""
        known = {one.key: one for one in before}
        for one in after:
            was = known.get(one.key)
            if one is was or not self.is_key(one.key):
                continue
            if found := encode_changes(was, one, self.own):
                yield one.key, found


class _Things:
    """Keeps the things of some tables that a machine has told, and bounds the data kept of it: each
    thing counts as the largest line that it came in, shared with the other things of that line."""

    def __init__(self, *tables: Table) -> None:
        self._tables = tables
        self._kept: tuple[dict[str, Any], ...] = tuple({} for _ in tables)
        self._sizes: dict[str, int] = {}

    def learn(self, line: bytes) -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
        """Takes a line; returns all that it says, and the things by keys. Raises ForeignValueError,
        and then keeps nothing of the line."""
        told = _parse(line)
        kept = tuple(dict(known) for known in self._kept)
        changed: list[str] = []
        for table, known in zip(self._tables, kept, strict=True):
            changed += _take(told, table, known)
        there = set().union(*kept)
        share = len(line) // max(1, len(changed))
        sizes = {**self._sizes}
        for key in changed:
            sizes[key] = max(sizes.get(key, 0), share)
        sizes = {key: size for key, size in sizes.items() if key in there}
        if sum(sizes.values()) > LINES_MAX:
            raise ForeignValueError(f"it told more than {LINES_MAX} bytes")
        self._kept, self._sizes = kept, sizes
        return told, kept


def _take(told: Mapping[str, Any], table: Table, known: dict[str, Any]) -> Sequence[str]:
    """Takes the told things of one kind; returns their keys."""
    changed, gone = told.get(table.name, {}), told.get(table.gone, [])
    if not isinstance(changed, dict) or not isinstance(gone, list):
        raise ForeignValueError(f"its list of {table.name} is none")
    for key in gone:
        known.pop(key if isinstance(key, str) else "", None)
    for key, facts in changed.items():
        if not table.is_key(key):
            raise ForeignValueError(f"{key!r:.80} is no key of its {table.name}")
        if not isinstance(facts, dict):
            raise ForeignValueError(f"what it tells of one of its {table.name} is no JSON object")
        before = known.get(key)
        theirs = {name: value for name, value in facts.items() if name not in table.own}
        now = DECODER.change(table.new(key) if before is None else before, theirs)
        known[key] = table.learned(before, now, facts)
    if len(known) > table.most:
        raise ForeignValueError(f"it has more than {table.most} {table.name}")
    return list(changed)


def _read(hint: Any, told: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """Returns a fact about the machine, which is as it was if a line does not tell it."""
    return DECODER.decode(told[name], hint, name) if name in told else otherwise


# Sandboxes


@frozen
class FarWorld:
    """The known state of another machine. Ids and names are those of that machine."""

    sandboxes: Mapping[str, SandboxView]
    images: tuple[ImageInfo, ...] = ()
    host: HostView = HostView()
    error: str = ""
    """The reason why some of its sandboxes could not be read."""
    now: float = 0.0
    """The Unix time there when it told this."""


def _with_use(before: SandboxView | None, now: SandboxView, facts: Mapping[str, Any]) -> Any:
    """Returns a sandbox with a longer history, if its use was told."""
    is_told = before is None or facts.keys() & {"cpu_percent", "memory_used", "disk"}
    if not is_told or now.cpu_percent is None:
        return now
    return replace(
        now,
        history=now.history.longer(now.cpu_percent, now.memory_used or 0, now.disk or 0),
    )


SANDBOXES = Table(
    name="sandboxes",
    gone="gone",
    new=lambda key: SandboxView(id=key, name=key, state=Status.BROKEN),
    is_key=lambda key: bool(ID.fullmatch(key)),
    own=frozenset({"id", "host", "away", "history", "traffic"}),
    most=SANDBOXES_MAX,
    learned=_with_use,
)


def world_changes(before: World | None, after: World) -> dict[str, Any]:
    """Returns the line for a reader who knows ``before``, to know ``after``; {} if they are
    equal."""
    known = () if before is None else before.sandboxes
    changed = dict(SANDBOXES.changes(known, after.sandboxes))
    told = {SANDBOXES.name: changed} if changed else {}
    told |= SANDBOXES.lost(known, after.sandboxes)
    for name in ("images", "host", "error"):
        now = getattr(after, name)
        if before is None or now != getattr(before, name):
            told[name] = encode(now)
    return {**told, "now": round(after.taken, 3)} if told else {}


class Learner:
    """Keeps the world that a machine has told."""

    def __init__(self) -> None:
        self.world = FarWorld(sandboxes={})
        self._things = _Things(SANDBOXES)

    def learn(self, line: bytes) -> FarWorld:
        """Takes a line; returns all that is known then. Raises ForeignValueError."""
        told, (sandboxes,) = self._things.learn(line)
        now = self.world
        self.world = FarWorld(
            sandboxes=sandboxes,
            images=_read(tuple[ImageInfo, ...], told, "images", now.images),
            host=_read(HostView, told, "host", now.host),
            error=_read(str, told, "error", now.error),
            now=_read(float, told, "now", now.now),
        )
        return self.world


# Saves


def _is_path(key: str) -> bool:
    """Whether a key can be the path of a save, which is sent back unchanged. A path with bytes that
    are not UTF-8 cannot be named in a command of JSON."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return key.startswith("/") and len(key) <= KEY_MAX and "\0" not in key


def _sound(before: SaveFacts | None, now: SaveFacts, facts: Mapping[str, Any]) -> SaveFacts:
    """Returns a save whose amounts make sense. Raises ForeignValueError for any other."""
    amounts = [now.own, now.shared]
    for counts in now.shared_files.values():
        amounts += counts
    if min(amounts) < 0:
        raise ForeignValueError("a save has less than no bytes")
    return now


SAVES = Table(
    name="saves",
    gone="gone",
    new=lambda key: SaveFacts(path=key, name="?"),
    is_key=_is_path,
    own=frozenset({"host", "away", "verdict", "path", "root"}),
    most=SAVES_MAX,
    learned=_sound,
)
TRASHED = Table(
    name="trash",
    gone="gone_trash",
    new=lambda key: TrashFacts(path=key, id="?", name="?"),
    is_key=_is_path,
    own=SAVES.own,
    most=SAVES_MAX,
    learned=_sound,
)


def saves_changes(before: SavesView | None, after: SavesView) -> Iterator[dict[str, Any]]:
    """Yields the lines for a reader who knows ``before``, so that it knows ``after``; nothing if
    they are equal. A long list comes in several lines; the last one does not say that there is
    ``more``."""
    known = SavesView() if before is None else before
    last = SAVES.lost(known.saves, after.saves) | TRASHED.lost(known.trash, after.trash)
    for name in ("error", "size", "trash_frees"):
        if before is None or getattr(before, name) != getattr(after, name):
            last[name] = getattr(after, name)
    is_last_missing = bool(last)
    lists = ((SAVES, known.saves, after.saves), (TRASHED, known.trash, after.trash))
    for table, was, now in lists:
        for piece in _pieces(table.changes(was, now[: table.most])):
            yield {table.name: piece, "more": True}
            is_last_missing = True
    if is_last_missing:
        yield last


def _pieces(changes: Iterable[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    piece: dict[str, Any] = {}
    size = 0
    for key, found in changes:
        piece[key] = found
        size += len(json.dumps(found))
        if size > ROUGHLY:
            yield piece
            piece, size = {}, 0
    if piece:
        yield piece


class SavesLearner:
    """Keeps the saves and the trash that a machine has told."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._things = _Things(SAVES, TRASHED)
        self._view = SavesView()
        self.skew = 0.0
        """Seconds by which our clock is ahead of the machine's."""

    def learn(self, line: bytes) -> SavesView | None:
        """Takes a line; returns all that is known, None if more is to come. Raises
        ForeignValueError."""
        told, (saves, trash) = self._things.learn(line)
        if told.get("more") is True:
            return None
        known = self._view
        self._view = SavesView(
            saves=tuple(sorted(map(self._save, saves.values()), key=_place)),
            trash=tuple(sorted(map(self._trashed, trash.values()), key=lambda one: -one.removed)),
            error=_read(str, told, "error", known.error),
            size=max(0, _read(int, told, "size", known.size)),
            trash_frees=max(0, _read(int, told, "trash_frees", known.trash_frees)),
        )
        return self._view

    def _save(self, view: SaveFacts) -> SaveFacts:
        """Returns a save as one of its machine, with times by our clock."""
        return replace(
            view,
            name=sanitise(view.name, limit=NAME_LIMIT),
            host=self._host,
            created=view.created and view.created + self.skew,
        )

    def _trashed(self, view: TrashFacts) -> TrashFacts:
        return replace(
            view,
            name=sanitise(view.name, limit=NAME_LIMIT),
            kind=view.kind if view.kind in KINDS else KINDS[0],
            host=self._host,
            removed=view.removed + self.skew,
            until=None if view.until is None else view.until + self.skew,
        )


def _place(view: SaveFacts) -> tuple[int, str, str]:
    at = ORDER.index(view.place) if view.place in ORDER else len(ORDER)
    return at, view.name, view.key
