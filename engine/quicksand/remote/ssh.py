"""The way to another machine: the user's own ssh, with its config, keys, agents and jump hosts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quicksand.base.error_text import printable
from quicksand.base.errors import (
    HostError,
    RemoteError,
    RemoteProtocolError,
    RemoteUnansweredError,
    RemoteUnreachableError,
)
from quicksand.remote.destination import Destination, NodeDestination
from quicksand.remote.hello import Hello, Welcome, read_welcome

if TYPE_CHECKING:
    from quicksand.remote.askpass import Asker, Askpass

OPTIONS = (
    *("-e", "none"),
    # A command or forwards from the user's config would interfere.
    *("-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no"),
    # This ssh must not become the master on which other connections of the user depend.
    *("-o", "ControlMaster=no"),
    *("-o", "ClearAllForwardings=yes", "-o", "ForwardAgent=no", "-o", "ForwardX11=no"),
    *("-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"),
)

WITHOUT_TERMINAL = ("-T", "-o", "RequestTTY=no")

ASIDE = "quicksand-there: "
"""The beginning of lines on stderr about the other machine, for the error if nothing answers."""

_LINE = (
    "exec sh -c '{first}"
    'PATH="$PATH:$HOME/.local/bin"; '
    "command -v quicksand-tui >/dev/null 2>&1 && exec quicksand-tui {words}; "
    'python3 -P -c "import quicksand_tui" 2>/dev/null '
    "&& exec python3 -P -m quicksand_tui {words}; "
    "{last}exit 127'"
)
"""The command line that runs our program there, for sh, bash, zsh, fish and csh as login shells. A
shell that is no login shell often lacks ~/.local/bin in its PATH. -P keeps the working directory
off the import path."""
THERE = _LINE.format(
    first=f'echo "{ASIDE}shell" >&2; ',
    words="serve --stdio",
    last=f'echo "{ASIDE}$(python3 -V 2>&1)" >&2; ',
)
VERSION_THERE = _LINE.format(first="", words="--version", last="")
VERSION_S = 20.0

WRONG_LINE = 2
"""The exit code of a quicksand-tui that does not know `serve`."""
MISSING = 127
"""The exit code of the line if there is no quicksand-tui, and of shells that lack even sh."""
SSH_FAILED = 255
"""The exit code of ssh when ssh itself fails."""

WITHOUT_INTERRUPTS = ("/bin/sh", "-c", "trap '' INT QUIT; exec \"$@\"", "sh")
"""Starts the following command so that Ctrl-C does not end it: ssh leaves signals ignored that were
ignored when it started (clientloop.c). The command at the other end gets the Ctrl-C, and its output
must still come back."""

NOISE_MAX = 256 * 1024
"""The most bytes before the marker that are skipped: output of a login shell's start-up files."""

NOISE_SHOWN = 1024
STDERR_KEPT = 8 * 1024
ANSWER_S = 30.0
ANSWER_WITH_USER_S = 180.0
"""Seconds within which the other machine must answer; a user may have to type a passphrase."""

PYTHON_LEAST = (3, 11)
_least = ".".join(map(str, PYTHON_LEAST))
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})[0-9A-Za-z.+-]{0,40}")

INSTALL = "install it there: `pipx install quicksand-tui`, or `pip install --user quicksand-tui`"


