"""Starts QEMU under its keeper and tells when it has ended: waiting for it, explaining it, and
removing the rest."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quicksand.base.errors import GuestPanicError, QemuDiedError, QuicksandError
from quicksand.base.files import is_locked, tail
from quicksand.base.processes import start_of
from quicksand.base.progress import BootTiming
from quicksand.base.removal import remove
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.disks.images.resolve import ResolvedImage
from quicksand.guest.agent.link import AgentLink
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.command import Inherited
from quicksand.qemu.keeper_link import hold_leash
from quicksand.qemu.keeper_parts.launch import VARIABLE
from quicksand.qemu.keeper_parts.owner import let_off
from quicksand.records.inspection import find_panic
from quicksand.records.layout import (
    AGENT_PORTS,
    QMP_MONITORS,
    SHARES,
    MachineDir,
    RuntimeDir,
    SandboxDir,
    remove_elsewhere,
)
from quicksand.records.sandboxes import Record, RunState

KEEPER = Path(__file__).with_name("keeper.py")
LINE_MAX = 256
LAUNCH_TIMEOUT_S = 20.0
"""Seconds for the keeper to start, which takes milliseconds; a host that swaps may need seconds."""

LEAN = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
"""QEMU's threads rarely allocate at the same time: separate heaps would waste 0.4 MiB. Blocks of
128 KiB and more are mapped one by one, as glibc does until the first of them is freed: the buffers
of a guest's connection, 257 KiB, mostly take 9 KiB while they are empty (mallopt(3);
docs/internals/reliability.md says when they do not)."""


class Listeners:
    """The Unix sockets that QEMU will serve, bound before it runs, so that clients need not
    poll."""

    inherited: Inherited
    """The descriptors, which have the same numbers in QEMU; known once they are open."""

    def __init__(self, machine: MachineDir) -> None:
        self._machine = machine
        self._sockets: list[socket.socket] = []

    def open(self) -> None:
        """Bind them all; on some file systems that takes 20 ms. `close` is called in any case.
        Raises OSError if one cannot be made."""
        machine = self._machine
        self.inherited = Inherited(
            qmp=[self._bind(machine.qmp_socket(n)) for n in range(QMP_MONITORS)],
            agent=[self._bind(machine.agent_socket(n)) for n in range(AGENT_PORTS)],
            shares=[self._bind(machine.share_socket(n)) for n in range(SHARES)],
            vnc=machine.vnc_socket,
            vnc_port=machine.vnc_port_socket,
        )

    def _bind(self, path: Path) -> int:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sockets.append(listener)
        # On Linux the file is made with the permissions of the socket, which takes half the time.
        if sys.platform == "linux":
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(str(path))
        else:
            listener.bind(str(path))
            path.chmod(0o600)
        listener.listen(1)
        return listener.fileno()

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors in this process: those for QMP, for the agent, for shares."""
        return tuple(listener.fileno() for listener in self._sockets)

    def renumber(self, numbers: Sequence[int]) -> None:
        """Say which numbers the descriptors will have in QEMU, in the order of `descriptors`."""
        rest = iter(numbers)
        qmp, agent, shares = (
            [next(rest) for _ in group]
            for group in (self.inherited.qmp, self.inherited.agent, self.inherited.shares)
        )
        self.inherited = replace(self.inherited, qmp=qmp, agent=agent, shares=shares)

    def close(self) -> None:
        """Close the copies of this process; those of QEMU stay open."""
        for listener in self._sockets:
            listener.close()


