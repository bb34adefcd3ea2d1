"""What the app shows: one frozen picture of the world, and the only door to the engine.

The view is a pure function of a `Snapshot`. A `Service` makes snapshots and carries out actions;
`quicksand_tui.service` has the real one, tests have theirs. No import of the engine here: this
module is needed for the first paint.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from quicksand_tui.all_saves import NO_SAVES, SavesView
from quicksand_tui.keymap import NO_KEYS, Keymap
from quicksand_tui.text import age_text, size_text

if TYPE_CHECKING:
    from quicksand_tui.listed import ImageView, SandboxView
    from quicksand_tui.past import CheckpointView
    from quicksand_tui.saved import SaveView, TrashedView


class State(StrEnum):
    """What a sandbox is doing, as one word."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    CRASHED = "crashed"
    """It ended without being asked to."""
    BROKEN = "broken"
    """Its record cannot be read."""
    STOPPING = "stopping"
    DELETING = "deleting"


LIVE = frozenset({State.STARTING, State.RUNNING, State.PAUSED, State.STOPPING})
"""States with a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """What the host has left."""

    memory_free: int | None = None
    disk_free: int | None = None


class Verb(StrEnum):
    START = "start"
    STOP = "stop"
    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    DELETE = "delete"
    CHECKPOINT = "checkpoint"
    REVERT = "revert"
    UNDO = "undo"
    REMOVE = "removal of a checkpoint"
    CLONE = "clone"
    PIN = "pin"
    NOTE = "note"
    SAVE = "save"
    EXPORT = "export"
    IMPORT = "import"
    VERIFY = "verification"
    DISCARD = "removal"
    """Of saves: to the trash, or for good."""
    RESTORE = "way back from the trash"
    RUN = "command"


SAVE_VERBS = frozenset({Verb.EXPORT, Verb.IMPORT, Verb.VERIFY, Verb.DISCARD, Verb.RESTORE})
"""Of jobs that no sandbox's row tells of."""

JOB_STATES = {
    Verb.START: State.STARTING,
    Verb.STOP: State.STOPPING,
    Verb.KILL: State.STOPPING,
    Verb.DELETE: State.DELETING,
}
"""What a sandbox is shown to be while that is under way; the others leave it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An operation of this app that is under way."""

    sandbox_id: str
    """The sandbox's; of a job that is about saves, a name of its own."""
    name: str
    verb: Verb
    image: str = ""
    stage: str = ""
    """What it is doing now, in words."""
    step: int = 0
    steps: int = 0
    """``step`` of ``steps`` is under way; 0 of 0 if there is only one."""
    started: float = 0.0
    command: str = ""
    """That does the same."""
    cancelling: bool = False
    about: frozenset[str] = frozenset()
    """Keys of the saves that it is about."""
    done: int = 0
    total: int = 0
    """``done`` of ``total`` bytes; 0 of 0 where nobody counts them."""
    rate: float = 0.0
    """Bytes a second; 0 until it can be told."""

    @property
    def progress(self) -> str:
        """For example "5/5 boot the guest", or "reading 43% · 120M/s · 12s left"."""
        if self.total:
            text = f"{self.stage} {self.done * 100 // self.total}%".strip()
            if not self.rate:
                return text
            left = age_text((self.total - self.done) / self.rate)
            return f"{text} · {size_text(int(self.rate))}/s · {left} left"
        if not self.steps:
            return self.stage
        return f"{self.step}/{self.steps} {self.stage}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The world at one moment."""

    taken: float
    """Unix time."""
    loaded: bool = True
    """False before the first look at the disk."""
    sandboxes: tuple[SandboxView, ...] = ()
    images: tuple[ImageView, ...] = ()
    host: HostView = HostView()
    error: str = ""
    """Why the store cannot be read, or ""."""
    jobs: tuple[Job, ...] = ()
    saves: SavesView = NO_SAVES
    """Looked at only while somebody sees them."""
    keymap: Keymap = NO_KEYS
    """The app's, for what names keys."""
    read_only: bool = False
    """The app changes nothing."""

    def sandbox(self, sandbox_id: str | None) -> SandboxView | None:
        return next((s for s in self.sandboxes if s.id == sandbox_id), None)

    def image(self, name: str | None) -> ImageView | None:
        return next((i for i in self.images if i.name == name), None)

    def job(self, sandbox_id: str | None) -> Job | None:
        return next((j for j in self.jobs if j.sandbox_id == sandbox_id), None)

    def job_about(self, key: str | None) -> Job | None:
        """What is being done with a save."""
        return next((j for j in self.jobs if key in j.about), None)

    @property
    def save_jobs(self) -> tuple[Job, ...]:
        """Those that are about saves and no sandbox."""
        return tuple(job for job in self.jobs if job.verb in SAVE_VERBS)

    @property
    def usable_images(self) -> tuple[ImageView, ...]:
        return tuple(image for image in self.images if not image.error)


class Panel(StrEnum):
    """A list of the main screen."""

    SANDBOXES = "sandboxes"
    SAVES = "saves"
    IMAGES = "images"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the cursor is on."""

    panel: Panel = Panel.SANDBOXES
    sandbox: SandboxView | None = None
    marked_sandboxes: tuple[SandboxView, ...] = ()
    image: ImageView | None = None
    checkpoint: CheckpointView | None = None
    in_tree: bool = False
    """The cursor is among the checkpoints."""
    save: SaveView | None = None
    trashed: TrashedView | None = None
    marked: tuple[SaveView, ...] = ()
    marked_trash: tuple[TrashedView, ...] = ()

    @property
    def sandboxes(self) -> tuple[SandboxView, ...]:
        """What an action on several is about: the marked ones, else the one under the cursor."""
        return self.marked_sandboxes or ((self.sandbox,) if self.sandbox is not None else ())

    def of(self, sandbox: SandboxView) -> Selection:
        """This one alone."""
        return Selection(panel=self.panel, sandbox=sandbox)

    @property
    def saves(self) -> tuple[SaveView, ...]:
        """What an action on several is about: the marked ones, else the one under the cursor."""
        return self.marked or ((self.save,) if self.save is not None else ())

    @property
    def trash(self) -> tuple[TrashedView, ...]:
        """As `saves`, in the trash."""
        return self.marked_trash or ((self.trashed,) if self.trashed is not None else ())
