"""Calls the engine: one method per verb, each on the engine's loop.

`door.service` imports this module on that loop at the first call, so that the engine's import
delays neither the first paint nor a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from quicksand.base.errors import HistoryError, QuicksandError
from quicksand.base.paths import paths
from quicksand.base.threads import in_thread_to_the_end
from quicksand.guest.traffic import GuestTraffic
from quicksand.life.sandbox_removal import remove_sandbox
from quicksand.life.sandbox_trash import SandboxTrash
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox

from quicksand_tui.door import saves
from quicksand_tui.door.look import view_of
from quicksand_tui.door.protocol import Progress, Report, ShellView
from quicksand_tui.door.terminals import PANE_NAME, birth_of
from quicksand_tui.forms.checks import machine_keywords
from quicksand_tui.model.jobs import CommandOutput, Failure, OperationError
from quicksand_tui.model.sandboxes import GuestView, ProcessView, RemovedView
from quicksand_tui.model.text import sanitise, sanitise_lines
from quicksand_tui.pixels.small import fit, read_png

if TYPE_CHECKING:
    from quicksand_tui.door.saves_look import Found
    from quicksand_tui.model.checkpoints import CheckpointView
    from quicksand_tui.model.specs import CheckpointSpec, MountSpec, NewSpec, Told
    from quicksand_tui.pixels.cells import Cells
    from quicksand_tui.verbs.record import SandboxVerb

STAGES = {
    "image": "find the image",
    "accelerator": "probe the accelerator",
    "disk": "make the disk",
    "qemu": "start QEMU",
    "guest": "boot the guest",
    "desktop": "wait for the desktop",
}
NAME_LIMIT = 63
"""The longest name shown, in characters; the engine's limit for names."""
SHELLS_WAIT_S = 2.0
"""Seconds to wait for a guest to list its terminals."""
ANSWER_S = 5.0
"""Seconds to wait for a guest to report about itself."""
BUSIEST = 50
"""How many processes of a guest are shown."""
NOTICE_LIMIT = 300
"""Characters shown of what a start could not do."""
COMMAND_LIMIT = 200
USER_LIMIT = 32
"""Characters shown of a process's command and user."""
OUTPUT_MAX = 64 * 1024
"""Bytes kept of a command's output; the rest is read and dropped, so that the command goes on."""
LINES_MAX = 5000
"""Lines kept of a command's output."""
ONE_STREAM = "exec 2>&1; "
"""Merges both streams in the guest, where alone the order of the writes is known."""
PATIENCE_S = 15.0
"""Seconds to wait for the guest's answer after the command's own timeout."""


