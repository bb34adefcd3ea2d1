"""Files that one machine writes and another reads as they come: bundles that are exported or
imported there, and snapshots of sandboxes there. They end with the connection, and nothing is done
twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from quicksand.base.errors import (
    ConfigError,
    PathError,
    QuicksandError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
)
from quicksand.base.progress import Progress
from quicksand.base.regular import NotAFileError, open_file
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.calling import require_capability
from quicksand.hosted.codec import ForeignValueError, decode, decode_error, encode, encode_error
from quicksand.hosted.protocol import FILES, FILES_METHODS, PIECE, REPORT_EVERY_S, UNDO_S
from quicksand.remote.connection import Sharing
from quicksand.remote.far_program import private_place
from quicksand.remote.peer_link import Channel, Request
from quicksand.remote.serving import StatelessOffer
from quicksand.saves.bundle.exporting import Exported
from quicksand.saves.bundle.receiving import Imported
from quicksand.saves.bundle.streams import open_target
from quicksand.saves.public import export_any, import_any

T = TypeVar("T")

LOOK_MS = 200
"""Milliseconds between two looks whether a wait for a pipe has become useless."""


# The near end


async def export_there(
    shared: Sharing, target: Path | BinaryIO, progress: Progress | None, **wanted: Any
) -> Exported:
    """Have something exported there, as `saves.public.export_any` does here, into a file or stream
    of this machine. Raises as that, and RemoteError."""
    return await _receive(shared, "export", wanted, target, progress, Exported)


async def snapshot_there(
    shared: Sharing, target: Path, progress: Progress | None, **wanted: Any
) -> None:
    """Have a sandbox's disk written there, and bring the file here. Raises as `Sandbox.snapshot`,
    and RemoteError."""
    await _receive(shared, "snapshot", wanted, target, progress, type(None))


async def import_there(
    shared: Sharing, source: Path | BinaryIO, progress: Progress | None, **wanted: Any
) -> Imported:
    """Have a file or stream of this machine imported there, as `saves.public.import_any` does here.
    Raises as that, RemoteError, and ConfigError for what is no file."""
    if not isinstance(source, Path):
        return await _send(shared, source, progress, wanted)
    try:
        opened = open_file(source)
    except NotAFileError as error:
        raise ConfigError(f"{source} is no file, and only files are sent") from error
    except OSError as error:
        raise PathError(f"cannot read {source}: {error.strerror}") from error
    with opened as file:
        return await _send(shared, file, progress, wanted)


async def _receive(
    shared: Sharing,
    method: str,
    wanted: dict[str, Any],
    target: Path | BinaryIO,
    progress: Progress | None,
    kind: type[T],
) -> T:
    async with _asked(shared, method, wanted, progress, kind) as (channel, result):
        await channel.reply
        with open_target(target, compress=False) as write:
            while data := (await channel.piece()).data:
                await asyncio.to_thread(write, data)
            return await asyncio.shield(result)


async def _send(
    shared: Sharing, source: BinaryIO, progress: Progress | None, wanted: dict[str, Any]
) -> Imported:
    async with _asked(shared, "import", wanted, progress, Imported) as (channel, result):
        feeding = asyncio.create_task(_feed(channel, source), name="quicksand-feed")
        try:
            await channel.reply
            await asyncio.wait([result, feeding], return_when=asyncio.FIRST_COMPLETED)
            if feeding.done() and not result.done():
                feeding.result()
            return await asyncio.shield(result)
        except RemoteUnreachableError as error:
            raise RemoteUnreachableError(
                f"whether it was imported on {shared.destination.short} is unknown: {error}",
                hint="look at what is there before you do it again",
            ) from error
        finally:
            await _end(feeding)


@contextlib.asynccontextmanager
async def _asked(
    shared: Sharing,
    method: str,
    wanted: dict[str, Any],
    progress: Progress | None,
    kind: type[T],
) -> AsyncIterator[tuple[Channel, asyncio.Task[T]]]:
    """Yield the channel of a request, and the task that waits for its result. A cancellation has
    the work undone there, and waits for that."""
    try:
        with shared.use():
            await require_capability(shared, FILES)
            channel = (await shared.link()).open(method, **wanted)
            result = asyncio.create_task(_result(shared, channel, progress, kind))
            try:
                yield channel, result
            except asyncio.CancelledError:
                channel.tell("cancel")
                await asyncio.wait([result], timeout=UNDO_S)
                raise
            finally:
                await _end(result)
                channel.close()
    finally:
        await shared.ended()


async def _end(task: asyncio.Task[Any]) -> None:
    """End a task, whose error is not wanted any more."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


async def _feed(channel: Channel, source: BinaryIO) -> None:
    """Send all of a file or pipe. Raises OSError, RemoteError."""
    while data := await _read_some(source.fileno()):
        await channel.send(Stream.INPUT, data)
    channel.finish(Stream.INPUT)


async def _result(shared: Sharing, channel: Channel, progress: Progress | None, kind: type[T]) -> T:
    """Pass reports of progress on until the result comes, and return it. Raises the error of the
    other machine if it tells one instead."""
    name = shared.destination.short
    while True:
        match await channel.event():
            case {"event": "progress", "args": [str(stage), int(done), int(total)]}:
                if progress is not None:
                    progress(stage, done, total)
            case {"event": "failed", "error": error}:
                raise decode_error(error, name)
            case {"event": "done", "value": value}:
                try:
                    found: T = decode(value, kind)
                except ForeignValueError as error:
                    raise RemoteProtocolError(f"{name} answered with no result") from error
                return found