@dataclass(slots=True)
class Ssh:
    """A running ssh, or the program of a local node."""

    destination: Destination | NodeDestination
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    noise: bytearray = field(default_factory=bytearray)
    """The beginning of the bytes before the marker."""
    said: deque[bytes] = field(default_factory=deque)
    """The last lines of its stderr."""
    listening: asyncio.Task[None] | None = None
    asker: Asker | None = None
    """The right of ssh to ask the user in a dialog."""

    async def end(self) -> None:
        """End ssh, and wait for its end. Bytes already written are still sent. Idempotent."""
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(2.0):
                await self.process.wait()
        for end in (self.process.terminate, self.process.kill):
            if self.process.returncode is None:
                # SIGTERM first: ssh then restores the terminal on which it asks.
                with contextlib.suppress(ProcessLookupError, TimeoutError):
                    end()
                    async with asyncio.timeout(2.0):
                        await self.process.wait()
        if self.asker is not None:
            self.asker.end()
        if self.listening is not None:
            self.listening.cancel()
            await asyncio.wait([self.listening])

    async def abandon(self) -> None:
        """End ssh without sending the bytes that wait. It gets SIGTERM, so that it restores a
        terminal on which it asks for a passphrase."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        await self.end()

    @property
    def words(self) -> str:
        """Return what ssh and the other machine have written to stderr, cleaned."""
        lines = shown_text(b"".join(self.said)).splitlines()
        return "\n".join(line for line in lines if not line.startswith(ASIDE))

    @property
    def asides(self) -> list[str]:
        """Return the report of the line that was run there (`THERE`)."""
        lines = shown_text(b"".join(self.said)).splitlines()
        return [line.removeprefix(ASIDE) for line in lines if line.startswith(ASIDE)]


async def start_way(
    destination: Destination | NodeDestination, *, asks: bool, askpass: Askpass | None = None
) -> Ssh:
    """Start the way to a machine: ssh, or the program of a local node. ``asks``: ssh may ask the
    user for passwords on our terminal; with ``askpass`` it asks there, and never on a terminal.
    Raises HostError if there is no ssh here."""
    if isinstance(destination, NodeDestination):
        pipe = asyncio.subprocess.PIPE
        # In a session of its own, the node's program does not end by Ctrl-C at our terminal.
        started = await destination.start(
            "serve", "--stdio", stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        return _listened(destination, started)
    return await start_ssh(destination, asks=asks, askpass=askpass)


async def start_ssh(
    destination: Destination, *, asks: bool, askpass: Askpass | None = None, line: str = THERE
) -> Ssh:
    """Start ssh to a machine, as `start_way`, and run ``line`` there. Raises HostError if there is
    no ssh here."""
    words = ssh_words(destination, line, asks=asks or askpass is not None)
    pipe = asyncio.subprocess.PIPE
    asker = askpass.begin(destination.short) if askpass is not None else None
    try:
        process = await asyncio.create_subprocess_exec(
            *WITHOUT_INTERRUPTS,
            *words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=ssh_env() if asker is None else ssh_env() | asker.environment,
            # Without a terminal, an ssh before 8.4 fails instead of asking there anyway.
            start_new_session=asker is not None,
        )
    except BaseException:
        if asker is not None:
            asker.end()
        raise
    return _listened(destination, process, asker)


def line_there(words: str) -> str:
    """Return the command line that runs our program there with ``words``, which no shell may
    change."""
    return _LINE.format(first="", words=words, last="")


def ssh_words(
    destination: Destination, line: str, *, asks: bool, kind: Sequence[str] = WITHOUT_TERMINAL
) -> list[str]:
    """Return the call of ssh that runs ``line`` there. Raises HostError if there is no ssh here."""
    program = shutil.which("ssh")
    if program is None:
        raise HostError("there is no ssh on this machine", hint="install the OpenSSH client")
    options = [*kind, *OPTIONS, *(() if asks else ("-o", "BatchMode=yes"))]
    if destination.port:
        options += ["-p", str(destination.port)]
    if destination.user:
        options += ["-l", destination.user]
    return [program, *options, "--", destination.host, line]


def ssh_env() -> dict[str, str]:
    """Return the environment of an ssh, which must not be led elsewhere."""
    return {key: value for key, value in os.environ.items() if key != "QUICKSAND_HOST"}


def _listened(
    destination: Destination | NodeDestination,
    process: asyncio.subprocess.Process,
    asker: Asker | None = None,
) -> Ssh:
    """Read the stderr of a process that has started."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    ssh = Ssh(destination, process, process.stdout, process.stdin, asker=asker)
    ssh.listening = asyncio.create_task(_listen(process.stderr, ssh.said), name="quicksand-ssh")
    return ssh


async def _listen(stderr: asyncio.StreamReader, said: deque[bytes]) -> None:
    """Keep the end of ssh's stderr."""
    kept = 0
    while data := await stderr.read(STDERR_KEPT):
        said.append(data)
        kept += len(data)
        while kept - len(said[0]) >= STDERR_KEPT:
            kept -= len(said.popleft())


async def greet(ssh: Ssh, hello: Hello, *, asks: bool) -> Welcome:
    """Say hello, and return the answer. ssh runs on. Raises RemoteUnreachableError if ssh does not
    get there, RemoteUnansweredError if the user left its question unanswered, RemoteError if no
    quicksand-tui answers, RemoteRefusedError if one answers that does not speak our protocol."""
    name = ssh.destination.short
    seconds = ANSWER_WITH_USER_S if asks else ANSWER_S
    try:
        async with asyncio.timeout(seconds) as limit:
            if ssh.asker is not None:
                ssh.asker.hold_back(limit, seconds)
            ssh.writer.write(hello.encode())
            await _skip_to(ssh, hello.marker)
            return await read_welcome(ssh.reader, name)
    except (EOFError, ConnectionError):
        raise await _why_ended(ssh) from None
    except TimeoutError:
        raise RemoteUnreachableError(
            f"{name} did not answer within {seconds:g} s{_heard(ssh)}",
            hint=f"try `{ssh.destination.trial}` by itself",
        ) from None


