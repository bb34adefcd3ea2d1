"""The keeper: the small parent process of one QEMU. Run as a script, never imported by the engine.

It exists because four things must happen when no client is there to do them: QEMU's exit status
is recorded, the logs that a guest can write to without end stay bounded, a guest that was paused by
a full host disk goes on when there is space, and a sandbox that belongs to a script dies with it,
even on kill -9. It imports as little as it can, to start in milliseconds.

    keeper.py SANDBOX_DIR RUNTIME_DIR LOCK_FD {keep|discard} [NAME=VALUE...] -- QEMU ARG...

stdin   lifeline: when it closes, the sandbox dies at once. The byte ``D`` detaches it: from then on
        it lives by itself. (Every start begins attached, so that a cancelled one leaves nothing.)
stdout  one line, ``started KEEPER_PID QEMU_PID`` or ``failed ERRNO``; it closes when all is over.
SIGTERM ends QEMU and then the keeper.

At the end the runtime directory is removed; the sandbox's directory too if it is to be discarded
and no owner is left who would look at it first.

All inherited descriptors from 3 up are QEMU's (listening sockets, the lock).
"""

import os
import resource
import select
import shutil
import signal
import socket
import sys
import time

LOG_LIMIT = 512 * 1024
"""Bytes of a log piece; one older piece is kept beside it, so a log takes twice this at most."""

CHUNK = 64 * 1024
TERM_GRACE_S = 2.0
"""QEMU closes its images on SIGTERM; after this it gets SIGKILL."""

SPACE_POLL_S = 1.0
"""No file system tells when it has space again."""

SPACE_WANTED = 64 * 1024 * 1024
"""Bytes that must be free before a guest that ran out of them goes on."""

LINE_MAX = 64 * 1024
"""Of a QMP message's beginning that is dropped while its end is awaited; QEMU's are far shorter."""


