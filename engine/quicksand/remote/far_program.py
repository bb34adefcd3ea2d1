"""A command line that our program carries out on another machine: by one plain ssh, with our
terminal if there is one, else with our output streams. There it is `quicksand-tui serve --line`.

Its words go there as one that no login shell changes. Without a terminal, stdin first carries the
files of this machine that the line names, and then one byte for each signal; its end is that of the
connection, as with a terminal that is closed. What comes on stdout before a mark is not the
program's, but of login shells.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Self

from quicksand.base.error_text import printable
from quicksand.base.errors import (
    ConfigError,
    PathError,
    RemoteError,
    RemoteProtocolError,
    RemoteUnreachableError,
)
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.regular import NotAFileError, open_regular
from quicksand.base.staging import staging
from quicksand.records.host_sockets import host_places
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination, NodeDestination
from quicksand.remote.hello import SAME_VERSION
from quicksand.remote.ssh import (
    MISSING,
    SSH_FAILED,
    STDERR_KEPT,
    WITHOUT_INTERRUPTS,
    WITHOUT_TERMINAL,
    ended_here,
    it_printed,
    line_there,
    no_way,
    shown_text,
    ssh_env,
    ssh_words,
)

SERVED = ("serve", "--line")
"""The words before a line that another machine has written."""

LINE_MAX = 96 * 1024
"""The most bytes of a line. Linux allows 128 KiB for one word (MAX_ARG_STRLEN)."""
FILES_MAX = 64
NAME_MAX = 255
"""The most bytes of a file's name, as in Linux."""
READ = 256 * 1024

VARIABLES = re.compile(r"TERM|COLORTERM|TERM_PROGRAM(_VERSION)?|NO_COLOR")
"""The variables that go along: how the user's terminal shows text."""
VALUE_MAX = 256

SIGNALS = {b"I": signal.SIGINT, b"T": signal.SIGTERM, b"H": signal.SIGHUP}

END_S = 2.0
"""Seconds that ssh has to end after SIGTERM."""

CONNECTED = re.compile(r"^(Authenticated to |mux_|.*\b(master|Shared connection)\b)", re.MULTILINE)
"""Words of ssh, of its level VERBOSE, after which our program may have been begun there. A master
of the user's own has logged in long ago."""
VERBOSE = re.compile(r"Authenticated to |Transferred: |Bytes per second: |debug")
"""The beginnings of its lines that are no reason of anything."""

NOISE_MAX = 256 * 1024
"""The most bytes before the mark that are skipped."""
NOISE_SHOWN = 1024

Write = Callable[[bytes], Awaitable[None]]
"""Takes a piece of the program's output."""

PassedOn = Callable[[Callable[[str], None]], AbstractContextManager[None]]
"""During the context, a function gets the names of the signals that this process gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarLine:
    """A command line for another machine."""

    argv: Sequence[str]
    """The words after the program's name. Bytes that are not UTF-8 are as `os.fsdecode` makes
    them."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of `VARIABLES`."""
    files: Sequence[tuple[str, int]] = ()
    """The names of the files that come on stdin, and their sizes. The line is carried out in a
    directory that has these alone."""
    mark: str = field(default_factory=lambda: os.urandom(16).hex())
    """Comes before the program's output; "" in a terminal."""

    @property
    def has_terminal(self) -> bool:
        """Whether the program there uses our terminal."""
        return not self.mark

    @property
    def beginning(self) -> bytes:
        """Return the line before the program's output."""
        return f"quicksand-there {self.mark}\n".encode()

    def encode(self) -> str:
        """Return the line as a word that no shell changes. Raises ConfigError if it is too
        long."""
        parts = [[*self.argv], {**self.env}, [*self.files], self.mark]
        word = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()
        if len(word) > LINE_MAX:
            raise ConfigError(f"the command line is longer than {LINE_MAX} bytes")
        return word

    @classmethod
    def decode(cls, word: str) -> Self:
        """Read what `encode` has written. Raises RemoteProtocolError."""
        try:
            found = json.loads(base64.b64decode(word.encode(), altchars=b"-_", validate=True))
        except (ValueError, binascii.Error, RecursionError):
            found = None
        match found:
            case [list(argv), dict(env), list(files), str(mark)] if (
                argv
                and all(isinstance(word, str) and "\0" not in word for word in argv)
                and all(VARIABLES.fullmatch(name) and _is_plain(env[name]) for name in env)
                and len(files) <= FILES_MAX
                and all(map(_is_file, files))
                and (not mark or mark.isalnum())
            ):
                return cls(
                    argv=argv,
                    env=env,
                    files=[(name, size) for name, size in files],
                    mark=mark,
                )
        raise RemoteProtocolError("that is no line that `--host` writes")


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= VALUE_MAX


