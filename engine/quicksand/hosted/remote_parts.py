"""The parts of a `Sandbox` of another machine. Each has the methods of its local namesake; those
that cannot work there raise an error."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast

from PIL import Image

from quicksand.base.errors import ConfigError, StateError
from quicksand.base.threads import in_thread_to_the_end
from quicksand.display.picture import Format, write_picture
from quicksand.display.place import open_screen
from quicksand.display.recording import SECONDS, Recording
from quicksand.display.sought import no_display, not_running
from quicksand.guest.guest_files import GuestFiles
from quicksand.hosted.life import FarLife
from quicksand.hosted.relayed_screen import ScreenRelay
from quicksand.hosted.remote_forwarding import FarForwarding
from quicksand.hosted.watching import watch
from quicksand.life.guest import InGuest
from quicksand.life.host_directories import HostDirectories
from quicksand.life.parts import Ending, Pausing
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.life.sandbox_desktop import Desktop

if TYPE_CHECKING:
    from quicksand.base.progress import BootTiming
    from quicksand.display.rfb import RfbClient
    from quicksand.life.parts import Parts
    from quicksand.life.qmp_events import Event
    from quicksand.life.sandbox_mounts import MountHandle
    from quicksand.records.config import SandboxConfig
    from quicksand.saves.save_manifest import SaveManifest
    from quicksand.saves.saving import SaveOptions
    from quicksand.things.checkpoint import Checkpoint

Part = TypeVar("Part")
P = ParamSpec("P")
R = TypeVar("R")


class FarPart:
    """One part of a sandbox of another machine."""

    def __init__(self, life: FarLife) -> None:
        self._life = life


def far(
    method: Callable[Concatenate[Part, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a method that the other machine carries out, with its local signature."""

    @functools.wraps(method)
    async def asked(self: FarPart, *args: P.args, **keywords: P.kwargs) -> R:
        return cast("R", await self._life.call(method.__name__, *args, **keywords))

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]", asked)


def refuse(what: str, hint: str) -> NoReturn:
    """Raise StateError for what a sandbox of another machine cannot do."""
    raise StateError(f"{what} is not there for a sandbox of another machine", hint=hint)


class FarCheckpoints(FarPart):
    checkpoint = far(Checkpoints.checkpoint)
    revert = far(Checkpoints.revert)
    undo = far(Checkpoints.undo)
    delete_checkpoint = far(Checkpoints.delete_checkpoint)
    pin_checkpoint = far(Checkpoints.pin_checkpoint)
    note_checkpoint = far(Checkpoints.note_checkpoint)
    checkpoint_screen = far(Checkpoints.checkpoint_screen)
    checkpoint_shell = far(Checkpoints.checkpoint_shell)
    diff = far(Checkpoints.diff)
    compare = far(Checkpoints.compare)
    compare_file = far(Checkpoints.compare_file)
    patch = far(Checkpoints.patch)

    def checkpoints(self) -> list[Checkpoint]:
        return [*self._life.known.checkpoints]


class FarPausing(FarPart):
    pause = far(Pausing.pause)
    resume = far(Pausing.resume)


class FarEnding(FarPart):
    trash = far(Ending.trash)

    async def stop(self, *, grace: float = 10.0) -> None:
        if self._life.is_there:
            await self._life.call("stop", grace=grace)

    def abandon(self) -> bool:
        return False


class FarDirectories(FarPart):
    unmount = far(HostDirectories.unmount)

    async def mount(self, host: str | Path, *args: Any, **options: Any) -> MountHandle:
        if not str(host).startswith("~"):  # the user's home there
            require_absolute(host, "the directory to be mounted")
        made: MountHandle = await self._life.call("mount", str(host), *args, **options)
        return made

    def active_mounts(self) -> list[MountHandle]:
        return [*self._life.known.active_mounts]


