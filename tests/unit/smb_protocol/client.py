"""A client of SMB2 for tests, written from [MS-SMB2] and not from the server's code.

It packs requests by hand and drives a connection without a socket, so that what the server and its
own decoders agree on wrongly is found here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand_smb.config import Config, ShareConfig
from quicksand_smb.connection import Connection
from quicksand_smb.dispatch import Dispatcher
from quicksand_smb.server_state import ServerState

SUCCESS = 0
(
    NEGOTIATE,
    SETUP,
    LOGOFF,
    TCON,
    TDIS,
    CREATE,
    CLOSE,
    FLUSH,
    READ,
    WRITE,
    LOCK,
    IOCTL,
    CANCEL,
    ECHO,
) = range(14)
FIND, NOTIFY, QUERY, SET = 14, 15, 16, 17
SAME = b"\xff" * 16
POSIX = bytes.fromhex("93ad25509cb411e7b42383de968bcd7c")


@dataclass(frozen=True)
class Answer:
    status: int
    command: int
    credits: int
    flags: int
    message_id: int
    session: int
    tree: int
    body: bytes
    """What follows the header."""
    raw: bytes

    @property
    def name(self) -> str:
        return f"{self.status:#010x}"


def server(
    root: Path,
    *,
    secret: str | None = None,
    read_only: bool = False,
    resync: bool = False,
    leases: str = "none",
) -> ServerState:
    shares = (ShareConfig("RW", str(root), read_only),)
    made = ServerState(Config(shares, secret=secret, resynchronise=resync, leases=leases))
    SERVERS.append(made)
    return made


SERVERS: list[ServerState] = []
"""Those of the test that runs, which are closed after it."""


class Client:
    def __init__(self, server: ServerState) -> None:
        self.server = server
        self.connection = Connection(server)
        self._dispatcher = Dispatcher(self.connection)
        self.message_id = 0
        self.session = 0
        self.tree = 0
        self.answers: list[Answer] = []
        self.guid = b"client----------"

    def message(
        self,
        command: int,
        body: bytes,
        *,
        flags: int = 0,
        charge: int = 1,
        following: int = 0,
        message_id: int | None = None,
        session: int | None = None,
        tree: int | None = None,
        asked: int = 64,
    ) -> bytes:
        if message_id is None:
            message_id = self.message_id
            self.message_id += charge
        return (
            struct.pack(
                "<4sHHIHHIIQIIQ16s",
                b"\xfeSMB",
                64,
                charge,
                0,
                command,
                asked,
                flags,
                following,
                message_id,
                0xFEFF,
                self.tree if tree is None else tree,
                self.session if session is None else session,
                bytes(16),
            )
            + body
        )

    def frame(self, frame: bytes) -> list[Answer]:
        with self.server.lock:
            self._dispatcher.receive(memoryview(frame))
        return self.hear()

    def hear(self) -> list[Answer]:
        heard = []
        while self.connection.outbox:
            out = self.connection.outbox.popleft()
            data = b"".join(bytes(part) for part in out.parts)
            if out.file:
                buffer = bytearray(out.file.length)
                out.file.node.read_into(memoryview(buffer), out.file.offset)
                data += buffer
            assert len(data) == out.length
            heard += split(data)
        self.server.with_output.discard(self.connection)
        return heard

    def ask(self, command: int, body: bytes, **options: int) -> Answer:
        answers = self.frame(self.message(command, body, **options))
        assert len(answers) == 1
        return answers[0]

    def chain(self, *requests: tuple[int, bytes]) -> list[Answer]:
        """Related requests in one frame."""
        frame = b""
        for number, (command, body) in enumerate(requests):
            padded = body + bytes(-len(body) % 8)
            last = number == len(requests) - 1
            following = 0 if last else 64 + len(padded)
            frame += self.message(command, padded, flags=4 if number else 0, following=following)
        return self.frame(frame)

    def negotiate(self, *dialects: int, posix: bool = False) -> Answer:
        contexts = b""
        count = 0
        if 0x311 in dialects:
            contexts = struct.pack("<HHIHHH", 1, 38, 0, 1, 32, 1) + bytes(32)
            count = 1
            if posix:
                contexts += bytes(-len(contexts) % 8) + struct.pack("<HHI", 0x100, 16, 0) + POSIX
                count = 2
        body = struct.pack("<HHHHI16s", 36, len(dialects), 1, 0, 0, self.guid)
        listed = struct.pack(f"<{len(dialects)}H", *dialects)
        at = 64 + 36 + len(listed)
        at += -at % 8
        body += struct.pack("<IHH", at if count else 0, count, 0) + listed
        body += bytes(at - 64 - len(body)) + contexts
        return self.ask(NEGOTIATE, body)

    def setup(self, token: bytes) -> Answer:
        return self.ask(SETUP, struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, len(token), 0) + token)

    def log_in(self) -> None:
        """As a guest, with NTLM as Linux sends it."""
        first = self.setup(b"NTLMSSP\0" + struct.pack("<II", 1, 0xE0080235) + bytes(16))
        assert first.status == 0xC0000016, first.name
        self.session = first.session
        last = self.setup(
            b"NTLMSSP\0" + struct.pack("<I", 3) + struct.pack("<HHI", 0, 0, 64) * 6 + bytes(4)
        )
        assert last.status == SUCCESS, last.name

    def connect(self, share: str = "RW") -> Answer:
        path = f"\\\\server\\{share}".encode("utf-16-le")
        answer = self.ask(TCON, struct.pack("<HHHH", 9, 0, 72, len(path)) + path)
        if answer.status == SUCCESS:
            self.tree = answer.tree
        return answer

    def begin(self, *dialects: int, posix: bool = False) -> Client:
        assert self.negotiate(*(dialects or (0x311,)), posix=posix).status == SUCCESS
        self.log_in()
        assert self.connect().status == SUCCESS
        return self

    def open(self, name: str, **options: Any) -> bytes:
        answer = self.ask(CREATE, create(name, **options))
        assert answer.status == SUCCESS, answer.name
        return answer.body[64:80]

    def close(self, file: bytes) -> Answer:
        return self.ask(CLOSE, close(file))


def split(data: bytes) -> list[Answer]:
    answers = []
    while True:
        (
            magic,
            size,
            _,
            status,
            command,
            granted,
            flags,
            following,
            message,
            _,
            tree,
            session,
            _,
        ) = struct.unpack_from("<4sHHIHHIIQIIQ16s", data)
        assert (magic, size) == (b"\xfeSMB", 64)
        assert flags & 1
        raw = data[:following] if following else data
        answers.append(
            Answer(status, command, granted, flags, message, session, tree, raw[64:], raw)
        )
        if not following:
            return answers
        assert following % 8 == 0
        data = data[following:]


def create(
    name: str,
    *,
    access: int = 0x1F01FF,
    disposition: int = 3,
    options: int = 0,
    sharing: int = 7,
    attributes: int = 0,
    contexts: bytes = b"",
    oplock: int = 0,
) -> bytes:
    text = name.encode("utf-16-le", "surrogatepass")
    at = 120 + (len(text) + -len(text) % 8 if text else 8)
    body = (
        struct.pack(
            "<HBBIQQIIIIIHHII",
            57,
            0,
            oplock,
            2,
            0,
            0,
            access,
            attributes,
            sharing,
            disposition,
            options,
            120,
            len(text),
            at if contexts else 0,
            len(contexts),
        )
        + text
    )
    return body + (bytes(-len(text) % 8) if text else bytes(8)) + contexts


def posix_context(mode: int) -> bytes:
    return struct.pack("<IHHHHI", 0, 16, 16, 0, 32, 4) + POSIX + struct.pack("<I", mode) + bytes(4)


def context(name: bytes, data: bytes) -> bytes:
    """One create context, the last."""
    return struct.pack("<IHHHHI", 0, 16, len(name), 0, 24, len(data)) + name + bytes(4) + data


def lease(key: bytes, state: int, *, epoch: int | None = None) -> bytes:
    data = struct.pack("<16sIIQ", key, state, 0, 0)
    if epoch is not None:
        data += bytes(16) + struct.pack("<HH", epoch, 0)
    return context(b"RqLs", data)


def close(file: bytes, *, attributes: bool = False) -> bytes:
    return struct.pack("<HHI", 24, int(attributes), 0) + file


def read(file: bytes, offset: int, length: int, *, least: int = 0) -> bytes:
    return (
        struct.pack("<HBBIQ", 49, 80, 0, length, offset)
        + file
        + struct.pack("<IIIHH", least, 0, 0, 0, 0)
        + b"\0"
    )


def write(file: bytes, offset: int, data: bytes) -> bytes:
    return (
        struct.pack("<HHIQ", 49, 112, len(data), offset)
        + file
        + struct.pack("<IIHHI", 0, 0, 0, 0, 0)
        + data
    )


def query(file: bytes, kind: int, level: int, most: int = 4096) -> bytes:
    return struct.pack("<HBBIHHIII", 41, kind, level, most, 0, 0, 0, 7, 0) + file


def set_info(file: bytes, level: int, data: bytes) -> bytes:
    return struct.pack("<HBBIHHI", 33, 1, level, len(data), 96, 0, 0) + file + data


def find(
    file: bytes, pattern: str = "*", *, level: int = 38, flags: int = 0, most: int = 65536
) -> bytes:
    text = pattern.encode("utf-16-le")
    return (
        struct.pack("<HBBI", 33, level, flags, 0)
        + file
        + struct.pack("<HHI", 96, len(text), most)
        + text
    )


def rename(path: str, *, replace: bool = False) -> bytes:
    text = path.encode("utf-16-le")
    return struct.pack("<B7xQI", replace, 0, len(text)) + text


def lock(file: bytes, *elements: tuple[int, int, int]) -> bytes:
    body = struct.pack("<HHI", 48, len(elements), 0) + file
    return body + b"".join(struct.pack("<QQII", *one, 0) for one in elements)


def ioctl(file: bytes, code: int, data: bytes = b"", most: int = 4096) -> bytes:
    return (
        struct.pack("<HHI", 57, 0, code)
        + file
        + struct.pack("<IIIIIIII", 120, len(data), 0, 0, 0, most, 1, 0)
        + data
    )


def output(answer: Answer) -> bytes:
    """The buffer of a QUERY_INFO, QUERY_DIRECTORY or CHANGE_NOTIFY response."""
    at, length = struct.unpack_from("<HI", answer.body, 2)
    return answer.raw[at : at + length]


def names(answer: Answer) -> list[str]:
    """Of a directory at level 38."""
    data = output(answer)
    found = []
    while True:
        following, length = struct.unpack_from("<I", data)[0], struct.unpack_from("<I", data, 60)[0]
        found.append(data[80 : 80 + length].decode("utf-16-le"))
        if not following:
            return found
        data = data[following:]
