"""Serves the Unix socket of a QEMU's guestfwd for as long as that QEMU lives.

When a server ends, the supervisor adds its last output to a log beside the socket (`LOG_SUFFIX`):
at most `WORDS_MAX` bytes of standard error, and how it ended. The guest sees none of it.

There are three processes. The one that was started ends as soon as everything is ready, so nobody
has to wait for the others. The supervisor keeps its rights and does nothing but wait. The server is
confined, and is started again if it ends while QEMU lives. When QEMU ends, so does its socket, and
with it the other two.
"""

import _socket
import ctypes
import gc
import os
import sys
import time

from quicksand_smb import HANG_UP, confine
from quicksand_smb.config import Config
from quicksand_smb.minimal_stdlib import signal
from quicksand_smb.server import serve_socket
from quicksand_smb.server_state import ServerState
from quicksand_smb.traffic import SUFFIX, map_counters
from quicksand_smb.trigger_report import SUFFIX as TOLD_SUFFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RESTARTS = 20
"""How often a server that ends is started again within `PERIOD_S`. A guest may be able to end
it."""
PERIOD_S = 60.0

LOG_SUFFIX = ".log"
WORDS_MAX = 4096
"""The bytes that are kept of a server's output."""
LOG_MAX = 16384
"""The largest log in bytes. Its beginning is dropped if it grows larger."""

_PR_SET_PDEATHSIG = 1
_UNHEARD = 3
"""The exit status of a server for whose start nobody waits any more."""


def supervise(config: Config, path: str) -> int:
    """Serve the socket at `path`. Writes `ready PID` with the supervisor's process id to standard
    output and returns 0. On failure it explains the reason on standard error and returns 1. Only
    the started process returns."""
    try:
        socket = _connect(path)
        if config.hang_up:
            socket.sendall(HANG_UP)
    except OSError as error:
        sys.stderr.write(f"quicksand_smb: {path}: {error.strerror}\n")
        return 1
    server = ServerState(config)
    missing = [one.name for one in config.shares if one.name.upper() not in server.shares]
    if missing:
        sys.stderr.write(f"quicksand_smb: cannot be opened: {', '.join(missing)}\n")
        return 1
    ours, theirs = os.pipe()
    supervisor = _in_child(lambda: _wait_on(socket, server, path, theirs))
    os.close(theirs)
    with os.fdopen(ours, "rb") as reports:
        if reports.read() != b"ready":  # end of file comes when all writers are closed
            sys.stderr.write("quicksand_smb: the server ended before it was ready\n")
            return 1
    os.write(1, b"ready %d\n" % supervisor)
    return 0


def _in_child(work: "Callable[[], None]") -> int:
    """Fork. The child runs `work` and nothing else of the parent's program. Returns its process
    id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:  # noqa: BLE001 - the process ends here, with these words
        # os._exit skips the interpreter's own report of the error.
        import traceback  # noqa: PLC0415

        os.write(2, "".join(traceback.format_exception(error)).encode("utf-8", "replace"))
    finally:
        os._exit(status)


def _connect(path: str) -> _socket.socket:
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    socket.connect(path)
    return socket


def _wait_on(socket: _socket.socket, server: ServerState, path: str, report: int) -> None:
    """Run the supervisor: start the server, and start it again whenever it ends."""
    os.setsid()
    server.traffic = map_counters(path + SUFFIX)
    server.trigger_report.map_to(path + TOLD_SUFFIX)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    supervisor = os.getpid()
    ended: list[float] = []
    while len(ended) <= RESTARTS:
        heard, said = os.pipe()
        child = _in_child(lambda: _serve(socket, server, report, said, supervisor))  # noqa: B023 - at once
        os.close(said)
        if report >= 0:
            os.close(report)
            report = -1
        words = _hear_out(heard)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == _UNHEARD:
            return
        now = time.monotonic()
        ended = [*(at for at in ended if now - at < PERIOD_S), now]
        socket.close()
        try:
            socket = _connect(path)
            socket.sendall(HANG_UP)
        except OSError:
            return  # QEMU has ended, and with it the stream
        _note_end(path + LOG_SUFFIX, words, code)
    _write(path + LOG_SUFFIX, b"it ended too often, and is not begun anew\n")


def _hear_out(heard: int) -> bytes:
    """Return the end of the output of a pipe, once all its writers have ended."""
    words = b""
    while chunk := os.read(heard, 65536):
        words = (words + chunk)[-WORDS_MAX:]
    os.close(heard)
    return words


def _note_end(path: str, words: bytes, code: int) -> None:
    how = f"signal {-code}" if code < 0 else f"status {code}"
    head = time.strftime("%Y-%m-%d %H:%M:%S the server ended, ") + how
    _write(path, head.encode() + b"\n" + words + b"\n" * (words[-1:] not in (b"", b"\n")))


def _write(path: str, words: bytes) -> None:
    """Append to the log, which stays small. A missing log keeps nobody from being served."""
    try:
        log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            before = os.read(log, LOG_MAX)
            os.lseek(log, 0, os.SEEK_SET)
            os.write(log, kept := (before + words)[-LOG_MAX:])
            os.ftruncate(log, len(kept))
        finally:
            os.close(log)
    except OSError:
        pass


def _serve(
    socket: _socket.socket, server: ServerState, report: int, said: int, supervisor: int
) -> None:
    """Run the confined server. Its standard error is the pipe `said`."""
    os.dup2(said, 2)
    os.close(said)
    server.trigger_report.resume()
    _die_with(supervisor)
    gc.freeze()  # loaded modules stay
    gc.enable()
    confine.confine(server.directories())
    if report >= 0:
        try:
            os.write(report, b"ready")
        except BrokenPipeError:
            os._exit(_UNHEARD)
        os.close(report)
    serve_socket(socket, server)


def _die_with(supervisor: int) -> None:
    """End with the supervisor, which may have ended since it made this process."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(0)
