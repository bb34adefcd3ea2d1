"""A guest and the server process it attacks, with the stream between them as deployed: the server's
standard input, output and errors are one Unix socket, and it has confined itself."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.raw import Response

MOST_MEMORY = 128 << 20
"""Bytes that the server may take at any time, whatever a guest does."""
PATIENCE_S = 60.0
SERVE = """
import os, sys
from quicksand_smb import confine
from quicksand_smb.__main__ import main
log, take = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), confine.take_stream
confine.take_stream = lambda: take(log)
sys.exit(main(sys.argv[2:]))
"""
"""`python -m quicksand_smb`, whose own errors are not lost."""


class StreamEnded(Exception):
    """The server has closed the stream."""


class Guest:
    """Speaks on a stream. What is sent and what is expected are two things here."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.stream.settimeout(PATIENCE_S)
        self.session = self.tree = 0
        self.number = 0
        self.key = b""

    # Bytes

    def send(self, *messages: bytes) -> None:
        """Each in a frame of its own."""
        self.send_raw(b"".join(raw.frame(one) for one in messages))

    def send_raw(self, data: bytes) -> None:
        try:
            self.stream.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise StreamEnded from None

    def hear(self) -> list[Response]:
        """The responses of the next frame."""
        length = self._take(4)
        assert length[0] == 0, f"not a frame: {length!r}"
        return raw.responses(self._take(int.from_bytes(length, "big")))

    def _take(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            try:
                part = self.stream.recv(min(count - len(found), 1 << 20))
            except ConnectionResetError:
                raise StreamEnded from None
            if not part:
                raise StreamEnded
            found += part
        return bytes(found)

    def is_silent(self, seconds: float = 0.2) -> bool:
        return not select.select([self.stream], [], [], seconds)[0]

    def is_cut_off(self) -> bool:
        """Whether the server closes the stream, whatever it still says before."""
        deadline = time.monotonic() + PATIENCE_S
        with contextlib.suppress(StreamEnded, BrokenPipeError, ConnectionResetError):
            while time.monotonic() < deadline:
                self.hear()
            return False
        return True

    # Requests

    def message(self, command: int, body: bytes, **fields: Any) -> bytes:
        charge = fields.get("charge", 1)
        if "message" not in fields:
            fields["message"] = self.number
            self.number += max(charge, 1)
        known: dict[str, Any] = {"session": self.session, "tree": self.tree} | fields
        made = raw.header(command, **known) + body
        return raw.signed(made, self.key) if self.key and self.session else made

    def ask(self, command: int, body: bytes, **fields: Any) -> Response:
        self.send(self.message(command, body, **fields))
        (answer,) = self.hear()
        return answer

    def done(self, command: int, body: bytes, **fields: Any) -> Response:
        answer = self.ask(command, body, **fields)
        assert answer.status == raw.SUCCESS, f"{answer.status:#010x}"
        return answer

    # A beginning

    def negotiate(self, *dialects: int, **options: Any) -> Response:
        self.session = self.tree = self.number = 0
        self.key = b""
        return self.done(raw.NEGOTIATE, raw.negotiate(*(dialects or (0x311,)), **options))

    def log_in(self, secret: str | None = None, *, mode: int = 1) -> Response:
        self.session = self.tree = 0
        first = self.ask(raw.SESSION_SETUP, raw.setup(raw.HELLO, mode=mode))
        assert first.status == raw.MORE_PROCESSING, f"{first.status:#010x}"
        self.session = first.session
        token, key = (raw.NOBODY, b"") if secret is None else raw.prove(first.raw, secret)
        answer = self.done(raw.SESSION_SETUP, raw.setup(token, mode=mode))
        self.key = key
        return answer

    def connect(self, share: str = "RW") -> int:
        self.tree = self.done(raw.TREE_CONNECT, raw.tree_connect(share)).tree
        return self.tree

    def begin(self, *dialects: int, share: str = "RW") -> Guest:
        self.negotiate(*(dialects or (0x210,)))
        self.log_in()
        self.connect(share)
        return self

    def open(self, name: str, **options: Any) -> bytes:
        return self.done(raw.CREATE, raw.create(name, **options)).file

    def echo(self) -> None:
        """It is alive, and in step."""
        self.done(raw.ECHO, raw.NOTHING)


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    guest: Guest
    share: Path
    fixed: Path
    """Shared as RO."""
    outside: Path
    log: Path
    _most: int = 0

    def memory(self) -> int:
        """Bytes at most so far (VmHWM); once it has ended, what was seen last."""
        with contextlib.suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+) kB", self._proc("status").read_text())
            self._most = int(found[1]) << 10 if found else self._most
        return self._most

    def has_ended(self) -> bool:
        self.memory()
        return self.process.poll() is not None

    def descriptors(self) -> int:
        return len(os.listdir(self._proc("fd")))

    def is_idle(self) -> bool:
        """Whether no thread works, for as long as it takes to look twice; or it has ended."""
        if self.has_ended():
            return True
        spent = self._spent()
        select.select([], [], [], 0.03)
        return self.has_ended() or (spent == self._spent() and not self._wants_to_run())

    def _wants_to_run(self) -> bool:
        """Whether a thread could run, which a busy host may keep it from, or waits for a disk."""
        with contextlib.suppress(OSError):
            stats = [(one / "stat").read_text() for one in self._proc("task").iterdir()]
            return any(stat.rpartition(")")[2].split()[0] in "RD" for stat in stats)
        return False

    def _spent(self) -> str:
        """Switches between its threads and waiting so far."""
        with contextlib.suppress(OSError):
            return "".join((one / "schedstat").read_text() for one in self._proc("task").iterdir())
        return ""

    def _proc(self, name: str) -> Path:
        return Path(f"/proc/{self.process.pid}") / name

    def check(self) -> None:
        """Nothing went wrong inside, and nothing outside was touched."""
        if self.process.poll() is None:
            assert self.memory() < MOST_MEMORY, f"{self.memory() >> 20} MiB"
        assert self.log.read_text() == ""
        assert self.memory() < MOST_MEMORY, f"{self.memory() >> 20} MiB"
        said = self.log.read_text().splitlines()
        assert [line for line in said if "not confined by" not in line] == []
        assert os.listdir(self.outside) == ["canary"]
        assert (self.outside / "canary").read_bytes() == b"alive"
        assert (self.fixed / "file").read_bytes() == b"fixed"
        assert os.listdir(self.fixed) == ["file"]

    def wait_until(self, is_so: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline
            select.select([], [], [], 0.01)


@contextlib.contextmanager
def serving(place: Path, *, descriptors: int = 0, **config: Any) -> Iterator[Server]:
    """A server with two shares. `config`: more of its configuration. `descriptors`: all that the
    system gives it."""
    share, fixed, outside = place / "share", place / "fixed", place / "outside"
    for directory in (share, fixed, outside):
        directory.mkdir(parents=True, exist_ok=True)
    (outside / "canary").write_bytes(b"alive")
    (fixed / "file").write_bytes(b"fixed")
    path, log = place / "config.json", place / "log"
    shares: dict[str, Any] = {
        "RW": {"path": str(share)},
        "RO": {"path": str(fixed), "read_only": True},
        # As the kernel's client calls it in its recording.
        "QUICKSAND0": {"path": str(share)},
    }
    path.write_text(json.dumps({"shares": shares, "resynchronise": True} | config))
    log.touch()
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", SERVE, str(log), "--config", str(path)]
    if descriptors:
        command = ["sh", "-c", f'ulimit -n {descriptors} && exec "$0" "$@"', *command]
    with theirs:
        end = theirs.fileno()
        process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end)
    server = Server(process, Guest(ours), share, fixed, outside, log)
    try:
        yield server
    finally:
        ours.close()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
