"""The keeper: the small parent process of a sandbox's QEMU. Run as a script, never imported by the
engine (but for its constants).

It exists because these things must happen when no client is there to do them: QEMU's exit status is
recorded, the logs that a guest can write to without end stay bounded, a guest that was paused by a
full host disk or by a client that died goes on, and a sandbox that belongs to a script dies with
it, even on kill -9. It imports as little as it can, to start in milliseconds.

    keeper.py SANDBOX_DIR RUNTIME_DIR LOCK_FD {keep|discard} [NAME=VALUE...] -- QEMU ARG...

stdin   lifeline: when it closes, the sandbox dies at once. The byte ``D`` detaches it: from then on
        it lives by itself. (Every start begins attached, so that a cancelled one leaves nothing.)
        The byte ``K`` ends QEMU while the owner looks after the rest.
stdout  one line, ``started KEEPER_PID QEMU_PID`` or ``failed ERRNO``; it closes when all is over.
SIGTERM ends QEMU and then the keeper.

A sandbox can change its QEMU: going back to a checkpoint, a new process takes over from the old
one. So the runtime directory has a directory for each (the first is ``1``) and a symbolic link,
``current``. Clients ask for all that on the socket ``keeper.sock`` (see `Keeper.serve`).

At the end the runtime directory is removed; the sandbox's directory too if it is to be discarded
and no owner is left who would look at it first.

All inherited descriptors from 3 up are QEMU's (listening sockets, the lock).
"""

import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable

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

REQUEST_MAX = 1024 * 1024
DESCRIPTORS_MAX = 250
"""That a message can carry (unix(7), SCM_MAX_FD is 253)."""

