"""Answers questions about a sandbox: its names and options, and its machine while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from quicksand.base.files import tail
from quicksand.life import machinery
from quicksand.life.sandbox_life import Life
from quicksand.records.config import SandboxConfig
from quicksand.records.dialled import ForwarderFiles, read_dialled
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.port_forwards import Protocol

if TYPE_CHECKING:
    from quicksand.base.progress import BootTiming
    from quicksand.life.qmp_events import Event


class Facts:
    """The facts about one sandbox. `events` and `logs` are methods of `Sandbox`; the others are its
    properties."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def events(self) -> AsyncIterator[Event]:
        """Yield the events of the VM as they happen: pauses, a full host disk, a panic, its end.
        The iterator ends with the VM. Raises StateError if too many clients watch (`QMP_MONITORS`),
        MachineError."""
        return machinery.watch_events(self._life.registry, self._life.id)

    def logs(self, *, limit: int = 64 * 1024) -> str:
        """The last ``limit`` bytes of the guest's console, "" if there are none. Raises
        OSError."""
        return tail(sandbox_dir(self._life.registry.paths, self._life.id).console_log, limit=limit)

    async def look(self) -> None:
        """Learn anew the facts of a sandbox of another machine, which are as of that machine's last
        answer. Raises SandboxNotFoundError, StateError, RemoteError. Of one of this machine they
        are always new."""

    def id(self) -> str:
        """12 hexadecimal digits, unique on this host. The first start may change it to the id of
        the spare that it takes over."""
        return self._life.id

    def name(self) -> str:
        """The name, or the id of a sandbox without one."""
        return self._life.name

    def host(self) -> str | None:
        """The place where it runs: "local" for this machine, the address of another machine, or the
        name of a machine in a fleet. None for a sandbox that its fleet has not placed yet."""
        return "local"

    def config(self) -> SandboxConfig:
        """The options, with those that came from a save."""
        return self._life.config

    def is_running(self) -> bool:
        """Whether the VM runs at this moment."""
        return self._life.is_running

    def accelerator(self) -> str | None:
        """The QEMU accelerator ("kvm", "hvf", "tcg" …), or None while the sandbox is stopped."""
        run = self._life.run
        return run.accel if run is not None else None

    def boot_timeout(self) -> float:
        """Seconds that `start` waits for the agent (`SandboxConfig.boot_timeout`)."""
        return self._life.config.boot_timeout

    def boot_timing(self) -> BootTiming | None:
        """How long each phase of the start took, in seconds; None unless this object started the
        VM."""
        return self._life.timing

    def qemu_command(self) -> list[str]:
        """The command line of the running QEMU; empty while the sandbox is stopped."""
        run = self._life.run
        return [*run.qemu_command] if run is not None else []

    def port_forwards(self) -> dict[int, int]:
        """The forwards of TCP, including those of `Sandbox.forward`: guest port -> host port, which
        is the chosen one where host port 0 was requested. Empty while the sandbox is stopped."""
        return self._forwards(Protocol.TCP)

    def udp_port_forwards(self) -> dict[int, int]:
        """The same for UDP."""
        return self._forwards(Protocol.UDP)

    def _forwards(self, protocol: Protocol) -> dict[int, int]:
        run = self._life.run
        if run is None:
            return {}
        runtime = runtime_dir(self._life.registry.paths, self._life.id)
        made = (*run.published, *read_dialled(ForwarderFiles(runtime.root)).forwards)
        return {one.guest: one.host for one in made if one.protocol is protocol}

    def agent_url(self) -> str | None:
        """The URL of the agent's HTTP interface (guest-agent/openapi.yaml), or None without the
        option ``agent_http`` or while the sandbox is stopped."""
        run = self._life.run
        port = run.http_port if run is not None else None
        return None if port is None else f"http://127.0.0.1:{port}"

    def agent_token(self) -> str | None:
        """The bearer token for the agent's HTTP interface, a secret that changes with every start;
        None while the sandbox is stopped."""
        run = self._life.run
        return run.token if run is not None else None

    def notices(self) -> tuple[str, ...]:
        """Warnings: that this user did not make the save named by ``image`` on this host, and which
        of its options were left out; after a start, which directories are gone and could not be
        mounted, and that a guest with the full network cannot resolve names."""
        return (*self._life.basis_notices, *self._life.notices)