# The far end


class StreamedFiles(StatelessOffer):
    """The files that one client reads or writes (an `Offer` of `remote.serving`)."""

    capability = FILES
    methods = FILES_METHODS

    def __init__(self, make: Any) -> None:
        """``make`` is the class `Sandbox`, which this room does not import."""
        self._make = make

    async def answer(self, request: Request, before_keeping: Callable[[], Awaitable[None]]) -> None:
        """See `Offer.answer`."""
        work = {"export": _export, "import": _import, "snapshot": self._snapshot}[request.method]
        request.answer()
        task = asyncio.create_task(work(request, _reporter(request)), name="quicksand-file")
        cancelling = asyncio.create_task(_await_cancel(request, task), name="quicksand-cancel")
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            cancelling.cancel()
            await asyncio.wait([task, cancelling])
        request.channel.finish(Stream.STDOUT)
        if task.cancelled():
            request.channel.tell("failed", error=encode_error(RemoteError("it was cancelled")))
        elif (error := task.exception()) is not None:
            if not isinstance(error, QuicksandError | OSError):
                raise error
            request.channel.tell("failed", error=encode_error(error))
        else:
            request.channel.tell("done", value=encode(task.result()))

    async def _snapshot(self, request: Request, report: Progress) -> None:
        match request.params:
            case {
                "sandbox": str(id_),
                "note": str(note),
                "compress": bool(compress),
                "freeze": bool() | None as freeze,
            }:
                pass
            case _:
                raise _bad()
        with private_place() as place:
            file = place / "disk.qcow2"
            with contextlib.closing(self._make.open(id_)) as sandbox:
                await sandbox.snapshot(
                    file, note=note, compress=compress, freeze=freeze, report=report
                )
            with open_file(file) as opened:
                await _pump_out(request.channel, opened.fileno())


async def _export(request: Request, report: Progress) -> Exported:
    match request.params:
        case {
            "name": str(name),
            "full": bool(full),
            "tree": bool(tree),
            "image": bool(image),
            "compress": bool(compress),
        }:
            pass
        case _:
            raise _bad()
    ours, theirs = os.pipe()

    async def export() -> Exported:
        with os.fdopen(theirs, "wb") as target:
            return await export_any(
                name,
                target,
                full=full,
                tree=tree,
                image=image,
                compress=compress,
                progress=report,
            )

    return await _beside(export(), _pump_out(request.channel, ours), ours)


async def _import(request: Request, report: Progress) -> Imported:
    match request.params:
        case {
            "name": str() | None as name,
            "replace": bool(replace),
            "trusted": bool(trusted),
            "places": dict(places),
        }:
            pass
        case _:
            raise _bad()
    theirs, ours = os.pipe()

    async def import_() -> Imported:
        with os.fdopen(theirs, "rb", buffering=0) as source:
            return await import_any(
                source,
                name=name,
                replace=replace,
                trusted=trusted,
                progress=report,
                chosen=places,
            )

    return await _beside(import_(), _pump_in(request.channel, ours), ours)


async def _beside(work: Coroutine[Any, Any, T], pump: Coroutine[Any, Any, None], ours: int) -> T:
    """Do the work while the pump moves its bytes through our end of a pipe. If both fail, the error
    of the work is raised, which caused the other."""
    working = asyncio.create_task(work, name="quicksand-work")
    pumping = asyncio.create_task(_closing(pump, ours), name="quicksand-pump")
    try:
        await asyncio.wait([working])
        result = working.result()
        await pumping
        return result
    finally:
        for task in (working, pumping):
            await _end(task)


async def _closing(pump: Awaitable[None], ours: int) -> None:
    try:
        await pump
    finally:
        os.close(ours)


async def _pump_out(channel: Channel, source: int) -> None:
    while data := await _read_some(source):
        await channel.send(Stream.STDOUT, data)


async def _read_some(source: int) -> bytes:
    """Read from a file or pipe; a cancellation ends the wait for a pipe."""
    poll = select.poll()
    poll.register(source, select.POLLIN)

    def read(stop: Callable[[], None]) -> bytes:
        while not poll.poll(LOOK_MS):
            stop()
        return os.read(source, PIECE)

    return await in_stoppable_thread(read)


async def _pump_in(channel: Channel, target: int) -> None:
    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]

    with contextlib.suppress(BrokenPipeError):  # the import tells why it reads no further
        while data := (await channel.piece()).data:
            await in_thread_to_the_end(lambda data=data: write(data))  # type: ignore[misc]


async def _await_cancel(request: Request, task: asyncio.Task[Any]) -> None:
    """Cancel the work when its client says so, or has gone."""
    with contextlib.suppress(RemoteError):
        while (await request.channel.event()).get("event") != "cancel":
            pass
    task.cancel()


def _reporter(request: Request) -> Progress:
    """Return a function that reports to the client, now and then; it may be called from a
    thread."""
    loop = asyncio.get_running_loop()
    reported, last = 0.0, ""

    def report(stage: str, done: int, total: int) -> None:
        nonlocal reported, last
        if stage != last or loop.time() - reported >= REPORT_EVERY_S:
            reported, last = loop.time(), stage
            loop.call_soon_threadsafe(_tell, request, stage, done, total)

    return report


def _tell(request: Request, *args: Any) -> None:
    request.channel.tell("progress", args=[*args])


def _bad() -> RemoteRefusedError:
    return RemoteRefusedError("a parameter is missing, or has a wrong type", code="bad_request")
