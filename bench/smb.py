"""Measures the SMB server alone, on the host: times, rates and memory. Prints JSON.

python bench/smb.py [--quick] [--only start,stats,reads,writes,listing,memory,smbclient]

Every figure is the median of several turns. "unix" and "tcp" (loopback) say what the client and the
server share: the one behind a character device of QEMU, the other behind `guestfwd=...-cmd:`. The
client is the one in this file, which signs nothing and copies nothing twice; `smbclient`, where it
is installed, shows the share of its time that it computes itself (`client_cpu`). `wire` is the rate
of the same kind of socket between two processes that do nothing else: the ceiling of `reads`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
START = (
    f"import sys; sys.path.insert(0, {str(ROOT / 'smb3')!r})\n"
    "from quicksand_smb.__main__ import main\n"
    "sys.exit(main(sys.argv[1:]))"
)
SERVER = [sys.executable, "-I", "-S", "-c", START]
"""Neither the environment nor the site's directories are read."""
MIB = 1 << 20
LINKS = ("unix", "tcp")
NAME = "some-file.bin"
STATS = 4000
NEGOTIATE, SETUP, CONNECT, CREATE, CLOSE, READ, WRITE, LIST, QUERY = 0, 1, 3, 5, 6, 8, 9, 14, 16
SAME = b"\xff" * 16
HEADER = struct.Struct("<4sHHIHHIIQIIQ16s")


def pair(link: str) -> tuple[socket.socket, socket.socket]:
    """Two ends of a stream; the second is the server's."""
    if link == "unix":
        return socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mine = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return mine, theirs


class Client:
    """Speaks SMB 3.1.1 as a guest, with a server process of its own."""

    def __init__(self, config: Path, link: str) -> None:
        self.stream, theirs = pair(link)
        self.stream.settimeout(60)
        end = theirs.fileno()
        with theirs:
            self.process = subprocess.Popen(
                [*SERVER, "--config", str(config)], stdin=end, stdout=end, stderr=end
            )
        self.message = self.session = self.tree = 0
        self.buffer = memoryview(bytearray(9 * MIB))

    def __enter__(self) -> Client:
        return self.begin()

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self.process.wait(10)

    def frame(self, *requests: tuple[int, bytes], charge: int = 1) -> bytes:
        """Requests joined to one frame, all but the first related to it."""
        messages = b""
        for number, (command, body) in enumerate(requests):
            is_last = number == len(requests) - 1
            fill = b"" if is_last else bytes(-len(body) % 8)
            messages += HEADER.pack(
                b"\xfeSMB", 64, charge, 0, command, 512, 4 if number else 0,
                0 if is_last else 64 + len(body) + len(fill), self.message, 0xFEFF, self.tree,
                self.session, bytes(16),
            ) + body + fill  # fmt: skip
            self.message += charge
        return len(messages).to_bytes(4, "big") + messages

    def hear(self) -> memoryview:
        """Return the next frame, and check that its first response has succeeded."""
        head = self._exactly(4)
        frame = self._exactly(int.from_bytes(head, "big"))
        status = int.from_bytes(frame[8:12], "little")
        if status not in (0, 0xC0000016):
            raise RuntimeError(f"command {frame[12]} failed: {status:#010x}")
        return frame

    def _exactly(self, count: int) -> memoryview:
        at = 0
        while at < count:
            got = self.stream.recv_into(self.buffer[at:count])
            if not got:
                raise EOFError("the server is gone")
            at += got
        return self.buffer[:count]

    def ask(self, command: int, body: bytes, charge: int = 1) -> memoryview:
        self.stream.sendall(self.frame((command, body), charge=charge))
        return self.hear()

    def begin(self) -> Client:
        """Up to a tree that is connected."""
        self.ask(
            NEGOTIATE,
            struct.pack("<HHHHI16sIHH", 36, 1, 1, 0, 0, bytes(16), 104, 1, 0)
            + struct.pack("<H2xHHIHHH", 0x311, 1, 38, 0, 1, 32, 1)
            + bytes(32),
        )
        one = b"NTLMSSP\0" + struct.pack("<II", 1, 0xE0080235) + bytes(16)
        self.session = int.from_bytes(self.ask(SETUP, _setup(one))[40:48], "little")
        none = struct.pack("<HHI", 0, 0, 64) * 6 + bytes(4)
        self.ask(SETUP, _setup(b"NTLMSSP\0" + struct.pack("<I", 3) + none))
        path = r"\\server\RW".encode("utf-16-le")
        answer = self.ask(CONNECT, struct.pack("<HHHH", 9, 0, 72, len(path)) + path)
        self.tree = int.from_bytes(answer[36:40], "little")
        return self

    def open(self, name: str, *, write: bool = False) -> bytes:
        wanted = _create(
            name, access=0x12019F if write else 0x120089, disposition=3 if write else 1
        )
        return bytes(self.ask(CREATE, wanted)[128:144])

    def close(self, file: bytes) -> None:
        self.ask(CLOSE, _close(file))

    def memory(self) -> dict[str, float]:
        """MiB resident, now and at most."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", text))
        return {"now": int(found["VmRSS"]) / 1024, "most": int(found["VmHWM"]) / 1024}

    def processor(self) -> float:
        """Seconds that the server has computed."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _setup(token: bytes) -> bytes:
    return struct.pack("<HBBIIHHQ", 25, 0, 1, 0, 0, 88, len(token), 0) + token