FIRST = "1"
"""The directory of the first machine."""


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

    Meanwhile the file ``disk-full`` in the machine's directory tells clients.
    """

    def __init__(self, monitor: socket.socket, disk_dir: str, machine_dir: str) -> None:
        self.monitor = monitor
        self.disk_dir = disk_dir
        self.mark = os.path.join(machine_dir, "disk-full")
        self.line = b""
        self.look_at: float | None = None
        """When to look for space next; None while there is nothing to wait for."""
        monitor.setblocking(False)
        self.send("qmp_capabilities")

    def send(self, command: str, arguments: dict[str, str] | None = None) -> None:
        message = {"execute": command, "arguments": arguments or {}}
        try:
            self.monitor.send(json.dumps(message).encode() + b"\n")
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


def launch(
    argv: list[str], env: dict[str, str], descriptors: dict[int, int], directory: str
) -> tuple[int, int, int]:
    """Fork QEMU with pipes on stdout (the guest's console) and stderr. Returns (pid, out, err).

    ``directory``: where it runs.

    ``descriptors``: what it is to have under which number, besides what is inheritable anyway.
    Raises OSError if the program cannot be executed.
    """
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    failed_read, failed_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(directory)
            devnull = os.open(os.devnull, os.O_RDONLY)
            os.dup2(devnull, 0)
            os.dup2(out_write, 1)
            os.dup2(err_write, 2)
            for number, descriptor in descriptors.items():
                os.dup2(descriptor, number)
            allow_tracing()
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
        os.close(out_read)
        os.close(err_read)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid, out_read, err_read


def allow_tracing() -> None:
    """Let clients read the memory of the QEMU that this process becomes. Where Yama restricts that
    to ancestors (ptrace_scope 1, Ubuntu's default), checkpoints would not work; other users never
    may, whatever is said here (Linux, Documentation/admin-guide/LSM/Yama.rst)."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            restricted = file.read().strip() == "1"
    except OSError:
        return
    if restricted:
        import ctypes

        set_ptracer, anybody = 0x59616D61, -1
        ctypes.CDLL(None).prctl(set_ptracer, ctypes.c_ulong(anybody), 0, 0, 0)


class Machine:
    """One QEMU."""

    def __init__(
        self, name: str, pid: int, pipes: dict[int, BoundedLog], space: SpaceWatch
    ) -> None:
        self.name = name
        """Of its directory in the runtime directory."""
        self.pid = pid
        self.pipes = pipes
        """Its stdout and stderr."""
        self.space = space
        self.owner: Client | None = None
        """Whose end would be its end. None: nobody's."""
        self.status: int | None = None
        """Its wait status, once it has ended."""
        self.ends_at: float | None = None
        """When it has waited long enough."""
        self.took: list[str] = []
        """Forwards that it may have taken from the current machine, which is to have them back when
        this one has ended."""


class Client:
    """A connection to ``keeper.sock``."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.text = b""
        self.descriptors: list[int] = []
        self.guards = False
        """It has paused the current machine, which is to go on when the client is gone."""
        self.forwards: list[str] = []
        """Of the current machine; those that it then lacks it gets again."""
        self.awaits: Machine | None = None
        """It wants to be told when this one has ended."""

    def reply(self, **values: object) -> None:
        try:
            self.connection.sendall(json.dumps(values).encode() + b"\n")
        except OSError:
            return  # it is gone; its end is seen by whoever polls

    def read(self) -> list[dict[str, object]] | None:
        """Requests that are complete; None at the end or for nonsense."""
        try:
            data, found, _, _ = socket.recv_fds(self.connection, CHUNK, DESCRIPTORS_MAX)
        except OSError:
            return None
        for descriptor in found:
            os.set_inheritable(descriptor, False)  # a QEMU gets copies of its own ones only
        self.descriptors += found
        *lines, self.text = (self.text + data).split(b"\n")
        if not data or len(self.text) > REQUEST_MAX or len(self.descriptors) > DESCRIPTORS_MAX:
            return None
        try:
            return [dict(json.loads(line)) for line in lines]
        except (ValueError, TypeError, RecursionError):
            return None

    def close(self) -> None:
        self.connection.close()
        self.drop_descriptors()

    def drop_descriptors(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []


class Keeper:
    """Waits for QEMU's output, its end, clients, the lifeline and SIGTERM, all in one poll."""

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
        self.machines: dict[str, Machine] = {}
        self.clients: list[Client] = []
        self.handlers: dict[int, Callable[[], None]] = {}
        self.poll = select.poll()

    def run(self, argv: list[str], env: dict[str, str]) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        inherited = [d for d in inherited_descriptors() if d > 2 and d != self.lock]
        try:
            # Before QEMU runs: without its logs it would have nobody to look after it.
            self.console, self.messages = (
                BoundedLog(os.path.join(self.sandbox_dir, name))
                for name in ("console.log", "qemu.log")
            )
            listener = self.listen()
            self.env = env
            self.current = self.start(FIRST, argv, {})
            self.point_to(FIRST)
        except OSError as error:
            for machine in self.machines.values():
                os.kill(machine.pid, signal.SIGKILL)
            os.write(1, b"failed %d\n" % (error.errno or 0))
            return
        for descriptor in inherited:
            os.close(descriptor)
        try:
            os.write(1, b"started %d %d\n" % (os.getpid(), self.current.pid))
        except OSError:
            self.owned = False  # it is dead already; in a moment the lifeline says so, too
        self.watch(wake_read, lambda: self.wake(wake_read))
        self.watch(0, self.lifeline)
        self.watch(listener.fileno(), lambda: self.accept(listener))
        self.wait()
        self.finish()

    def listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = os.path.join(self.runtime_dir, "keeper.sock")
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(8)
        return listener

    def start(self, name: str, argv: list[str], descriptors: dict[int, int]) -> Machine:
        """Fork a QEMU whose files are in the directory ``name``. Raises OSError."""
        monitor, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        try:
            pid, out, err = launch(
                [*argv, *monitor_arguments(theirs.fileno())],
                self.env,
                descriptors,
                os.path.join(self.sandbox_dir, "layers"),
            )
        except OSError:
            monitor.close()
            raise
        finally:
            theirs.close()
        space = SpaceWatch(monitor, self.sandbox_dir, os.path.join(self.runtime_dir, name))
        machine = Machine(name, pid, {out: self.console, err: self.messages}, space)
        self.machines[name] = machine
        self.watch(monitor.fileno(), lambda: self.listen_to(machine))
        for pipe in machine.pipes:
            self.watch(pipe, lambda pipe=pipe: self.log(machine, pipe))  # type: ignore[misc]
        return machine

    def point_to(self, name: str) -> None:
        """Make ``current`` lead to the machine ``name``, in one instant."""
        link = os.path.join(self.runtime_dir, "current")
        os.symlink(name, link + ".new")
        os.replace(link + ".new", link)

    # The loop

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self.handlers[descriptor] = handler
        self.poll.register(descriptor, select.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        if self.handlers.pop(descriptor, None) is not None:
            self.poll.unregister(descriptor)

    def wait(self) -> None:
        """Serve until the current machine has ended."""
        while self.current.status is None:
            machines = self.machines.values()
            moments = [moment for m in machines for moment in (m.space.look_at, m.ends_at)]
            due = [moment for moment in (self.kill_at, *moments) if moment is not None]
            timeout = max(0.0, min(due) - time.monotonic()) * 1000 if due else None
            for descriptor, _ in self.poll.poll(timeout):
                if (handler := self.handlers.get(descriptor)) is not None:
                    handler()
            for machine in self.machines.values():
                machine.space.look()
                if machine.ends_at is not None and time.monotonic() >= machine.ends_at:
                    os.kill(machine.pid, signal.SIGKILL)
                    machine.ends_at = None
            self.reap()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                os.kill(self.current.pid, signal.SIGKILL)
                self.kill_at = time.monotonic() + 1

    def wake(self, pipe: int) -> None:
        for number in os.read(pipe, 64):
            if number == signal.SIGTERM:
                self.stop(TERM_GRACE_S)

    def stop(self, grace: float) -> None:
        self.asked_to_stop = True
        if self.kill_at is None:
            os.kill(self.current.pid, signal.SIGTERM)
            # A stopped process (SIGSTOP) must be able to see the signal.
            os.kill(self.current.pid, signal.SIGCONT)
            self.kill_at = time.monotonic() + grace

    def lifeline(self) -> None:
        data = os.read(0, 16)
        if b"K" in data:
            self.asked_to_stop = True
            os.kill(self.current.pid, signal.SIGKILL)
            return
        if data and b"D" not in data:
            return
        self.unwatch(0)
        self.owned = False
        if not data:
            self.asked_to_stop = True
            os.kill(self.current.pid, signal.SIGKILL)

    def listen_to(self, machine: Machine) -> None:
        if not machine.space.read():
            self.unwatch(machine.space.monitor.fileno())

    def log(self, machine: Machine, pipe: int) -> None:
        data = os.read(pipe, CHUNK)
        if data:
            machine.pipes[pipe].write(data)
        else:
            self.unwatch(pipe)

    # Machines that end

    def reap(self) -> None:
        for machine in list(self.machines.values()):
            pid, status = os.waitpid(machine.pid, os.WNOHANG)
            if pid:
                self.bury(machine, status)

    def bury(self, machine: Machine, status: int) -> None:
        """Take a dead machine's last words, remove its files and tell who waits for its end."""
        machine.status = status
        del self.machines[machine.name]
        for pipe, log in machine.pipes.items():
            drain(pipe, log)
            self.unwatch(pipe)
            os.close(pipe)
        self.unwatch(machine.space.monitor.fileno())
        machine.space.monitor.close()
        if machine is not self.current:
            shutil.rmtree(os.path.join(self.runtime_dir, machine.name), ignore_errors=True)
        for rule in machine.took:
            # One that was not taken is refused: its port is in use.
            self.current.space.send(
                "human-monitor-command", {"command-line": f"hostfwd_add net0 {rule}"}
            )
        for client in self.clients:
            if client.awaits is machine:
                client.awaits = None
                client.reply(ended=os.waitstatus_to_exitcode(status))

    def finish(self) -> None:
        """Record the end where it is kept, then remove what must not stay."""
        for machine in list(self.machines.values()):
            os.kill(machine.pid, signal.SIGKILL)
            self.bury(machine, os.waitpid(machine.pid, 0)[1])
        assert self.current.status is not None
        code = os.waitstatus_to_exitcode(self.current.status)
        path = os.path.join(self.sandbox_dir, "exit.json")
        asked = "true" if self.asked_to_stop else "false"
        name = json.dumps(self.current.name)
        text = f'{{"code": {code}, "asked": {asked}, "machine": {name}, '
        text += f'"unix_time": {time.time():.3f}}}\n'
        try:
            with open(path + ".tmp", "w", encoding="ascii") as file:
                file.write(text)
            os.replace(path + ".tmp", path)
        finally:
            shutil.rmtree(self.runtime_dir, ignore_errors=True)
            if self.discard and not self.owned:
                memory = os.path.join(self.sandbox_dir, "memory")
                if os.path.islink(memory):  # to a place of this sandbox's alone
                    shutil.rmtree(os.readlink(memory), ignore_errors=True)
                shutil.rmtree(self.sandbox_dir, ignore_errors=True)

    # Clients

    def accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it is gone already, or there are too many
        connection.settimeout(1.0)
        client = Client(connection)
        self.clients.append(client)
        self.watch(connection.fileno(), lambda: self.hear(client))

    def hear(self, client: Client) -> None:
        requests = client.read()
        if requests is None:
            self.leave(client)
            return
        for request in requests:
            try:
                self.serve(client, request)
            except (OSError, LookupError, TypeError, ValueError, OverflowError) as error:
                client.drop_descriptors()
                number = error.errno if isinstance(error, OSError) else None
                client.reply(error=str(error) or type(error).__name__, errno=number)

    def leave(self, client: Client) -> None:
        """What a client has not finished is undone: it may have been killed."""
        self.unwatch(client.connection.fileno())
        self.clients.remove(client)
        client.close()
        if client.guards:
            self.current.space.send("cont")
        for machine in self.machines.values():
            if machine.owner is client:
                machine.took = client.forwards
                os.kill(machine.pid, signal.SIGKILL)

    def serve(self, client: Client, request: dict[str, object]) -> None:
        """Requests are JSON objects, one a line; so are replies, in order.

        launch   {name, argv, descriptors: [number, …]}, with as many descriptors in the message:
                 fork another QEMU, which lives no longer than this connection -> {pid}
        promote  {name}: it is the sandbox's machine from now on; the old one is this connection's
        take     {name}: a machine that was kept becomes this connection's
        keep     {name, seconds}: it lives on without this connection, so long
        kill     {name} -> {ended: exit code}, when it is gone
        guard    {on, forwards}: while on, the end of this connection resumes the current machine,
                 and has it do the forwards that this connection's machines have taken from it
        """
        what = request["op"]
        if what == "guard":
            client.guards = bool(request["on"])
            forwards = request.get("forwards")
            client.forwards = [str(rule) for rule in forwards] if isinstance(forwards, list) else []
            client.reply(ok=True)
            return
        name = str(request["name"])
        if what == "launch":
            self.serve_launch(client, name, request)
            return
        machine = self.machines[name]
        match what:
            case "promote" if machine.owner is client and not self.asked_to_stop:
                self.point_to(name)
                machine.owner, self.current.owner = None, client
                self.current = machine
            case "take" if machine.owner is None and machine is not self.current:
                machine.owner, machine.ends_at = client, None
            case "keep" if machine.owner is client:
                machine.ends_at = time.monotonic() + float(str(request["seconds"]))
                machine.owner = None
            case "kill" if machine.owner is client:
                client.awaits = machine
                os.kill(machine.pid, signal.SIGKILL)
                return
            case _:
                raise ValueError(f"{what} is not possible for machine {name}")
        client.reply(ok=True)

    def serve_launch(self, client: Client, name: str, request: dict[str, object]) -> None:
        argv, numbers = request["argv"], request["descriptors"]
        if not isinstance(argv, list) or not isinstance(numbers, list):
            raise TypeError("argv and descriptors are lists")
        fits = len(numbers) == len(client.descriptors) and name not in self.machines
        if not fits or not name.isalnum():
            raise ValueError(f"machine {name} cannot be launched like that")
        wanted = {int(n): d for n, d in zip(numbers, client.descriptors, strict=True)}
        machine = self.start(name, [str(word) for word in argv], wanted)
        machine.owner = client
        client.drop_descriptors()
        client.reply(pid=machine.pid)


def drain(pipe: int, log: BoundedLog) -> None:
    """Take what is left in a pipe; its writer is gone, so this ends."""
    os.set_blocking(pipe, False)
    try:
        while data := os.read(pipe, CHUNK):
            log.write(data)
    except BlockingIOError:
        return


def monitor_arguments(descriptor: int) -> list[str]:
    """QEMU's arguments for our own monitor, the other end of a socket pair."""
    chardev = f"socket,id=keeper,fd={descriptor}"
    return ["-chardev", chardev, "-mon", "chardev=keeper,mode=control"]


def inherited_descriptors() -> list[int]:
    """Those that our starter gave us; Python makes its own so that nobody inherits them."""
    directory = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    found = []
    for number in map(int, os.listdir(directory)):
        try:
            if os.get_inheritable(number):
                found.append(number)
        except OSError:
            continue  # the listing's own, closed already
    return found


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
