"""Carries out commands for another machine: each is a process of our own program."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quicksand.base.errors import RemoteError, RemoteRefusedError
from quicksand.guest.agent.wire import Stream
from quicksand.remote.passed_on import (
    BYTES_MAX,
    CLIENT_FILES,
    PASSED_ON,
    ClientFiles,
    encode_values,
)
from quicksand.remote.passed_on import BYTES_MAX as FILES_BYTES_MAX
from quicksand.remote.peer_link import Channel, Request
from quicksand.remote.places import Places
from quicksand.remote.started import Started, start_in_terminal, start_with_pipes

END_S = 60.0
"""Seconds that a command has to end once its client has gone: `run` first stops its sandbox."""

WORDS_MAX = 10_000
CELLS_MAX = 10_000
"""The most columns or rows of a terminal."""

VARIABLES = re.compile(
    r"TERM|COLORTERM|TERM_PROGRAM(_VERSION)?|KITTY_WINDOW_ID|NO_COLOR|LANG|LC_[A-Z]+"
)
"""The variables that a client may set: how its terminal shows text."""

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
    place: str
    """The directory of its files (`places.Places`), in which it runs; "" for the home
    directory."""
    values: str
    """The values that it passes on to a guest (`passed_on.encode_values`); "" for none."""
    files: str
    """The client's names for its files there (`client_files`); "" for none."""


class Commands:
    """The commands of one client, each of which ends with its connection."""

    def __init__(self, program: Sequence[str], check: CheckArgv, places: Places) -> None:
        """``program`` is the command that runs a command line."""
        self._program = tuple(program)
        self._check = check
        self._places = places

    async def carry_out(self, request: Request) -> None:
        """Answer the request ``command``: run one."""
        wanted = parse(request.params)
        self._check(wanted.argv)
        command = await self._start(wanted)
        request.answer()
        await _serve(command, request.channel)

    async def _start(self, wanted: Wanted) -> Started:
        argv = (*self._program, *wanted.argv)
        env = {**_own_env(), **wanted.env}
        if wanted.values:
            env[PASSED_ON] = wanted.values
        if wanted.files:
            env[CLIENT_FILES] = wanted.files
        # Ours is the user's home, or the directory of a local node.
        cwd = self._places.find(wanted.place) if wanted.place else Path.cwd()
        if wanted.terminal is None:
            return await start_with_pipes(argv, env, cwd, stdin=wanted.stdin)
        columns, rows = wanted.terminal
        return await start_in_terminal(argv, env, cwd, columns=columns, rows=rows)


async def _serve(command: Started, channel: Channel) -> None:
    """Connect a command and the channel of its client until the command has ended. If the client
    goes before, the command ends as if its terminal had gone."""

    async def put(stream: Stream, data: bytes) -> None:
        # What comes once the client has gone is dropped, so that the command can end.
        with contextlib.suppress(RemoteError):
            if data:
                await channel.send(stream, data)
            else:
                channel.finish(stream)

    running = asyncio.create_task(command.run(put), name="quicksand-command")
    feeding = asyncio.create_task(_feed(command, channel), name="quicksand-input")
    heeding = asyncio.create_task(_heed(command, channel), name="quicksand-events")
    try:
        # The events end with the connection, even if there is nothing to send.
        await asyncio.wait([running, heeding], return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not running.done():
            command.signal(signal.SIGHUP)
            await asyncio.wait([running], timeout=END_S)
            command.signal(signal.SIGKILL)
        for task in (feeding, heeding):
            task.cancel()
        await asyncio.wait([running, feeding, heeding])
    channel.tell("exit", exit_code=running.result())


async def _feed(command: Started, channel: Channel) -> None:
    with contextlib.suppress(RemoteError):
        while True:
            await command.feed((await channel.piece()).data)


async def _heed(command: Started, channel: Channel) -> None:
    """Do what the client's events say until its connection ends."""
    with contextlib.suppress(RemoteError):
        while True:
            match await channel.event():
                case {"event": "signal", "signal": str(name)} if name in SIGNALS:
                    command.signal(SIGNALS[name])
                case {"event": "resize", "columns": int(columns), "rows": int(rows)}:
                    command.resize(*_cells(columns, rows))


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
    place = params.get("place", "")
    if not isinstance(place, str):
        raise _bad("place has a wrong type")
    return Wanted(
        argv=[_word(word) for word in words],
        env=_variables(env),
        stdin=stdin,
        terminal=None if terminal is None else _read_terminal(terminal),
        place=place,
        values=_values(params.get("values_b64", {})),
        files=_files(params.get("files_b64", {}), params.get("directory_b64", "")),
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


def _bad(what: str) -> RemoteRefusedError:
    return RemoteRefusedError(what, code="bad_request")


def _own_env() -> dict[str, str]:
    """Return our environment for a command, without variables that would lead it elsewhere."""
    left_out = ("QUICKSAND_HOST", PASSED_ON, CLIENT_FILES)
    return {key: value for key, value in os.environ.items() if key not in left_out}
