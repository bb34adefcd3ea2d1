"""Replacing a keeper that was killed. Linux only.

The new keeper gets the old one's resources from the running QEMU: it watches the process through a
pidfd (pidfd_open(2)), duplicates its open files (the sandbox's lock, the leash) with
pidfd_getfd(2), and opens the pipes of its console and messages again through /proc.
"""

import contextlib
import errno
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from typing import Any

from quicksand.base.borrowing import borrow
from quicksand.base.processes import ProcessKind, is_process, processes_of
from quicksand.base.regular import open_file

from .bounds import MemoryWatch
from .full_disk import SpaceWatch
from .keeper_files import remove_file, remove_tree, try_lock
from .loop import Keeper
from .machines import Machine
from .owner import OwnerProcess, find_process, is_on

END_WAIT_S = 5.0
"""Seconds to wait until a killed QEMU is gone: it frees its memory before it closes its sockets."""
LISTENS = "0A"
"""The state TCP_LISTEN in /proc/net/tcp (proc_pid_net(5))."""


def adopt(keeper: Keeper, pid: int, forwards: list[str], owner: str) -> None:
    """Keep the QEMU ``pid``, which must have these port ``forwards``, until it ends. Unless it is
    detached, it also ends with the process ``owner`` (see keeper.py). Writes ``started KEEPER_PID
    QEMU_PID`` or ``failed ERRNO`` to stdout."""
    try:
        if not sys.platform.startswith("linux"):
            raise OSError(errno.ENOSYS, "it takes Linux")
        pidfd = os.pidfd_open(pid)
        others = _other_machines(pid, keeper.sandbox_dir)
        _require_nobody(keeper.runtime_dir)
        listener = keeper.listen()
        keeper.prepare()
        keeper.lock = _duplicate(pid, pidfd, _is_file(os.path.join(keeper.sandbox_dir, "lock")))
        if keeper.lock is None:
            raise OSError(errno.EPERM, "the sandbox's lock cannot be had")
        os.set_inheritable(keeper.lock, True)  # for later QEMUs
        keeper.leash = _duplicate(pid, pidfd, _is_leash)
        if keeper.leash is not None:
            keeper.watch(keeper.leash, keeper.pulled)
        else:
            keeper.owned = False
        name = os.readlink(os.path.join(keeper.runtime_dir, "current"))
        _end_others(keeper, others, name)
        keeper.current = _machine(keeper, name, pid, pidfd)
        keeper.add(keeper.current)
    except OSError as error:
        os.write(1, b"failed %d\n" % (error.errno or 0))
        return
    _go_on(keeper, forwards)
    keeper.tell_started()
    if owner and keeper.leash is not None and is_on(keeper.leash):
        _follow(keeper, owner)
    keeper.serve_until_the_end(listener)


def _follow(keeper: Keeper, owner: str) -> None:
    """End QEMU with its owner, or now if that is gone: others may hold its end of the leash."""
    pid, started = owner.split(" ", 1)
    keeper.owner = OwnerProcess(keeper.watch, keeper.unwatch, keeper.pulled)
    found = find_process(int(pid))
    if found is not None and is_process(int(pid), started):
        keeper.owner.follow(found)
        return
    if found is not None:
        os.close(found)
    keeper.pulled()


def _other_machines(pid: int, sandbox_dir: str) -> list[Any]:
    """Return the sandbox's other QEMUs, besides ``pid``. Raises OSError if ``pid`` is none of the
    sandbox's."""
    found = [process for process in processes_of(sandbox_dir) if process.kind is ProcessKind.QEMU]
    if pid not in [process.pid for process in found]:
        raise OSError(errno.ESRCH, "that process is no QEMU of this sandbox")
    return [process for process in found if process.pid != pid]


