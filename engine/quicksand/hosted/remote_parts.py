"""The parts of a `Sandbox` of another machine, and how they are made. Each has the methods of its
local namesake; those that cannot work there raise an error."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast

from PIL import Image
from quicksand_vnc import Format

from quicksand.base.errors import ConfigError, QuicksandError, RemoteProtocolError, StateError
from quicksand.base.listening import Acceptor, listen
from quicksand.base.progress import Progress
from quicksand.base.threads import in_thread_to_the_end
from quicksand.display.asked import choose_format, write_picture
from quicksand.display.place import open_screen
from quicksand.display.recording import SECONDS, Recording
from quicksand.display.sought import no_display, not_running
from quicksand.guest.carried import require_able
from quicksand.guest.guest_files import GuestFiles
from quicksand.hosted.codec import ForeignValueError, Known, decode
from quicksand.hosted.life import FarLife
from quicksand.hosted.relayed_screen import ScreenRelay
from quicksand.hosted.remote_host import RemoteHost, find_host
from quicksand.life.forwarder import carry, reset
from quicksand.life.guest import InGuest
from quicksand.life.host_directories import HostDirectories
from quicksand.life.parts import Ending, Parts, Pausing
from quicksand.life.qmp_events import Event
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.life.sandbox_desktop import Desktop
from quicksand.records.config import SandboxConfig
from quicksand.records.machine_options import places_of
from quicksand.records.port_forwards import PortForward, Protocol, as_protocol, check_port
from quicksand.remote.peer_link import Channel

if TYPE_CHECKING:
    from quicksand.base.progress import BootTiming
    from quicksand.display.place import RfbClient
    from quicksand.life.sandbox_mounts import MountHandle
    from quicksand.life.sandbox_saves import MadeSave
    from quicksand.saves.save_manifest import SaveManifest
    from quicksand.saves.saving import SaveOptions
    from quicksand.things.checkpoint import Checkpoint


CONNECTIONS_MAX = 256
"""The most connections of one forward at the same time; further ones are reset."""


@dataclass(frozen=True, slots=True)
class _Forward:
    guest: int
    acceptor: Acceptor


class FarForwarding:
    """The forwards of one sandbox, with the methods `forward` and `unforward` of `Sandbox`."""

    def __init__(self, life: FarLife, guest: InGuest) -> None:
        self._life = life
        self._guest = guest
        self._forwards: dict[int, _Forward] = {}

    @property
    def ports(self) -> dict[int, int]:
        """Guest port -> port of this machine."""
        return {one.guest: port for port, one in self._forwards.items()}

    async def forward(
        self, guest: int, host: int = 0, *, protocol: Protocol | str = Protocol.TCP
    ) -> PortForward:
        """See `Forwarding.forward`; the port is one of this machine."""
        _require_tcp(protocol)
        wanted = PortForward(host=host, guest=guest)
        session = await self._life.session()
        require_able(session, "dial", "connections")
        sockets = listen(wanted.host)
        port = sockets[0].getsockname()[1]
        acceptor = Acceptor(
            sockets,
            lambda r, w: self._serve(guest, r, w),
            name="quicksand-port",
            most=CONNECTIONS_MAX,
            resets=True,
        )
        self._forwards[port] = _Forward(guest, acceptor)
        return PortForward(host=port, guest=guest)

    async def _serve(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with await self._guest.dial(port) as connection:
                await carry(connection, reader, writer)
        except* (QuicksandError, OSError):
            reset(writer)
        except* asyncio.CancelledError:
            reset(writer)
        finally:
            writer.close()

    async def unforward(self, host: int, *, protocol: Protocol | str = Protocol.TCP) -> None:
        """See `Forwarding.unforward`."""
        _require_tcp(protocol)
        check_port("host", host, lowest=1)
        made = self._forwards.pop(host, None)
        if made is None:
            raise StateError(f"port {host} is not forwarded to {self._life.name!r}")
        await made.acceptor.close()

    async def close(self) -> None:
        """End them all."""
        while self._forwards:
            _, made = self._forwards.popitem()
            await made.acceptor.close()


def _require_tcp(protocol: Protocol | str) -> None:
    if as_protocol(protocol) is not Protocol.TCP:
        raise StateError(
            "only TCP is forwarded to a sandbox of another machine",
            hint="dial_udp() reaches it from this program",
        )


LINE_MAX = 16 * 1024
"""The most bytes of an event."""


async def watch(life: FarLife) -> AsyncIterator[Event]:
    """Yield events until the sandbox has ended. Raises as `Sandbox.events`, and RemoteError if the
    connection breaks: events that happen meanwhile are lost."""
    channel = await life.open("events")
    try:
        await channel.reply
        async for line in lines_of(channel, life.host.name):
            try:
                yield decode(json.loads(line), Event)
            except (ForeignValueError, ValueError, RecursionError) as error:
                raise RemoteProtocolError(
                    f"{life.host.name} sent an event that makes no sense"
                ) from error
    finally:
        channel.tell("enough")
        channel.close()


async def lines_of(channel: Channel, machine: str, longest: int = LINE_MAX) -> AsyncIterator[bytes]:
    """Yield the lines that ``machine`` sends over a channel. Raises RemoteProtocolError if one has
    more than ``longest`` bytes, and the error that ended the channel."""
    rest = b""
    while piece := (await channel.piece()).data:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > longest:
            raise RemoteProtocolError(f"{machine} sent a line without an end")


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

    async def save_to(self, name: str, **options: Any) -> MadeSave:
        workspace = options.get("workspace")
        if workspace is not None and not str(workspace).startswith("~"):  # as typed for there
            require_absolute(workspace, "the workspace")
        found: MadeSave = await self._life.call("save_to", name, **options)
        return found

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
        kind = Format.PNG if is_object else choose_format(format, target)
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


RELATIVE = ("./", "../")
"""Beginnings of paths that are meant to be on this machine."""


def make_there(host: str | RemoteHost, own: Mapping[str, Any], options: Mapping[str, Any]) -> Parts:
    """Return the parts of a sandbox that `start` makes there. ``own`` are the keywords of `Sandbox`
    that are not options of the machine. Raises ConfigError."""
    known, opening = describe(own, options)
    progress: Progress | None = own["progress_callback"]
    life = FarLife(find_host(host), known, opening, progress=progress)
    return FarParts(life).as_parts()


def describe(
    own: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Known, dict[str, dict[str, Any]]]:
    """Return the local knowledge of a sandbox before it is made on another machine, and how it is
    made there. Raises ConfigError."""
    image = own["image"]
    config = SandboxConfig.parse({**options, "image": image})
    for mount in config.mounts:
        if written := getattr(mount, "was_relative", ""):
            require_absolute(written, "the directory to be mounted")
    for name in ("workspace", "base_dir"):
        if own[name] is not None:
            require_absolute(own[name], f"{name}:")
    for place in places_of(SandboxConfig):
        if (named := options.get(place.keyword)) is not None:
            require_absolute(str(named), f"{place.keyword}:")
    if str(image).startswith(RELATIVE):
        raise ConfigError(
            f"{image!r:.300} would be a file of the other machine: write its whole path there",
            hint="RemoteHost.send_save() sends a save to it",
        )
    given = {name: value for name, value in config.to_json().items() if name in options}
    sent = {name: str(value) if isinstance(value, Path) else value for name, value in own.items()}
    sent.pop("progress_callback")
    if sent["build"] is None:
        sent["build"] = sys.stderr.isatty()
    known = Known(id="", name=own["name"] or "", config=config)
    return known, {"make": {**sent, **given}}


def open_there(
    host: str | RemoteHost,
    id_or_name: str,
    *,
    must_run: bool = True,
    to_end_it: bool = False,
    progress_callback: Progress | None = None,
) -> Parts:
    """Return the parts of an existing sandbox, which the first call looks for."""
    life = life_of(
        find_host(host),
        id_or_name,
        must_run=must_run,
        to_end_it=to_end_it,
        progress=progress_callback,
    )
    return FarParts(life).as_parts()


def life_of(
    host: RemoteHost,
    id_or_name: str,
    *,
    must_run: bool = False,
    to_end_it: bool = False,
    progress: Progress | None = None,
) -> FarLife:
    """Return the life of an existing sandbox, which the first call looks for."""
    known = Known(id="", name=id_or_name, config=SandboxConfig(image="unknown"))
    opening = {"name": id_or_name, "must_run": must_run, "to_end_it": to_end_it}
    return FarLife(host, known, opening, progress=progress)