class FarSaves(FarPart):
    at_stop = None
    """The other machine makes the save."""

    async def save(self, name: str, **options: Any) -> SaveManifest:
        if options.get("workspace") is not None:
            require_absolute(options["workspace"], "the workspace")
        found: SaveManifest = await self._life.call("save", name, **options)
        return found

    def save_on_stop(self, name: str, store: object) -> None:
        refuse("save_on_stop()", "give save= to Sandbox, or call save() before the end")

    async def save_to(self, store: object, name: str, options: SaveOptions) -> None:
        refuse("save_to()", "call save(), with a workspace of that machine")

    async def write_snapshot(self, target: Path, options: SaveOptions) -> None:
        refuse(
            "snapshot()",
            "call save(), which RemoteHost.fetch_save() brings here",
        )


class FarDesktop(FarPart):
    query_display_size = far(Desktop.query_display_size)
    set_display_size = far(Desktop.set_display_size)
    wait_for_screen = far(Desktop.wait_for_screen)
    type_text = far(Desktop.type_text)
    press_key = far(Desktop.press_key)
    key_down = far(Desktop.key_down)
    key_up = far(Desktop.key_up)
    mouse_move = far(Desktop.mouse_move)
    mouse_move_px = far(Desktop.mouse_move_px)
    mouse_down = far(Desktop.mouse_down)
    mouse_up = far(Desktop.mouse_up)
    mouse_drag = far(Desktop.mouse_drag)
    mouse_scroll = far(Desktop.mouse_scroll)
    query_mouse_position = far(Desktop.query_mouse_position)

    async def mouse_click(self, *args: Any, **keywords: Any) -> None:
        await self._life.call("mouse_click", *args, **keywords)

    async def screenshot(
        self,
        path: str | Path | None = None,
        *,
        region: tuple[int, int, int, int] | None = None,
        scale: float | None = None,
        format: str | None = None,  # noqa: A002 - as in `Desktop`
    ) -> Any:
        """The picture is taken there, and written here."""
        target = None if path is None else Path(path).absolute()
        is_object = target is None and format == "image"
        kind = Format.PNG if is_object else Format.choose(format, target)
        options = {"region": region, "scale": scale, "format": kind.value}
        data: bytes = await self._life.call("screenshot", None, wanted=bytes, **options)
        if target is not None:
            await in_thread_to_the_end(lambda: write_picture(target, data))
            return target
        return Image.open(io.BytesIO(data)) if is_object else data

    @contextlib.asynccontextmanager
    async def display(self) -> AsyncIterator[RfbClient]:
        """Yield a client of the screen. Nothing is asked before the ``async with``."""
        async with self._screen() as relay:
            if relay.place is None:
                raise not_running(self._life.name)
            async with open_screen(relay.place) as client:
                yield client

    @contextlib.asynccontextmanager
    async def record(
        self,
        path: str | Path,
        *,
        seconds: float = SECONDS,
        fps: float = 10.0,
        scale: float = 1.0,
        replace: bool = False,
    ) -> AsyncIterator[Recording]:
        """The pictures come here, and the file is written here."""
        target = Path(path).absolute()
        async with (
            self._screen() as relay,
            Recording.open(
                target,
                lambda: relay.place,
                seconds=seconds,
                fps=fps,
                scale=scale,
                replace=replace,
            ) as recording,
        ):
            yield recording

    @contextlib.asynccontextmanager
    async def _screen(self) -> AsyncIterator[ScreenRelay]:
        life = self._life
        if life.is_there:
            await life.look()  # which one it is
        if not life.known.id:
            shows = life.known.config.enable_display
            raise not_running(life.name) if shows else no_display(life.name)
        async with ScreenRelay.open(life.connection, life.known.id) as relay:
            yield relay

    @property
    def vnc_socket(self) -> Path:
        refuse("vnc_socket", "it is a socket of that machine; display() connects to it from here")

    @property
    def vnc_port(self) -> None:
        """None: the port would be one of the other machine."""

    @property
    def vnc_password(self) -> None:
        """None: there is no port."""


