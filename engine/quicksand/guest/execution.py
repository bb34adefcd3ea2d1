"""Running commands in a guest, and their input: text, bytes, files, and iterators of bytes."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import shlex
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from quicksand.base.arguments import checked_methods
from quicksand.base.error_text import printable
from quicksand.base.errors import (
    AgentProtocolError,
    AgentUnreachableError,
    CommandFailedError,
    ConfigError,
    QuicksandError,
    StateError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.guest.agent import values
from quicksand.guest.agent.channel import ALL_OUTPUT, Channel
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream

STDIN_CHUNK = 256 * 1024
"""Bytes of a file that are read at once."""

StdinSource = str | bytes | BinaryIO | AsyncIterable[bytes] | Iterable[bytes]
"""Data for a command's stdin or for a file. Text is encoded as UTF-8, except for the characters
that `os.fsdecode` makes from other bytes: they become these bytes again."""


async def iterate_chunks(source: StdinSource) -> AsyncIterator[bytes]:
    """Yield the bytes of a source in pieces. Files are read in a thread. Raises ConfigError for
    anything but text or bytes."""
    if isinstance(source, str | bytes | bytearray | memoryview):
        yield to_bytes(source)
    elif isinstance(source, AsyncIterable):
        async for chunk in source:
            yield to_bytes(chunk)
    elif isinstance(source, io.IOBase) or hasattr(source, "read"):
        while chunk := await asyncio.to_thread(source.read, STDIN_CHUNK):
            yield to_bytes(chunk)
    else:
        for chunk in source:
            yield to_bytes(chunk)


def to_bytes(chunk: object) -> bytes:
    """Return text or bytes as bytes. Raises ConfigError for text that corresponds to no bytes, and
    for any other type."""
    if isinstance(chunk, str):
        return values.encode(chunk, "the input")
    if isinstance(chunk, bytes):
        return chunk
    if isinstance(chunk, bytearray | memoryview):
        return bytes(chunk)
    raise ConfigError(f"input must be bytes or text, not {type(chunk).__name__}")


def checked(source: StdinSource) -> StdinSource:
    """Return a source whose text is encoded, so that this does not fail halfway. Raises as
    `to_bytes`."""
    return to_bytes(source) if isinstance(source, str) else source


KEEP_MAX = 64 * 1024 * 1024
"""Bytes of each stream that `Sandbox.execute` keeps; callbacks get all of it."""

OVERTIME_S = 10.0
"""Seconds after a command's timeout at which the agent, which should have ended it, counts as
hanging."""

END_TIMEOUT_S = 5.0
"""Seconds to wait for the end of a cancelled command, which the agent kills after 0.2 s."""

ATTACH = "command_attach"
"""The capability of an agent to keep commands for later clients."""

NAME_MAX = 128
"""Characters of the agent's name for a command."""


@dataclass(frozen=True, slots=True)
class ExecuteResult:
    """The result of a command that has ended."""

    stdout: str
    """Decoded as UTF-8, with U+FFFD for invalid bytes; `stdout_bytes` has the raw bytes."""
    stderr: str
    exit_code: int
    """The exit code as in a shell: 128 + n after signal n, 124 after a timeout."""
    signal: int | None = None
    """The signal that ended the command, if one did."""
    timed_out: bool = False
    """Whether the command was killed at its timeout; the output is what it wrote until then."""
    truncated: bool = False
    """Whether the command wrote more bytes to a stream than are kept (`KEEP_MAX`)."""
    duration_s: float = 0.0
    """Seconds by the guest's clock."""
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the command exited with 0."""
        return self.exit_code == 0

    def check(self, command: str | Sequence[str] = "the command") -> ExecuteResult:
        """Return this result. Raises CommandFailedError, which names ``command``, unless it is
        `ok`."""
        if self.ok:
            return self
        name = command if isinstance(command, str) else shlex.join(command)
        shown = f"`{printable(name)}`" if name != "the command" else name
        raise CommandFailedError(
            f"{shown} {self._end()}",
            exit_code=self.exit_code,
            stdout=self.stdout,
            stderr=self.stderr,
            signal=self.signal,
            timed_out=self.timed_out,
            output=last_lines(self.stderr or self.stdout),
        )

    def _end(self) -> str:
        """Return how it ended, in words."""
        if self.timed_out:
            return f"was killed at its timeout after {self.duration_s:.3g} s"
        if self.signal is not None:
            return f"was ended by signal {self.signal}"
        return f"exited with code {self.exit_code}"


LAST_LINES = 20
LAST_CHARACTERS = 4000
"""The most characters at the end of a failed command's output that its error shows."""


