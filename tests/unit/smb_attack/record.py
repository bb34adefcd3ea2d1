"""Record what Samba's client says to the server, and what it is answered, for `sessions/`.

``python -m tests.unit.smb_attack.record NAME PROTOCOL`` (such as ``samba-311 SMB3_11``) needs
smbclient. A recording is the frames of both sides as they came, each after one byte: > is the
client's, < the server's.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.unit.smb_attack.guest import serving

SESSIONS = Path(__file__).parent / "sessions"
KERNELS = Path(__file__).parent / "said"
"""Of the same form, without answers: what the client of a kernel (Linux 6.12) has said to the
server of a mount. Its login knows a secret that is gone, so it is answered otherwise now."""
SAID = (
    "mkdir made; cd made; put {file} put; ls; get put {back}; allinfo put; rename put moved;"
    " ls m*; cd ..; allinfo made; put {file} other; hardlink other link; del other; del link;"
    " cd made; del moved; cd ..; rmdir made; ls missing; cd nowhere; du"
)


def frames(recording: bytes) -> list[tuple[bool, bytes]]:
    """The frames of a recording, without their lengths; and whether they are the client's."""
    found = []
    while recording:
        length = int.from_bytes(recording[1:5], "big")
        found.append((recording[:1] == b">", recording[5 : 5 + length]))
        recording = recording[5 + length :]
    return found


def _whole(stream: socket.socket) -> bytes:
    """The next frame with its length; nothing at the end."""
    found = b""
    need = 4
    while len(found) < need:
        part = stream.recv(need - len(found))
        if not part:
            return b""
        found += part
        if len(found) == 4:
            need = 4 + int.from_bytes(found, "big")
    return found


def record(protocol: str) -> bytes:
    said: list[bytes] = []

    def relay(source: socket.socket, target: socket.socket, mark: bytes) -> None:
        while frame := _whole(source):
            said.append(mark + frame)
            target.sendall(frame)
        target.shutdown(socket.SHUT_WR)

    with tempfile.TemporaryDirectory() as place, socket.create_server(("127.0.0.1", 0)) as door:
        file, back = Path(place, "file"), Path(place, "back")
        file.write_bytes(b"recorded" * 500)
        command = SAID.format(file=file, back=back)
        arguments = [
            *("smbclient", "-N", "-m", protocol, "-p", str(door.getsockname()[1])),
            *("//127.0.0.1/RW", "-c", command),
        ]
        with serving(Path(place), resynchronise=False) as server:
            client = subprocess.Popen(arguments)
            talker, _ = door.accept()
            answers = threading.Thread(
                target=relay, args=(server.guest.stream, talker, b"<"), daemon=True
            )
            answers.start()
            relay(talker, server.guest.stream, b">")
            answers.join()
            client.wait()
            talker.close()
        assert back.read_bytes() == file.read_bytes()
    return b"".join(said)


if __name__ == "__main__":
    SESSIONS.mkdir(exist_ok=True)
    (SESSIONS / f"{sys.argv[1]}.bin").write_bytes(record(sys.argv[2]))