def _create(name: str, *, access: int = 0x80, disposition: int = 1) -> bytes:
    text = name.encode("utf-16-le")
    return struct.pack(
        "<HBBIQQIIIIIHHII", 57, 0, 0, 2, 0, 0, access, 0, 7, disposition, 0, 120, len(text), 0, 0
    ) + (text or bytes(2))  # fmt: skip


def _close(file: bytes) -> bytes:
    return struct.pack("<HHI", 24, 0, 0) + file


def _query(file: bytes) -> bytes:
    return struct.pack("<HBBIHHIII", 41, 1, 18, 4096, 0, 0, 0, 0, 0) + file


def _read(file: bytes, offset: int, length: int) -> bytes:
    return struct.pack("<HBBIQ16sIIIHHB", 49, 80, 0, length, offset, file, 0, 0, 0, 0, 0, 0)


def _write(file: bytes, offset: int, length: int) -> bytes:
    return struct.pack("<HHIQ16sIIHHI", 49, 112, length, offset, file, 0, 0, 0, 0, 0)


def _list(file: bytes, *, restart: bool) -> bytes:
    text = "*".encode("utf-16-le")
    return struct.pack("<HBBI16sHHI", 33, 38, int(restart), 0, file, 96, 2, 64 << 10) + text


def _stat(client: Client, at_once: int) -> float:
    """Stats a second, so many under way."""
    chain = ((CREATE, _create(NAME)), (QUERY, _query(SAME)), (CLOSE, _close(SAME)))
    begin = time.perf_counter()
    for _ in range(STATS // at_once):
        client.stream.sendall(b"".join(client.frame(*chain) for _ in range(at_once)))
        for _ in range(at_once):
            client.hear()
    return STATS / (time.perf_counter() - begin)


class Bench:
    """All measures, on one directory that is shared."""

    def __init__(self, directory: Path, *, turns: int) -> None:
        self.turns = turns
        self.share = directory / "share"
        self.share.mkdir()
        self.config = directory / "config.json"
        self.config.write_text(json.dumps({"shares": {"RW": {"path": str(self.share)}}}))
        (self.share / NAME).write_bytes(b"x")

    def median(self, work: Callable[..., float], *given: Any) -> float:
        return round(statistics.median(work(*given) for _ in range(self.turns)), 1)

    def start(self) -> dict[str, Any]:
        """Milliseconds from before the process is started until a tree is connected."""

        def connected() -> float:
            begin = time.perf_counter()
            with Client(self.config, "unix"):
                return (time.perf_counter() - begin) * 1000

        def bare() -> float:
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
            return (time.perf_counter() - begin) * 1000

        many = [(connected(), bare()) for _ in range(4 * self.turns)]
        started, pythons = zip(*many, strict=True)
        return {
            "to_tree_ms": round(statistics.median(started), 1),
            "to_tree_best_ms": round(min(started), 1),
            "python_alone_ms": round(statistics.median(pythons), 1),
        }

    def stats(self) -> dict[str, Any]:
        """CREATE, QUERY_INFO and CLOSE in one frame; one frame at a time, and eight."""
        found: dict[str, Any] = {}
        for link in LINKS:
            with Client(self.config, link) as client:
                _stat(client, 1)
                before = client.processor()
                found[f"{link}_per_s"] = self.median(_stat, client, 1)
                spent = (client.processor() - before) / STATS / self.turns
                found[f"{link}_server_us"] = round(spent * 1e6, 1)
                found[f"{link}_8_per_s"] = self.median(_stat, client, 8)
        return found

    def reads(self) -> dict[str, Any]:
        """MB/s from the page cache, two requests under way."""
        found: dict[str, Any] = {}
        size = 256 * MIB
        (self.share / "large.bin").write_bytes(os.urandom(MIB) * 256)
        for link in LINKS:
            found[f"{link}_wire_mb_s"] = self.median(_wire, link, size)
            with Client(self.config, link) as client:
                file = client.open("large.bin")
                for step in (1, 4, 8):
                    rate = self.median(self._read_all, client, file, size, step * MIB)
                    found[f"{link}_{step}mib_mb_s"] = rate
                rate = self.median(self._read_all, client, file, 8 * MIB, 4096)
                found[f"{link}_4kib_per_s"] = round(rate * 1e6 / 4096)
                client.close(file)
        return found

    @staticmethod
    def _read_all(client: Client, file: bytes, size: int, step: int) -> float:
        charge = max(1, step >> 16)
        asked = iter(range(0, size, step))

        def ask() -> None:
            offset = next(asked, None)
            if offset is not None:
                client.stream.sendall(
                    client.frame((READ, _read(file, offset, step)), charge=charge)
                )

        begin = time.perf_counter()
        ask()
        for _ in range(size // step):
            if step >= MIB:
                ask()
            client.hear()
            if step < MIB:
                ask()
        return size / 1e6 / (time.perf_counter() - begin)

    def writes(self) -> dict[str, Any]:
        """Large and small writes; `slowest` shows a stall between Nagle and delayed answers."""
        found: dict[str, Any] = {}
        for link in LINKS:
            with Client(self.config, link) as client:
                file = client.open("written.bin", write=True)
                large = [self._write_all(client, file, 64, MIB)[0] for _ in range(self.turns)]
                found[f"{link}_1mib_mb_s"] = round(statistics.median(large), 1)
                small = [self._write_all(client, file, 4000, 4096) for _ in range(self.turns)]
                rates, slowest = zip(*small, strict=True)
                found[f"{link}_4kib_mb_s"] = round(statistics.median(rates), 1)
                found[f"{link}_4kib_slowest_ms"] = round(statistics.median(slowest), 1)
                client.close(file)
        return found

    @staticmethod
    def _write_all(client: Client, file: bytes, count: int, size: int) -> tuple[float, float]:
        data = bytes(size)
        slowest = 0.0
        begin = time.perf_counter()
        for number in range(count):
            before = time.perf_counter()
            client.ask(WRITE, _write(file, number * size, size) + data, charge=max(1, size >> 16))
            slowest = max(slowest, time.perf_counter() - before)
        return count * size / 1e6 / (time.perf_counter() - begin), slowest * 1000

    def listing(self) -> dict[str, Any]:
        """Return the entries of a directory a second, with their metadata."""
        directory = self.share / "many"
        directory.mkdir(exist_ok=True)
        for number in range(5000):
            (directory / f"file-{number:05}.txt").touch()
        with Client(self.config, "unix") as client:
            file = bytes(client.ask(CREATE, _create("many", access=0x120089))[128:144])
            return {"entries_per_s": self.median(_entries, client, file)}

    def memory(self) -> dict[str, Any]:
        """MiB resident: when a tree is connected, and after the most requests that are allowed."""
        (self.share / "huge.bin").touch()
        os.truncate(self.share / "huge.bin", 1 << 30)
        with Client(self.config, "unix") as client:
            idle = client.memory()["now"]
        attacked = max(self._attacked(*one) for one in ((1, 8 * MIB), (60, 8 * MIB), (60, MIB)))
        return {"idle_mib": round(idle, 1), "attacked_mib": round(attacked, 1)}

    def _attacked(self, joined: int, length: int) -> float:
        """Send large writes, and chains of large reads whose answers are taken late; refusals and
        ended connections are as good."""
        with Client(self.config, "unix") as client:
            file = client.open("huge.bin", write=True)
            body = _write(file, 0, 8 * MIB) + bytes(8 * MIB)
            for _ in range(8):
                client.ask(WRITE, body, charge=128)
            chain = [(READ, _read(file, 0, length))] * joined
            most = 0.0
            try:
                for _ in range(4):
                    client.stream.sendall(client.frame(*chain, charge=length >> 16))
                for _ in range(4):
                    client._exactly(4)
                    most = client.memory()["most"]
                    client.stream.recv(MIB)
            except (EOFError, OSError):
                most = max(most, client.memory()["most"])
            return most

    def smbclient(self) -> dict[str, Any]:
        """Measure a foreign client; a `client_cpu` of one means that it never waits."""
        if not shutil.which("smbclient"):
            return {"installed": False}
        (self.share / "large.bin").write_bytes(os.urandom(MIB) * 256)
        found: dict[str, Any] = {"installed": True}
        with _listening(self.config) as port:
            put = f"put {self.share / 'large.bin'} back.bin"
            for what, command in (("get", "get large.bin /dev/null"), ("put", put)):
                runs = [self._smbclient(port, command) for _ in range(self.turns)]
                rates, shares = zip(*runs, strict=True)
                found[f"{what}_mb_s"] = round(statistics.median(rates), 1)
                found[f"{what}_client_cpu"] = round(statistics.median(shares), 2)
        return found

    @staticmethod
    def _smbclient(port: int, command: str) -> tuple[float, float]:
        argv = [
            "smbclient",
            "//127.0.0.1/RW",
            "-p",
            str(port),
            "-N",
            "-m",
            "SMB3_11",
            "-c",
            command,
        ]
        argv += ["--option=socket options=TCP_NODELAY", "-d0"]
        before, begin = os.times(), time.perf_counter()
        result = subprocess.run(argv, capture_output=True, text=True, check=True)
        took, after = time.perf_counter() - begin, os.times()
        spent = after.children_user - before.children_user
        spent += after.children_system - before.children_system
        told = re.search(r"\(([\d.]+) (?:KiloBytes/sec|kb/s)\)", result.stdout + result.stderr)
        if told and float(told[1]) < 1e9:
            return float(told[1]) * 1024 / 1e6, spent / took
        return 256 * MIB / 1e6 / took, spent / took


def _entries(client: Client, file: bytes) -> float:
    count, restart = 0, True
    begin = time.perf_counter()
    while True:
        client.stream.sendall(client.frame((LIST, _list(file, restart=restart))))
        restart = False
        try:
            frame = client.hear()
        except RuntimeError:  # no more files
            return count / (time.perf_counter() - begin)
        at, following = 72, 1
        while following:
            following = int.from_bytes(frame[at : at + 4], "little")
            at += following
            count += 1


def _wire(link: str, size: int) -> float:
    """MB/s of zeros from another process, in pieces of a MiB."""
    mine, theirs = pair(link)
    code = (
        "import os\nd = bytes(1 << 20)\n"
        f"for _ in range({size >> 20}):\n    v = memoryview(d)\n"
        "    while v: v = v[os.write(1, v):]\n"
    )
    with theirs:
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=theirs.fileno())
    buffer = bytearray(MIB)
    with mine:
        left = size - mine.recv_into(buffer)
        begin, whole = time.perf_counter(), left
        while left > 0:
            left -= mine.recv_into(buffer)
        took = time.perf_counter() - begin
    process.wait()
    return whole / 1e6 / took


@contextmanager
def _listening(config: Path) -> Iterator[int]:
    """A server that listens, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    argv = [*SERVER, "--config", str(config), "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(argv)
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
        yield port
    finally:
        process.terminate()
        process.wait()


MEASURES = ("start", "stats", "reads", "writes", "listing", "memory", "smbclient")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the SMB server on the host.")
    parser.add_argument("--quick", action="store_true", help="one turn of each")
    parser.add_argument("--only", default=",".join(MEASURES), help="which, by commas")
    options = parser.parse_args()
    mode = "quick" if options.quick else "full"
    found: dict[str, Any] = {"mode": mode, "processors": os.cpu_count(), "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), turns=1 if options.quick else 5)
        for name in options.only.split(","):
            found[name] = getattr(bench, name)()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
