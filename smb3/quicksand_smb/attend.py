"""A server beside a virtual machine: it serves the Unix socket of a QEMU's guestfwd, and lives as
long as that QEMU.

Three processes: the one that was started ends as soon as all is ready, so that nobody has to wait
for the others; the attendant has no rights to lose and does nothing but wait; the server proper is
confined, and is begun anew when it ends while QEMU lives. When QEMU ends its socket does, and with
it both.
"""

import _socket
import gc
import os
import sys
import time

from quicksand_smb import HANG_UP, confine
from quicksand_smb.config import Config
from quicksand_smb.house import House
from quicksand_smb.light import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RESTARTS = 20
"""As often is a server that ends begun anew within `PERIOD_S`; a guest may make it end."""
PERIOD_S = 60.0

_PR_SET_PDEATHSIG = 1
_UNHEARD = 3
"""The status of a server whose start nobody waits for any more."""


def attend(config: Config, path: str) -> int:
    """Serve the socket at `path`. Writes `ready PID`, the attendant's process id, to standard
    output, and returns 0; or else says why not on standard error and returns 1. Only the process
    that was started returns."""
    try:
        socket = _connect(path)
    except OSError as error:
        sys.stderr.write(f"quicksand_smb: {path}: {error.strerror}\n")
        return 1
    house = House(config)
    missing = [one.name for one in config.shares if one.name.upper() not in house.shares]
    if missing:
        sys.stderr.write(f"quicksand_smb: cannot be opened: {', '.join(missing)}\n")
        return 1
    ours, theirs = os.pipe()
    attendant = _in_child(lambda: _wait_on(socket, house, path, theirs))
    os.close(theirs)
    with os.fdopen(ours, "rb") as reports:
        if reports.read() != b"ready":  # the attendant has the other end, too, until then
            sys.stderr.write("quicksand_smb: the server ended before it was ready\n")
            return 1
    os.write(1, b"ready %d\n" % attendant)
    return 0


def _in_child(work: "Callable[[], None]") -> int:
    """Fork; the child does `work`, and nothing of the parent's program. Returns its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    finally:
        os._exit(0)


def _connect(path: str) -> _socket.socket:
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    socket.connect(path)
    return socket


def _wait_on(socket: _socket.socket, house: House, path: str, report: int) -> None:
    """The attendant."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    ended: list[float] = []
    while len(ended) <= RESTARTS:
        server = _in_child(lambda: _serve(socket, house, report))  # noqa: B023 - it runs at once
        if report >= 0:
            os.close(report)
            report = -1
        _, status = os.waitpid(server, 0)
        if os.waitstatus_to_exitcode(status) == _UNHEARD:
            return
        now = time.monotonic()
        ended = [*(at for at in ended if now - at < PERIOD_S), now]
        socket.close()
        try:
            socket = _connect(path)
            socket.send(HANG_UP)
        except OSError:
            return  # QEMU has ended, and with it the stream


def _serve(socket: _socket.socket, house: House, report: int) -> None:
    """The server proper."""
    from quicksand_smb.server import serve_socket

    _die_with_parent()
    gc.freeze()  # what is loaded stays
    gc.enable()
    confine.confine([(share.path, share.is_read_only) for share in house.shares.values()])
    if report >= 0:
        try:
            os.write(report, b"ready")
        except BrokenPipeError:
            os._exit(_UNHEARD)
        os.close(report)
    serve_socket(socket, house)


def _die_with_parent() -> None:
    if sys.platform.startswith("linux"):
        import ctypes

        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