def last_lines(output: str) -> str:
    """Return the end of a guest's output, with a question mark for each character that a terminal
    could act on."""
    lines = output.rstrip()[-LAST_CHARACTERS:].splitlines()[-LAST_LINES:]
    return "\n".join(printable(line.expandtabs()) for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """The end of a command."""

    exit_code: int
    signal: int | None
    timed_out: bool
    canceled: bool
    duration_s: float

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> ExitStatus:
        """Parse the agent's exit event. Raises AgentProtocolError."""
        signal = event.get("signal")
        try:
            return cls(
                exit_code=values.whole(event.get("exit_code")) & 0xFF,
                signal=None if signal is None else values.whole(signal),
                timed_out=event.get("timed_out") is True,
                canceled=event.get("canceled") is True,
                duration_s=values.real(event.get("duration_s", 0.0)),
            )
        except ValueError as error:
            raise AgentProtocolError(
                "the agent sent an exit event without a proper status"
            ) from error


@checked_methods
class Command:
    """A command that runs in the guest, made by `Sandbox.spawn`. Leaving ``async with`` ends it.

    Its methods raise AgentUnreachableError or MachineError if the guest is gone, AgentRefusedError
    if the agent refuses the request.
    """

    def __init__(
        self,
        session: Session,
        channel: Channel,
        pid: int,
        timeout: float | None,
        name: str = "",
    ) -> None:
        self._session = session
        self._channel = channel
        self._timeout = timeout
        self.pid = pid
        """Its process id in the guest."""
        self.name = name
        """The name by which `Sandbox.attach_command` finds it again; "" if that is not possible."""
        self.status: ExitStatus | None = None
        """Its end; None until `output` has ended."""
        self.ended: Callable[[ExitStatus], None] = lambda status: None
        """Called once with that."""

    @property
    def has_ended(self) -> bool:
        """Whether the agent has reported its end. From then on its ``pid`` may be another
        process's. Output may still be unread."""
        return self._channel.has_ended

    async def __aenter__(self) -> Command:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the command if it still runs, and wait for its end."""
        if self.status is None:
            # A guest that is gone has ended its commands, and the next request reports that.
            with contextlib.suppress(QuicksandError, TimeoutError):
                await asyncio.shield(self._end())
        self._channel.close()

    async def _end(self) -> None:
        async with asyncio.timeout(END_TIMEOUT_S):
            await self.cancel()
            await self.wait()

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Yield its output, as (stream, bytes), until it ends; then `status` is set.

        The command is blocked while nobody reads. Raises AgentUnreachableError if the guest is
        gone, or if the agent does not end the command at its timeout, which does not count the time
        in which the guest is paused.
        """
        # Only the time spent waiting for the agent counts; a timeout around the yield would cancel
        # the reader instead.
        wait = self._session.wait(self._timeout + OVERTIME_S if self._timeout else None)
        try:
            while True:
                item = await wait.until(self._channel.read)
                if isinstance(item, tuple):
                    yield item
                elif item.get("event") == "exit":
                    self.status = ExitStatus.from_event(item)
                    self.ended(self.status)
                    return
        except TimeoutError:
            raise AgentUnreachableError(
                f"the guest's agent did not end the command after its {self._timeout:g} s",
                hint=Words("the guest hangs; ", Remedy("logs"), " shows its console"),
            ) from None

    async def wait(self) -> ExitStatus:
        """Discard the rest of the output and return the status. Raises as `output`."""
        async for _ in self.output():
            pass
        assert self.status is not None
        return self.status

    async def write(self, data: bytes) -> None:
        """Send to its stdin; waits while the command does not read."""
        await self._channel.write(data)

    def close_stdin(self) -> None:
        """Close its stdin."""
        self._channel.write_eof()

    async def feed(self, source: StdinSource) -> None:
        """Send all of ``source`` to its stdin, then close that."""
        async for chunk in iterate_chunks(source):
            await self._channel.write(chunk)
        self.close_stdin()

    async def signal(self, name: str) -> None:
        """Send a signal such as "INT" to its process group."""
        await self._session.request("signal", {"id": self._channel.number, "signal": name})

    async def cancel(self, grace: float = 0.2) -> None:
        """End its process group: SIGTERM, and SIGKILL ``grace`` seconds later."""
        await self._session.request("cancel", {"id": self._channel.number, "grace": grace})


def command_params(
    command: str | Sequence[str],
    *,
    timeout: float | None,
    cwd: str | None,
    shell: str,
    user: str | None,
    env: Mapping[str, str] | None,
    exclusive: bool = False,
    defaults: bool = False,
    entrypoint: bool = False,
) -> dict[str, Any]:
    """Return the agent's parameters for a command or terminal: as text, or in base64 where that is
    not UTF-8. With ``defaults`` the image's settings for commands apply; with ``entrypoint`` its
    own command is run, and ``command`` gives further words. Raises ConfigError for a bad one."""
    variables = dict(env or {})
    words = [command] if isinstance(command, str) else list(command)
    if entrypoint and isinstance(command, str):
        raise ConfigError("the words for an image's own command must be a list")
    if not (words or entrypoint) or not all(isinstance(word, str) for word in words):
        raise ConfigError(f"command must be a string or a list of strings, not {command!r:.200}")
    for text in (*words, shell, cwd or "", user or "", *variables, *variables.values()):
        if not isinstance(text, str):
            raise ConfigError(f"what a command gets must be text, not {text!r:.200}")
        if "\0" in text:
            raise ConfigError(
                "a command, its directory and its environment must not contain a NUL character"
            )
    flags = {"exclusive": exclusive, "defaults": defaults, "entrypoint": entrypoint}
    params: dict[str, Any] = {name: True for name, is_set in flags.items() if is_set}
    if isinstance(command, str):
        params |= values.parameter("command", command) | values.parameter("shell", shell)
    else:
        params |= _words(words)
    if cwd is not None:
        params |= values.parameter("cwd", cwd)
    if user is not None:
        params["user"] = user
    params |= _variables(variables)
    if timeout is not None:
        if not timeout > 0:
            raise ConfigError(f"timeout must be above 0 seconds or None, not {timeout!r}")
        if timeout != float("inf"):
            params["timeout"] = timeout
    return params


def _words(command: Sequence[str]) -> dict[str, list[str]]:
    if all(map(values.is_utf8, command)):
        return {"argv": list(command)}
    return {"argv_b64": [values.coded(word, "a word of the command") for word in command]}


def _variables(env: Mapping[str, str]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for name, value in env.items():
        if values.is_utf8(name) and values.is_utf8(value):
            params.setdefault("env", {})[name] = value
        elif not name or "=" in name:
            raise ConfigError(f"{name!r} is not a name of a variable")
        else:
            item = values.coded(f"{name}={value}", f"the variable {name!r}")
            params.setdefault("env_b64", []).append(item)
    return params


def open_command(
    session: Session, method: str, params: dict[str, Any], *, streams: tuple[Stream, ...]
) -> Channel:
    """Send a request with `command_params`. Raises as `Session.open`; StateError for bytes that are
    not UTF-8 if the guest's agent is too old for them: it would ignore them."""
    if any(key.endswith("_b64") for key in params) and not session.can("command_bytes"):
        raise StateError(
            "the guest's agent is older than commands that are not UTF-8",
            hint="stop the sandbox and start it again",
        )
    return session.open(method, params, streams=streams)


async def spawn(
    session: Session, params: dict[str, Any], *, stdin: bool, detach: bool = False
) -> Command:
    """Start a command. Raises AgentRefusedError when it cannot be started, and as
    `open_command`."""
    params = {**params, "stdin": stdin, "detach": detach}
    if detach and session.can(ATTACH):
        params["keep"] = True
    channel = open_command(session, "execute_stream", params, streams=ALL_OUTPUT)
    return await _opened(session, channel, params.get("timeout"))


async def attach(session: Session, name: str, *, stdin: bool) -> Command:
    """Go on with a command that was started with ``detach``. Raises AgentRefusedError (code
    "not_found", or "busy" while somebody else is connected to it), StateError if the guest's agent
    is too old for it."""
    if not session.can(ATTACH):
        raise StateError(
            "the guest's agent is older than connecting to a command again",
            hint="stop the sandbox and start it again",
        )
    params = {"command": name, "stdin": stdin}
    channel = session.open("command_attach", params, streams=ALL_OUTPUT)
    return await _opened(session, channel, None)


async def _opened(session: Session, channel: Channel, timeout: float | None) -> Command:
    try:
        reply = await channel.opened()
    except BaseException:
        channel.close()
        raise
    pid, name = 0, ""
    with contextlib.suppress(ValueError):
        pid = values.whole(reply.get("pid"))
        name = values.text(reply.get("command") or "", NAME_MAX)
    return Command(session, channel, pid, timeout, name)


async def run(
    command: Command,
    *,
    stdin: StdinSource | None,
    on_stdout: Callable[[str], Any] | None,
    on_stderr: Callable[[str], Any] | None,
    most: int = KEEP_MAX,
) -> ExecuteResult:
    """Run a command to its end: feed its stdin, collect its output and call the callbacks with it.
    The result has at most ``most`` bytes of each stream. Raises AgentUnreachableError,
    MachineError, and what the source or a callback raises."""
    sinks = {Stream.STDOUT: _Sink(on_stdout, most), Stream.STDERR: _Sink(on_stderr, most)}
    async with command, _feeding(command, stdin):
        async for stream, data in command.output():
            await sinks[stream].take(data)
    assert command.status is not None
    for sink in sinks.values():
        await sink.take(b"", final=True)
    out, err = (bytes(sinks[s].kept) for s in (Stream.STDOUT, Stream.STDERR))
    return ExecuteResult(
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
        exit_code=command.status.exit_code,
        signal=command.status.signal,
        timed_out=command.status.timed_out,
        truncated=any(sink.truncated for sink in sinks.values()),
        duration_s=command.status.duration_s,
        stdout_bytes=out,
        stderr_bytes=err,
    )


class _Sink:
    """Collects one stream up to ``most`` bytes and passes it on as text, never splitting a
    character."""

    def __init__(self, callback: Callable[[str], Any] | None, most: int) -> None:
        self._most = most
        self.kept = bytearray()
        self.truncated = False
        self._callback = callback
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def take(self, data: bytes, *, final: bool = False) -> None:
        room = self._most - len(self.kept)
        self.kept += data[:room]
        self.truncated = self.truncated or len(data) > room
        if self._callback is not None and (text := self._decoder.decode(data, final)):
            result = self._callback(text)
            if asyncio.iscoroutine(result):
                await result


@contextlib.asynccontextmanager
async def _feeding(command: Command, source: StdinSource | None) -> AsyncIterator[None]:
    """Feed stdin within the block. If the source fails, the command is ended, so that it does not
    take half of its input for the whole, and the failure is raised. A command need not read all of
    its stdin."""
    if source is None:
        yield
        return
    failure: Exception | None = None

    async def feed() -> None:
        nonlocal failure
        try:
            await command.feed(source)
        except AgentUnreachableError:
            return  # reading the output raises it too
        except Exception as error:  # noqa: BLE001 - the source is the caller's, raised below
            failure = error
            await command.cancel()

    task = asyncio.create_task(feed(), name="quicksand-stdin")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
    if failure is not None:
        raise failure  # pyright: ignore[reportUnreachable]  # feed() has set it
