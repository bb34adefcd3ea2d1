"""The lines of the request `watch_saves`: the saves and the trash of a machine, and then their
changes, a JSON object in each line. Both ends are here: the one writes, the other reads.

A long list comes in several lines; the last one does not say that there is ``more``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quicksand_tui.door.wire_values import (
    KEY_MAX,
    RAW,
    Kept,
    WireError,
    changed_fields,
    parse_object,
    read_field,
    with_facts,
)
from quicksand_tui.model.saves import SavesView, SaveView, TrashedView, key_at
from quicksand_tui.model.text import sanitise

WATCH_SAVES = "watch_saves"
"""The request, and its capability."""
LOOK, LEAVE = "look", "leave"
"""Events of the client: it wants all to be read anew, or no more events."""

THINGS_MAX = 20_000
"""The most saves of one machine, and the most things in its trash."""

ROUGHLY = 256 * 1024
"""Bytes from which on a line is long enough, so that the next one begins."""

NAME_LIMIT = 200
"""The most characters of a name, as of those of this machine."""
KINDS = ("save", "sandbox")
"""Kinds of things in the trash."""

OWN = frozenset({"host", "away", "verdict", "words", *RAW})
"""Fields that are not sent: this end fills them in, and a key stands before the others."""

ORDER = ("workspace", "user", "here", "")
"""Places of saves in the order in which they are listed."""

SAVE, TRASHED = SaveView(key="/", name="?"), TrashedView(key="/", id="?", name="?", removed=0.0)
"""Stand for the fields of a thing that are not told."""

# The far end


def difference(before: SavesView | None, after: SavesView) -> Iterator[dict[str, Any]]:
    """Yields the lines for a reader who knows ``before``, so that it knows ``after``; nothing if
    they are equal."""
    last: dict[str, Any] = {}
    known = SavesView() if before is None else before
    if gone := _gone(known.saves, after.saves):
        last["gone"] = gone
    if gone := _gone(known.trash, after.trash):
        last["gone_trash"] = gone
    for name in ("error", "size", "trash_frees"):
        if before is None or getattr(before, name) != getattr(after, name):
            last[name] = getattr(after, name)
    is_last_missing = bool(last)
    for name in ("saves", "trash"):
        for piece in _pieces(getattr(known, name), getattr(after, name)):
            yield {name: piece, "more": True}
            is_last_missing = True
    if is_last_missing:
        yield last


def _gone(before: Sequence[Any], after: Sequence[Any]) -> list[str]:
    return sorted({view.key for view in before} - {view.key for view in after})


def _pieces(before: Sequence[Any], after: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yields the fields that differ, by keys, in pieces."""
    known = {view.key: view for view in before}
    piece: dict[str, Any] = {}
    size = 0
    for view in after[:THINGS_MAX]:
        found = changed_fields(known.get(view.key), view, OWN)
        if found and _is_key(view.key):
            piece[view.key] = found
            size += len(json.dumps(found))
        if size > ROUGHLY:
            yield piece
            piece, size = {}, 0
    if piece:
        yield piece


def _is_key(key: object) -> bool:
    """Whether a key can be the path of a save, which is sent back unchanged."""
    return (
        isinstance(key, str)
        and key.startswith("/")
        and len(key) <= KEY_MAX
        and "\0" not in key
        and _can_be_sent(key)
    )


def _can_be_sent(key: str) -> bool:
    """Whether a key is UTF-8: a path with other bytes cannot be named in a command of JSON."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


# The near end


class SavesLearner:
    """Keeps the saves and the trash that a machine has told."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._saves: dict[str, SaveView] = {}
        self._trash: dict[str, TrashedView] = {}
        self._kept = Kept()
        self._view = SavesView()
        self.skew = 0.0
        """Seconds by which our clock is ahead of the machine's."""

    def learn(self, line: bytes) -> SavesView | None:
        """Takes a line; returns all that is known, None if more is to come. Raises WireError."""
        told = parse_object(line)
        saves, trash = dict(self._saves), dict(self._trash)
        changed = [*self._take(told, "saves", "gone", saves, SAVE)]
        changed += self._take(told, "trash", "gone_trash", trash, TRASHED)
        self._kept.count(line, changed, saves.keys() | trash.keys())
        self._saves, self._trash = saves, trash
        if told.get("more") is True:
            return None
        known = self._view
        self._view = SavesView(
            saves=tuple(sorted(map(self._save, saves.values()), key=_place)),
            trash=tuple(sorted(map(self._trashed, trash.values()), key=lambda one: -one.removed)),
            error=read_field(str, told, "error", known.error),
            size=max(0, read_field(int, told, "size", known.size)),
            trash_frees=max(0, read_field(int, told, "trash_frees", known.trash_frees)),
        )
        return self._view

    def _take(
        self, told: Mapping[str, Any], name: str, gone: str, known: dict[str, Any], empty: Any
    ) -> Sequence[str]:
        """Takes the told things of one kind; returns their keys. Raises WireError."""
        changed, left = told.get(name, {}), told.get(gone, [])
        if not isinstance(changed, dict) or not isinstance(left, list):
            raise WireError(f"its list of {name} is none")
        for key in left:
            known.pop(key if isinstance(key, str) else "", None)
        for key, facts in changed.items():
            if not _is_key(key):
                raise WireError(f"{sanitise(key[:320], limit=80)!r} is no path of a save")
            if not isinstance(facts, dict):
                raise WireError("what it tells of a save is no JSON object")
            theirs = {field: value for field, value in facts.items() if field not in OWN}
            known[key] = _sound(with_facts(known.get(key, replace(empty, key=key)), theirs))
        if len(known) > THINGS_MAX:
            raise WireError(f"it has more than {THINGS_MAX} {name}")
        return list(changed)

    def _save(self, view: SaveView) -> SaveView:
        """Returns a save as one of its machine, with times by our clock."""
        found = replace(
            view,
            name=sanitise(view.name, limit=NAME_LIMIT),
            key=key_at(view.key, self._host),
            host=self._host,
            created=None if view.created is None else view.created + self.skew,
        )
        words = (view.name, view.base, view.parent, view.note, view.place, view.trouble, view.id)
        text = "\n".join((*words, self._host, *view.sandboxes)).lower()
        return replace(found, words=text)

    def _trashed(self, view: TrashedView) -> TrashedView:
        return replace(
            view,
            name=sanitise(view.name, limit=NAME_LIMIT),
            kind=view.kind if view.kind in KINDS else TRASHED.kind,
            key=key_at(view.key, self._host),
            host=self._host,
            removed=view.removed + self.skew,
            until=None if view.until is None else view.until + self.skew,
        )


def _sound(view: Any) -> Any:
    """Returns a thing whose amounts make sense. Raises WireError for any other."""
    amounts = [view.own, view.shared]
    for counts in view.shared_files.values():
        amounts += counts
    if min(amounts) < 0:
        raise WireError("a save has less than no bytes")
    return view


def _place(view: SaveView) -> tuple[int, str, str]:
    at = ORDER.index(view.place) if view.place in ORDER else len(ORDER)
    return at, view.name, view.key
