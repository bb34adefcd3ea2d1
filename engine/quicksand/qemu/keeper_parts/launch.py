"""Forking and executing QEMU."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Collection
from typing import Any

from quicksand.base import injection

from .bounds import set_limits
from .owner import put_on

VARIABLE = "QUICKSAND_TRACKING"
"""Environment variable, which clients pass on: if it asks for another way of tracking, no
userfaultfd is given (snapshots/tracking.py)."""
WRITE_PROTECT = "write-protect"

USERFAULTFD = 323
"""The system call's number on x86_64."""
FLAGS = 0o2004001
"""O_CLOEXEC, O_NONBLOCK and UFFD_USER_MODE_ONLY (1), with which any user may have a userfaultfd."""

ASKING, TRACED, REFUSED = b"a", b"t", b"r"
"""Words of the process that becomes QEMU: it writes the first one before it asks to be traced, and
then one of the others. If it does not, a filter of system calls has killed it for asking."""


def find_injection() -> Any:
    """Return the module for it; None where it is not possible, or not wanted."""
    if (os.environ.get(VARIABLE) or WRITE_PROTECT) != WRITE_PROTECT:
        return None
    return injection if injection.is_possible() else None


def give_userfaultfd(injection: Any, pid: int) -> bool:
    """Give the traced child ``pid``, which is executing a program, a userfaultfd if the kernel does
    not refuse one, and let it run. Returns False if the child ends instead: a filter of system
    calls has killed it, or it is killed here because it may be half changed."""
    try:
        injection.call_at_exec(pid, USERFAULTFD, FLAGS)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # nobody has waited for it, so the id is still its own
        return False
    return True


def launch(
    argv: list[str],
    env: dict[str, str],
    descriptors: dict[int, int],
    directory: str,
    leash: int | None,
    group: int | None,
    *,
    tracked: bool = True,
) -> tuple[int, int, int]:
    """Fork QEMU with pipes on stdout (the guest's console) and stderr; returns (pid, read end of
    stdout, read end of stderr).

    ``directory``: its working directory. ``leash``: see leash.py. ``group``: the process group of
    the sandbox's other QEMUs. ``descriptors``: descriptors to pass besides the inheritable ones, by
    their numbers in QEMU. ``tracked``: give it a userfaultfd if possible (userfaultfd.py). Raises
    OSError if the program cannot be executed.
    """
    injection = find_injection() if tracked else None
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    failed_read, failed_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(directory)
            failed_write = clear_of(failed_write, descriptors)
            _arrange_descriptors(out_write, err_write, descriptors)
            _arrange_process(argv, leash, group)
            if injection is not None:
                os.write(failed_write, ASKING)
                os.write(failed_write, TRACED if injection.ask_to_be_traced() else REFUSED)
            os.execve(argv[0], argv, env)  # noqa: S606 - a list of arguments, no shell
        except (OSError, ValueError, TypeError) as error:
            number = getattr(error, "errno", None) or errno.ENOEXEC
            os.write(failed_write, str(number).encode())
        finally:
            os._exit(127)
    for descriptor in (out_write, err_write, failed_write):
        os.close(descriptor)
    said = _read_all(failed_read)
    os.close(failed_read)
    failure = said.lstrip(ASKING + TRACED + REFUSED)
    is_lost = said == ASKING or (said == ASKING + TRACED and not give_userfaultfd(injection, pid))
    if not failure and not is_lost:
        return pid, out_read, err_read
    os.waitpid(pid, 0)
    os.close(out_read)
    os.close(err_read)
    if failure:
        raise OSError(int(failure), os.strerror(int(failure)))
    return launch(argv, env, descriptors, directory, leash, group, tracked=False)


def _arrange_descriptors(out: int, err: int, passed: dict[int, int]) -> None:
    """In the child: give it its standard streams and the descriptors ``passed``, by their
    numbers."""
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    sources = [clear_of(descriptor, passed) for descriptor in passed.values()]
    for number, descriptor in zip(passed, sources, strict=True):
        os.dup2(descriptor, number)


def _arrange_process(argv: list[str], leash: int | None, group: int | None) -> None:
    """In the child: its leash, its limits, its memory and its signals."""
    put_on(leash, group)
    allow_tracing()
    if is_restored_emulator(argv):
        use_small_pages()
    set_limits(argv)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def clear_of(descriptor: int, numbers: Collection[int]) -> int:
    """Return ``descriptor`` or, if it is one of ``numbers``, which will get another meaning, a copy
    with a number above them all. Raises OSError."""
    if descriptor not in numbers:
        return descriptor
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1)


def _read_all(pipe: int) -> bytes:
    """Read a pipe until its other end is closed, which in the child execve(2) does."""
    data = b""
    while part := os.read(pipe, 16):
        data += part
    return data


def allow_tracing() -> None:
    """Let clients read the memory of the QEMU that this process will become, for checkpoints. Yama
    may restrict that to ancestors (ptrace_scope 1, Ubuntu's default). This never gives other users
    access (Linux, Documentation/admin-guide/LSM/Yama.rst)."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            restricted = file.read().strip() == "1"
    except OSError:
        return
    if restricted:
        set_ptracer, anybody = 0x59616D61, (1 << 64) - 1
        control_process(set_ptracer, anybody)


def is_restored_emulator(argv: list[str]) -> bool:
    """Whether this QEMU emulates the guest (TCG) and waits for incoming state."""
    if "-accel" not in argv or "-incoming" not in argv:
        return False
    return argv[argv.index("-accel") + 1].startswith("tcg")


def use_small_pages() -> None:
    """Disable transparent huge pages in the QEMU that this process will become (prctl(2),
    PR_SET_THP_DISABLE). It would use them for translated code, of which an idle guest has little:
    they cost 4 MiB and save no measurable time. (The guest's memory is mapped from a file here.)"""
    set_thp_disable = 41
    control_process(set_thp_disable, 1)


def control_process(option: int, value: int) -> None:
    """Call prctl(2) on Linux, for settings that are kept across execve(2). Failures are ignored: no
    setting here is worth failing a start."""
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
        except (OSError, AttributeError):
            return


def monitor_arguments(descriptor: int) -> list[str]:
    """QEMU's arguments for the keeper's own QMP monitor, on one end of a socket pair."""
    chardev = f"socket,id=keeper,fd={descriptor}"
    return ["-chardev", chardev, "-mon", "chardev=keeper,mode=control"]


def inherited_descriptors() -> list[int]:
    """The inheritable descriptors, which come from the client that started the keeper: Python makes
    its own ones non-inheritable (PEP 446)."""
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    found = []
    for number in map(int, os.listdir(directory)):
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:
            continue  # the descriptor of the listing itself, closed by now
    return found
