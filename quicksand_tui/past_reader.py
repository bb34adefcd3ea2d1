"""Looking at checkpoints on disk: a few stat calls, and parsing only what has changed.

A checkpoint is committed, and its parent changed, by renaming a new ``node.json`` into its
directory; that shows in no modification time further up, so each of these files is looked at.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path

from quicksand.errors import HistoryError
from quicksand.host.files import read_json
from quicksand.layout import SandboxDir
from quicksand.snapshots.checkpoint import Checkpoint, list_checkpoints
from quicksand.snapshots.history import History
from quicksand.snapshots.records import Node

from quicksand_tui.past import NO_PAST, NOTE_LIMIT, CheckpointView, PastView
from quicksand_tui.text import sanitise

TAG_LIMIT = 128

Stamp = tuple[int, ...]
_ID = re.compile(r"[0-9a-f]{8,16}")
"""A checkpoint's directory, as the engine names it; whatever else lies there is none."""


class PastReader:
    """Remembers one sandbox's checkpoints. Used by one thread at a time."""

    def __init__(self, place: SandboxDir) -> None:
        self._place = place
        self._head_stamp: Stamp | None = None
        self._head: str | None = None
        self._known: dict[str, tuple[Stamp, CheckpointView]] = {}
        self._past = NO_PAST
        self._sizes: dict[str, tuple[int, int]] = {}
        """Bytes by checkpoint: its own, and shared."""
        self._measured: tuple[tuple[CheckpointView, ...], str | None] | None = None
        """The checkpoints, and where it stood, when they were measured last."""

    def read(self, *, measure: bool = False) -> PastView:
        """The checkpoints now, with how large they are if they are to be measured; the same object
        as before if nothing has changed. Never raises for what it finds."""
        past = self._look_at_all()
        if measure:
            self._measure(past)
        if self._sizes:
            views = tuple(self._sized(view) for view in past.checkpoints)
            if views != past.checkpoints:
                self._past = past = replace(past, checkpoints=views)
        return past

    def _sized(self, view: CheckpointView) -> CheckpointView:
        own, shared = self._sizes.get(view.id, (None, None))
        if (own, shared) == (view.own, view.shared):
            return view
        return replace(view, own=own, shared=shared)

    def _measure(self, past: PastView) -> None:
        state = (past.checkpoints, past.head)
        if state == self._measured or not past.checkpoints:
            return
        with contextlib.suppress(OSError, HistoryError):
            found = list_checkpoints(History(self._place))
            self._sizes = {made.id: (made.size, made.shared) for made in found}
        views = tuple(self._sized(view) for view in past.checkpoints)
        self._measured = (views, past.head)

    def _look_at_all(self) -> PastView:
        past = self._past
        head_stamp = _stamp(self._place.head)
        if head_stamp != self._head_stamp:
            self._head_stamp = head_stamp
            past = self._with_head(past)
        found = self._look()
        if found != self._known:
            self._known = found
            views = sorted((view for _, view in found.values() if not view.hidden), key=_order)
            past = replace(past, checkpoints=tuple(views))
        if past.head != (head := self._visible_head()):
            past = replace(past, head=head)
        self._past = past
        return past

    def _with_head(self, past: PastView) -> PastView:
        self._head = None
        if self._head_stamp is None:
            return replace(past, error="")  # it was never started
        try:
            self._head = History(self._place).head().node
        except HistoryError as error:
            return replace(past, error=sanitise(str(error)))
        return replace(past, error="")

    def _visible_head(self) -> str | None:
        """Where it stands, as far as somebody asked for it (History.find_visible)."""
        head = self._head
        while head in self._known and self._known[head][1].hidden:
            head = self._known[head][1].parent
        return head

    def _look(self) -> dict[str, tuple[Stamp, CheckpointView]]:
        found = {}
        for id_ in _ids(self._place.checkpoints):
            path = self._place.checkpoints / id_ / "node.json"
            stamp = _stamp(path)
            if stamp is None:
                continue  # in the making, or just going
            known = self._known.get(id_)
            if known is not None and known[0] == stamp:
                found[id_] = known
            elif (view := _read(path, id_)) is not None:
                found[id_] = (stamp, view)
        return found


def _read(path: Path, id_: str) -> CheckpointView | None:
    try:
        node = Node.from_json(read_json(path))
        if node.id != id_:
            raise ValueError(f"it is the checkpoint {node.id}")
        return replace(view_of(Checkpoint.from_node(node)), hidden=node.hidden)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return CheckpointView(id=id_, tag=id_, name=id_, error=sanitise(str(error)) or "unreadable")


def view_of(made: Checkpoint) -> CheckpointView:
    """What is shown of a checkpoint."""
    tag = sanitise(made.tag, limit=TAG_LIMIT)
    return CheckpointView(
        id=made.id,
        tag=tag,
        name=tag if tag == made.tag else made.id,
        parent=made.parent,
        created=made.created,
        note=sanitise(made.note, limit=NOTE_LIMIT),
        tier=sanitise(made.tier, limit=20),
        tier_note=sanitise(made.tier_note),
        auto=made.auto,
        pinned=made.pinned,
        pause_s=made.pause_s,
        written=made.bytes_written,
    )


def _order(view: CheckpointView) -> tuple[bool, float, str]:
    return (not view.error, view.created or 0.0, view.id)


def _ids(directory: Path) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return [entry.name for entry in entries if _ID.fullmatch(entry.name)]
    return []


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return (error.errno or 0,)  # it is there: reading it will say what is wrong
    return (found.st_ino, found.st_mtime_ns, found.st_size)
