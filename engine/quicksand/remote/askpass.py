"""Questions of ssh (passwords, passphrases, unknown host keys, touches of a security key), asked by
the program that started ssh instead of on a terminal.

ssh starts `askpass.sh` with its prompt; `askpass_client.py` passes it on over a Unix socket of this
user, and prints the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from quicksand.base.error_text import printable
from quicksand.base.errors import HostError
from quicksand.base.listening import Acceptor, bind_private
from quicksand.base.paths import make_private_dir
from quicksand.records.host_sockets import ASKPASS_SOCKETS, askpass_socket
from quicksand.remote.abandoned import remove_abandoned
from quicksand.remote.askpass_client import PROMPT_MAX

PROGRAM = Path(__file__).with_name("askpass.sh")
CLIENT = Path(__file__).with_name("askpass_client.py")

ANSWER_MAX = 1023
"""Bytes of an answer that ssh takes (readpass.c)."""

OPEN_MAX = 32
"""The most open questions; a further one counts as cancelled."""

SHOWN_LINES, SHOWN_CHARACTERS = 16, 2000
"""The most lines and characters of a prompt that are shown. It may be the far host's."""

READ_S = 10.0
"""Seconds within which a new connection must send its question."""

HEAD_MAX = 256
"""The most bytes of the line before the prompt."""


class Kind(StrEnum):
    """The kind of answer that ssh wants: SSH_ASKPASS_PROMPT in ssh(1), "secret" without it."""

    SECRET = "secret"  # noqa: S105 - the kind of question
    """A text. ssh does not say whether it may be shown while it is typed."""
    CONFIRM = "confirm"
    """Yes or no."""
    NOTICE = "none"
    """Nothing: the user must touch a security key; afterwards ssh takes the notice away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something that ssh asks."""

    host: str
    """The machine that ssh is to reach, as our user named it."""
    prompt: str
    """The words of ssh, or of the far host, in lines without control characters."""
    kind: Kind


Ask = Callable[[Question], Awaitable[str | None]]
"""Asks the user. Returns None if the user gives up, and "yes" or "no" for `Kind.CONFIRM`. It is
cancelled when ssh stops waiting."""


@dataclass(slots=True, eq=False)
class Asker:
    """The right of one ssh to ask; `end` takes it back."""

    host: str
    environment: dict[str, str]
    """The variables to set for ssh."""
    token: str
    is_given_up: bool = False
    """Whether the user has left a question unanswered: this ssh may ask no more."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Its open questions."""
    has_ended: bool = False
    limit: asyncio.Timeout | None = None
    limit_s: float = 0.0

    def end(self) -> None:
        """Withdraw its open questions. Idempotent."""
        self.has_ended = True
        for task in self.tasks:
            task.cancel()

    def hold_back(self, limit: asyncio.Timeout, seconds: float) -> None:
        """Suspend a deadline of ``seconds`` while the user is asked: it begins anew after the last
        question."""
        self.limit, self.limit_s = limit, seconds
        self._adapt()

    def begin(self, task: asyncio.Task[None]) -> None:
        self.tasks.add(task)
        self._adapt()

    def done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._adapt()

    def _adapt(self) -> None:
        if self.limit is None or self.limit.expired():
            return
        with contextlib.suppress(RuntimeError):  # it is over
            now = asyncio.get_running_loop().time()
            self.limit.reschedule(None if self.tasks else now + self.limit_s)