class _Status:
    """The keeper's stdout: one line at the start, and the end of file when all is over. An event
    loop watches the plain descriptor: uvloop closes the file of a transport twice, and the second
    time its number may belong to another file (MagicStack/uvloop#763)."""

    def __init__(self, pipe: int) -> None:
        """Have the running event loop watch ``pipe``, which this object closes."""
        os.set_blocking(pipe, False)
        self._pipe: int | None = pipe
        self._text = b""
        self._watch(pipe)

    def _watch(self, pipe: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.line: asyncio.Future[bytes] = self._loop.create_future()
        self.ended = asyncio.Event()
        self._loop.add_reader(pipe, self._read, pipe)

    def watch_here(self) -> None:
        """Have the running event loop watch the pipe, perhaps instead of another one."""
        if self._pipe is None or self._loop is asyncio.get_running_loop():
            return
        before, pipe = self._loop, self._pipe
        self._pipe = os.dup(pipe)
        if before.is_closed():
            os.close(pipe)
        else:
            before.call_soon_threadsafe(_unwatch, before, pipe)
        self._watch(self._pipe)

    def _read(self, pipe: int) -> None:
        if pipe != self._pipe:
            return  # another event loop has taken over
        try:
            data = os.read(pipe, LINE_MAX)
        except BlockingIOError:
            return
        if not data:
            self.close()
        self._text = (self._text + data)[:LINE_MAX]
        if not self.line.done() and (not data or b"\n" in self._text):
            self.line.set_result(self._text)

    def close(self) -> None:
        """Close the descriptor, since nobody waits for the end any more. Idempotent."""
        if self._pipe is not None:
            _unwatch(self._loop, self._pipe)
            self._pipe = None
            self.ended.set()


def _unwatch(loop: asyncio.AbstractEventLoop, pipe: int) -> None:
    if not loop.is_closed():
        loop.remove_reader(pipe)
    os.close(pipe)


class Leash:
    """The pipe that ends QEMU when its owner's end closes (keeper_parts/leash.py)."""

    def __init__(self, theirs: int, ours: int) -> None:
        self.theirs = theirs
        """The read end, which QEMU has too."""
        self.ours = ours
        """The write end, which only the owner has."""

    @classmethod
    def make(cls) -> Leash:
        """Raises OSError if there are no descriptors left."""
        return cls(*os.pipe())

    def close(self) -> None:
        """Close both ends. To be called once."""
        os.close(self.ours)
        os.close(self.theirs)


class OwnedProcess:
    """A QEMU that this process started and that dies when the lifeline is cut, unless detached."""

    def __init__(self, lifeline: int, leash: Leash, status: _Status) -> None:
        self._lifeline: int | None = lifeline
        self._leash = leash
        self._status = status
        self.keeper_pid = 0
        self.qemu_pid = 0
        _owned.add(self)

    def detach(self) -> None:
        """Let QEMU outlive this process."""
        if self._lifeline is not None:
            # This comes first and works alone, because the keeper may be dead.
            let_off(self._leash.theirs)
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, b"D")
            self.let_go()

    def detach_to(self, keeper_socket: Path) -> None:
        """Let QEMU outlive this process, but not its keeper. Raises MachineError if the keeper does
        not take the leash; QEMU then stays attached."""
        if self._lifeline is not None:
            hold_leash(keeper_socket, self._leash.ours)
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, b"D")
            self.let_go()

    @property
    def leash_end(self) -> int:
        """Return the owner's end of the leash, for the keeper that will hold it."""
        return self._leash.ours

    def let_go(self) -> None:
        """Close everything that ties QEMU to this process, which will not `wait` for it. That ends
        QEMU unless another process or its keeper has taken it."""
        self.cut()
        self._status.close()

    def kill(self) -> None:
        """End QEMU and keep the sandbox's directory, even if it would be discarded."""
        if self._lifeline is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, b"K")

    def cut(self) -> None:
        """Close the lifeline, which kills an attached QEMU at once. Idempotent."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
            self._leash.close()
            _owned.discard(self)

    def disown(self) -> None:
        """In a forked child: close its copies of the owner's ends."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            os.close(self._leash.ours)
            self._lifeline = None

    async def started(self) -> bytes:
        """Wait for the keeper's first line and return it."""
        return await asyncio.shield(self._status.line)

    async def wait(self) -> None:
        """Wait until QEMU has ended and the keeper has cleaned up."""
        self._status.watch_here()
        await self._status.ended.wait()


_owned: set[OwnedProcess] = set()
"""The processes whose ends are open, used or not."""


def _disown_all() -> None:
    """Close the ends in a forked child: only this process is the owner, and QEMU ends with it,
    however long its children live."""
    for owned in _owned:
        owned.disown()
    _owned.clear()


os.register_at_fork(after_in_child=_disown_all)


async def launch(
    binaries: QemuBinaries,
    arguments: Sequence[str],
    *,
    sandbox: SandboxDir,
    runtime: RuntimeDir,
    lock: int,
    listeners: Listeners,
    discard: bool,
) -> OwnedProcess:
    """Start QEMU under a keeper. A failure or a cancellation leaves nothing running.

    Raises QemuDiedError if the program cannot be executed, TimeoutError after LAUNCH_TIMEOUT_S,
    OSError.
    """
    argv = [sys.executable, "-I", "-S", str(KEEPER), str(sandbox.root), str(runtime.root)]
    leash = Leash.make()
    argv += [str(lock), str(leash.theirs), "discard" if discard else "keep"]
    environment = {**LEAN, **binaries.env}
    argv += [*(f"{name}={value}" for name, value in environment.items()), "--"]
    argv += [str(binaries.system), *binaries.firmware_arguments, *arguments]
    owned = await _start_keeper(argv, (lock, *listeners.descriptors), leash)
    try:
        await _await_started(owned, binaries.system)
    except BaseException:
        owned.cut()
        await to_the_end(owned.wait())
        raise
    return owned


def owned_here(run: RunState) -> RunState:
    """Return the state of a machine with this process as its owner, for a keeper that adopts it:
    only Linux has such keepers."""
    if not sys.platform.startswith("linux"):
        return run
    return replace(run, owner_pid=os.getpid(), owner_started=start_of(os.getpid()))


def keeper_environment() -> dict[str, str]:
    """The environment of a keeper, which its QEMUs get too."""
    found = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
    if tracking := os.environ.get(VARIABLE):
        found[VARIABLE] = tracking
    return found


