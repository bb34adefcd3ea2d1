"""The state that the app shows, the jobs of this app, and the user's selection.

`views` are pure functions of a `World`, which `door` makes; tests make their own.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen
from quicksand.things.status import HAS_MACHINE

from quicksand_tui.model.jobs import SAVE_VERBS, Job
from quicksand_tui.model.keymap import NO_KEYS, Keymap
from quicksand_tui.model.shown_saves import NO_SAVES, SavesView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quicksand.things.image_info import ImageInfo
    from quicksand.things.mount_facts import MountFacts
    from quicksand.things.save import SaveFacts, TrashFacts

    from quicksand_tui.model.shown_sandboxes import CheckpointView, RemovedView, SandboxView


@frozen
class RoomView:
    """The room that a machine of a fleet has for sandboxes, in bytes."""

    memory: int
    """The most that all of them together may have."""
    free: int
    """The part of it that new ones may still have."""
    claims: int = 0
    """Places kept for sandboxes that do not run yet."""
    is_limit: bool = False
    """The machine refuses more, as does a node that has a part of its machine's memory."""


@frozen
class HostView:
    """Free memory and disk of the host, in bytes; None if unknown."""

    cpus: int | None = None
    """Processors that it may use; None if unknown."""
    memory_free: int | None = None
    disk_free: int | None = None
    spares: int = 0
    """Machines that wait for the next starts."""
    spares_memory: int = 0
    """Bytes of memory that they take."""
    room: RoomView | None = None
    """The room for sandboxes; only of machines of a fleet."""

    @property
    def free_for_new(self) -> int | None:
        """The bytes of memory that a new sandbox can have; None if unknown."""
        if self.room is None or not self.room.is_limit or self.memory_free is None:
            return self.memory_free
        return min(self.room.free, self.memory_free)


class MachineState(StrEnum):
    """The state of the connection to another machine."""

    CONNECTING = "connecting"
    """It has not answered yet since the app began."""
    THERE = "there"
    AWAY = "away"
    """It does not answer now, and is tried again; its last known state is shown."""
    UNANSWERED = "unanswered"
    """The user has left a question of ssh without an answer: it is not tried again by itself."""
    UNFIT = "unfit"
    """It answers, but cannot be used: `MachineView.why` says why. It is tried again."""


@frozen
class MachineView:
    """A machine whose sandboxes are listed in a group. All text is sanitised."""

    name: str
    """Its name in the config, or its address; "" is this machine."""
    address: str = ""
    state: MachineState = MachineState.THERE
    since: float = 0.0
    """Unix time of its last change of state."""
    why: str = ""
    """The reason why it is AWAY or UNFIT."""
    hint: str = ""
    silent_since: float | None = None
    """Unix time since when it does not answer although it is THERE; None if it answers."""
    images: tuple[ImageInfo, ...] = ()
    host: HostView = HostView()
    is_drained: bool = False
    """The fleet places no new sandboxes there."""

    @property
    def key(self) -> str:
        """Its row's key, which no sandbox has."""
        return f"{MACHINE_KEY}{self.name}"

    @property
    def has_own_loopback(self) -> bool:
        """Whether its ports are its own, unlike those of local nodes, which are this machine's."""
        return self.address.startswith("ssh://")


NONE_TOLD = SavesView()
"""The saves of a machine that has told of none: forms do not wait for them."""

MACHINE_KEY = "machine:"
HERE = MachineView(name="")
"""This machine."""