class Engine:
    """Implements `door.protocol.Engine`. Methods raise QuicksandError or OSError as the engine
    does."""

    def __init__(self, learn: Callable[[Mapping[str, Found]], None]) -> None:
        """Calls ``learn`` with the verdicts of verified saves, by key."""
        self._learn = learn
        self._kept: dict[str, Sandbox] = {}
        """By id, the sandboxes last worked on: each prepares its next revert in the background."""

    def close(self) -> None:
        """Closes all sandboxes; their machines keep running."""
        for sandbox in self._kept.values():
            sandbox.close()
        self._kept.clear()

    # A sandbox's life

    async def create(self, spec: NewSpec, report: Report) -> tuple[str, ...]:
        sandbox: Sandbox | None = None

        def progress(stage: str, step: int, steps: int) -> None:
            if sandbox is not None:
                report(_progress(sandbox.id, stage, step + 1, steps))

        sandbox = Sandbox(
            image=spec.save or spec.image,
            name=spec.name,
            build=True,
            progress_callback=progress,
            **machine_keywords(spec),
        )
        report(_progress(sandbox.id))
        return await _start(sandbox)

    async def start(self, sandbox_id: str, report: Report, *, at: str = "") -> tuple[str, ...]:
        sandbox = Sandbox.open(
            sandbox_id,
            progress_callback=lambda stage, step, steps: report(
                _progress(sandbox_id, stage, step + 1, steps)
            ),
        )
        report(_progress(sandbox_id))
        return await _start(sandbox, at=at)

    async def carry_out(self, verb: SandboxVerb, sandbox_id: str) -> None:
        await verb.carry_out(sandbox_id)

    async def delete(self, sandbox_id: str) -> RemovedView:
        # Otherwise it would go on preparing its next revert.
        if (kept := self._kept.pop(sandbox_id, None)) is not None:
            kept.close()
        removed = await remove_sandbox(
            Registry(paths()), sandbox_id, stop=True, why="deleted in the app"
        )
        trashed = removed.trashed
        return RemovedView(
            id=removed.id,
            name=sanitise(removed.name, limit=NAME_LIMIT),
            in_trash=trashed is not None,
            goes_on=trashed is not None and bool(trashed.instant),
            not_kept=sanitise(removed.not_kept),
        )

    async def bring_back(self, sandbox_id: str, report: Report) -> bool:
        trash = SandboxTrash(Registry(paths()))
        trashed = trash.find(sandbox_id)
        report(Progress(sandbox_id, "out of the trash"))
        await in_thread_to_the_end(lambda: trash.restore(sandbox_id))
        if not trashed.instant:
            return False
        report(Progress(sandbox_id, "going on where it was"))
        await _start(Sandbox.open(sandbox_id), at=trashed.instant)
        return True

    # Checkpoints

    async def checkpoint(self, sandbox_id: str, spec: CheckpointSpec) -> CheckpointView:
        with self._kept_open(sandbox_id) as sandbox:
            return view_of(await sandbox.checkpoint(spec.tag or None, note=spec.note))

    async def revert(self, sandbox_id: str, checkpoint_id: str) -> CheckpointView:
        with self._kept_open(sandbox_id) as sandbox:
            return view_of(await sandbox.revert(checkpoint_id))

    async def undo(self, sandbox_id: str) -> CheckpointView:
        with contextlib.closing(Sandbox.open(sandbox_id)) as sandbox:
            return view_of(await sandbox.undo())

    async def clone(
        self, sandbox_id: str, count: int, *, at: str = "", mounts: str = ""
    ) -> tuple[str, ...]:
        with contextlib.closing(Sandbox.open(sandbox_id)) as sandbox:
            clones = await sandbox.clone(count, at=at or None, mounts=mounts or None)
        for clone in clones:
            clone.detach()
            clone.close()
        return tuple(sanitise(clone.name, limit=NAME_LIMIT) for clone in clones)

    async def pin_checkpoint(self, sandbox_id: str, checkpoint_id: str, *, pinned: bool) -> None:
        with contextlib.closing(Sandbox.open(sandbox_id)) as sandbox:
            await sandbox.pin_checkpoint(checkpoint_id, pinned)

    async def note_checkpoint(self, sandbox_id: str, checkpoint_id: str, note: str) -> None:
        with contextlib.closing(Sandbox.open(sandbox_id)) as sandbox:
            await sandbox.note_checkpoint(checkpoint_id, note)

    async def delete_checkpoint(self, sandbox_id: str, checkpoint_id: str) -> None:
        with contextlib.closing(Sandbox.open(sandbox_id)) as sandbox:
            await sandbox.delete_checkpoint(checkpoint_id)

    @contextlib.contextmanager
    def _kept_open(self, sandbox_id: str) -> Iterator[Sandbox]:
        """Opens a sandbox, running or not. On success it stays open until the app ends, to prepare
        its next revert."""
        sandbox = Sandbox.open(sandbox_id)
        try:
            yield sandbox
        except BaseException:
            sandbox.close()
            raise
        if (before := self._kept.pop(sandbox_id, None)) is not None:
            before.close()
        sandbox.disconnect()
        self._kept[sandbox_id] = sandbox

    # The host's directories

    async def mount(self, sandbox_id: str, spec: MountSpec) -> None:
        with contextlib.closing(Sandbox.attach(sandbox_id)) as sandbox:
            await sandbox.mount(spec.host, spec.guest, spec.readonly, protect=spec.protect)

    async def unmount(self, sandbox_id: str, guest: str, *, force: bool) -> None:
        with contextlib.closing(Sandbox.attach(sandbox_id)) as sandbox:
            await sandbox.unmount(guest, force=force)

    # Saves

    save = staticmethod(saves.save)
    delete_saves = staticmethod(saves.delete)
    restore_saves = staticmethod(saves.restore)
    purge_saves = staticmethod(saves.purge)
    export_save = staticmethod(saves.export)
    import_bundle = staticmethod(saves.import_bundle)

    async def verify_saves(self, keys: Sequence[str], report: Report, *, deep: bool) -> Told:
        found = await saves.verify(keys, report, deep=deep)
        self._learn(found.verdicts)
        return found.tell()

    # Guests

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        sandbox = Sandbox.attach(sandbox_id)
        try:
            async with asyncio.timeout(SHELLS_WAIT_S):
                listed = await sandbox.shells()
        finally:
            sandbox.close()
        shells = [
            ShellView(
                session=shell.session,
                command=sanitise(" ".join(shell.argv), limit=60),
                created=shell.created,
                birth=birth_of(shell),
                clients=shell.attached,
                is_pane=shell.name == PANE_NAME,
            )
            for shell in listed
            if shell.alive
        ]
        return tuple(sorted(shells, key=lambda shell: -shell.created))

    async def look_inside(self, sandbox_id: str) -> GuestView:
        sandbox = Sandbox.attach(sandbox_id)
        try:
            async with asyncio.timeout(ANSWER_S):
                stats = await sandbox.stats()
                processes = await sandbox.processes()
        finally:
            sandbox.close()
        busiest = sorted(processes, key=lambda process: -process.cpu_s)[:BUSIEST]
        return GuestView(
            memory_total=stats.guest_memory_total,
            memory_used=max(0, stats.guest_memory_total - stats.guest_memory_available),
            disk_total=stats.guest_disk_total,
            disk_used=max(0, stats.guest_disk_total - stats.guest_disk_free),
            load=stats.guest_load,
            processes=stats.guest_processes,
            uptime_s=stats.guest_uptime_s,
            traffic=stats.guest_traffic,
            busiest=tuple(
                ProcessView(
                    pid=process.pid,
                    user=sanitise(process.user, limit=USER_LIMIT),
                    rss=process.rss,
                    cpu_s=process.cpu_s,
                    command=sanitise(process.command, limit=COMMAND_LIMIT),
                )
                for process in busiest
            ),
        )

    async def look_at_screen(
        self, sandbox_id: str, room: tuple[int, int], *, at: str = ""
    ) -> Cells:
        with contextlib.closing(Sandbox.open(sandbox_id)) as sandbox:
            if not at:
                async with asyncio.timeout(ANSWER_S):
                    image = await sandbox.screenshot(format="image")
                return await asyncio.to_thread(fit, image, *room)
            data = await sandbox.checkpoint_screen(at)
        if data is None:
            return ()
        try:
            return await asyncio.to_thread(lambda: fit(read_png(data), *room))
        except ValueError as error:
            raise HistoryError(f"the picture of the checkpoint cannot be shown: {error}") from error

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
        sandbox = Sandbox.attach(sandbox_id)
        kept, is_cut = bytearray(), False
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s + PATIENCE_S):
                async with await sandbox.spawn(ONE_STREAM + command, timeout=timeout_s) as running:
                    async for _, data in running.output():
                        room = OUTPUT_MAX - len(kept)
                        kept += data[:room]
                        is_cut = is_cut or len(data) > room
        except TimeoutError:
            raise OperationError(
                Failure(title="The command did not run", message="the guest does not answer")
            ) from None
        finally:
            sandbox.close()
        status = running.status
        assert status is not None
        lines = sanitise_lines(kept.decode("utf-8", "replace"))
        if lines and not lines[-1]:
            lines.pop()
        return CommandOutput(
            exit_code=status.exit_code,
            seconds=time.monotonic() - started,
            lines=tuple(lines[:LINES_MAX]),
            is_cut=is_cut or len(lines) > LINES_MAX,
            timed_out=status.timed_out,
        )


async def ask_traffic(sandbox_id: str) -> GuestTraffic | None:
    """Asks a guest for its traffic; returns None if it does not answer or has no network."""
    with contextlib.suppress(QuicksandError, TimeoutError, OSError):
        # Watching must change nothing, not even a clock that the user has set.
        sandbox = Sandbox.attach(sandbox_id, set_clock=False)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await sandbox.traffic()
        finally:
            sandbox.close()
    return None


def _progress(sandbox_id: str, stage: str = "", step: int = 0, steps: int = 0) -> Progress:
    return Progress(sandbox_id, STAGES.get(stage, stage), step, steps)


async def _start(sandbox: Sandbox, *, at: str = "") -> tuple[str, ...]:
    """Returns what the start could not do, in words."""
    await sandbox.start(at=at or None)
    sandbox.detach()
    sandbox.close()
    return tuple(sanitise(notice, limit=NOTICE_LIMIT) for notice in sandbox.notices)
