"""The keeper's loop (see keeper.py)."""

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from . import FIRST
from .files import CHUNK, BoundedLog, drain, remove_file, remove_tree
from .launch import inherited_descriptors, launch, monitor_arguments
from .machines import Client, Machine
from .space import SpaceWatch

LOGS = ("console.log", "qemu.log")
"""Of the guest's console, and of QEMU itself."""

TERM_GRACE_S = 2.0
"""QEMU closes its images on SIGTERM; after this it gets SIGKILL."""


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
                BoundedLog(os.path.join(self.sandbox_dir, name)) for name in LOGS
            )
            listener = self.listen()
            self.env = env
            self.current = self.start(FIRST, argv, {})
            self.point_to(FIRST)
        except OSError as error:
            for machine in self.machines.values():
                os.kill(machine.pid, signal.SIGKILL)
            for name in LOGS:
                remove_file(os.path.join(self.sandbox_dir, name))  # there was no run
            os.write(1, b"failed %d\n" % (error.errno or 0))
            return
        for descriptor in inherited:
            os.close(descriptor)
        try:
            os.write(1, b"started %d %d\n" % (os.getpid(), self.current.pid))
        except OSError:
            self.owned = False  # it is dead already; in a moment the lifeline says so, too
        # No start waits for this any more; later the Python that runs here may have been replaced.
        import json  # noqa: F401

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
            remove_tree(os.path.join(self.runtime_dir, machine.name))
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
        text = f'{{"code": {code}, "asked": {asked}, "machine": "{self.current.name}", '
        text += f'"unix_time": {time.time():.3f}}}\n'
        try:
            with open(path + ".tmp", "w", encoding="ascii") as file:
                file.write(text)
            os.replace(path + ".tmp", path)
        finally:
            remove_tree(self.runtime_dir)
            if self.discard and not self.owned:
                memory = os.path.join(self.sandbox_dir, "memory")
                if os.path.islink(memory):  # to a place of this sandbox's alone
                    remove_tree(os.readlink(memory))
                remove_tree(self.sandbox_dir)

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
        if not fits or not (name.isascii() and name.isalnum()):
            raise ValueError(f"machine {name} cannot be launched like that")
        wanted = {int(n): d for n, d in zip(numbers, client.descriptors, strict=True)}
        machine = self.start(name, [str(word) for word in argv], wanted)
        machine.owner = client
        client.drop_descriptors()
        client.reply(pid=machine.pid)


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
