"""The state that all connections of a server share: configuration, shares and sessions."""

import os
from _thread import allocate_lock

from quicksand_smb import own_changes
from quicksand_smb.config import Config, ShareConfig
from quicksand_smb.confine import most_files
from quicksand_smb.host_watch import HostWatch
from quicksand_smb.host_writes import Guard
from quicksand_smb.leases import PATIENCE_S
from quicksand_smb.ledger import GUARD_COST, Ledger
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Callable, Final, Protocol
from quicksand_smb.names import Names, from_host
from quicksand_smb.shares import Share
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store import Node, Store
from quicksand_smb.store_errors import StoreError
from quicksand_smb.store_types import Limits
from quicksand_smb.traffic import private_counters
from quicksand_smb.trigger_report import TriggerReport
from quicksand_smb.triggers import KNOWN

if TYPE_CHECKING:
    from quicksand_smb.host_writes import Client
    from quicksand_smb.leases import Grant, Key, Timer
    from quicksand_smb.open_file import File
    from quicksand_smb.session import Session
    from quicksand_smb.store_types import Stat


MOST_OPEN: Final = 16384
"""The most open files of a share, if the process may have so many descriptors."""
MOST_LOGGED_ERRORS: Final = 20
"""The most errors that a server logs in full. A guest may be able to cause them."""


class OutputQueue(Protocol):
    """The part of a connection that sends its output."""

    def drain(self) -> None:
        """Send the waiting output. The caller does not hold the lock."""


class ServerState:
    """The shared state. It changes only under `lock`, which is released while a request waits for a
    disk."""

    def __init__(self, config: Config) -> None:
        self.lock = allocate_lock()
        self.config = config
        self.guid = os.urandom(16)
        self.salt = os.urandom(32)
        """The salt of all answers to NEGOTIATE on a stream without an end of connection."""
        self.traffic = private_counters()
        """The bytes that the client has received and sent (traffic.py)."""
        self.ledger = Ledger()
        """The memory that the server keeps for all clients together."""
        self.trigger_report = TriggerReport()
        """Files that clients have written and programs of the host run (trigger_report.py)."""
        self.shares: dict[str, Share] = {}
        self.sessions: dict[int, Session] = {}
        self.leases: dict[Key, Grant] = {}
        self.guards: dict[Key, Guard] = {}
        """The guards of files that clients have open for writing (host_writes.py)."""
        self._host: HostWatch | None = None
        self.with_output: set[OutputQueue] = set()
        """Connections with output to send."""
        self._next_handle = 0
        if config.resynchronise:
            # A client may still ask for a handle of an earlier server on the same stream.
            self._next_handle = int.from_bytes(os.urandom(6), "little") << 8
        self._logged_errors = 0
        for one in _by_name(config).values():
            root = one.path if one.directory is None else one.directory
            self._share(one, root)

    def log_error(self) -> None:
        """Write the current error to standard error, which the guest does not see. After
        `MOST_LOGGED_ERRORS` errors nothing is written."""
        self._logged_errors += 1
        if self._logged_errors <= MOST_LOGGED_ERRORS:
            import traceback  # noqa: PLC0415

            os.write(2, traceback.format_exc().encode("utf-8", "replace"))

    def new_session_id(self) -> int:
        """Return a random session id, which nobody in the guest can guess."""
        while True:
            number = int.from_bytes(os.urandom(8), "little")
            if number not in self.sessions and number not in (0, (1 << 64) - 1):
                return number

    def new_handle_id(self) -> int:
        self._next_handle += 1
        return self._next_handle

    def start_break_timer(self, late: Callable[[], None]) -> "Timer":
        """Call `late` under the lock if a client has not answered after `PATIENCE_S`."""

        from threading import Timer  # noqa: PLC0415

        clock = Timer(PATIENCE_S, self.run, (late,))
        clock.daemon = True
        clock.start()
        return clock

    def watch(self, file: "File", node: Node) -> bool:
        """Break the leases on a file when the host changes it. Returns False if the file cannot be
        watched."""
        return self._watch_host().add(file, node)

    def watch_directory(self, file: "File", node: Node, depth: int) -> bool:
        """As `watch`, for a directory, its files, and the `depth` directories above it."""
        return self._watch_host().add_directory(file, node, depth)

    def guard(self, client: "Client", key: "Key", file: "File", node: Node, stat: "Stat") -> None:
        """Guard a file that a client opens for writing against writes of the host. Raises Refusal
        if there is no memory for it. `Share.end_guard` gives the memory back."""
        watch = self._watch_host().add_written(file, node)
        if watch is None:
            return
        if not self.ledger.try_take(GUARD_COST):
            watch.end()
            raise Refusal(Status.TOO_MANY_OPENED_FILES)
        file.guard = Guard(client, key, watch, stat, self.guards)

    def _watch_host(self) -> "HostWatch":
        if self._host is None:
            self._host = HostWatch(self.run, self.log_error)
        return self._host

    def run(self, work: Callable[[], None]) -> None:
        """Call a function under the lock, and then send the output of all connections."""
        with self.lock:
            work()
            with_output = list(self.with_output)
            self.with_output.clear()
        for one in with_output:
            one.drain()

    def find_share(self, name: str) -> Share:
        share = self.shares.get(name.upper())
        if share is None or share.is_gone:
            raise Refusal(Status.BAD_NETWORK_NAME)
        return share

    def reload(self, config: Config) -> None:
        """Remove the shares that the configuration no longer names, and open the new ones.

        A share whose directory cannot be opened is left out. A share that was given as a descriptor
        was closed at the start, and its number may belong to another file by now. Only its present
        share can pass the descriptor on, to one of the same name and path.
        """
        self.config = config
        wanted = _by_name(config)
        roots: dict[str, str | int | None] = {}
        for name, share in list(self.shares.items()):
            one = wanted.get(name)
            if one is not None and _is_as(share, one):
                continue
            if one is not None and one.directory is not None and one.path == share.path:
                roots[name] = _root_of(share)
            del self.shares[name]
            share.end()
        for name, one in wanted.items():
            root = one.path if one.directory is None else roots.get(name)
            if name not in self.shares and root is not None:
                self._share(one, root)

    def _share(self, wanted: ShareConfig, root: str | int) -> None:
        made = open_share(wanted, root, self.ledger, self.trigger_report)
        if made is not None:
            self.shares[wanted.name.upper()] = made

    def directories(self) -> list[tuple[str, bool]]:
        """Return the paths of the shares for `confine`, and whether each is read-only. The paths go
        through descriptors, since a name may now lead elsewhere."""
        return [
            (share.store.own_path() or share.path, share.is_read_only)
            for share in self.shares.values()
        ]

    def end(self) -> None:
        """Close all shares. A second call does nothing."""
        for share in self.shares.values():
            share.end()
        self.shares.clear()
        if self._host:
            self._host.end()


