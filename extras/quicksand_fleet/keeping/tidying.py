"""Removes the rest of sandboxes that are no longer kept: exported saves, by names that no other
saves have, and pages of the book."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from quicksand.errors import SaveNotFoundError
from quicksand.extending import Paths, best_effort, remove_save

from quicksand_fleet.keeping.book import Book
from quicksand_fleet.keeping.wire import KEPT_SAVE


def remove_exported(paths: Paths, name: str) -> None:
    """Remove an exported save of this machine for good, if it is there. Blocks. Raises SaveError
    while something needs it, HostError."""
    if not KEPT_SAVE.fullmatch(name):
        return
    try:
        remove_save(paths.saves / name, paths, now=True)
    except SaveNotFoundError:
        return


async def end_keeping(paths: Paths, hosts: Collection[str]) -> None:
    """Stop keeping all sandboxes of these machines, which are about to go. Raises HostError."""
    book = Book(paths)
    for kept in (await asyncio.to_thread(book.read_all)).values():
        if kept.host in hosts or (not kept.host and kept.older and kept.older[-1].host in hosts):
            await asyncio.to_thread(book.remove, kept.name)
            if kept.exported is not None:
                with best_effort("remove an exported save", paths.engine_log):
                    await asyncio.to_thread(remove_exported, paths, kept.exported.name)
