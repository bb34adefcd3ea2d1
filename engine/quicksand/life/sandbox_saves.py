"""Saves of a sandbox's disk, among them the one that is made when it stops."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.footprint import Footprint
from quicksand.base.paths import paths
from quicksand.base.threads import Stopped, in_thread_to_the_end, stopped_when_cancelled, to_the_end
from quicksand.life import machinery
from quicksand.life.basis import workspace_of
from quicksand.life.guest import InGuest
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.life.sandbox_life import Life
from quicksand.things.frozen import frozen

if TYPE_CHECKING:
    from quicksand.base.progress import Progress
    from quicksand.saves.save_manifest import Save, SaveManifest
    from quicksand.saves.saving import AutoSave, SaveOptions
    from quicksand.saves.store import SaveStore


@frozen
class MadeSave:
    """A save that was made."""

    save: Save
    size: int
    """Its allocated bytes; the lengths of its sparse files are larger."""


class Saves:
    """The saves of one sandbox. `save`, `save_on_stop` and `save_to` are methods of `Sandbox`."""

    def __init__(
        self, life: Life, guest: InGuest, checkpoints: Checkpoints, workspace: Path | None = None
    ) -> None:
        self._life = life
        self._guest = guest
        self._checkpoints = checkpoints
        self._workspace = workspace
        self.at_stop: AutoSave | None = None
        """The save to make when the sandbox stops."""

    def store(self, workspace: str | Path | None = None) -> SaveStore:
        """The store of ``workspace``, by default the sandbox's own workspace, or else
        ``.quicksand/sandboxes`` in the current directory."""
        return machinery.workspace_store(workspace_of(workspace) if workspace else self._workspace)

    async def save(
        self,
        name: str,
        *,
        workspace: str | Path | None = None,
        compress: bool = False,
        delete_checkpoints: bool = False,
        note: str = "",
        replace: bool = True,
        freeze: bool | None = None,
    ) -> SaveManifest:
        """Save the disk, running or not, as ``workspace/name`` (by default the workspace given to
        `Sandbox`, or ``.quicksand/sandboxes``). A running VM keeps running. ``Sandbox(image=name)``
        starts a new sandbox with this disk.

        A save that already has the name goes to the trash for a week, unless ``replace`` is false:
        then SaveError is raised. ``compress`` merges all layers into one compressed file.
        ``delete_checkpoints`` deletes the sandbox's checkpoints. ``freeze``: whether the guest
        freezes its file system (fsfreeze) for the moment of the save; None means only if the guest
        can sync within 0.1 s.

        Raises ConfigError for a bad name, SaveError, StateError, HistoryError, ImageError,
        HostError, MachineError; an existing save of that name is then left unchanged.
        """
        options = machinery.SaveOptions(
            compress=compress,
            delete_checkpoints=delete_checkpoints,
            note=note,
            replace=replace,
            freeze=freeze,
            progress=self._life.progress,
        )
        return (await self._save(self.store(workspace), name, options)).require()

    def save_on_stop(self, name: str, store: SaveStore) -> None:
        """Save the disk to ``store`` when the sandbox is stopped, like the keyword ``save``. Raises
        ConfigError for a bad name."""
        self.at_stop = machinery.AutoSave(machinery.check_save_name(name), store)

    async def save_to(
        self,
        name: str,
        *,
        workspace: Path | None = None,
        compress: bool = False,
        delete_checkpoints: bool = False,
        note: str = "",
        replace: bool = True,
        freeze: bool | None = None,
        progress: Progress | None = None,
    ) -> MadeSave:
        """Save the disk among the user's own saves, or to ``workspace``, and tell where it is.
        Parameters and errors are those of `save`; ``progress`` may raise to end it."""
        stop = threading.Event()

        def take(stage: str, done: int, total: int) -> None:
            if stop.is_set():  # the engine waits for its thread, which only an error ends early
                raise Stopped
            if progress is not None:
                progress(stage, done, total)

        options = machinery.SaveOptions(
            compress=compress,
            delete_checkpoints=delete_checkpoints,
            note=note,
            replace=replace,
            freeze=freeze,
            progress=take,
        )
        if workspace is None:
            store = machinery.SaveStore(paths().saves)
        else:
            store = machinery.workspace_store(workspace)
        saving = self._save(store, name, options)
        made = await stopped_when_cancelled(saving, stop.set, cancels=True)
        size = await in_thread_to_the_end(lambda: Footprint(made.root).size)
        return MadeSave(save=made, size=size)

    async def _save(self, store: SaveStore, name: str, options: SaveOptions) -> Save:
        record = self._life.require_record()
        return await machinery.save(
            self._life.registry, record, name, store, options, self._guest.asker
        )

    async def write_snapshot(self, target: Path, options: SaveOptions) -> None:
        record = self._life.require_record()
        await machinery.write_snapshot(
            self._life.registry, record, target, options, self._guest.asker
        )

    async def stop(self, grace: float) -> None:
        """Stop the sandbox; first make the save `at_stop`, if there is one."""
        saving = self.at_stop
        if saving is None or grace == 0 or not self._life.is_running:
            await self._life.stop(grace)
            return
        try:
            options = machinery.SaveOptions(progress=self._life.progress)
            await self._save(saving.store, saving.name, options)
        except BaseException as error:
            if not self._life.is_owned:  # it belongs to another process and keeps running
                raise
            # Only the sandbox's own disk still holds the data that could not be saved.
            await to_the_end(self._life.keep())
            await self._life.stop(grace)
            error.add_note(
                f"the sandbox {self._life.name!r} is kept, stopped: nothing of it is lost"
            )
            raise
        await self._life.stop(grace)
