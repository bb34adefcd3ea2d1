"""Carries out commands for another machine: each is a process of our own program."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quicksand.base.errors import RemoteError, RemoteRefusedError
from quicksand.guest.agent.wire import Stream
from quicksand.remote.channel import Channel
from quicksand.remote.client_files import BYTES_MAX as FILES_BYTES_MAX
from quicksand.remote.client_files import CLIENT_FILES, ClientFiles
from quicksand.remote.hello import HEX32
from quicksand.remote.link import Request
from quicksand.remote.passed_on import BYTES_MAX, PASSED_ON, encode_values
from quicksand.remote.places import Places
from quicksand.remote.started import Started, start_in_terminal, start_with_pipes

KEPT_S = 600.0
"""Seconds for which the result of a command that must not be done twice is kept for its client."""

KEPT_COMMANDS_MAX = 64
WORDS_MAX = 10_000
CELLS_MAX = 10_000
"""The most columns or rows of a terminal."""

VARIABLES = re.compile(
    r"TERM|COLORTERM|TERM_PROGRAM(_VERSION)?|KITTY_WINDOW_ID|NO_COLOR|LANG|LC_[A-Z]+|QUICKSAND_TELL"
)
"""The variables that a client may set: how its terminal shows text, and how the command reports its
progress."""

VALUE_MAX = 256
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of a variable of a guest."""

SIGNALS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "HUP": signal.SIGHUP}

CheckArgv = Callable[[Sequence[str]], None]
"""Checks a command. Raises RemoteRefusedError for one that is not carried out for others."""


class Wanted(NamedTuple):
    """A command as requested by a client."""

    argv: list[str]
    env: dict[str, str]
    stdin: bool
    terminal: tuple[int, int] | None
    """Its columns and rows; None for pipes."""
    once: str
    """32 hex digits if it runs to its end even without its client, and is not to be done a second
    time; "" if it ends with the connection."""
    place: str
    """The directory of its files (`places.Places`), in which it runs; "" for the home
    directory."""
    values: str
    """The values that it passes on to a guest (`passed_on.encode_values`); "" for none."""
    files: str
    """The client's names for its files there (`client_files`); "" for none."""
    have: dict[Stream, int]
    """Bytes of each output stream that the client has already read."""


class Commands:
    """The commands of one client, over all of its connections."""

    def __init__(
        self, program: Sequence[str], check: CheckArgv, places: Places, on_kept: Callable[[], Any]
    ) -> None:
        """``program`` is the command that runs a command line. ``on_kept`` is awaited before the
        first command that must not be done twice."""
        self._program = tuple(program)
        self._check = check
        self._places = places
        self._on_kept = on_kept
        self._kept: dict[str, Started] = {}
        self._starting = asyncio.Lock()
        self._beginning = 0
        """The number of kept commands that are about to begin."""

    async def carry_out(self, request: Request) -> None:
        """Answer the request ``command``: run one, or resume one that this client began over an
        earlier connection."""
        wanted = parse(request.params)
        self._beginning += bool(wanted.once)
        try:
            command, is_new = await self._start(wanted)
        finally:
            self._beginning -= bool(wanted.once)
        request.answer(resumed=not is_new)
        try:
            await _Serving(command, request.channel, wanted.have).run()
        except RemoteError:
            if not wanted.once:
                await command.hang_up()
            raise
        finally:
            for flow in command.flows.values():
                flow.let_go()

    async def _start(self, wanted: Wanted) -> tuple[Started, bool]:
        async with self._starting:  # the same command may be requested twice at the same time
            if (known := self._kept.get(wanted.once)) is not None:
                return known, False
            self._check(wanted.argv)
            if wanted.once:
                if len(self._kept) >= KEPT_COMMANDS_MAX:
                    raise RemoteRefusedError("too many commands are kept", code="too_many")
                await self._on_kept()
            argv = (*self._program, *wanted.argv)
            env = {**_own_env(), **wanted.env}
            if wanted.values:
                env[PASSED_ON] = wanted.values
            if wanted.files:
                env[CLIENT_FILES] = wanted.files
            keeps = bool(wanted.once)
            # Ours is the user's home, or the directory of a local node.
            cwd = self._places.find(wanted.place) if wanted.place else Path.cwd()
            if wanted.terminal is None:
                command = await start_with_pipes(argv, env, cwd, stdin=wanted.stdin, keeps=keeps)
            else:
                columns, rows = wanted.terminal
                command = await start_in_terminal(
                    argv, env, cwd, columns=columns, rows=rows, keeps=keeps
                )
            if wanted.once:
                self._kept[wanted.once] = command
            return command, True

    def forget(self, once: object) -> None:
        """Forget a command whose result the client knows. One that still runs is not forgotten."""
        if isinstance(once, str) and once in self._kept and self._kept[once].over.done():
            del self._kept[once]

    def forget_ended(self) -> None:
        """Forget the ended commands of a client that does not come back."""
        for once in list(self._kept):
            self.forget(once)

    def end_input(self) -> None:
        """End all input, since the client types no more: no command must wait for it for ever."""
        for command in self._kept.values():
            command.end_input()

    @property
    def is_empty(self) -> bool:
        """Whether no command is kept, or about to be."""
        return not self._kept and not self._beginning

    async def settle(self) -> None:
        """Wait until all kept commands have ended."""
        async with self._starting:
            kept = list(self._kept.values())
        for command in kept:
            await asyncio.wait([command.over])