async def _skip_to(ssh: Ssh, marker: bytes) -> None:
    """Read up to the end of the marker, and keep the beginning of the bytes before it."""
    seen = bytearray()
    skipped = 0
    while not seen.endswith(marker):
        # One byte at a time: bytes after the marker must stay unread. The buffer has them already.
        try:
            seen += await ssh.reader.readexactly(1)
        except EOFError:
            ssh.noise += seen
            raise
        if len(seen) > len(marker):
            if len(ssh.noise) < NOISE_SHOWN:
                ssh.noise += seen[:1]
            del seen[:1]
            skipped += 1
        if skipped > NOISE_MAX:
            raise RemoteProtocolError(
                f"{ssh.destination.short} does not answer, it only prints{_heard(ssh)}",
                hint="its shell's start-up files must not print without end for commands over ssh",
            )


def _heard(ssh: Ssh) -> str:
    """Describe the output that came instead of an answer."""
    printed = shown_text(bytes(ssh.noise))
    return it_printed("\n".join(one for one in (printed, ssh.words) if one))


def it_printed(words: str) -> str:
    """Return the rest of a message, with what ssh or the other machine has said."""
    return f"; it printed:\n{words}" if words else ""


def shown_text(data: bytes) -> str:
    """Return bytes of another machine as harmless lines."""
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return "\n".join(printable(line) for line in lines)


async def _why_ended(ssh: Ssh) -> RemoteError | HostError:
    """Return the error for an ssh that ended before the other machine had answered."""
    name = ssh.destination.short
    code = await ssh.process.wait()
    if ssh.listening is not None:
        await asyncio.wait([ssh.listening], timeout=1.0)
    if ssh.asker is not None and ssh.asker.is_given_up:
        return RemoteUnansweredError(
            f"not connected to {name}: a question of ssh was left without an answer{_heard(ssh)}",
            hint="connect again to be asked again",
        )
    if code == SSH_FAILED:
        return no_way(ssh.destination, _heard(ssh))
    if code < 0:
        return ended_here(ssh.destination, code, _heard(ssh))
    if code == WRONG_LINE and isinstance(ssh.destination, Destination):
        version = await _version_at(ssh.destination)
        return RemoteError(
            f"quicksand-tui on {name} is too old to be used from here{version}",
            hint="install the same version on both machines",
        )
    return _why_not_served(ssh, code)


def no_way(destination: Destination | NodeDestination, heard: str) -> RemoteUnreachableError:
    """Return the error for an ssh that does not get there."""
    return RemoteUnreachableError(
        f"cannot connect to {destination.short}{heard}",
        hint=f"`{destination.trial}` must work first",
    )


def ended_here(
    destination: Destination | NodeDestination, code: int, heard: str = ""
) -> RemoteUnreachableError:
    """Return the error for an ssh that was ended by a signal."""
    by = signal.Signals(-code).name
    return RemoteUnreachableError(
        f"ssh to {destination.short} was ended on this machine by {by}{heard}",
        hint="do it again; if nobody ended it, it was the system, short of memory perhaps",
    )


async def _version_at(destination: Destination) -> str:
    """Return the version of a quicksand-tui that does not know `serve`, after a colon; "" if it
    cannot be found out without a question of ssh's."""
    probe = await start_ssh(destination, asks=False, line=VERSION_THERE)
    said = b""
    try:
        async with asyncio.timeout(VERSION_S):
            said = await probe.reader.read(STDERR_KEPT)
    except TimeoutError:
        pass
    finally:
        await probe.abandon()
    found = _VERSION.search(said.decode("utf-8", "replace"))
    return f": {found[0]}" if found else ""


def _why_not_served(ssh: Ssh, code: int) -> RemoteError:
    """Return the error for a machine that ssh reached, but where no quicksand-tui answered."""
    name, asides = ssh.destination.short, "\n".join(ssh.asides)
    if code == MISSING:
        python = _VERSION.search(asides)
        hint = INSTALL
        if python is not None and (int(python[1]), int(python[2])) < PYTHON_LEAST:
            hint += f"; it needs Python {_least} or newer, and python3 there is {python[0]}"
        return RemoteError(f"there is no quicksand-tui on {name}{_heard(ssh)}", hint=hint)
    if not asides and isinstance(ssh.destination, Destination):
        return RemoteUnreachableError(
            f"{name} ran nothing for this login (exit code {code}){_heard(ssh)}",
            hint="the login's shell, or a command that is forced on its key, must run what ssh "
            "asks for",
        )
    return RemoteUnreachableError(
        f"quicksand-tui on {name} ended before it answered (exit code {code}){_heard(ssh)}",
        hint=f"quicksand-tui must work there first, by Python {_least} or newer",
    )