class Askpass:
    """Answers the questions of all ssh processes started with its environments. An ``async with``
    block opens and closes its socket."""

    def __init__(self, ask: Ask, runtime: Path) -> None:
        """``runtime`` is the directory for its socket (`Paths.runtime`)."""
        self._ask = ask
        self._runtime = runtime
        self._path: Path | None = None
        self._acceptor: Acceptor | None = None
        self._askers: set[Asker] = set()

    async def __aenter__(self) -> Self:
        """Open the socket. Raises PathError, OSError, and HostError if ssh's program cannot run."""
        if not os.access(PROGRAM, os.X_OK):
            raise HostError(
                f"ssh cannot ask: {PROGRAM} is not executable", hint=f"chmod +x {PROGRAM}"
            )
        make_private_dir(self._runtime)
        await remove_abandoned(self._runtime, ASKPASS_SOCKETS)
        self._path = askpass_socket(self._runtime, secrets.token_hex(16))
        try:
            self._acceptor = Acceptor(
                [bind_private(self._path)],
                self._serve,
                name="quicksand-askpass",
                most=OPEN_MAX,
                limit=HEAD_MAX,
            )
        except BaseException:
            self._remove()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for asker in self._askers:
            asker.end()
        try:
            if self._acceptor is not None:
                await self._acceptor.close()
        finally:
            self._remove()

    def _remove(self) -> None:
        path, self._path = self._path, None
        if path is not None:
            path.unlink(missing_ok=True)

    def begin(self, host: str) -> Asker:
        """Let one ssh to ``host`` ask; `Asker.end` when it has ended."""
        assert self._path is not None
        token = secrets.token_hex(16)
        environment = {
            "SSH_ASKPASS": str(PROGRAM),
            "SSH_ASKPASS_REQUIRE": "force",
            "QUICKSAND_ASKPASS_SOCKET": str(self._path),
            "QUICKSAND_ASKPASS_TOKEN": token,
            "QUICKSAND_ASKPASS_PYTHON": sys.executable,
            "QUICKSAND_ASKPASS_CLIENT": str(CLIENT),
        }
        self._askers = {asker for asker in self._askers if not asker.has_ended}
        asker = Asker(host, environment, token)
        self._askers.add(asker)
        return asker

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one question."""
        task = asyncio.current_task()
        assert task is not None
        try:
            if not _is_our_user(writer):
                return
            async with asyncio.timeout(READ_S):
                asker, question = await self._read(reader)
            if asker is None or question is None:
                return
            asker.begin(task)
            try:
                answer = await self._answer(asker, question, reader)
            finally:
                asker.done(task)
            if answer is not None:
                writer.write(answer + b"\n")
                await writer.drain()
        except (OSError, EOFError, ValueError, TimeoutError):
            pass  # it is not our client, or has gone
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> tuple[Asker | None, Question | None]:
        """Read a question; None if it is not from an ssh that may ask. Raises OSError, EOFError,
        ValueError."""
        token, kind, size = (await reader.readline()).decode("ascii").split()
        found = next((one for one in self._askers if hmac.compare_digest(one.token, token)), None)
        if found is None or found.has_ended or found.is_given_up:
            return None, None
        if not 0 <= int(size) <= PROMPT_MAX:
            raise ValueError(f"{size} bytes are no prompt")
        prompt = await reader.readexactly(int(size))
        return found, Question(host=found.host, prompt=shown_prompt(prompt), kind=Kind(kind))

    async def _answer(
        self, asker: Asker, question: Question, reader: asyncio.StreamReader
    ) -> bytes | None:
        """Ask the user as long as the client waits."""
        asking = asyncio.ensure_future(self._ask(question))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() or asking.cancelled():
                return None
            answer = asking.result()
        finally:
            for one in (asking, gone):
                one.cancel()
            await asyncio.wait({asking, gone})
        if answer is None:
            asker.is_given_up = asker.is_given_up or question.kind is not Kind.NOTICE
            return None
        encoded = answer.encode("utf-8", "surrogateescape")
        # ssh would cut the answer, and take the rest for the whole.
        return None if len(encoded) > ANSWER_MAX or b"\n" in encoded else encoded


def shown_prompt(prompt: bytes) -> str:
    """Return a prompt in a form that can be shown."""
    lines = prompt.decode("utf-8", "replace").strip().splitlines()
    text = "\n".join(printable(line.expandtabs(1).rstrip()) for line in lines[:SHOWN_LINES])
    is_cut = len(lines) > SHOWN_LINES or len(text) > SHOWN_CHARACTERS
    return text[:SHOWN_CHARACTERS] + ("…" if is_cut else "")


def _is_our_user(writer: asyncio.StreamWriter) -> bool:
    """Whether the other end belongs to this user. Where the kernel does not tell, only the modes of
    the socket and its directory ensure that."""
    if sys.platform != "linux":
        return True
    end: socket.socket = writer.get_extra_info("socket")
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid == os.geteuid())
