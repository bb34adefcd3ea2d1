"""What the app wants of the engine, and what that reports. Tests have services of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from quicksand_tui.all_saves import SavesView
    from quicksand_tui.guest_view import GuestView
    from quicksand_tui.panes.link import GuestTerminal, Sink
    from quicksand_tui.past import CheckpointView
    from quicksand_tui.run_many import CommandOutput
    from quicksand_tui.saves_spec import ExportSpec, ImportSpec, SaveSpec, Told
    from quicksand_tui.snapshot import Snapshot
    from quicksand_tui.specs import CheckpointSpec, NewSpec


class LogKind(StrEnum):
    CONSOLE = "console"
    QEMU = "qemu"


class LogSource(Protocol):
    """A log that grows. `read` blocks for a disk read, so it is called in a thread."""

    def read(self) -> str:
        """What was added since the last call; the first time, the end of what there is."""

    def close(self) -> None:
        """Let go of it; also while another thread reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellView:
    """A terminal in a guest that nobody looks at. All text is fit to be shown."""

    session: str
    """The guest's name for it; exactly as it has it."""
    command: str
    created: float
    """Unix time, by the guest's clock."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where an operation is."""

    sandbox_id: str
    """"" for one that knows none; that of a new sandbox as soon as it has one."""
    stage: str = ""
    step: int = 0
    steps: int = 0
    done: int = 0
    total: int = 0
    """Bytes, where they are counted."""


Report = Callable[[Progress], None]
"""Called from any thread."""


class SavesService(Protocol):
    """What a service does about saves. Keys are those of the views. Operations raise
    OperationError; cancelling one returns after everything it had begun is undone."""

    def read_saves(self, *, fresh: bool = False) -> SavesView:
        """Look at all saves and the trash. Blocks, with thousands of them for seconds; called in a
        thread, never twice at a time. Gives the same object as before where nothing has changed;
        ``fresh`` looks all the same. Never raises for what it finds."""

    async def save(self, sandbox_id: str, spec: SaveSpec, report: Report) -> Told:
        """Keep a sandbox's disk, running or not, among the user's own saves."""

    async def delete_saves(self, keys: Sequence[str], report: Report, *, now: bool) -> Told:
        """Move saves to the trash, or remove them for good ``now``. A cancellation leaves those
        that are not yet removed."""

    async def restore_saves(self, keys: Sequence[str], report: Report, *, name: str = "") -> Told:
        """Bring back what is in the trash, under another ``name`` if one is given."""

    async def purge_saves(self, keys: Sequence[str]) -> Told:
        """Remove some of the trash for good."""

    async def export_save(self, key: str, spec: ExportSpec, report: Report) -> Told: ...

    async def import_bundle(self, spec: ImportSpec, report: Report) -> Told:
        """Take what a bundle holds: a save, a stopped sandbox, or an image."""

    async def verify_saves(self, keys: Sequence[str], report: Report, *, deep: bool) -> Told:
        """Look at saves from outside, or ``deep`` at every byte; the views tell it afterwards. That
        one is not whole is an OperationError."""


class Service(SavesService, Protocol):
    """The only door to the engine. Operations raise OperationError; cancelling one returns after
    everything it had begun is undone."""

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> Snapshot:
        """Look at the disk. Blocks for milliseconds; called in a thread, never twice at a time.

        CPU and memory are read of the running sandboxes in ``visible`` only; the guests of those in
        ``network`` are asked, every few seconds, how much they receive and send. ``fresh`` forgets
        what was remembered. Never raises for what it finds.
        """

    async def create(self, spec: NewSpec, report: Report) -> None:
        """Start a new sandbox that outlives the app. The first report gives its id."""

    async def start(self, sandbox_id: str, report: Report, *, at: str = "") -> None:
        """Start a stopped one, at the checkpoint of the id ``at`` if there is one; it outlives the
        app."""

    async def stop(self, sandbox_id: str) -> None: ...

    async def kill(self, sandbox_id: str) -> None: ...

    async def pause(self, sandbox_id: str) -> None: ...

    async def resume(self, sandbox_id: str) -> None: ...

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        """The terminals that were left in it, newest first. Never raises for what it finds: who
        cannot be asked has none."""

    async def delete(self, sandbox_id: str) -> None:
        """Remove a sandbox and its disk; one that runs is killed."""

    async def checkpoint(self, sandbox_id: str, spec: CheckpointSpec) -> CheckpointView:
        """Keep this instant of one that runs or is paused."""

    async def revert(self, sandbox_id: str, checkpoint_id: str) -> CheckpointView:
        """Go back to a checkpoint; the present is kept."""

    async def undo(self, sandbox_id: str) -> CheckpointView:
        """Take the last revert back."""

    async def delete_checkpoint(self, sandbox_id: str, checkpoint_id: str) -> None: ...

    async def clone(self, sandbox_id: str, count: int, *, at: str = "") -> tuple[str, ...]:
        """Make sandboxes that go on from this instant, or from the checkpoint of the id ``at``;
        they outlive the app. All or none. Gives their names."""

    async def pin_checkpoint(self, sandbox_id: str, checkpoint_id: str, *, pinned: bool) -> None:
        """Keep a checkpoint from being deleted, or no longer."""

    async def note_checkpoint(self, sandbox_id: str, checkpoint_id: str, note: str) -> None: ...

    async def look_inside(self, sandbox_id: str) -> GuestView:
        """Ask the guest of a running sandbox how it is."""

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
        """Run a shell's command in a running sandbox to its end; after ``timeout_s`` it is ended.
        Of its output 64 KiB are kept."""

    def open_terminal(
        self, sandbox_id: str, session: str, size: tuple[int, int], sink: Sink
    ) -> GuestTerminal:
        """A terminal in a guest, a new one or, with ``session``, one that is there."""

    def open_log(self, sandbox_id: str, kind: LogKind) -> LogSource: ...

    def close(self) -> None:
        """Let go of everything; sandboxes go on. Blocks until nothing of ours is half done."""