def _is_file(value: object) -> bool:
    match value:
        case [str(name), int(size)]:
            return is_name(name) and size >= 0
    return False


def is_name(name: str) -> bool:
    """Whether a text can be a file's name in a directory."""
    return (
        name not in ("", ".", "..")
        and "/" not in name
        and name.isprintable()
        and len(name.encode("utf-8")) <= NAME_MAX
    )


# The near end


async def run_line(
    destination: Destination | NodeDestination,
    line: FarLine,
    sources: Sequence[Path],
    *,
    asks: bool,
    changes: bool,
    passed_on: PassedOn,
    write: Write,
) -> int:
    """Have a line carried out on a machine, and return its exit code. ``sources`` are the files
    that it names, in their order; ``asks``: ssh may ask for a passphrase; ``changes``: it changes
    something; ``write`` gets its output, unless it has our terminal. Raises RemoteError, HostError,
    PathError, ConfigError for what is no file, and the errors of ``write``."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_opened(source)) for source in sources]
        sizes = [(name, os.fstat(file.fileno()).st_size) for name, file in opened]
        line = replace(line, files=sizes)
        log = stack.enter_context(tempfile.NamedTemporaryFile(prefix="quicksand-ssh-"))
        process = await _start(destination, line, log, asks=asks)
        try:
            await _send(process, opened, sizes)
            noise = await _await_beginning(process, line)
            with passed_on(_sender(process, line)):  # before, a signal ends ssh
                while process.stdout is not None and (data := await process.stdout.read(READ)):
                    await write(data)
                code = await process.wait()
        finally:
            await _end(process)
        if code in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP):
            return 128 - code
        if code < 0:
            raise ended_here(destination, code)
        if code == SSH_FAILED and isinstance(destination, Destination):
            is_begun = noise is None and not line.has_terminal
            raise _why_failed(destination, log, changes=changes, is_begun=is_begun)
    if code == MISSING or noise is not None:
        async with Connection(destination, asks=asks):  # says what is in the way
            pass
    if noise is not None:
        raise RemoteError(
            f"{destination.short} carried nothing out (exit code {code}){it_printed(noise)}",
            hint=SAME_VERSION,
        )
    return code


async def _await_beginning(process: asyncio.subprocess.Process, line: FarLine) -> str | None:
    """Wait for the program's beginning. Return what came in its place, and None if it has begun, or
    has our terminal. Raises RemoteProtocolError."""
    if (reader := process.stdout) is None:
        return None
    try:
        await reader.readuntil(line.beginning)
    except asyncio.IncompleteReadError as error:
        return shown_text(error.partial[:NOISE_SHOWN])
    except asyncio.LimitOverrunError:
        raise RemoteProtocolError(
            "the other machine carries nothing out, it only prints",
            hint="its shell's start-up files must not print without end for commands over ssh",
        ) from None
    return None


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        descriptor = open_regular(source)
    except NotAFileError as error:
        raise ConfigError(f"{source} is no file, and only files are sent") from error
    except OSError as error:
        raise PathError(f"cannot read {source}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        yield name_there(source), file


def name_there(source: Path) -> str:
    """Return the name of a file at the other machine."""
    name = source.name
    return name if is_name(name) and not name.startswith("-") else f"file{source.suffix}"


async def _start(
    destination: Destination | NodeDestination, line: FarLine, log: IO[bytes], *, asks: bool
) -> asyncio.subprocess.Process:
    pipe = None if line.has_terminal else asyncio.subprocess.PIPE
    words = (*SERVED, line.encode())
    if isinstance(destination, NodeDestination):
        return await destination.start(
            *words, stdin=pipe, stdout=pipe, start_new_session=not line.has_terminal
        )
    # ssh's own messages go to a log. In a terminal, the program's stderr comes by stdout, too.
    kind = ("-o", "RequestTTY=force") if line.has_terminal else WITHOUT_TERMINAL
    call = ssh_words(
        destination,
        line_there(" ".join(words)),
        asks=asks,
        kind=(*kind, "-o", "LogLevel=VERBOSE", "-E", log.name),
    )
    return await asyncio.create_subprocess_exec(
        *(() if line.has_terminal else WITHOUT_INTERRUPTS),
        *call,
        stdin=pipe,
        stdout=pipe,
        stderr=log if line.has_terminal else None,
        env=ssh_env(),
        limit=NOISE_MAX,
    )


def _sender(process: asyncio.subprocess.Process, line: FarLine) -> Callable[[str], None]:
    """Return the function that passes a signal on."""

    def send(name: str) -> None:
        if not line.has_terminal and process.stdin is not None:
            process.stdin.write(name[:1].encode())
        elif name != "INT":  # a terminal has given that to ssh, too
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.Signals[f"SIG{name}"])

    return send


async def _send(
    process: asyncio.subprocess.Process,
    opened: Sequence[tuple[str, IO[bytes]]],
    sizes: Sequence[tuple[str, int]],
) -> None:
    """Send the files, each with as many bytes as was said. A program that has ended is left to
    tell why."""
    for (name, file), (_, size) in zip(opened, sizes, strict=True):
        left = size
        while left and (data := await asyncio.to_thread(file.read, min(READ, left))):
            left -= len(data)
            assert process.stdin is not None
            try:
                process.stdin.write(data)
                await process.stdin.drain()
            except OSError:
                return
        if left:
            raise PathError(f"{name} has become shorter while it was sent")


async def _end(process: asyncio.subprocess.Process) -> None:
    """End ssh if it still runs: the other end notices."""
    for end in (process.terminate, process.kill):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                end()
                async with asyncio.timeout(END_S):
                    await process.wait()
    if process.stdout is not None:  # what is unread would keep its end open
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                while await process.stdout.read(READ):
                    pass


def _why_failed(
    destination: Destination, log: IO[bytes], *, changes: bool, is_begun: bool
) -> RemoteError:
    """Return the error for an ssh that failed by itself. ``is_begun``: the program was begun."""
    log.seek(0)
    text = log.read(STDERR_KEPT).decode("utf-8", "replace")
    reasons = [line for line in text.splitlines() if not VERBOSE.match(line)]
    heard = it_printed("\n".join(printable(line) for line in reasons if line.strip()))
    if reasons and not is_begun and not CONNECTED.search(text):
        return no_way(destination, heard)
    broke = f"the connection to {destination.short} broke{heard}"
    if not changes:
        return RemoteUnreachableError(broke)
    return RemoteUnreachableError(
        f"whether the command was carried out on {destination.short} is unknown: {broke}",
        hint="look at what is there before you do it again",
    )


# The far end


def carry_line_out(word: str, run: Callable[[Sequence[str]], int]) -> int:
    """Carry out a line that another machine has written: call ``run`` with its words, and return
    the exit code. Raises RemoteProtocolError, HostError."""
    line = FarLine.decode(word)
    os.environ.update(line.env)
    os.environ.pop("QUICKSAND_HOST", None)
    with contextlib.ExitStack() as stack:
        if not line.has_terminal:
            sys.stdout.buffer.write(line.beginning)
            sys.stdout.buffer.flush()
            control = os.dup(sys.stdin.fileno())
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            os.dup2(nothing, sys.stdin.fileno())
            os.close(nothing)
            if line.files:
                os.chdir(stack.enter_context(_received(control, line.files)))
            threading.Thread(target=_heed, args=(control,), daemon=True).start()
        return run(line.argv)


@contextlib.contextmanager
def _received(control: int, files: Sequence[tuple[str, int]]) -> Iterator[Path]:
    """Write the files that come to a private directory, which is removed at the end."""
    before = Path.cwd()
    with private_place() as place:
        for name, size in files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(open_regular(place / name, flags), "wb") as file:
                left = size
                while left:
                    data = os.read(control, min(READ, left))
                    if not data:
                        raise RemoteProtocolError(f"{name} did not come to its end")
                    file.write(data)
                    left -= len(data)
        try:
            yield place
        finally:
            os.chdir(before)


@contextlib.contextmanager
def private_place() -> Iterator[Path]:
    """Make a directory for files that another machine sends or fetches, and remove it at the end.
    Raises HostError."""
    within = host_places(paths())
    make_private_dir(paths().cache)
    make_private_dir(within)
    with staging(within) as place:
        yield place


def _heed(control: int) -> None:
    """Send this process the signals that its client gets; at the end of the connection, SIGHUP."""
    while byte := os.read(control, 1):
        if byte in SIGNALS:
            _send_all(SIGNALS[byte])
    _send_all(signal.SIGHUP)


def _send_all(number: signal.Signals) -> None:
    """Send a signal to our process group, if it is ours alone, as a terminal does."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, number)
    else:
        os.kill(os.getpid(), number)