async def _start_keeper(
    argv: Sequence[str], descriptors: Sequence[int], leash: Leash
) -> OwnedProcess:
    lifeline_read, lifeline = os.pipe()
    status_read, status_write = os.pipe()
    owned = OwnedProcess(lifeline, leash, _Status(status_read))
    try:
        try:
            # Not the event loop's: with uvloop's, the keeper and QEMU would inherit more than this.
            process = subprocess.Popen(  # noqa: ASYNC220 - asyncio's own does the same
                argv,
                stdin=lifeline_read,
                stdout=status_write,
                stderr=subprocess.DEVNULL,
                pass_fds=(*descriptors, leash.theirs),
                env=keeper_environment(),
                start_new_session=True,
            )
        finally:
            os.close(lifeline_read)
            os.close(status_write)
        await in_thread_to_the_end(process.wait)
    except BaseException:
        # Cutting the lifeline ends whatever has started. Wait for that, since the keeper writes to
        # the sandbox's directory, which our caller removes.
        owned.cut()
        await to_the_end(owned.wait())
        raise
    return owned


class Offer:
    """The descriptors that a process passes to the keeper of a waiting sandbox, to become its
    owner."""

    def __init__(self, lifeline: tuple[int, int], status_write: int, status: _Status) -> None:
        self._lifeline_read, self._lifeline = lifeline
        self._status_write = status_write
        self._status = status

    @classmethod
    def make(cls) -> Offer:
        """Raises OSError if there are no descriptors left. The running event loop watches it."""
        lifeline = os.pipe()
        try:
            status_read, status_write = os.pipe()
        except OSError:
            for descriptor in lifeline:
                os.close(descriptor)
            raise
        return cls(lifeline, status_write, _Status(status_read))

    @property
    def theirs(self) -> tuple[int, int]:
        """The descriptors for the keeper."""
        return self._lifeline_read, self._status_write

    def accepted(self, leash: Leash, *, keeper_pid: int, qemu_pid: int) -> OwnedProcess:
        """Return the process that the keeper has given to this one, with its leash."""
        for descriptor in self.theirs:
            os.close(descriptor)
        owned = OwnedProcess(self._lifeline, leash, self._status)
        owned.keeper_pid, owned.qemu_pid = keeper_pid, qemu_pid
        return owned

    def withdraw(self) -> None:
        """Close everything. A keeper that already has its descriptors ends QEMU."""
        for descriptor in (*self.theirs, self._lifeline):
            os.close(descriptor)
        self._status.close()


async def _await_started(owned: OwnedProcess, program: Path) -> None:
    async with asyncio.timeout(LAUNCH_TIMEOUT_S):
        line = await owned.started()
    match line.split():
        case [b"started", keeper_pid, qemu_pid]:
            owned.keeper_pid, owned.qemu_pid = int(keeper_pid), int(qemu_pid)
        case [b"failed", number]:
            reason = os.strerror(int(number))
            raise QemuDiedError(f"{program} cannot be executed: {reason}")
        case _:
            raise QemuDiedError("the process that looks after QEMU did not start")


END_POLL_S = 0.01
KILL_WAIT_S = 10.0


@dataclass(slots=True, kw_only=True)
class StartedMachine:
    """A machine that this process has started and owns until it is detached."""

    record: Record
    run: RunState
    timing: BootTiming
    process: OwnedProcess
    link: AgentLink
    image: ResolvedImage
    notices: tuple[str, ...] = ()
    """Notices of steps of the start that failed: a mount, or a desktop that did not come in
    time."""
    clock: str = ""
    """The fault of the guest's clock, in words that are also one of the notices; "" for none."""

    async def end(self) -> None:
        """End the machine as the end of this process would, and wait. A cancellation waits, too,
        but at most KILL_WAIT_S for a keeper that hangs; QEMU has ended by then."""
        self.link.close()
        self.process.cut()
        try:
            await to_the_end(self.process.wait(), patience=KILL_WAIT_S)
        finally:
            self.process.let_go()


PANIC_LOG = 6000
"""Bytes of the console that the error of a panic shows: the kernel's registers and stack take half
of them, and the reason comes before these."""


def remove_quietly(path: Path) -> None:
    """Remove an unfinished directory; files that cannot be removed are left to `Registry.reap`."""
    remove_elsewhere(path)
    with contextlib.suppress(OSError):
        remove(path)


def why_gone(place: SandboxDir, *, doing: str) -> QuicksandError | None:
    """The error that says why a machine has ended; None while it lives."""
    if is_locked(place.lock) and not place.exit.exists():
        return None
    if (panic := why_panicked(place, doing=doing)) is not None:
        return panic
    log = tail(place.qemu_log, limit=2000) or tail(place.console_log, limit=1000)
    return QemuDiedError(f"QEMU ended while {doing}", log=log)


def why_panicked(place: SandboxDir, *, doing: str) -> GuestPanicError | None:
    """The error for a guest whose kernel has panicked; None if it has not."""
    if not find_panic(place):
        return None
    return GuestPanicError(
        f"the guest's kernel panicked while {doing}", log=tail(place.console_log, limit=PANIC_LOG)
    )


async def until_unlocked(lock: Path, *, timeout: float) -> bool:
    """Wait until a sandbox's lock is free, that is, keeper and QEMU are gone. Returns False if it
    is still held after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while is_locked(lock):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(END_POLL_S)
    return True
