"""The way to another machine: the user's own ssh, with his config, keys, agents and jump hosts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections import deque
from dataclasses import dataclass, field

from quicksand.base.errors import (
    HostError,
    RemoteError,
    RemoteProtocolError,
    RemoteUnansweredError,
    RemoteUnreachableError,
)
from quicksand.base.text import printable
from quicksand.remote.askpass import Asker, Askpass
from quicksand.remote.destination import Destination
from quicksand.remote.hello import Hello, Welcome, read_welcome
from quicksand.remote.node import NodeDestination, start_node

OPTIONS = (
    *("-T", "-e", "none"),
    # A terminal, a command or forwards of the user's config would come between.
    *("-o", "RequestTTY=no", "-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no"),
    # It must not become the master that other connections of the user depend on.
    *("-o", "ControlMaster=no"),
    *("-o", "ClearAllForwardings=yes", "-o", "ForwardAgent=no", "-o", "ForwardX11=no"),
    *("-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"),
)

THERE = (
    "exec sh -c '"
    'PATH="$PATH:$HOME/.local/bin"; '
    "command -v quicksand-tui >/dev/null 2>&1 && exec quicksand-tui serve --stdio; "
    'python3 -P -c "import quicksand_tui" 2>/dev/null '
    "&& exec python3 -P -m quicksand_tui serve --stdio; "
    "exit 127'"
)
"""What is run there, for sh, bash, zsh, fish and csh as login shells. A shell that is no login
shell often lacks ~/.local/bin in its PATH. -P: what lies in the working directory is not
imported."""

MISSING = 127
"""The exit code of that if there is no quicksand-tui, and of shells that have not even sh."""
SSH_FAILED = 255
"""The exit code of ssh for its own failures."""

WITHOUT_INTERRUPTS = ("/bin/sh", "-c", "trap '' INT QUIT; exec \"$@\"", "sh")
"""Starts what follows so that Ctrl-C does not end it: ssh leaves signals ignored that it finds
so (clientloop.c). The command at the other end gets that Ctrl-C, and what it says then must come
back."""

NOISE_MAX = 256 * 1024
"""Bytes before the marker that are skipped: what a login shell's start-up files print."""

NOISE_SHOWN = 1024
STDERR_KEPT = 8 * 1024
ANSWER_S = 30.0
ANSWER_WITH_USER_S = 180.0
"""Seconds until the other machine must have answered; a user may have to type a passphrase."""

INSTALL = "install it there: `pipx install quicksand-tui`, or `pip install --user quicksand-tui`"


@dataclass(slots=True)
class Ssh:
    """A running ssh, or the program of a local node."""

    destination: Destination | NodeDestination
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    noise: bytearray = field(default_factory=bytearray)
    """The beginning of what came before the marker."""
    said: deque[bytes] = field(default_factory=deque)
    """The last lines of its stderr."""
    listening: asyncio.Task[None] | None = None
    asker: Asker | None = None
    """Its right to ask the user in a dialog."""

    async def end(self) -> None:
        """End ssh, and wait for that. What was written is still sent. Idempotent."""
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(2.0):
                await self.process.wait()
        for end in (self.process.terminate, self.process.kill):
            if self.process.returncode is None:
                # SIGTERM first: ssh puts the terminal right on which it asks.
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
        """End ssh without waiting for what was written. It gets SIGTERM, so that a terminal on
        which it asks for a passphrase is put right."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        await self.end()

    @property
    def words(self) -> str:
        """What ssh, and the other machine, have written to stderr, cleaned."""
        return _shown(b"".join(self.said))


async def start_way(
    destination: Destination | NodeDestination, *, asks: bool, askpass: Askpass | None = None
) -> Ssh:
    """Start what leads to a machine: ssh, or the program of a local node. ``asks``: ssh may ask the
    user for passwords, on our terminal; with ``askpass`` it does so there, and never on a terminal.
    Raises HostError if there is no ssh here."""
    if isinstance(destination, NodeDestination):
        return _listened(destination, await start_node(destination))
    return await start_ssh(destination, asks=asks, askpass=askpass)


async def start_ssh(destination: Destination, *, asks: bool, askpass: Askpass | None = None) -> Ssh:
    """Start ssh to a machine, as `start_way`. Raises HostError if there is no ssh here."""
    program = shutil.which("ssh")
    if program is None:
        raise HostError("there is no ssh on this machine", hint="install the OpenSSH client")
    options = [*OPTIONS, *(() if asks or askpass else ("-o", "BatchMode=yes"))]
    if destination.port:
        options += ["-p", str(destination.port)]
    if destination.user:
        options += ["-l", destination.user]
    pipe = asyncio.subprocess.PIPE
    env = {key: value for key, value in os.environ.items() if key != "QUICKSAND_HOST"}
    asker = askpass.begin(destination.short) if askpass is not None else None
    try:
        process = await asyncio.create_subprocess_exec(
            *WITHOUT_INTERRUPTS,
            *(program, *options, "--", destination.host, THERE),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=env if asker is None else env | asker.environment,
            # Without a terminal, an ssh before 8.4 fails instead of asking there all the same.
            start_new_session=asker is not None,
        )
    except BaseException:
        if asker is not None:
            asker.end()
        raise
    return _listened(destination, process, asker)


def _listened(
    destination: Destination | NodeDestination,
    process: asyncio.subprocess.Process,
    asker: Asker | None = None,
) -> Ssh:
    """Follow a process that has started."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    ssh = Ssh(destination, process, process.stdout, process.stdin, asker=asker)
    ssh.listening = asyncio.create_task(_listen(process.stderr, ssh.said), name="quicksand-ssh")
    return ssh


async def _listen(stderr: asyncio.StreamReader, said: deque[bytes]) -> None:
    """Keep the end of what ssh writes to stderr."""
    kept = 0
    while data := await stderr.read(STDERR_KEPT):
        said.append(data)
        kept += len(data)
        while kept - len(said[0]) >= STDERR_KEPT:
            kept -= len(said.popleft())


async def greet(ssh: Ssh, hello: Hello, *, asks: bool) -> Welcome:
    """Say hello, and return the answer. Raises RemoteUnreachableError if ssh does not get there,
    RemoteUnansweredError if the user left its question without an answer, RemoteError if there is
    no quicksand-tui or none that answers, RemoteRefusedError for one that
    does not speak our protocol. ssh runs on."""
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
    """Read up to the end of the marker, and keep the beginning of what comes before."""
    seen = bytearray()
    skipped = 0
    while not seen.endswith(marker):
        # One byte at a time: what follows the marker must stay unread. The buffer has it already.
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
    """Say what was heard instead of an answer."""
    printed = _shown(bytes(ssh.noise))
    words = "\n".join(one for one in (printed, ssh.words) if one)
    return f"; it printed:\n{words}" if words else ""


def _shown(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return "\n".join(printable(line) for line in lines)


async def _why_ended(ssh: Ssh) -> RemoteError | HostError:
    """Return the error for an ssh that ended before the other machine has answered."""
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
        return RemoteUnreachableError(
            f"cannot connect to {name}{_heard(ssh)}",
            hint=f"`{ssh.destination.trial}` must work first",
        )
    if code == MISSING:
        return RemoteError(f"there is no quicksand-tui on {name}{_heard(ssh)}", hint=INSTALL)
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return RemoteUnreachableError(
        f"ssh to {name} ended before quicksand-tui answered there ({how}){_heard(ssh)}",
        hint="what is run there by ssh must reach quicksand-tui, with nothing else in between",
    )
