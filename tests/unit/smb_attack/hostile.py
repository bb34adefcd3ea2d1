"""A guest that says what an honest one has said, with something wrong in it."""

from __future__ import annotations

import random
import select
import time
from pathlib import Path

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server
from tests.unit.smb_attack.record import KERNELS, SESSIONS, frames

SESSION_AT, TREE_AT, NEXT_AT, CHARGE_AT, COMMAND_AT, FLAGS_AT, NUMBER_AT = 40, 36, 20, 6, 12, 16, 24
"""[MS-SMB2] 2.2.1."""
ODD = [0, 1, 2, 3, 7, 8, 15, 63, 64, 65, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000]
ODD += [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
NAMES = [
    "..",
    "..\\..\\canary",
    "/etc/passwd",
    "a:b",
    "a\0b",
    "\\",
    "C:\\",
    "x" * 300,
    "\ud800",
    "*",
]


RECORDED = sorted((*SESSIONS.iterdir(), *KERNELS.iterdir()))


def requests(recording: Path) -> list[bytes]:
    """What the client has said in a recording."""
    return [frame for is_clients, frame in frames(recording.read_bytes()) if is_clients]


def messages(frame: bytes) -> list[bytes]:
    """Of a frame that may be anything."""
    found: list[bytes] = []
    while len(frame) >= 64 and len(found) < 100:
        following = int.from_bytes(frame[NEXT_AT : NEXT_AT + 4], "little")
        if not 64 <= following < len(frame):
            break
        found.append(frame[:following])
        frame = frame[following:]
    return [*found, frame]


def put(frame: bytes, at: int, value: int, count: int) -> bytes:
    encoded = (value & ((1 << 8 * count) - 1)).to_bytes(count, "little")
    return frame[:at] + encoded + frame[at + count :]


def spoiled(chance: random.Random, frame: bytes, others: list[bytes]) -> bytes:
    """A frame with one thing wrong, which is still so much of a frame that it gets far."""
    at = chance.randrange(len(frame))
    what = chance.randrange(12)
    if what == 0:
        return frame[:at] + bytes([frame[at] ^ 1 << chance.randrange(8)]) + frame[at + 1 :]
    if what <= 4:  # a field of the body, which is where lengths and offsets are
        count = chance.choice([1, 2, 4, 8])
        at = 64 + count * chance.randrange(max(1, (len(frame) - 64) // count))
        value = chance.choice([*ODD, len(frame), len(frame) - at, len(frame) - 64])
        return put(frame, at, value + chance.choice([-1, 0, 0, 1]), count)
    if what == 5:
        count, at = chance.choice([(2, CHARGE_AT), (4, FLAGS_AT), (4, NEXT_AT), (4, TREE_AT)])
        return put(frame, at, chance.choice(ODD), count)
    if what == 6:
        return put(frame, COMMAND_AT, chance.randrange(20), 2)
    if what == 7:
        return frame[: max(at, 8)]
    if what == 8:
        return frame + chance.randbytes(chance.choice([1, 7, 64, 5000]))
    if what == 9:
        return raw.chain(*[chance.choice(others) for _ in range(chance.randrange(2, 70))], frame)
    if what == 10:
        name = chance.choice(NAMES).encode("utf-16-le", "surrogatepass")
        place = frame.find(b"m\0a\0d\0e\0")
        return frame[:place] + name + frame[place + 8 :] if place > 0 else frame
    return frame[:64] + chance.randbytes(len(frame) - 64)


class Hostile:
    """Plays recordings, spoiled, on the stream of one server after the other."""

    def __init__(self, server: Server, seed: int) -> None:
        self._guest: Guest = server.guest
        self._chance = random.Random(seed)
        self._recordings = [requests(path) for path in RECORDED]
        self.said = 0

    def play(self) -> None:
        """One conversation. Raises StreamEnded if the server has had enough."""
        chance, guest = self._chance, self._guest
        said = chance.choice(self._recordings)
        spoils = chance.choice([0.02, 0.1, 0.5])
        session = 0
        number = 0
        for frame in said:
            for _ in range(chance.randrange(1, 3)):
                sent = frame
                if chance.random() < spoils:
                    sent = spoiled(chance, frame, said)
                sent = self._as_now(sent, session, number)
                number += max(len(messages(sent)), 1)
                guest.send_raw(raw.frame(sent))
                self.said += 1
                session = self._listen(session)
                if chance.random() > 0.1:
                    break
            if chance.random() < spoils / 50:
                guest.send_raw(chance.randbytes(chance.randrange(1, 3000)))

    def _as_now(self, frame: bytes, session: int, number: int) -> bytes:
        """With the session of now; numbers go on, whatever was left out or said twice."""
        if len(frame) < 64 or frame[COMMAND_AT : COMMAND_AT + 2] == b"\0\0":
            return frame
        joined = b""
        for one in messages(frame):
            now = put(one, SESSION_AT, session, 8) if len(one) >= 64 else one
            now = put(now, NUMBER_AT, number, 8) if self._chance.random() > 0.05 else now
            joined += now
            number += 1
        return joined

    def _listen(self, session: int) -> int:
        """Hear what there is to hear by now; a session that was begun is the one to use."""
        while select.select([self._guest.stream], [], [], 0.02 if not session else 0.002)[0]:
            for answer in self._guest.hear():
                if answer.command == raw.SESSION_SETUP and answer.session:
                    session = answer.session
        return session

    def make_peace(self) -> None:
        """After all that an honest conversation is possible."""
        guest = self._guest
        guest.session = guest.tree = guest.number = 0
        for patience_s in (1.5, 1.5, 10):  # a connection each, as a kernel makes them
            guest.send(raw.header(raw.NEGOTIATE) + raw.negotiate(0x210))
            deadline = time.monotonic() + 2 * patience_s
            while time.monotonic() < deadline and not guest.is_silent(patience_s):
                answers = guest.hear()
                is_answer = (answers[0].command, answers[0].status) == (raw.NEGOTIATE, raw.SUCCESS)
                if is_answer and guest.is_silent(0.3):
                    guest.number = 1
                    guest.log_in()
                    guest.connect()
                    guest.echo()
                    return
        raise AssertionError("no peace")
