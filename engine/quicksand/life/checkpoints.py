"""A sandbox's checkpoints (take, revert, list, delete, compare) and its clones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quicksand.base.settings import check_settings
from quicksand.base.threads import in_thread_to_the_end
from quicksand.life.sandbox_life import Life
from quicksand.snapshots.next_revert import AFTER_CHECKPOINT_S, AFTER_REVERT_S, NextRevert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quicksand.disks.diff.changes import FileChange
    from quicksand.life.guest import Guest
    from quicksand.life.mounts import Mounts
    from quicksand.records.nodes import Node
    from quicksand.snapshots.checkpoint import Checkpoint


class Checkpoints:
    """The checkpoints of one sandbox. Each method raises what its namesake in `Sandbox` raises."""

    def __init__(self, life: Life, guest: Guest, mounts: Mounts, next_revert: NextRevert) -> None:
        self._life = life
        self._guest = guest
        self._mounts = mounts
        self._next_revert = next_revert

    async def settle(self, goal: str | None = None) -> None:
        """Cancel the background preparation of a revert, so that what the caller is about to do
        need not wait for it. If it prepares a revert to ``goal`` (an id or tag), wait for it
        instead."""
        await self._next_revert.settle(goal)

    async def take(
        self, tag: str | None, *, note: str, replace: bool, tier: str | None, unmount_9p: bool
    ) -> Checkpoint:
        from quicksand.snapshots.checkpoint import Checkpoint  # noqa: PLC0415
        from quicksand.snapshots.taking import take_checkpoint  # noqa: PLC0415

        check_settings()
        record = self._life.require_record()
        await self.settle()
        # `diff` reads the disk, so what the guest still has in memory must be on it.
        await self._guest.sync()
        async with self._mounts.without_ninep(unmount_9p):
            node = await take_checkpoint(
                self._life.registry, record, tag, note=note, replace_tag=replace, tier=tier
            )
        if node.tier.has_pages:  # in other tiers a waiting QEMU would not share the memory
            self._expect(node, after=AFTER_CHECKPOINT_S)
        return Checkpoint.from_node(node)

    async def revert(
        self, tag: str | None, *, keep_now: bool = True, unmount_9p: bool = False
    ) -> Checkpoint:
        """Revert to ``tag``; None undoes the last revert."""
        from quicksand.base.errors import HistoryError  # noqa: PLC0415
        from quicksand.snapshots.checkpoint import Checkpoint  # noqa: PLC0415
        from quicksand.snapshots.reverting import revert  # noqa: PLC0415

        check_settings()
        record = self._life.require_record()
        await self.settle(tag)
        mounts = await self._mounts.write_back()
        async with self._mounts.without_ninep(unmount_9p):
            node, kept = await revert(
                self._life.registry, record, tag, keep_now=keep_now, link=self._life.link
            )
            self._life.look_again()
            done = f"the sandbox is reverted to {node.tag!r}"
            await self._mounts.attach_again(mounts, done, is_past=node.shares)
        if not node.auto:
            self._expect(node, after=AFTER_REVERT_S)
        if isinstance(kept, HistoryError):  # the guest has been reverted, and has its mounts again
            raise kept
        return Checkpoint.from_node(node)

    def _expect(self, node: Node, *, after: float) -> None:
        life = self._life
        self._next_revert.expect(life.registry, life.require_record(), node, after=after)

    def list(self) -> list[Checkpoint]:
        from quicksand.snapshots.checkpoint import list_checkpoints  # noqa: PLC0415

        return list_checkpoints(self._life.history())

    async def screen(self, tag: str) -> bytes | None:
        from quicksand.snapshots.thumbnails import read_thumbnail  # noqa: PLC0415

        history = self._life.history()
        return await asyncio.to_thread(lambda: read_thumbnail(history.place, history.find(tag).id))

    async def delete(self, tag: str) -> None:
        from quicksand.snapshots.standby import forget_removed  # noqa: PLC0415

        history = self._life.history()
        async with history.locked():
            await in_thread_to_the_end(lambda: history.delete(tag))
        await forget_removed(self._life.registry, self._life.require_record())

    async def pin(self, tag: str, pinned: bool) -> None:
        history = self._life.history()
        async with history.locked():
            await in_thread_to_the_end(lambda: history.pin(history.find(tag), pinned))

    async def write_note(self, tag: str, note: str) -> None:
        history = self._life.history()
        async with history.locked():
            await in_thread_to_the_end(lambda: history.write_note(history.find(tag), note))

    async def diff(self, a: str, b: str | None) -> Sequence[FileChange]:
        from quicksand.snapshots.changed_files import diff_disks  # noqa: PLC0415

        return await diff_disks(self._life.registry, self._life.require_record(), a, b)

    async def clone(
        self,
        n: int,
        *,
        concurrency: int | None,
        at: str | None,
        names: Sequence[str | None] | None,
        mounts: str | None,
    ) -> Sequence[Life | Exception]:
        """For each clone its `Life`, or the error that kept it from starting."""
        from quicksand.life.cloning import make_clones  # noqa: PLC0415

        check_settings()
        await self.settle()
        registry, record = self._life.registry, self._life.require_record()
        made = await make_clones(
            registry, record, n, names=names, concurrency=concurrency, at=at, mounts=mounts
        )
        return [m if isinstance(m, Exception) else Life.of_machine(registry, m) for m in made]
