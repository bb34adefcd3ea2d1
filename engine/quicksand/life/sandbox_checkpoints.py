"""A sandbox's checkpoints (take, revert, list, delete, compare) and its clones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand.base.effort import best_effort
from quicksand.base.errors import ConfigError, HistoryError
from quicksand.base.settings import check_settings
from quicksand.base.threads import in_thread_to_the_end
from quicksand.life import machinery
from quicksand.life.sandbox_life import Life

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quicksand_disks.changes import FileChange
    from quicksand_disks.comparing import FileVersions, Patch

    from quicksand.life.guest import InGuest
    from quicksand.life.sandbox_mounts import Mounts
    from quicksand.snapshots.comparison import Difference, Pair
    from quicksand.snapshots.recognition import ShellTail
    from quicksand.things.checkpoint import Checkpoint


def ignore_progress(steps: int) -> None:
    """Does nothing."""


class Checkpoints:
    """The checkpoints of one sandbox. The methods are those of `Sandbox`, but for `clone`."""

    def __init__(self, life: Life, guest: InGuest, mounts: Mounts) -> None:
        self._life = life
        self._guest = guest
        self._mounts = mounts

    async def checkpoint(
        self,
        tag: str | None = None,
        *,
        note: str = "",
        replace: bool = False,
        tier: str | None = None,
        unmount_9p: bool = False,
    ) -> Checkpoint:
        """Take a checkpoint of the running sandbox: memory, processes and disk. Without ``tag`` it
        is numbered.

        ``tier`` is how the memory is kept. "pages", the default where it is possible, pauses the VM
        for milliseconds; "internal" pauses it until QEMU has written all of its memory.

        While a directory is mounted by 9p there can be no checkpoint. With ``unmount_9p`` the guest
        unmounts it for that moment, which fails if a program uses it.

        Raises ConfigError for a bad tag or tier, or a tag that is taken (unless ``replace``),
        StateError if the sandbox is not running, HistoryError, HostError, MachineError. There is
        then no checkpoint, and the VM keeps running.
        """
        check_settings()
        record = self._life.require_record()
        # `diff` reads the disk, so data that the guest still has in memory must get there.
        await self._guest.sync()
        shell = await self._guest.look_at_shell()
        async with self._mounts.without_ninep(unmount_9p):
            node = await machinery.take_checkpoint(
                self._life.registry, record, tag, note=note, replace_tag=replace, tier=tier
            )
        await self._keep_shell(shell, node.id)
        return machinery.checkpoint_of(node)

    async def revert(
        self, tag: str, *, keep_now: bool = True, unmount_9p: bool = False
    ) -> Checkpoint:
        """Revert the running sandbox to the checkpoint with that tag or id: memory, processes and
        disk are as they were. OTHER:TAG names a checkpoint of another sandbox.

        Unless ``keep_now`` is false, the present state is first kept as an automatic checkpoint,
        to which `undo` returns; ``unmount_9p`` is that of `checkpoint`. Commands in flight, of all
        clients, raise RevertedError.

        The checkpoint that is returned says how it was done: ``revert_form`` is "warm", "flushed"
        or "new QEMU", and ``revert_why`` why in no better form.

        Raises CheckpointNotFoundError (a ValueError), StateError, HistoryError, HostError,
        MachineError, AgentError, MountError. Until the present state is given up, the VM goes on in
        it after any error.
        """
        return await self._revert(tag, keep_now=keep_now, unmount_9p=unmount_9p)

    async def undo(self, *, unmount_9p: bool = False) -> Checkpoint:
        """Undo the last revert, whoever made it: revert to the automatic checkpoint that it took.
        A second `undo` redoes it. Raises as `revert`, and StateError if there was no revert."""
        return await self._revert(None, unmount_9p=unmount_9p)

    async def _revert(
        self, tag: str | None, *, keep_now: bool = True, unmount_9p: bool = False
    ) -> Checkpoint:
        check_settings()
        record = self._life.require_record()
        mounts = await self._mounts.write_back()
        self._mounts.require_servers(mounts)
        shell = await self._guest.look_at_shell() if keep_now else None
        async with self._mounts.without_ninep(unmount_9p):
            done = await machinery.revert(
                self._life.registry, record, tag, keep_now=keep_now, link=self._life.link
            )
            self._life.look_again()
            node = done.node
            said = f"the sandbox is reverted to {node.tag!r}"
            await self._mounts.attach_again(mounts, said, is_past=node.shares)
        # The guest has been reverted by now, and has its mounts again.
        if isinstance(done.kept, HistoryError):
            raise done.kept
        if done.kept is not None:
            await self._keep_shell(shell, done.kept.id)
        found = machinery.checkpoint_of(node)
        return replace(
            found,
            revert_form=done.form.value,
            revert_why=done.why,
            revert_answer_s=done.answer_s,
            revert_pause_s=done.pause_s,
        )

    def checkpoints(self) -> list[Checkpoint]:
        """All checkpoints, the oldest first. Raises OSError."""
        return machinery.list_checkpoints(self._life.history())

    async def checkpoint_screen(self, tag: str) -> bytes | None:
        """The guest's screen just before the checkpoint with that tag or id was taken: a PNG of at
        most 320 pixels a side; None if there is none, as for a sandbox without a display. The
        sandbox may be in any state. Raises CheckpointNotFoundError, HistoryError."""
        history = self._life.history()
        return await asyncio.to_thread(
            lambda: machinery.read_thumbnail(history.place, history.find(tag).id)
        )

    async def checkpoint_shell(self, tag: str) -> ShellTail | None:
        """The end of a terminal's output just before the checkpoint with that tag or id was taken,
        of the one that was opened last; None if there is none. The sandbox may be in any state.
        Raises CheckpointNotFoundError, HistoryError."""
        history = self._life.history()
        return await asyncio.to_thread(
            lambda: machinery.read_shell(history.place, history.find(tag).id)
        )

    async def _keep_shell(self, shell: ShellTail | None, checkpoint: str) -> None:
        if shell is None:
            return
        place = self._life.history().place
        with best_effort("keep the shell's end beside a checkpoint", self._life.log):
            await in_thread_to_the_end(lambda: machinery.keep_shell(shell, place, checkpoint))

    async def delete_checkpoint(self, tag: str) -> None:
        """Delete the checkpoint with that tag or id; data that other checkpoints need stay. The
        sandbox may be in any state. A checkpoint that cannot be read is deleted by its id.

        Raises CheckpointNotFoundError, HistoryError if it is pinned or while another client works
        on the sandbox's checkpoints, HostError.
        """
        history = self._life.history()
        async with machinery.locked_history(history):
            await in_thread_to_the_end(lambda: history.delete(tag))

    async def pin_checkpoint(self, tag: str, pinned: bool = True) -> None:
        """Pin a checkpoint, so that it cannot be deleted, or unpin it. Raises as
        `delete_checkpoint`."""
        history = self._life.history()
        async with machinery.locked_history(history):
            await in_thread_to_the_end(lambda: history.pin(history.find(tag), pinned))

    async def note_checkpoint(self, tag: str, note: str) -> None:
        """Replace a checkpoint's note; "" removes it. Raises as `delete_checkpoint`."""
        history = self._life.history()
        async with machinery.locked_history(history):
            await in_thread_to_the_end(lambda: history.write_note(history.find(tag), note))

    async def diff(self, a: str, b: str | None = None, *, parent: bool = False) -> list[FileChange]:
        """The files that differ between the disks of the checkpoints ``a`` and ``b``, sorted by
        path. Without ``b``, ``a`` is compared with the present disk; of a running sandbox that is
        what the guest has written to it so far. With ``parent``, the parent of ``a`` is compared
        with ``a``, or the image if it is the first one. Nothing is booted.

        Raises ConfigError for both ``b`` and ``parent``, StateError if the sandbox was never
        started, CheckpointNotFoundError, ImageError or HistoryError for a disk that cannot be read.
        """
        _, pair = self._pair(a, b, parent)
        record = self._life.require_record()
        registry = self._life.registry
        return [*await machinery.diff_disks(registry, record, pair.a, pair.b, parent=pair.parent)]

    async def compare(
        self,
        a: str,
        b: str | None = None,
        *,
        parent: bool = False,
        lines: bool = True,
        on_progress: Callable[[int], None] = ignore_progress,
    ) -> Difference:
        """As `diff`, and how many lines of small texts were added and removed, and which packages
        of dpkg or apk differ, unless ``lines`` is false. A running guest is first asked to write
        what it holds in memory.

        ``on_progress`` gets a growing number of steps, on another thread. Raises as `diff`.
        """
        has_present, pair = self._pair(a, b, parent)
        asker = self._guest.asker if has_present else None
        if asker is not None:
            await self._guest.sync()
        return await machinery.compare_disks(
            self._life.registry,
            self._life.require_record(),
            pair,
            lines=lines,
            is_synced=asker is not None,
            report=on_progress,
        )

    async def compare_file(
        self, path: str, a: str, b: str | None = None, *, parent: bool = False
    ) -> FileVersions:
        """Return the absolute ``path`` of the guest as each of the two disks of `diff` has it:
        type, permissions, and the contents of files of at most 256 KiB. Raises as `diff`."""
        _, pair = self._pair(a, b, parent)
        return await machinery.read_file(
            self._life.registry, self._life.require_record(), pair, path
        )

    async def patch(
        self, a: str, b: str | None = None, *, parent: bool = False, below: str = "/"
    ) -> Patch:
        """The differences of `diff` as a patch, for `git apply` or `patch -p1` at the root of a
        copy of the first disk's files; only those ``below`` a path. Large and binary files, devices
        and owners are not in it. Raises as `diff`."""
        has_present, pair = self._pair(a, b, parent)
        if has_present:
            await self._guest.sync()
        return await machinery.write_patch(
            self._life.registry, self._life.require_record(), pair, below=below
        )

    @staticmethod
    def _pair(a: str, b: str | None, parent: bool) -> tuple[bool, Pair]:
        """Return whether the present disk is one of the two, and both."""
        if parent and b is not None:
            raise ConfigError("a checkpoint is compared with another one or with its parent")
        pair = machinery.Pair(a=a, b=b, parent=parent)
        return pair.has_present, pair

    async def clone(
        self,
        n: int,
        *,
        concurrency: int | None,
        at: str | None,
        names: Sequence[str | None] | None,
        mounts: str | None,
    ) -> Sequence[Life | Exception]:
        """Return for each clone its `Life`, or the error that kept it from starting."""
        from quicksand.life.cloning import make_clones  # noqa: PLC0415

        check_settings()
        registry, record = self._life.registry, self._life.require_record()
        made = await make_clones(
            registry, record, n, names=names, concurrency=concurrency, at=at, mounts=mounts
        )
        return [m if isinstance(m, Exception) else Life.of_machine(registry, m) for m in made]