class FarFacts(FarPart):
    """The facts known since the other machine's last answer."""

    def __init__(self, life: FarLife, forwarding: FarForwarding) -> None:
        super().__init__(life)
        self._forwarding = forwarding

    def events(self) -> AsyncIterator[Event]:
        return watch(self._life)

    def logs(self, *, limit: int = 64 * 1024) -> NoReturn:
        refuse("logs()", "await RemoteHost.logs(sandbox.id)")

    async def look(self) -> None:
        await self._life.look()

    def id(self) -> str:
        return self._life.known.id

    def name(self) -> str:
        return self._life.known.name

    def host(self) -> str | None:
        return self._life.where

    def config(self) -> SandboxConfig:
        return self._life.known.config

    def is_running(self) -> bool:
        return self._life.known.is_running

    def accelerator(self) -> str | None:
        return self._life.known.accelerator

    def boot_timeout(self) -> float:
        return self._life.known.config.boot_timeout

    def boot_timing(self) -> BootTiming | None:
        return self._life.known.boot_timing

    def qemu_command(self) -> list[str]:
        return [*self._life.known.qemu_command]

    def port_forwards(self) -> Mapping[int, int]:
        return {**self._life.known.port_forwards, **self._forwarding.ports}

    def udp_port_forwards(self) -> Mapping[int, int]:
        return self._life.known.udp_port_forwards

    def agent_url(self) -> None:
        """None: the port would be one of the other machine."""

    def agent_token(self) -> str | None:
        return self._life.known.agent_token

    def notices(self) -> tuple[str, ...]:
        return tuple(self._life.known.notices)


class FarParts:
    """The parts of a sandbox of another machine."""

    def __init__(self, life: FarLife) -> None:
        self.life = life
        self.guest = InGuest(life)
        self.directories = FarDirectories(life)
        self.desktop = FarDesktop(life)
        self.checkpoints = FarCheckpoints(life)
        self.saves = FarSaves(life)
        self.pausing = FarPausing(life)
        self.ending = FarEnding(life)
        self.forwarding = FarForwarding(life, self.guest)
        self.facts = FarFacts(life, self.forwarding)
        self.files = GuestFiles(life.session)

    def as_parts(self) -> Parts:
        """Return these parts for `Sandbox`, which calls methods by name: a test compares them."""
        return cast("Parts", self)

    async def clone(
        self,
        n: int,
        *,
        concurrency: int | None,
        at: str | None,
        names: Sequence[str | None] | None,
        mounts: str | None,
    ) -> Sequence[Parts]:
        """See `Parts.clone`."""
        found = await self.life.call(
            "clone", n, concurrency=concurrency, at=at, names=names, mounts=mounts, wanted=list[Any]
        )
        made = [self.life.new(one) for one in found]
        return [FarParts(one).as_parts() for one in made if isinstance(one, FarLife)]

    async def fork(
        self, count: int, *, concurrency: int | None, at: str | None, mounts: str | None
    ) -> Sequence[Parts | Exception]:
        """See `Parts.fork`."""
        found = await self.life.call(
            "fork", count, concurrency=concurrency, at=at, mounts=mounts, wanted=list[Any]
        )
        made = [self.life.new(one) for one in found]
        return [FarParts(one).as_parts() if isinstance(one, FarLife) else one for one in made]

    async def leave(self) -> None:
        """See `Parts.leave`."""
        await self.forwarding.close()
        await self.life.leave()


def require_absolute(path: str | Path, what: str) -> None:
    """Raise ConfigError if a path of the other machine is not absolute."""
    if not str(path).startswith("/"):
        raise ConfigError(
            f"{what} {str(path)!r:.300} would be of the other machine: write its whole path there",
            hint="files of this machine are written to the guest by sandbox.files",
        )