def _require_nobody(runtime_dir: str) -> None:
    """Raise OSError if a keeper listens on keeper.sock; one of an earlier version does not hold
    ``keeper.lock``."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.path.join(runtime_dir, "keeper.sock"))
        except OSError:
            return
    raise OSError(errno.EBUSY, "its keeper lives")


def _machine(keeper: Keeper, name: str, pid: int, pidfd: int) -> Machine:
    pipes = {
        os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC): log
        for number, log in ((1, keeper.console), (2, keeper.messages))
    }
    directory = os.path.join(keeper.runtime_dir, name)
    space = SpaceWatch(_monitor(directory), keeper.sandbox_dir, directory)
    if os.path.exists(space.mark):
        space.begin()
    memory = MemoryWatch.of_adopted(pid, space, directory)
    machine = Machine(name, pid, pipes, space, memory, directory)
    machine.pidfd = pidfd
    return machine


def _monitor(directory: str) -> socket.socket:
    """Return a permanent connection to one of the QMP monitors for clients, since the old keeper's
    own monitor is lost. If all are in use, return a dummy; then a guest that is paused by a full
    host disk is not resumed."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    for name in sorted(os.listdir(directory)):
        if name.startswith("qmp") and name.endswith(".sock"):
            path = os.path.join(directory, name)
            lease = try_lock(path.removesuffix(".sock") + ".lock")
            if lease is None:
                continue
            try:
                connection.connect(path)
            except OSError:
                os.close(lease)
                continue
            return connection
    connection.close()
    return socket.socketpair()[0]


def _end_others(keeper: Keeper, others: list[Any], name: str) -> None:
    """Kill QEMUs that were waiting or taking over: their clients relied on the old keeper, so
    nobody uses them any more."""
    for process in others:
        process.send(signal.SIGKILL)
    for other in os.listdir(keeper.runtime_dir):
        if other != name and other.isdigit():
            remove_tree(keeper.runtime_dir, other)
    remove_file(os.path.join(keeper.runtime_dir, "current.new"))


def _go_on(keeper: Keeper, forwards: list[str]) -> None:
    """Undo the unfinished work of a client that was killed with the old keeper: resume a guest that
    it had paused (but not one that the user has paused), and restore forwards that it had removed.
    Do nothing while a client works on the sandbox's history."""
    try:
        with open_file(os.path.join(keeper.runtime_dir, keeper.current.name, "state.json")) as file:
            paused = bool(json.load(file)["paused"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    history = try_lock(os.path.join(keeper.sandbox_dir, "history.lock"))
    if history is None:
        return
    if not paused and keeper.current.space.look_at is None:
        keeper.resume()
    deadline = time.monotonic() + END_WAIT_S  # for all together: other programs may have taken some
    for rule in forwards:
        host, _, _ = rule.partition("-")
        _await_port(int(host.rpartition(":")[2]), keeper.current.pid, deadline)
        keeper.current.space.forward(rule)
    os.close(history)


def _await_port(port: int, pid: int, deadline: float) -> None:
    """Wait until no other process listens on ``port`` or ``deadline`` (monotonic time) has passed:
    QEMU refuses to forward a port in use, and a killed QEMU takes a moment to end."""
    while _is_anothers(port, pid) and time.monotonic() < deadline:
        time.sleep(0.005)


def _is_anothers(port: int, pid: int) -> bool:
    """Whether another process listens on ``port``. Fields of /proc/net/tcp (proc_pid_net(5)):
    number, local address, remote address, state; the tenth is the inode."""
    try:
        with open(f"/proc/{pid}/net/tcp", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return False  # the adopted QEMU has ended
    local = f":{port:04X}"
    inodes = [row[9] for row in rows if row[1].endswith(local) and row[3] == LISTENS]
    return any(not _has_socket(pid, inode) for inode in inodes)


def _has_socket(pid: int, inode: str) -> bool:
    with contextlib.suppress(FileNotFoundError):  # it has ended
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{number}") == f"socket:[{inode}]":
                    return True
    return False


def _is_file(path: str) -> Callable[[int, str], bool]:
    wanted = os.stat(path)
    return lambda pid, number: os.path.samestat(os.stat(f"/proc/{pid}/fd/{number}"), wanted)


def _is_leash(pid: int, number: str) -> bool:
    if not stat.S_ISFIFO(os.stat(f"/proc/{pid}/fd/{number}").st_mode):
        return False
    with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as file:
        words = file.read().split()
    return bool(int(words[words.index("flags:") + 1], 8) & os.O_ASYNC)


def _duplicate(pid: int, pidfd: int, is_it: Callable[[int, str], bool]) -> int | None:
    """Duplicate the open file of that process for which ``is_it`` is true; None if there is none or
    the kernel refuses."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            found = is_it(pid, number)
        except OSError:
            continue
        if found:
            with contextlib.suppress(OSError):
                return borrow(pidfd, int(number))
            return None
    return None