class _Serving:
    """Connects a command and the channel of a client."""

    def __init__(self, command: Started, channel: Channel, have: Mapping[Stream, int]) -> None:
        self._command = command
        self._channel = channel
        self._have = have

    async def run(self) -> None:
        """Serve until the client has been told the command's result. Raises RemoteError if it has
        gone."""
        for flow in self._command.flows.values():
            flow.hold()
        helpers = [
            asyncio.create_task(self._take_input(), name="quicksand-input"),
            asyncio.create_task(self._take_events(), name="quicksand-events"),
        ]
        senders = [
            asyncio.create_task(self._send(stream), name="quicksand-send")
            for stream in self._command.flows
        ]
        try:
            # The events end with the connection, even if there is nothing to send.
            waiting = {*senders, helpers[1]}
            while not all(task.done() for task in senders):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in (*helpers, *senders):
                task.cancel()
            await asyncio.wait((*helpers, *senders))
        await asyncio.wait([self._command.over])
        self._channel.tell("exit", exit_code=self._command.exit_code)

    async def _send(self, stream: Stream) -> None:
        flow = self._command.flows[stream]
        at = self._have.get(stream, 0)
        while True:
            place, data = await flow.take(at)
            if place > at:
                self._channel.tell("lost", stream=int(stream), bytes=place - at)
            if not data:
                break
            await self._channel.send(stream, data)
            at = place + len(data)
        self._channel.finish(stream)

    async def _take_input(self) -> None:
        while True:
            await self._command.feed((await self._channel.piece()).data)

    async def _take_events(self) -> None:
        while True:
            match await self._channel.event():
                case {"event": "signal", "signal": str(name)} if name in SIGNALS:
                    self._command.signal(SIGNALS[name])
                case {"event": "resize", "columns": int(columns), "rows": int(rows)}:
                    self._command.resize(*_cells(columns, rows))


def parse(params: dict[str, Any]) -> Wanted:
    """Read the parameters of `command`. Raises RemoteRefusedError, "bad_request"."""
    match params:
        case {"argv_b64": list(words), "env": dict(env), "stdin": bool(stdin)} if (
            0 < len(words) <= WORDS_MAX
        ):
            pass
        case _:
            raise _bad("argv_b64, env or stdin is missing, or has a wrong type")
    terminal = params.get("terminal")
    once = params.get("once", "")
    have = params.get("have", {})
    place = params.get("place", "")
    if not isinstance(place, str):
        raise _bad("place has a wrong type")
    if once != "" and not (isinstance(once, str) and HEX32.fullmatch(once)):
        raise _bad("once is not 32 hex digits")
    return Wanted(
        argv=[_word(word) for word in words],
        env=_variables(env),
        stdin=stdin,
        terminal=None if terminal is None else _read_terminal(terminal),
        once=once,
        place=place,
        values=_values(params.get("values_b64", {})),
        files=_files(params.get("files_b64", {}), params.get("directory_b64", "")),
        have=_amounts(have),
    )


def _word(coded: object) -> str:
    try:
        data = base64.b64decode(coded if isinstance(coded, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise _bad("a word or a value is no base64") from None
    if b"\0" in data:
        raise _bad("a word or a value has a zero byte")
    return os.fsdecode(data)


def _variables(env: dict[Any, Any]) -> dict[str, str]:
    for name, value in env.items():
        if not VARIABLES.fullmatch(name):
            raise _bad(f"the variable {name!r:.80} is not for others to set")
        if not (isinstance(value, str) and value.isprintable() and len(value) <= VALUE_MAX):
            raise _bad(f"the variable {name} has no value that makes sense")
    return env


def _values(coded: object) -> str:
    if not isinstance(coded, dict):
        raise _bad("values_b64 has a wrong type")
    values = {}
    for name, value in coded.items():
        if not NAME.fullmatch(name):
            raise _bad(f"{name!r:.80} is no name of a variable")
        values[name] = _word(value)
    text = encode_values(values) if values else ""
    if len(text) > BYTES_MAX:
        raise RemoteRefusedError(
            f"the variables that are passed on are larger than the {BYTES_MAX} bytes allowed",
            code="too_large",
        )
    return text


def _files(coded: object, directory: object) -> str:
    if not isinstance(coded, dict):
        raise _bad("files_b64 has a wrong type")
    named = {name: _word(value) for name, value in coded.items()}
    text = ClientFiles(_word(directory), named).encode() if named else ""
    if len(text) > FILES_BYTES_MAX:
        raise RemoteRefusedError("the files have too many names", code="too_large")
    return text


def _read_terminal(value: object) -> tuple[int, int]:
    match value:
        case {"columns": int(columns), "rows": int(rows)}:
            return _cells(columns, rows)
    raise _bad("terminal has no columns and rows")


def _cells(columns: int, rows: int) -> tuple[int, int]:
    return min(max(columns, 1), CELLS_MAX), min(max(rows, 1), CELLS_MAX)


def _amounts(value: object) -> dict[Stream, int]:
    match value:
        case {**given} if len(given) <= len(Stream):
            found = {
                Stream(int(stream)): at
                for stream, at in given.items()
                if stream in ("1", "2") and isinstance(at, int) and 0 <= at < 2**63
            }
            if len(found) == len(given):
                return found
    raise _bad("have does not say how much of which stream")


def _bad(what: str) -> RemoteRefusedError:
    return RemoteRefusedError(what, code="bad_request")


def _own_env() -> dict[str, str]:
    """Return our environment for a command, without variables that would lead it elsewhere."""
    left_out = ("QUICKSAND_HOST", PASSED_ON, CLIENT_FILES)
    return {key: value for key, value in os.environ.items() if key not in left_out}