class BoundedLog:
    """A log file of two pieces: a guest that writes for ever cannot fill the disk."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = open(path, "ab", buffering=0)  # noqa: SIM115
        self.size = self.file.tell()

    def write(self, data: bytes) -> None:
        try:
            if self.size + len(data) > LOG_LIMIT:
                self.rotate()
            self.size += self.file.write(data)
        except OSError:
            # A full disk loses log lines; it must not stop QEMU, whose pipe would fill up.
            return

    def rotate(self) -> None:
        """Begin a new piece. May fail half-way on a full disk; the next write tries again."""
        if os.path.exists(self.path):
            os.replace(self.path, self.path + ".1")
        file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        self.file.close()
        self.file, self.size = file, 0


class SpaceWatch:
    """Lets a guest go on that QEMU paused since the host's disk was full (werror=stop).

    Meanwhile the file ``disk-full`` in the runtime directory tells clients.
    """

    def __init__(self, monitor: socket.socket, disk_dir: str, runtime_dir: str) -> None:
        self.monitor = monitor
        self.disk_dir = disk_dir
        self.mark = os.path.join(runtime_dir, "disk-full")
        self.line = b""
        self.look_at: float | None = None
        """When to look for space next; None while there is nothing to wait for."""
        monitor.setblocking(False)
        self.send("qmp_capabilities")

    def send(self, command: str) -> None:
        try:
            self.monitor.send(b'{"execute": "%s"}\n' % command.encode())
        except OSError:
            return  # QEMU is ending, or has its hands full: the next look sends it again

    def read(self) -> bool:
        """Take what QEMU says; False at its end."""
        try:
            data = self.monitor.recv(CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, self.line = (self.line + data).split(b"\n")
        self.line = self.line[-LINE_MAX:]
        for line in lines:
            if b'"event": "BLOCK_IO_ERROR"' in line and b'"nospace": true' in line:
                self.begin()
            elif b'"event": "RESUME"' in line:
                self.end()
        return bool(data)

    def begin(self) -> None:
        self.look_at = time.monotonic() + SPACE_POLL_S
        try:
            open(self.mark, "wb").close()
        except OSError:
            return  # there too is no space; the guest waits all the same

    def end(self) -> None:
        """It runs: resumed by us or by a client. If it fails again, QEMU says so again."""
        self.look_at = None
        try:
            os.unlink(self.mark)
        except OSError:
            return

    def look(self) -> None:
        if self.look_at is not None and time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + SPACE_POLL_S
            free = os.statvfs(self.disk_dir)
            if free.f_bavail * free.f_frsize >= SPACE_WANTED:
                self.send("cont")


def launch(argv: list[str], env: dict[str, str]) -> tuple[int, int, int]:
    """Fork QEMU with pipes on stdout (the guest's console) and stderr. Returns (pid, out, err).

    Raises OSError if the program cannot be executed.
    """
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    failed_read, failed_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            devnull = os.open(os.devnull, os.O_RDONLY)
            os.dup2(devnull, 0)
            os.dup2(out_write, 1)
            os.dup2(err_write, 2)
            # Guest memory may hold secrets: no core dumps.
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execve(argv[0], argv, env)  # noqa: S606 - a list of arguments, no shell
        except OSError as error:
            os.write(failed_write, str(error.errno).encode())
        finally:
            os._exit(127)
    for descriptor in (out_write, err_write, failed_write):
        os.close(descriptor)
    failure = os.read(failed_read, 16)
    os.close(failed_read)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid, out_read, err_read


class Keeper:
    """Waits for QEMU's output, its end, the lifeline and SIGTERM, all in one poll."""

    def __init__(self, sandbox_dir: str, runtime_dir: str, lock: int, discard: bool) -> None:
        self.sandbox_dir = sandbox_dir
        self.runtime_dir = runtime_dir
        self.lock = lock
        """Kept open to the last instruction: whoever waits for the lock waits for the clean-up."""
        self.discard = discard
        self.owned = True
        """A client lives that would look at the logs and remove the directory itself."""
        self.kill_at: float | None = None
        self.asked_to_stop = False

    def run(self, argv: list[str], env: dict[str, str]) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            # Before QEMU runs: without its logs it would have nobody to look after it.
            console, messages = (
                BoundedLog(os.path.join(self.sandbox_dir, name))
                for name in ("console.log", "qemu.log")
            )
            monitor, theirs = socket.socketpair()
            theirs.set_inheritable(True)
            self.pid, out, err = launch([*argv, *monitor_arguments(theirs.fileno())], env)
        except OSError as error:
            os.write(1, b"failed %d\n" % (error.errno or 0))
            return
        theirs.detach()  # closed below, with all that is QEMU's only
        self.logs = {out: console, err: messages}
        files = (console.file.fileno(), messages.file.fileno())
        for descriptor in open_descriptors():
            ours = (wake_read, wake_write, out, err, self.lock, monitor.fileno(), *files)
            if descriptor > 2 and descriptor not in ours:
                close_quietly(descriptor)
        os.write(1, b"started %d %d\n" % (os.getpid(), self.pid))
        self.space = SpaceWatch(monitor, self.sandbox_dir, self.runtime_dir)
        self.poll = select.poll()
        for descriptor in (0, wake_read, monitor.fileno(), *self.logs):
            self.poll.register(descriptor, select.POLLIN)
        status = self.wait(wake_read)
        self.drain()
        self.finish(status)

    def wait(self, wake_read: int) -> int:
        """Serve until QEMU has ended; return its wait status."""
        while True:
            due = [moment for moment in (self.kill_at, self.space.look_at) if moment is not None]
            timeout = max(0.0, min(due) - time.monotonic()) * 1000 if due else None
            events = self.poll.poll(timeout)
            for descriptor, _ in events:
                if descriptor == wake_read:
                    for number in os.read(wake_read, 64):
                        if number == signal.SIGTERM:
                            self.stop(TERM_GRACE_S)
                elif descriptor == 0:
                    self.lifeline()
                elif descriptor == self.space.monitor.fileno():
                    if not self.space.read():
                        self.poll.unregister(descriptor)
                else:
                    self.log(descriptor)
            self.space.look()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return status
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                os.kill(self.pid, signal.SIGKILL)
                self.kill_at = time.monotonic() + 1

    def stop(self, grace: float) -> None:
        self.asked_to_stop = True
        if self.kill_at is None:
            os.kill(self.pid, signal.SIGTERM)
            # A stopped process (SIGSTOP) must be able to see the signal.
            os.kill(self.pid, signal.SIGCONT)
            self.kill_at = time.monotonic() + grace

    def lifeline(self) -> None:
        data = os.read(0, 16)
        if data and b"D" not in data:
            return
        self.poll.unregister(0)
        self.owned = False
        if not data:
            self.asked_to_stop = True
            os.kill(self.pid, signal.SIGKILL)

    def log(self, descriptor: int) -> None:
        data = os.read(descriptor, CHUNK)
        if data:
            self.logs[descriptor].write(data)
        else:
            self.poll.unregister(descriptor)

    def drain(self) -> None:
        """Take what is left in the pipes; QEMU is gone, so this ends."""
        for descriptor, log in self.logs.items():
            os.set_blocking(descriptor, False)
            try:
                while data := os.read(descriptor, CHUNK):
                    log.write(data)
            except BlockingIOError:
                continue

    def finish(self, status: int) -> None:
        """Record the end where it is kept, then remove what must not stay."""
        code = os.waitstatus_to_exitcode(status)
        path = os.path.join(self.sandbox_dir, "exit.json")
        asked = "true" if self.asked_to_stop else "false"
        text = f'{{"code": {code}, "asked": {asked}, "unix_time": {time.time():.3f}}}\n'
        try:
            with open(path + ".tmp", "w", encoding="ascii") as file:
                file.write(text)
            os.replace(path + ".tmp", path)
        finally:
            shutil.rmtree(self.runtime_dir, ignore_errors=True)
            if self.discard and not self.owned:
                shutil.rmtree(self.sandbox_dir, ignore_errors=True)


def monitor_arguments(descriptor: int) -> list[str]:
    """QEMU's arguments for our own monitor, the other end of a socket pair."""
    chardev = f"socket,id=keeper,fd={descriptor}"
    return ["-chardev", chardev, "-mon", "chardev=keeper,mode=control"]


def open_descriptors() -> list[int]:
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    return [int(name) for name in os.listdir(directory)]


def close_quietly(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return  # the listing's own descriptor, closed already


def main() -> None:
    sandbox_dir, runtime_dir, lock, end, *rest = sys.argv[1:]
    dashes = rest.index("--")
    env = dict(word.split("=", 1) for word in rest[:dashes])
    argv = rest[dashes + 1 :]
    os.umask(0o077)
    # A child of nobody: its client may forget it, and never has to collect a zombie.
    if os.fork():
        os._exit(0)
    Keeper(sandbox_dir, runtime_dir, int(lock), end == "discard").run(argv, {**os.environ, **env})


if __name__ == "__main__":
    main()
