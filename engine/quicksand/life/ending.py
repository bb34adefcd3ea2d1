"""The end of a sandbox, and the work before it: its mounts are written back, its disk is saved."""

from __future__ import annotations

from quicksand.life.host_directories import HostDirectories
from quicksand.life.sandbox_life import Life
from quicksand.life.sandbox_saves import Saves


class Ending:
    """The end of one sandbox. `stop`, `abandon` and `trash` are methods of `Sandbox`."""

    def __init__(self, life: Life, directories: HostDirectories, saves: Saves) -> None:
        self._life = life
        self._directories = directories
        self._saves = saves

    async def stop(self, *, grace: float = 10.0) -> None:
        """Stop the VM: the guest syncs and powers down within ``grace`` seconds, or it is killed.

        An ephemeral sandbox is killed at once and removed. `stop` may be called in any state and
        any number of times. A sandbox made with ``save`` is saved first, unless ``grace`` is 0. If
        that save fails or is cancelled, the sandbox is stopped but kept, and the error says so.

        Raises MachineError if the VM's processes cannot be ended, and what `save` raises.
        """
        if self._life.record is not None:
            if grace > 0:
                await self._directories.mounts.write_back()
            await self._saves.stop(grace)

    def abandon(self) -> bool:
        """End an ephemeral VM of this process without waiting, if nothing is at stake: its keeper
        kills QEMU and removes all files, in some hundredths of a second, as it does when this
        process dies.

        Returns False and does nothing if `stop` is needed: the sandbox has a name or ports of the
        host, which must be free for the next one; it has mounted directories, to which its guest
        may have to write; it will be saved; it has lost its keeper, or is not ours.
        """
        if not self._life.is_nothing_at_stake or self._saves.at_stop is not None:
            return False
        if self._directories.mounts.list():
            return False
        self._life.close()
        return True

    async def trash(self) -> None:
        """Move the sandbox to the trash, where it stays for a week; `Sandbox.restore` brings it
        back. A running sandbox is stopped; if possible its last state is kept as an automatic
        checkpoint. An ephemeral sandbox is removed for good.

        Raises StateError if it was never started, HistoryError while another client works on its
        checkpoints, SandboxNotFoundError, HostError, MachineError.
        """
        await self._directories.mounts.write_back()
        await self._life.trash()
