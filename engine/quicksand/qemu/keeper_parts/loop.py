"""The keeper's loop (see keeper.py)."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from . import FIRST
from .bounds import MemoryWatch, bound_of
from .finishing import Finishers
from .full_disk import SpaceWatch
from .keeper_files import (
    CHUNK,
    BoundedLog,
    Reserved,
    await_lock,
    drain,
    open_if_there,
    remove_file,
    remove_tree,
    try_lock,
)
from .launch import clear_of, inherited_descriptors, launch, monitor_arguments
from .machines import Client, Machine
from .owner import Lease, OwnerProcess, OwnerWait, is_on, is_pulled

LOGS = ("console.log", "qemu.log")
"""The logs of the guest's console and of QEMU itself."""

LOCK_WAIT_S = 1.0

TERM_GRACE_S = 2.0
"""Seconds from SIGTERM, at which QEMU closes its images, to SIGKILL."""

FORWARDER_WAIT_S = 2.0
"""Seconds to wait for the process that carries the sandbox's ports, which ends when the runtime
directory is gone: the sandbox's next start may need the same ports."""

Serve = Callable[["Keeper", Client, dict[str, object]], None]
"""Serves a request of a client, and replies (client_requests.py). Its error becomes the reply."""


class Keeper:
    """Serves QEMU's output and end, clients, the lifeline and SIGTERM in one poll(2) loop."""

    def __init__(
        self,
        sandbox_dir: str,
        runtime_dir: str,
        lock: int | None,
        leash: int | None,
        discard: bool,
        env: dict[str, str],
        serve: Serve,
    ) -> None:
        self.sandbox_dir = sandbox_dir
        self.runtime_dir = runtime_dir
        self.lock = lock
        """The sandbox's lock, held until the process ends, so that waiting for it includes the
        cleanup."""
        self.leash = leash
        """The pipe through which QEMU ends with its owner (leash.py)."""
        self.discard = discard
        self.env = env
        self.serve = serve
        self.owned = True
        """Whether there is an owner, who would read the logs and remove the directory itself."""
        self.owner = OwnerProcess(self.watch, self.unwatch, self.orphaned)
        self.waiting: OwnerWait | None = None
        """The wait for an owner, while the sandbox belongs to nobody."""
        self.lease = Lease()
        self.kill_at: float | None = None
        self.asked_to_stop = False
        self.machines: dict[str, Machine] = {}
        self.clients: list[Client] = []
        self.handlers: dict[int, Callable[[], None]] = {}
        self.poll = select.poll()
        self.finishers = Finishers()

    def run(self, argv: list[str], owner: int | None) -> None:
        """Start QEMU for the process ``owner`` (a pidfd), and serve until it has ended."""
        kept = (self.lock, self.leash)
        inherited = [d for d in inherited_descriptors() if d > 2 and d not in kept]
        try:
            self.prepare()
            listener = self.listen()
            self.current = self.start(FIRST, argv, {})
            self.point_to(FIRST)
        except OSError as error:
            for machine in self.machines.values():
                machine.kill()
            for name in LOGS:
                remove_file(os.path.join(self.sandbox_dir, name))  # there was no run
            os.write(1, b"failed %d\n" % (error.errno or 0))
            return
        for descriptor in inherited:
            os.close(descriptor)
        self.tell_started()
        self.watch(0, self.lifeline)
        self.owner.follow(owner)
        self.serve_until_the_end(listener)

    def prepare(self) -> None:
        """Set up signals and logs, before QEMU starts: a keeper that failed later would leave QEMU
        alone. Raises OSError."""
        self.wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: None)
        self.console, self.messages = (
            BoundedLog(os.path.join(self.sandbox_dir, name)) for name in LOGS
        )
        self.last_words = Reserved(os.path.join(self.sandbox_dir, "exit.json"))

    def tell_started(self) -> None:
        try:
            os.write(1, b"started %d %d\n" % (os.getpid(), self.current.pid))
        except OSError:
            self.owned = False  # the owner is already dead, as the lifeline will show too

    def serve_until_the_end(self, listener: socket.socket) -> None:
        self.watch(self.wake_read, lambda: self.wake(self.wake_read))
        self.watch(listener.fileno(), lambda: self.accept(listener))
        self.wait()
        self.finish()

    def listen(self) -> socket.socket:
        """Take keeper.lock and open the socket for clients. Raises OSError if another keeper has
        them."""
        deadline = time.monotonic() + LOCK_WAIT_S
        # A client that checks whether there is a keeper holds the lock for a moment.
        while try_lock(os.path.join(self.runtime_dir, "keeper.lock")) is None:
            if time.monotonic() < deadline:
                time.sleep(0.005)
                continue
            raise BlockingIOError(errno.EBUSY, "another keeper looks after this sandbox")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = os.path.join(self.runtime_dir, "keeper.sock")
        remove_file(path)  # a killed keeper has left it
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(8)
        return listener

    def start(self, name: str, argv: list[str], descriptors: dict[int, int]) -> Machine:
        """Fork a QEMU whose files are in the directory ``name``. Raises OSError."""
        monitor, theirs = socket.socketpair()
        try:
            number = clear_of(theirs.fileno(), descriptors)
        except OSError:
            monitor.close()
            theirs.close()
            raise
        os.set_inheritable(number, True)
        try:
            pid, out, err = launch(
                [*argv, *monitor_arguments(number)],
                self.env,
                descriptors,
                os.path.join(self.sandbox_dir, "layers"),
                *self.tie(),
            )
        except OSError:
            monitor.close()
            raise
        finally:
            if number != theirs.fileno():
                os.close(number)
            theirs.close()
        directory = os.path.join(self.runtime_dir, name)
        space = SpaceWatch(monitor, self.sandbox_dir, directory)
        memory = MemoryWatch(pid, bound_of(argv), space, directory)
        pipes = {out: self.console, err: self.messages}
        machine = Machine(name, pid, pipes, space, memory, directory)
        self.add(machine)
        return machine

    def tie(self) -> tuple[int | None, int | None]:
        """Return the leash for the next QEMU, and the process group for it to join: the current
        QEMU's, if that is in this session (an adopted QEMU is not)."""
        if not self.machines:
            return self.leash, None
        if self.leash is None or not is_on(self.leash):
            return None, None
        same = os.getsid(self.current.pid) == os.getsid(0)
        return self.leash, os.getpgid(self.current.pid) if same else None

    def add(self, machine: Machine) -> None:
        """Watch another machine."""
        monitor = machine.space.monitor
        self.machines[machine.name] = machine
        self.watch(monitor.fileno(), lambda: self.listen_to(machine))
        for pipe in machine.pipes:
            self.watch(pipe, lambda pipe=pipe: self.log(machine, pipe))  # type: ignore[misc]
        if machine.pidfd is not None:
            self.watch(machine.pidfd, lambda: None)  # its end wakes the loop

    def point_to(self, name: str) -> None:
        """Make the link ``current`` lead to the machine ``name``, atomically."""
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
        while not self.current.ended:
            machines = self.machines.values()
            moments: list[float | None] = []
            if not self.is_guarded():
                moments += [moment for machine in machines for moment in machine.looks_at]
            look_at = None if self.waiting is None else self.waiting.look_at
            moments += [self.kill_at, look_at, self.lease.look_at]
            due = [moment for moment in moments if moment is not None]
            timeout = max(0.0, min(due) - time.monotonic()) * 1000 if due else None
            events = self.poll.poll(timeout)
            self.fence()  # before all else: this process may have been frozen
            for descriptor, _ in events:
                if (handler := self.handlers.get(descriptor)) is not None:
                    handler()
            for machine in self.machines.values():
                if not self.is_guarded() and not machine.is_unfinished:
                    machine.look_at_host()
            self.reap()
            if self.waiting is not None and time.monotonic() >= self.waiting.look_at:
                self.wait_on()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.current.kill()
                self.kill_at = time.monotonic() + 1

    def fence(self) -> None:
        """Kill all QEMUs if the lease has ended: the sandbox may be running elsewhere now."""
        if not self.lease.is_over and self.lease.has_ended():
            self.lease.is_over = self.asked_to_stop = True
            for machine in self.machines.values():
                machine.kill()

    def wake(self, pipe: int) -> None:
        for number in os.read(pipe, 64):
            if number == signal.SIGTERM:
                self.stop(TERM_GRACE_S)

    def stop(self, grace: float) -> None:
        self.asked_to_stop = True
        if self.kill_at is None:
            self.current.kill(signal.SIGTERM)
            # A stopped process (SIGSTOP) would not handle the signal.
            self.current.kill(signal.SIGCONT)
            self.kill_at = time.monotonic() + grace

    def lifeline(self) -> None:
        data = os.read(0, 16)
        if b"K" in data:
            self.asked_to_stop = True
            self.current.kill()
            return
        if data and b"D" not in data:
            return
        self.let_go()
        if not data:
            self.asked_to_stop = True
            self.current.kill()

    def let_go(self) -> None:
        """Note that there is no owner any more."""
        self.unwatch(0)
        self.owner.follow(None)
        self.owned = False

    def orphaned(self) -> None:
        """Note that the owner's process has ended, whoever holds its end of the lifeline."""
        if select.select([0], [], [], 0)[0]:
            self.lifeline()  # its last words may have detached QEMU
        if self.owned:
            self.let_go()
            self.asked_to_stop = True
            self.current.kill()

    def wait_on(self) -> None:
        """End a sandbox that must not wait for an owner any longer."""
        if self.waiting is not None and self.waiting.is_over():
            self.asked_to_stop = True
            self.current.kill()

    def pulled(self) -> None:
        """Note that the pipe of the leash has closed, or its process has ended: the owner is gone,
        or has detached QEMU. Used by a keeper that has adopted QEMU, which has no lifeline."""
        assert self.leash is not None
        self.unwatch(self.leash)
        self.owner.follow(None)
        self.owned = False
        if is_on(self.leash):
            self.asked_to_stop = True
            self.current.kill()

    def listen_to(self, machine: Machine) -> None:
        if not machine.space.read():
            self.unwatch(machine.space.monitor.fileno())

    def log(self, machine: Machine, pipe: int) -> None:
        data = os.read(pipe, CHUNK)
        if data:
            machine.pipes[pipe].write(data)
        else:
            self.unwatch(pipe)

    def is_guarded(self) -> bool:
        """Whether a client has paused the guest for a moment, so that nobody else may resume it."""
        return any(client.guards for client in self.clients)

    # Machines that end

    def reap(self) -> None:
        for machine in list(self.machines.values()):
            if machine.look():
                self.bury(machine)
        self.finishers.reap(self.messages)

    def bury(self, machine: Machine) -> None:
        """Clean up after a machine that has ended: copy its last output, remove its files and tell
        clients that wait for its end."""
        del self.machines[machine.name]
        for pipe, log in machine.pipes.items():
            drain(pipe, log)
            self.unwatch(pipe)
            os.close(pipe)
        self.unwatch(machine.space.monitor.fileno())
        machine.space.monitor.close()
        if machine.pidfd is not None:
            self.unwatch(machine.pidfd)
        if machine is not self.current:
            remove_tree(self.runtime_dir, machine.name)
        for rule in machine.took:
            # QEMU refuses a forward that the current machine still has.
            self.current.space.forward(rule)
        for client in self.clients:
            if client.awaits is machine:
                client.awaits = None
                client.reply(ended=machine.code)

    def finish(self) -> None:
        """Write exit.json, then remove the runtime directory and, if the sandbox is to be
        discarded, its own directory."""
        if self.leash is not None and is_pulled(self.leash):
            # The kernel has killed QEMU before the lifeline was read.
            self.asked_to_stop, self.owned = True, False
        for machine in list(self.machines.values()):
            machine.kill()
            machine.wait()
            self.bury(machine)
        asked = "true" if self.asked_to_stop else "false"
        code = "null" if self.current.code is None else self.current.code
        text = f'{{"code": {code}, "asked": {asked}, "machine": "{self.current.name}", '
        fenced = "true" if self.lease.is_over else "false"
        text += f'"unix_time": {time.time():.3f}, "fenced": {fenced}}}\n'
        forwarder = open_if_there(os.path.join(self.runtime_dir, "forwarder.lock"))
        try:
            self.last_words.put(text)
        finally:
            remove_tree(self.runtime_dir)
            if self.discard and not self.owned:
                memory = os.path.join(self.sandbox_dir, "memory")
                if os.path.islink(memory):  # to a directory that only this sandbox uses
                    remove_tree(os.readlink(memory))
                remove_tree(self.sandbox_dir)
            if forwarder is not None:
                await_lock(forwarder, FORWARDER_WAIT_S)

    # Clients

    def accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the client is gone already, or there are too many open files
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
                self.serve(self, client, request)
            except (OSError, LookupError, TypeError, ValueError, OverflowError) as error:
                client.drop_descriptors()
                number = error.errno if isinstance(error, OSError) else None
                client.reply(error=str(error) or type(error).__name__, errno=number)

    def leave(self, client: Client) -> None:
        """Undo the unfinished work of a client that has disconnected: it may have been killed."""
        self.unwatch(client.connection.fileno())
        self.clients.remove(client)
        client.close()
        if client.guards:
            self.resume()
        for machine in self.machines.values():
            if machine.owner is client:
                machine.took = client.forwards
                machine.kill()

    def is_left(self) -> bool:
        """Whether a revert is unfinished, and neither a client nor a finisher works on it."""
        is_busy = self.is_guarded() or bool(self.finishers.pids)
        return self.current.is_unfinished and not is_busy

    def resume(self) -> None:
        """Let the current guest go on for a client that has paused it and is gone; or have the
        client's revert finished."""
        if self.current.is_unfinished:
            self.finishers.start_once(self.current.unfinished, self.messages)
            return
        if self.current.is_unstored:
            self.finishers.start_once(self.current.unstored, self.messages)
        self.current.go_on()

    def is_free(self, name: str) -> bool:
        """Whether a new machine can be given that name."""
        return name.isascii() and name.isalnum() and name not in self.machines
