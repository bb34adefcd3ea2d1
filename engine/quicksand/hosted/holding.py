"""The far end: holds sandboxes for a client at another machine, and calls their methods for it.

A sandbox that its client has started and not detached ends with this process, as any script's does
(its keeper sees to that), with the client's goodbye, or when the client is away for longer than its
grace. A call is carried out once, whatever becomes of the connection: its answer is kept until the
client says that it has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from quicksand.base.effort import best_effort
from quicksand.base.errors import ConfigError, RemoteError, RemoteRefusedError
from quicksand.base.paths import paths
from quicksand.guest.agent.wire import Stream
from quicksand.hosted.calling import send_bytes, send_json
from quicksand.hosted.codec import (
    METHODS,
    NEW,
    OF_THINGS,
    ForeignValueError,
    HostedSandbox,
    Known,
    decode,
    encode,
    encode_error,
    hints_of,
)
from quicksand.hosted.protocol import (
    CALLS_MAX,
    CAPABILITY,
    GRACE_MAX_S,
    GRACE_S,
    HELD_MAX,
    REPORT_EVERY_S,
    SANDBOX_METHODS,
    SETTLE_S,
    THINGS,
)
from quicksand.life.kept_things import KeptThings
from quicksand.records.command_log import note_command
from quicksand.records.layout import runtime_dir
from quicksand.records.memory_budget import Claims
from quicksand.records.registry import Registry
from quicksand.remote.hello import HEX32
from quicksand.remote.peer_link import Request

NO_HANDLE = ""
"""Stands among the handles for calls whose sandbox is not open yet."""

Make = Callable[..., Any]
"""Makes a `Sandbox`; has the attributes ``attach``, ``open`` and ``list``."""


class _Held(NamedTuple):
    """A sandbox that a client uses."""

    sandbox: Any
    grace_s: float


class _Call:
    """A call that is under way, or that has ended and is kept."""

    def __init__(
        self, params: Mapping[str, Any], work: Callable[[_Call], Awaitable[dict[str, Any]]]
    ) -> None:
        self.handle, self.name = params.get("handle"), params.get("name")
        grace = params.get("grace_s")
        self.grace_s = min(grace, GRACE_MAX_S) if isinstance(grace, int | float) else GRACE_S
        self.request: Request | None = None
        """The request on which the client listens now."""
        self._reported = 0.0
        self._stage: object = None
        self.task = asyncio.create_task(self._run(work), name="quicksand-call")

    async def _run(self, work: Callable[[_Call], Awaitable[dict[str, Any]]]) -> bytes:
        try:
            answer = await work(self)
        except Exception as error:  # noqa: BLE001 - the client gets it
            answer = {"error": encode_error(error)}
        return json.dumps(answer).encode()

    def cancel(self, then: Callable[[], None]) -> None:
        """Cancel the call, or do nothing if it has ended; call ``then`` at its end."""
        self.task.cancel()
        self.task.add_done_callback(lambda _: then())

    def report(self, *args: Any) -> None:
        """Report progress to the client: each stage, and now and then within one. It may be called
        from a thread."""
        now, stage = time.monotonic(), args[0] if args else None
        is_new = isinstance(stage, str) and stage != self._stage
        if is_new or now - self._reported >= REPORT_EVERY_S:
            self._reported, self._stage = now, stage
            self.task.get_loop().call_soon_threadsafe(self._tell, args)

    def _tell(self, args: tuple[Any, ...]) -> None:
        if self.request is not None:
            self.request.channel.tell("progress", args=[*args])


class HeldSandboxes:
    """The sandboxes of one client (an `Offer` of `remote.serving`)."""

    capability = CAPABILITY
    methods = SANDBOX_METHODS

    def __init__(self, make: Make) -> None:
        """``make`` is the class `Sandbox`, which this room does not import."""
        self._make = make
        self._held: dict[str, _Held] = {}
        self._calls: dict[str, _Call] = {}
        self._ending: dict[str, asyncio.TimerHandle] = {}
        self._is_away = False
        """Whether the client is away now."""
        self._changed = asyncio.Event()

    # The methods of an offer

    @property
    def is_empty(self) -> bool:
        return not self._held and not self._calls

    async def settle(self) -> None:
        while not self.is_empty:
            self._changed.clear()
            await self._changed.wait()

    def away(self) -> None:
        """Let go of each sandbox after its grace. Calls that have none yet have that grace, too."""
        self._is_away = True
        for handle in self._held:
            self._end_after_grace(handle)
        if not self._held and self._calls:
            grace = max(call.grace_s for call in self._calls.values())
            loop = asyncio.get_running_loop()
            self._ending[NO_HANDLE] = loop.call_later(grace, self._give_up)

    def _end_after_grace(self, handle: str) -> None:
        loop = asyncio.get_running_loop()
        self._ending[handle] = loop.call_later(self._held[handle].grace_s, self._let_go, handle)

    def back(self) -> None:
        self._is_away = False
        for timer in self._ending.values():
            timer.cancel()
        self._ending.clear()

    async def leave(self) -> None:
        self.back()
        await self._await_calls(lambda call: call.name == "detach")
        self._give_up()
        for handle in list(self._held):
            self._let_go(handle)
        for call in list(self._calls.values()):
            await asyncio.wait([call.task])
        self._calls.clear()
        self._changed.set()

    async def _await_calls(self, which: Callable[[_Call], bool]) -> None:
        tasks = [call.task for call in self._calls.values() if which(call)]
        if tasks:
            await asyncio.wait(tasks, timeout=SETTLE_S)

    def _let_go(self, handle: str) -> None:
        """Close a sandbox; if it belongs to its client, it ends."""
        self._ending.pop(handle, None)
        held = self._held.pop(handle, None)
        if held is not None:
            with best_effort("let go of a client's sandbox", paths().engine_log):
                held.sandbox.close()
        for call in self._calls.values():
            if call.handle == handle:
                call.cancel(self._forget_ended)
        if self._is_away and not self._held:
            self._give_up()
        self._changed.set()

    def _give_up(self) -> None:
        """Cancel the calls of a client that does not come back: nobody waits for them."""
        for call in self._calls.values():
            call.cancel(self._forget_ended)
        self._forget_ended()

    def _forget_ended(self) -> None:
        for once in [once for once, call in self._calls.items() if call.task.done()]:
            del self._calls[once]
        self._changed.set()

    # Requests

    async def answer(self, request: Request, before_keeping: Callable[[], Awaitable[None]]) -> None:
        """Answer one of ``methods``."""
        match request.method:
            case "call":
                await self._answer_call(request, before_keeping)
            case "answered":
                if (call := self._calls.get(str(request.params.get("once")))) is not None:
                    call.task.cancel()
                    await asyncio.wait([call.task])
                    self._forget_ended()
                request.answer()
            case "release":
                handle = request.params.get("handle")
                # Earlier calls are finished first: one of them may be a detach.
                await self._await_calls(lambda call: call.handle == handle)
                self._let_go(str(handle))
                request.answer()
            case "sandboxes":
                await send_json(request, await asyncio.to_thread(_list))
            case "logs":
                name = str(request.params.get("sandbox"))
                logs = await asyncio.to_thread(lambda: self._make.open(name, to_end_it=True).logs())  # type: ignore[attr-defined]
                await send_json(request, logs)
            case "events":
                await self._send_events(request)
            case "note":
                await asyncio.to_thread(_note, request.params)
                request.answer()

    async def _answer_call(
        self, request: Request, before_keeping: Callable[[], Awaitable[None]]
    ) -> None:
        once = request.params.get("once")
        if not isinstance(once, str) or not HEX32.fullmatch(once):
            raise _bad("once is not 32 hex digits")
        await before_keeping()
        call = self._calls.get(once)
        if call is None and len(self._calls) >= CALLS_MAX:
            raise RemoteRefusedError(f"{CALLS_MAX} calls are kept", code="too_many")
        if call is None:
            params = request.params
            call = _Call(params, lambda call: self._carry_out(params, call))
            self._calls[once] = call
        call.request = request
        cancelling = asyncio.create_task(_await_cancel(request, call), name="quicksand-cancel")
        try:
            await asyncio.wait([call.task])
        finally:
            cancelling.cancel()
        if call.task.cancelled():
            raise RemoteRefusedError("it was cancelled", code="cancelled")
        await send_bytes(request, call.task.result())

    async def _carry_out(self, params: Mapping[str, Any], call: _Call) -> dict[str, Any]:
        """Call a method. Raises the method's errors."""
        name, is_of_things = str(params.get("name")), params.get("open") == THINGS
        declared = (OF_THINGS if is_of_things else METHODS).get(name)
        if declared is None:
            raise RemoteRefusedError(f"there is no method {name!r:.80}", code="no_such_method")
        if is_of_things:
            words, keywords = _bind(declared, params, call)
            return {"value": encode(await getattr(KeptThings(paths()), name)(*words, **keywords))}
        sandbox = await self._open(params, call)
        words, keywords = _bind(declared, params, call)
        found = getattr(sandbox, name)(*words, **keywords)
        if inspect.isawaitable(found):
            found = await found
        if name in NEW:
            # Clones: each is a sandbox of its own, or the error for which it is not.
            value: Any = [await self._describe_new(one, params) for one in found]
        else:
            value = encode(found)
        return {"value": value, "known": encode(await asyncio.to_thread(_know, sandbox))}

    async def _describe_new(self, made: Any, params: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(made, Exception):
            return {"error": encode_error(made)}
        known = await asyncio.to_thread(_know, made)
        self._hold(known.id, made, params)
        return {"known": encode(known)}

    async def _open(self, params: Mapping[str, Any], call: _Call) -> Any:
        handle = params.get("handle")
        if isinstance(handle, str) and handle in self._held:
            return self._held[handle].sandbox
        match params.get("open"):
            case {"make": dict(options)}:
                made = self._make(**self._options(options, handle))
                await asyncio.to_thread(Claims(paths()).bind, str(handle), made.id)
            case {"name": str(name), "must_run": bool(must_run), "to_end_it": bool(to_end_it)}:
                made = await asyncio.to_thread(self._reach, name, must_run, to_end_it, handle)
                await asyncio.to_thread(Claims(paths()).bind, str(handle), made.id)
            case _:
                raise _bad("handle and open name no sandbox")
        self._hold(str(handle), made, params)
        return made

    def _options(self, options: dict[str, Any], handle: object) -> dict[str, Any]:
        """Return the keywords of `Sandbox`, which checks them itself. Raises
        RemoteRefusedError."""
        if options.get("host") is not None:
            raise RemoteRefusedError("no further machine is reached from here", code="forbidden")
        return {**options, "progress_callback": self._reporter(handle)}

    def _reporter(self, handle: object) -> Callable[..., None]:
        """Reports to whoever waits for the sandbox."""

        def report(*args: Any) -> None:
            for call in list(self._calls.values()):
                if call.handle == handle:
                    call.report(*args)

        return report

    def _reach(self, name: str, must_run: bool, to_end_it: bool, handle: object) -> Any:
        if must_run:
            return self._make.attach(name)  # type: ignore[attr-defined]
        return self._make.open(  # type: ignore[attr-defined]
            name, to_end_it=to_end_it, progress_callback=self._reporter(handle)
        )

    def _hold(self, handle: str, sandbox: Any, params: Mapping[str, Any]) -> None:
        if len(self._held) >= HELD_MAX:
            raise RemoteRefusedError(f"{HELD_MAX} sandboxes are in use", code="too_many")
        grace = params.get("grace_s")
        if not isinstance(grace, int | float) or not 0 <= grace <= GRACE_MAX_S:
            raise _bad("grace_s makes no sense")
        self._held[handle] = _Held(sandbox, float(grace))
        if self._is_away:  # its client has gone while it was made
            self._end_after_grace(handle)

    def _find(self, params: Mapping[str, Any]) -> Any:
        held = self._held.get(str(params.get("handle")))
        if held is None:
            raise _bad("handle names no sandbox")
        return held.sandbox

    async def _send_events(self, request: Request) -> None:
        """Send events of a sandbox as lines of JSON, until its client has had enough."""
        events: AsyncIterator[Any] = self._find(request.params).events()
        request.answer()
        enough = asyncio.create_task(request.channel.event(), name="quicksand-enough")
        try:
            async with contextlib.aclosing(events):  # type: ignore[type-var]
                while True:
                    coming = asyncio.ensure_future(anext(events))
                    try:
                        await asyncio.wait([coming, enough], return_when=asyncio.FIRST_COMPLETED)
                        if not coming.done():
                            break
                        line = json.dumps(encode(coming.result())).encode() + b"\n"
                    except StopAsyncIteration:
                        break
                    finally:
                        if not coming.done():
                            coming.cancel()
                            await asyncio.wait([coming])
                    await request.channel.send(Stream.STDOUT, line)
        finally:
            enough.cancel()
            await asyncio.wait([enough])
        request.channel.finish(Stream.STDOUT)


async def _await_cancel(request: Request, call: _Call) -> None:
    with contextlib.suppress(RemoteError):  # its client may come again
        while True:
            match await request.channel.event():
                case {"event": "cancel"}:
                    call.task.cancel()


def _bind(
    declared: Callable[..., Any], params: Mapping[str, Any], call: _Call
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call, each of the type that the method declares. Raises
    ConfigError, RemoteRefusedError."""
    args, keywords = params.get("args"), params.get("keywords")
    if not isinstance(args, list) or not isinstance(keywords, dict):
        raise _bad("args or keywords has a wrong type")
    try:
        signature = inspect.signature(declared)
        found = signature.bind(None, *args, **keywords).arguments
    except TypeError as error:
        raise ConfigError(
            f"{declared.__name__}() there: {error}",
            hint="install the same version on both machines",
        ) from None
    hints = hints_of(declared)
    words: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in list(found.items())[1:]:
        is_many = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        try:
            read = [
                call.report if one == {"progress": True} else decode(one, hints[name])
                for one in (value if is_many else [value])
            ]
        except ForeignValueError as error:
            raise ConfigError(f"{declared.__name__}(): {name}: {error}") from None
        if name in keywords:
            named[name] = read[0]
        else:
            words += read
    return words, named


def _know(sandbox: Any) -> Known:
    """Return the client's view of a sandbox. Blocks for small files."""
    is_there = _is_there(sandbox)
    return Known(
        id=sandbox.id,
        name=sandbox.name,
        config=sandbox.config,
        exists=is_there,
        is_running=is_there and sandbox.is_running,
        accelerator=sandbox.accelerator,
        boot_timing=sandbox.boot_timing,
        qemu_command=sandbox.qemu_command,
        port_forwards=sandbox.port_forwards,
        udp_port_forwards=sandbox.udp_port_forwards,
        agent_token=sandbox.agent_token,
        notices=sandbox.notices,
        active_mounts=sandbox.active_mounts if is_there else [],
        checkpoints=sandbox.checkpoints() if is_there else [],
    )


def _is_there(sandbox: Any) -> bool:
    return Registry(paths()).inspect(sandbox.id) is not None


def _note(params: Mapping[str, Any]) -> None:
    """Note the end of a command that a client has run in a guest."""
    match params:
        case {
            "sandbox": str(id_),
            "command": str(command),
            "exit_code": int(code),
            "seconds": int() | float() as seconds,
            "timed_out": bool(timed_out),
        } if Registry(paths()).inspect(id_) is not None:
            log = runtime_dir(paths(), id_).command_log
            note_command(log, command, exit_code=code, seconds=seconds, timed_out=timed_out)
            return
    raise _bad("that is no end of a command")


def _list() -> list[Any]:
    return [
        encode(
            HostedSandbox(
                id=entry.id,
                name=entry.name,
                status=entry.status.value,
                image=entry.record.config.image if entry.record is not None else "",
                created=entry.record.created if entry.record is not None else 0.0,
            )
        )
        for entry in Registry(paths()).list()
    ]


def _bad(what: str) -> RemoteRefusedError:
    return RemoteRefusedError(what, code="bad_request")
