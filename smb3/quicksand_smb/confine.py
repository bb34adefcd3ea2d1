"""Least rights for the serving process: the kernel refuses what the path walk must not allow.

Each measure is taken if the system supports it, and the report names those in force. None replaces
a check elsewhere. Call `take_stream` before anything is written anywhere. Call `confine` once, when
shares are open and modules imported, and before the first thread starts: Landlock holds for the
calling thread and the threads that it starts.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

from quicksand_smb import seccomp  # before Landlock, which keeps Python from writing the bytecode

# On Windows the functions that need this module are never reached: they refuse before.
# pyright: reportPossiblyUnboundVariable=false
if sys.platform != "win32":
    import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILES = 20480
"""The limit of open descriptors, for the files of a share and everything else."""
BESIDE_FILES = 1536
"""Descriptors that are reserved for listings, walks and everything else."""

MEMORY = 2 << 30
"""The limit of address space in bytes. A healthy server takes far less, but threads reserve
much."""


class Measure:
    """One restriction. `why` explains why it is not in force, or how far it goes."""

    __slots__ = ("in_force", "name", "why")

    def __init__(self, name: str, in_force: bool, why: str = "") -> None:
        self.name = name
        self.in_force = in_force
        self.why = why

    def __str__(self) -> str:
        return f"{self.name}: {'yes' if self.in_force else 'no'}{self.why and f' ({self.why})'}"


def take_stream(log: int | None = None) -> int:
    """Move the stream away from descriptors 0, 1 and 2, and return a descriptor that no program
    inherits. Descriptors 0 and 1 become /dev/null, and 2 becomes `log` or /dev/null.

    QEMU passes the guest's connection as all three descriptors. Warnings, tracebacks and the
    interpreter's last words would otherwise reach the guest amid the protocol. Raises OSError.
    """
    stream = os.dup(0)  # not inherited (PEP 446)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.dup2(null if log is None else log, 2)
    if null > 2:
        os.close(null)
    return stream


def confine(
    shares: Iterable[tuple[str, bool]],
    *,
    also_read: Iterable[str] | None = None,
    file_bytes: int | None = None,
    memory: int | None = MEMORY,
) -> list[Measure]:
    """Restrict this process for good. Never raises.

    `shares` lists directories, and whether each is read-only. `also_read` lists further directories
    to read; the default are those of Python's modules. `file_bytes` limits the size of a file that
    is written.
    """
    if also_read is None:
        also_read = module_directories()
    shares, also_read = list(shares), list(also_read)
    done = [
        _try("umask", lambda: str(os.umask(0)) and "modes are as the guest says"),
        no_core_files(),
        _limit("descriptors", "RLIMIT_NOFILE", FILES),
    ]
    if memory is not None:
        done.append(_limit("memory", "RLIMIT_AS", memory))
    if file_bytes is not None:
        done.append(_limit("file size", "RLIMIT_FSIZE", file_bytes))
    done.append(_try("capabilities", _drop_capabilities))
    done.append(_try("no new privileges", _no_new_privileges))
    done.append(_try("landlock", lambda: _landlock(shares, also_read)))
    done.append(_try("seccomp", _seccomp))
    return done


def no_core_files() -> Measure:
    """Prevent core files of this process. A limit of 1 also keeps the kernel from piping a core to
    a program, which a limit of 0 does not (Linux, fs/coredump.c)."""
    return _limit("core", "RLIMIT_CORE", 1)


def _try(name: str, measure: Callable[[], str]) -> Measure:
    try:
        return Measure(name, True, measure())
    except (OSError, ImportError, AttributeError, ValueError) as error:
        return Measure(name, False, str(error))


def _limit(name: str, which: str, value: int) -> Measure:
    def lower() -> str:
        if sys.platform == "win32":
            raise OSError("this system has no such limits")
        kind = getattr(resource, which)
        hard = resource.getrlimit(kind)[1]
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (wanted, wanted))
        return str(wanted)

    return _try(name, lower)


def most_files() -> int:
    """Return how many files may be open with the descriptors that `confine` leaves."""
    there = FILES
    if sys.platform == "win32":
        return there
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY:
        there = min(there, hard)
    return max(there - BESIDE_FILES, there // 2)


def module_directories() -> list[str]:
    """Return the directories from which late imports load modules."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [here, *(path for path in sys.path if path and os.path.isdir(path))]


_PR_SET_NO_NEW_PRIVS = 38


def _libc() -> ctypes.CDLL:
    if not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, "only Linux has it")
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _no_new_privileges() -> str:
    prctl = _libc().prctl
    prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    _check(prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    return ""


_CAPABILITIES_3 = 0x20080522  # _LINUX_CAPABILITY_VERSION_3 (linux/capability.h)
_KEPT_CAPABILITIES = 1 << 1 | 1 << 2 | 1 << 3
"""CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER. Root uses the files of others with them."""


def _drop_capabilities() -> str:
    """Drop all capabilities of root but those that files need. Without CAP_FSETID the kernel clears
    the set-id bits of each file that is written, and without CAP_SYS_RESOURCE it keeps the file
    system's own reserve (capabilities(7))."""
    libc = _libc()
    head = struct.pack("=Ii", _CAPABILITIES_3, 0)
    data = ctypes.create_string_buffer(24)
    _check(libc.capget(head, data))
    words = [word & _KEPT_CAPABILITIES for word in struct.unpack("=6I", data.raw)[:2]]
    _check(libc.capset(head, struct.pack("=6I", *words, 0, 0, 0, 0)))
    return f"{words[0]:#x} are kept"


def _seccomp() -> str:
    _libc()
    seccomp.install()
    return "all threads"


# Landlock: linux/landlock.h, landlock(7). Numbers of calls are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 12
_REFER, _TRUNCATE = 1 << 13, 1 << 14

_READ = _READ_FILE | _READ_DIR
_CHANGE = (
    _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO
    | _MAKE_SYM | _REFER | _TRUNCATE
)  # fmt: skip
# All rights that a version of the interface knows. Rights that are not granted are refused: to
# execute, to make devices, and ioctls of devices.
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_KNOWN_SINCE_5 = (1 << 16) - 1
_NETWORK = 3  # bind and connect TCP; since version 4
_SCOPES = 3  # abstract Unix sockets and signals; since version 6


def _landlock(shares: list[tuple[str, bool]], also_read: list[str]) -> str:
    version = _call(_CREATE_RULESET, None, 0, 1)
    known = _KNOWN.get(version, _KNOWN_SINCE_5)
    network = _NETWORK if version >= 4 else 0
    scopes = _SCOPES if version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    attributes = struct.pack("=QQQ", known, network, scopes)[:size]
    ruleset = _call(_CREATE_RULESET, attributes, size, 0)
    try:
        for path, read_only in shares:
            _allow(ruleset, path, (_READ if read_only else _READ | _CHANGE) & known)
        for path in also_read:
            _allow(ruleset, path, _READ & known)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return f"version {version}"


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, descriptor)  # packed in the kernel's header, too
        _call(_ADD_RULE, ruleset, 1, rule, 0)
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call by its number. Raises OSError."""
    syscall = _libc().syscall
    syscall.restype = ctypes.c_long
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return _check(syscall(ctypes.c_long(number), *words))