@frozen
class World:
    """All that the app knows at one moment."""

    taken: float
    """Unix time."""
    loaded: bool = True
    """False until the disk has been read."""
    images_loaded: bool = True
    """False as long as only the sandboxes have been read: they come first."""
    sandboxes: tuple[SandboxView, ...] = ()
    images: tuple[ImageInfo, ...] = ()
    host: HostView = HostView()
    error: str = ""
    """The reason why some sandboxes could not be read this time, so that their last known state is
    shown; "" if all were read."""
    images_error: str = ""
    """The reason why the images could not be read this time, likewise."""
    machines: tuple[MachineView, ...] = ()
    """The other machines: in their order in the config, then the local nodes of the fleet."""
    waiting: int = 0
    """The number of sandboxes that wait for a place in the fleet."""
    jobs: tuple[Job, ...] = ()
    saves: SavesView = NO_SAVES
    """Read only while a screen shows them."""
    keymap: Keymap = NO_KEYS
    """The app's keymap, for texts that name keys."""
    read_only: bool = False
    """The app changes nothing."""
    doing: Mapping[str, str] = field(default_factory=dict)
    """The programs that run in sandboxes, by id, as far as this app knows: those in its shells, and
    the last command that it ran there."""
    removed: tuple[RemovedView, ...] = ()
    """Sandboxes that an undo restores from the trash; empty unless deleting them was the last thing
    this app did."""

    def sandbox(self, sandbox_id: str | None) -> SandboxView | None:
        return next((s for s in self.sandboxes if s.id == sandbox_id), None)

    def find_sandbox(self, name: str) -> SandboxView | None:
        """Returns the sandbox with that id, or else with that name."""
        named = (view for view in self.sandboxes if view.name == name)
        return self.sandbox(name) or next(named, None)

    def machine(self, name: str) -> MachineView | None:
        """Returns another machine by its name."""
        return next((machine for machine in self.machines if machine.name == name), None)

    def at(self, name: str) -> World:
        """Returns the part of the world that a form needs of the machine with that name: its
        images, its sandboxes, its saves as far as they are known, and its free memory and disk."""
        machine = self.machine(name)
        if machine is None:
            here = tuple(view for view in self.sandboxes if not view.host)
            mine = replace(self, sandboxes=here, saves=self.saves.of(""))
            return mine if self.machines else self
        there = (view for view in self.sandboxes if view.host == name)
        part = self.saves.of(name)
        return replace(
            self,
            sandboxes=tuple(replace(view, name=view.short_name) for view in there),
            images=machine.images,
            images_loaded=machine.state is not MachineState.CONNECTING,
            images_error="",
            host=machine.host,
            saves=part if part.loaded else NONE_TOLD,
        )

    @property
    def knows_images(self) -> bool:
        """Whether images and the host have been read."""
        return self.loaded and self.images_loaded

    @property
    def running_names(self) -> tuple[str, ...]:
        """The names of the sandboxes that keep running after the app has ended."""
        return tuple(
            view.name
            for view in self.sandboxes
            if view.state in HAS_MACHINE and not view.discard and not view.host
        )

    def image(self, name: str | None) -> ImageInfo | None:
        return next((i for i in self.images if i.name == name), None)

    def job(self, sandbox_id: str | None) -> Job | None:
        return next((j for j in self.jobs if j.sandbox_id == sandbox_id), None)

    def job_about(self, key: str | None) -> Job | None:
        """Returns the job that works on a save."""
        return next((j for j in self.jobs if key in j.about), None)

    @property
    def save_jobs(self) -> tuple[Job, ...]:
        """Jobs that work on saves and belong to no sandbox."""
        return tuple(job for job in self.jobs if job.verb in SAVE_VERBS)

    @property
    def usable_images(self) -> tuple[ImageInfo, ...]:
        return tuple(image for image in self.images if not image.error)


class Panel(StrEnum):
    """A list of the main screen."""

    SANDBOXES = "sandboxes"
    SAVES = "saves"
    IMAGES = "images"


@frozen
class Selection:
    """The panel, the row under the cursor, and the marked rows."""

    panel: Panel = Panel.SANDBOXES
    sandbox: SandboxView | None = None
    machine: str = ""
    """The name of the machine whose sandbox or header is under the cursor; "" is this one."""
    marked_sandboxes: tuple[SandboxView, ...] = ()
    image: ImageInfo | None = None
    checkpoint: CheckpointView | None = None
    compared: CheckpointView | None = None
    """The checkpoint whose screen is shown beside that of `checkpoint`."""
    in_tree: bool = False
    """The cursor is in the tree of checkpoints."""
    mount: MountFacts | None = None
    save: SaveFacts | None = None
    saves_of: str | None = None
    """The name of the machine whose header is under the cursor in the list of saves."""
    trashed: TrashFacts | None = None
    marked: tuple[SaveFacts, ...] = ()
    marked_trash: tuple[TrashFacts, ...] = ()

    @property
    def sandboxes(self) -> tuple[SandboxView, ...]:
        """The marked sandboxes, else the one under the cursor."""
        return self.marked_sandboxes or ((self.sandbox,) if self.sandbox is not None else ())

    def of(self, sandbox: SandboxView) -> Selection:
        """Returns a selection of one sandbox in the same panel."""
        return Selection(panel=self.panel, sandbox=sandbox, machine=sandbox.host)

    @property
    def saves(self) -> tuple[SaveFacts, ...]:
        """The marked saves, else the one under the cursor."""
        return self.marked or ((self.save,) if self.save is not None else ())

    @property
    def trash(self) -> tuple[TrashFacts, ...]:
        """The marked entries of the trash, else the one under the cursor."""
        return self.marked_trash or ((self.trashed,) if self.trashed is not None else ())