def _by_name(config: Config) -> dict[str, ShareConfig]:
    return {one.name.upper(): one for one in config.shares}


def _root_of(share: Share) -> int | None:
    try:
        return share.store.root_again()
    except StoreError:
        return None  # it cannot be opened again


def _is_as(share: Share, wanted: ShareConfig) -> bool:
    is_same_place = share.path == wanted.path
    is_as_open = share.is_read_only == wanted.is_read_only
    return is_same_place and is_as_open and share.is_protected == wanted.is_protected


def _names_of(path: str) -> Names:
    return tuple(from_host(part) for part in os.fsencode(path).split(b"/") if part)


def open_share(
    wanted: ShareConfig, root: str | int, ledger: Ledger, report: TriggerReport
) -> Share | None:
    """Open a share. Returns None if its directory cannot be opened. A descriptor is taken over."""
    try:
        limits = Limits(nodes=min(MOST_OPEN, most_files()))
        known = (*KNOWN, *("/".join(_names_of(path)) for path in wanted.commands))
        store = Store(
            root,
            read_only=wanted.is_read_only,
            protected=known if wanted.is_protected else (),
            limits=limits,
            tell=report.record,
            within=_names_of(wanted.path),
            known=known,
        )
    except (StoreError, OSError):
        return None
    if ledger.try_take(own_changes.COST):
        store.own_changes = own_changes.OwnChanges()
    return Share(
        wanted.name,
        wanted.path,
        store,
        ledger,
        is_read_only=wanted.is_read_only,
        is_protected=wanted.is_protected,
    )
