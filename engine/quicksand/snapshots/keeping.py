"""Keeping the present that a revert in place has given up, if its client was killed before it
became a checkpoint: `records/nodes.py` records the places of all its files."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from quicksand.base.effort import best_effort
from quicksand.base.errors import HistoryError, HostError
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.regular import read_at_most
from quicksand.base.threads import in_thread_to_the_end
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import GivenUp, Node, read_given_up
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import seal_disk
from quicksand.snapshots.page_buffer import HeldPages
from quicksand.snapshots.pages import INDEX_MAX, PageIndex
from quicksand.snapshots.storing import Storage, memory_files
from quicksand.things.checkpoint import PAGES

LOST = "its memory was not on disk yet when the host went down"


@contextlib.asynccontextmanager
async def locked_history(history: History) -> AsyncIterator[None]:
    """Hold the history's lock; first keep the present that a killed client has left. Raises as
    `History.locked`."""
    async with history.locked():
        await keep_given_up(history)
        yield


async def keep_given_up(history: History) -> None:
    """Make the given-up present a checkpoint, if there is one that is not yet. The caller holds the
    history's lock. A failure is logged, and the next caller tries again; until then no file that it
    needs is removed (`History.sweep`)."""
    with best_effort(
        "keep the state before a revert", history.place.engine_log, HistoryError, HostError
    ):
        await in_thread_to_the_end(lambda: _keep(history))


def _keep(history: History) -> None:
    place = history.place
    given = read_given_up(place)
    if given is None:
        return
    if not (place.checkpoints / given.node.id / "node.json").exists():
        head = history.head()
        if head.previous is not None:
            return  # it is not known yet which of the two machines goes on
        if given.node.layers[-1] not in (*head.layers, head.top):
            history.commit(_store(history, given))
        # Otherwise it is still the present: the client had not yet given it up.
    forget(place, given.node.id)


def forget(place: SandboxDir, id_: str) -> None:
    """Remove the record of a present that is a checkpoint now, or was not given up, and the files
    held for it. Raises PathError."""
    # The record last: whoever finds it continues here.
    for path in (place.held_index(id_), place.held(id_), place.given_up):
        with map_os_errors(path):
            path.unlink(missing_ok=True)


def _store(history: History, given: GivenUp) -> Node:
    """Return its checkpoint, which is committed next: with its memory or, if that is lost, with its
    disk only. Raises HistoryError, HostError if a later attempt may succeed."""
    place = history.place
    disk = replace(
        given.node,
        parent=history.find_visible(given.head.node),
        layers=seal_disk(place, given.node.layers),
    )
    try:
        memory = _store_memory(history, given)
    except HistoryError as error:
        if _may_pass(error):
            raise
        for name in ("devices", "devices.sealed", "pages.index"):
            (place.checkpoints / disk.id / name).unlink(missing_ok=True)
        return replace(disk, tier_note=str(error))
    sync_dir(place.memory)
    sync_dir(place.checkpoints / disk.id)
    return replace(disk, tier=PAGES, tier_note="", **memory)


def _store_memory(history: History, given: GivenUp) -> dict[str, Any]:
    """Write its memory to disk; returns the fields of `Node` that describe it. Raises HistoryError
    if the memory is lost, HostError."""
    if not given.is_held:
        raise HistoryError(LOST)
    place, id_ = history.place, given.node.id
    for path in (*memory_files(place, id_), place.checkpoints / id_ / "pages.index"):
        path.unlink(missing_ok=True)  # left by a client that was killed here
    held = _find_held(place, given)
    with contextlib.closing(held), contextlib.ExitStack() as stack:
        storage = Storage(history, id_, given.head, run=given.run, size=given.size)
        stack.callback(storage.close)
        if given.since is None:
            storage.open()
        else:
            storage.open_known()
            storage.expect_new_pages()
        storage.add(held.runs, held)
        stored = storage.finish()
    return stored.describe(place.checkpoints / id_, given.size, given.firmware)


def _find_held(place: SandboxDir, given: GivenUp) -> HeldPages:
    """The pages that its client has copied. Raises HistoryError."""
    index, path = place.held_index(given.node.id), place.held(given.node.id)
    try:
        data, size = read_at_most(index, INDEX_MAX), path.stat().st_size
        places = PageIndex.decode(data, files=[size // PAGE]).runs
    except (OSError, ValueError) as error:
        raise HistoryError(LOST) from error
    return HeldPages.found(path, places)


def _may_pass(error: HistoryError) -> bool:
    """Whether the file that could not be read exists, and may be readable another time."""
    cause = error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
