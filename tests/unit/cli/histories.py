"""Checkpoints on disk that no VM has made."""

from __future__ import annotations

import time
from typing import Any

from quicksand.base.files import write_json
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.nodes import File, Head, Node
from quicksand.records.sandboxes import Record
from quicksand.snapshots.history import History
from quicksand.things.checkpoint import find_tier


def history_of(places: Paths, record: Record) -> History:
    """The history of a fabricated sandbox; there is a place for checkpoints in it."""
    history = History(sandbox_dir(places, record.id))
    for directory in (history.place.checkpoints, history.place.layers, history.place.memory):
        directory.mkdir(exist_ok=True)
    return history


def add(history: History, number: int, parent: int | None = None, **facts: Any) -> str:
    """Commit `node_of`; returns its id."""
    node = node_of(number, parent, **facts)
    (history.place.checkpoints / node.id).mkdir()
    history.commit(node)
    return node.id


def node_of(number: int, parent: int | None = None, **facts: Any) -> Node:
    """A checkpoint, taken ``number`` minutes after the first."""
    values: dict[str, Any] = {
        "id": id_of(number),
        "tag": f"tag-{number}",
        "parent": None if parent is None else id_of(parent),
        "created": time.time() - 6000 + 60 * number,
        "note": "",
        "tier": find_tier("pages"),
        "tier_note": "",
        "auto": False,
        "pinned": False,
        "pause_s": 0.0234,
        "bytes_written": 12 * 1024 * 1024,
        "layers": ("aaaaaaaa",),
        "shape": {},
        "memory": "blank",
        "pages": (),
        "index": File(name="pages.index", size=0, crcs=()),
        "devices": File(name="devices", size=0, crcs=()),
        "token": "secret-token",
    }
    return Node(**{**values, **facts})


def id_of(number: int) -> str:
    return f"{number:012x}"


def stand_at(history: History, number: int | None) -> None:
    """Where the sandbox stands."""
    node = None if number is None else id_of(number)
    history.set_head(Head(layers=("aaaaaaaa",), top="bbbbbbbb", node=node))


def spoil(history: History, number: int, text: str = '{"schema_version": 99}') -> None:
    """Make a checkpoint unreadable."""
    directory = history.place.checkpoints / id_of(number)
    directory.mkdir(exist_ok=True)
    (directory / "node.json").write_text(text)


def link(history: History, number: int, parent: int) -> None:
    """Rewrite a checkpoint's parent behind everybody's back."""
    node = next(node for node in history.nodes() if node.id == id_of(number))
    write_json(
        history.place.checkpoints / node.id / "node.json",
        {**node.to_json(), "parent": id_of(parent)},
    )
