"""Measures a mounted directory from within a guest. Prints JSON.

python bench/mounts.py [--turns N] [--only read,write,...] [--option NAME]... [--without NAME]...
                       [--published DIRECTORY] [--tree N]

Every figure is the median of several turns; `load` is the host's before and after, since others may
compute at the same time, and `accelerator` says how the guest's processor is made. `disk` is the
same work on the guest's own disk: what the guest itself takes for it. `--option` and `--without`
change the options of the guest's client, to compare.

With `--published` everything is done by turns on a second mount, too, which another server serves
on another stream of QEMU's: the package `quicksand_smb` in DIRECTORY, as it is published (`pip
download --no-deps quicksand-smb`, unpacked), mounted as its own engine does. `wire` is what QEMU's
network carries between the guest and a program of the host's that does nothing else: the ceiling of
`read` (down) and `write` (up).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quicksand import Mount, Sandbox
from quicksand.base.paths import paths
from quicksand.mounts import mounting
from quicksand.records.config import SHARE_IP, SHARE_PORT
from quicksand.records.layout import SHARES, runtime_dir

LARGE, SMALL, FILES, TREE = 64, 8, 700, 20_000
"""MiB of a large file, and of one written in pieces of 4 KiB; files to unpack, and those of a tree
to walk."""
AT, DISK, PUBLISHED = "/mnt/bench", "/var/tmp/bench", "/mnt/published"
GIT = "/var/tmp/git"
PUBLISHED_OPTIONS = "username=quicksand,password=,sec=none,vers=3.0,nosharesock"
"""The mount options of the published engine."""
COLD = "echo 3 > /proc/sys/vm/drop_caches"

WRITE_SMALL = """
import os, sys, time
data, begin = bytes(4096), time.perf_counter()
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
for _ in range(int(sys.argv[2])):
    os.write(file, data)
os.fsync(file)
os.close(file)
print(time.perf_counter() - begin)
"""
WIRE = """
import socket, sys, time
count, buffer = int(sys.argv[3]), bytearray(1 << 20)
stream = socket.create_connection((sys.argv[1], int(sys.argv[2])))
stream.sendall(b"d")
begin, left = time.perf_counter(), count
while left:
    left -= stream.recv_into(buffer)
print(count / 1e6 / (time.perf_counter() - begin))
begin = time.perf_counter()
for _ in range(count >> 20):
    stream.sendall(buffer)
stream.recv(1)
print(count / 1e6 / (time.perf_counter() - begin))
"""
WALK = """
import os, sys, time
names = [f"d{n // 100:03}/f{n % 100:02}" for n in range(int(sys.argv[2]))]
os.chdir(sys.argv[1])
begin = time.perf_counter()
for name in names:
    os.lstat(name)
print(time.perf_counter() - begin)
"""


class Bench:
    """All measures, in one guest. Each is one turn at one place: the mount, or another one."""

    def __init__(self, vm: Sandbox, host: Path, given: argparse.Namespace) -> None:
        self.vm, self.host, self.given = vm, host, given
        self.git = ""

    async def say(self, command: str) -> str:
        result = await self.vm.execute(command, timeout=600)
        if result.exit_code:
            raise RuntimeError(f"{command}: {result.stderr}")
        return result.stdout.strip()

    async def seconds(self, command: str, *, before: str = "true") -> float:
        """Return the seconds of a command by the guest's clock."""
        words = f"{before}; a=$(date +%s%N); {command}; b=$(date +%s%N); echo $((b - a))"
        return int((await self.say(f"set -e; {words}")).split()[-1]) / 1e9

    async def sent(self) -> int:
        """Messages that the guest's client has sent so far, on all mounts; those joined to one
        frame count each. No other work on the host changes it."""
        text = await self.say("cat /proc/fs/cifs/Stats")
        return sum(map(int, re.findall(r"^SMBs: (\d+)", text, re.MULTILINE)))

    async def prepare(self, names: Sequence[str]) -> None:
        """Bring what the measures need."""
        await self.say(f"mkdir -p {DISK}")
        await self.vm.files.write("/root/small.py", WRITE_SMALL)
        await self.vm.files.write("/root/walk.py", WALK)
        await self.vm.files.write("/root/wire.py", WIRE)
        await self.vm.files.write("/root/t.tar", archive())
        (self.host / "large").write_bytes(os.urandom(LARGE << 20))
        await self.say(f"cp {AT}/large {DISK}/large")
        plant(self.host / "tree", self.given.tree)
        if "status" in names and shutil.which("git"):
            self.git = await self._carry_git()

    async def compare(self, name: str, places: dict[str, str]) -> dict[str, dict[str, float]]:
        """The medians of a measure's turns, which are taken at all places alternately."""
        turns: dict[str, list[dict[str, float]]] = {place: [] for place in places}
        for _ in range(self.given.turns):
            for place, where in places.items():
                turns[place].append(await getattr(self, name)(where))
        return {
            place: {key: round(statistics.median(one[key] for one in each), 2) for key in each[0]}
            for place, each in turns.items()
        }

    async def wire(self, _: str) -> dict[str, float]:
        """MB/s from the host to the guest and back, with nothing but bytes on a stream."""
        number, count = SHARES - 2, LARGE << 20
        with self._stream(number) as stream:
            host = asyncio.create_task(asyncio.to_thread(_carry, stream, count))
            words = f"{SHARE_IP} {SHARE_PORT + number} {count}"
            down, up = (await self.say(f"python3 /root/wire.py {words}")).split()
            await host
        return {"down_mb_s": float(down), "up_mb_s": float(up)}

    def _stream(self, number: int) -> socket.socket:
        """The host's end of one of QEMU's streams."""
        machine = runtime_dir(paths(), self.vm.id).current()
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(str(machine.share_socket(number)))
        return stream

    async def read(self, where: str) -> dict[str, float]:
        dd = f"dd if={where}/large of=/dev/null bs=1M status=none"
        cold = await self.seconds(dd, before=COLD)
        return {
            "mb_s": (LARGE << 20) / 1e6 / cold,
            "again_mb_s": (LARGE << 20) / 1e6 / await self.seconds(dd),
        }

    async def write(self, where: str) -> dict[str, float]:
        command = f"dd if=/dev/zero of={where}/written bs=1M count={LARGE} conv=fsync status=none"
        return {"mb_s": (LARGE << 20) / 1e6 / await self.seconds(command)}

    async def small(self, where: str) -> dict[str, float]:
        """Writes of 4 KiB, with one fsync in the end."""
        before = await self.sent()
        took = float(await self.say(f"python3 /root/small.py {where}/small {SMALL << 8}"))
        return {"mb_s": (SMALL << 20) / 1e6 / took, "messages": await self.sent() - before}

    async def unpack(self, where: str) -> dict[str, float]:
        """Without giving files their owners, as any user does."""
        await self.say(f"rm -rf {where}/u; mkdir {where}/u")
        before = await self.sent()
        took = await self.seconds(f"tar xf /root/t.tar -C {where}/u --no-same-owner")
        return {"s": took, "messages": await self.sent() - before}

    async def owners(self, where: str) -> dict[str, float]:
        """As `unpack`, by root, who gives files their owners."""
        await self.say(f"rm -rf {where}/u; mkdir {where}/u")
        before = await self.sent()
        took = await self.seconds(f"tar xf /root/t.tar -C {where}/u")
        return {"s": took, "messages": await self.sent() - before}

    async def walk(self, where: str) -> dict[str, float]:
        """Look up each of many files by its name, as `git status` does; and all listed ones, at
        first and after two seconds, when a client by itself asks anew."""
        await self.say(COLD)
        cold = float(await self.say(f"python3 /root/walk.py {where}/tree {self.given.tree}"))
        find = f"find {where}/tree -size 1 | wc -l"
        return {
            "cold_s": cold,
            "listed_s": await self.seconds(find, before=COLD),
            "listed_again_s": await self.seconds(find, before="sleep 2"),
        }

    async def status(self, where: str) -> dict[str, float]:
        """`git status` with nothing in the guest's caches, and again after two seconds."""
        if not self.git:
            return {"is_installed": 0}
        command = f"{self.git} --work-tree={where}/tree status --porcelain > {DISK}/told"
        before = await self.sent()
        cold = await self.seconds(command, before=COLD)
        messages = await self.sent() - before
        again = await self.seconds(command, before="sleep 2")
        if told := await self.say(f"head -c 200 {DISK}/told"):
            raise RuntimeError(f"{where}: {told}")
        return {"s": cold, "messages": messages, "again_s": again}

    async def _carry_git(self) -> str:
        """Plant a tree, take it into a repository, and bring it and the host's git into the guest.
        Returns the words that start git there."""
        tree, repository = self.host / "tree", self.host / "git"
        plant(tree, self.given.tree)
        git = ["git", f"--git-dir={repository}", f"--work-tree={tree}"]
        who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "all"], ["gc", "-q"]):
            subprocess.run([*git, *words], check=True, cwd=tree)
        program = shutil.which("git") or "git"
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        libraries = re.findall(r"(/\S+) \(0x", listed)
        for path in (program, *libraries):
            shutil.copy(path, repository / Path(path).name)
        await self.say(f"rm -rf {GIT}; cp -r {AT}/git {GIT}")
        loader = next(Path(path).name for path in libraries if "/ld-" in path)
        # Differences between the two sides (inodes, owners, times of change) are not compared.
        alike = "-c core.checkStat=minimal -c core.trustctime=false -c core.fileMode=false"
        start = f"{GIT}/{loader} --library-path {GIT} {GIT}/git"
        safe = "--no-optional-locks -c safe.directory=*"
        return f"HOME={DISK} {start} {safe} {alike} --git-dir={GIT}"

    @asynccontextmanager
    async def served_by(self, packages: Path | None) -> AsyncIterator[dict[str, str]]:
        """The places to measure at."""
        if packages is None:
            yield {"ours": AT}
            return
        async with self._serve_published(packages):
            yield {"ours": AT, "published": PUBLISHED}

    @asynccontextmanager
    async def _serve_published(self, packages: Path) -> AsyncIterator[None]:
        """Mount the same directory by the server in ``packages``, on the last of the streams."""
        number = SHARES - 1
        config = self.host / "published.json"
        config.write_text(json.dumps({"shares": {"RW": {"host_path": str(self.host)}}}))
        with self._stream(number) as stream:
            server = subprocess.Popen(
                [sys.executable, "-m", "quicksand_smb", "--config", str(config)],
                stdin=stream.fileno(),
                stdout=stream.fileno(),
                stderr=subprocess.DEVNULL,
                env={"PYTHONPATH": str(packages)},
                cwd=packages,
            )
        place = f"ip={SHARE_IP},port={SHARE_PORT + number}"
        try:
            await self.say(
                f"mkdir -p {PUBLISHED}; mount -i -t cifs //{SHARE_IP}/RW {PUBLISHED} "
                f"-o {PUBLISHED_OPTIONS},{place}"
            )
            yield
            await self.say(f"umount {PUBLISHED}")
        finally:
            server.kill()
            server.wait()


def _carry(stream: socket.socket, count: int) -> None:
    """The host's side of `WIRE`."""
    stream.settimeout(300)
    stream.recv(1)
    data = bytearray(1 << 20)
    for _ in range(count >> 20):
        stream.sendall(data)
    while count:
        count -= stream.recv_into(data, min(count, len(data)))
    stream.sendall(b"d")


def plant(tree: Path, count: int) -> None:
    """Make so many files, a hundred in a directory, none of them changed lately."""
    if tree.exists():
        return
    for number in range(count):
        path = tree / f"d{number // 100:03}" / f"f{number % 100:02}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (1e9, 1e9))


async def start(host: Path, *, turns: int) -> dict[str, float]:
    """Milliseconds until a sandbox of a template is ready, without a mount and with one."""
    mounts = [Mount(str(host), AT)]

    async def one(given: list[Mount]) -> float:
        begin = time.perf_counter()
        async with Sandbox(image="debian", mounts=given, ephemeral=True):
            return (time.perf_counter() - begin) * 1000

    await one([])
    pairs = [(await one([]), await one(mounts)) for _ in range(2 * turns)]
    without = statistics.median(pair[0] for pair in pairs)
    added = statistics.median(pair[1] - pair[0] for pair in pairs)
    return {"without_ms": round(without), "added_ms": round(added)}


def archive() -> bytes:
    """Small files in some directories, of somebody else's."""
    draw, data = random.Random(1), io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for number in range(FILES):
            member = tarfile.TarInfo(f"d{number % 30}/f{number}")
            content = draw.randbytes(draw.choice((200, 2000, 8000)))
            member.size, member.uid, member.mode = len(content), 1000, 0o644
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    names, turns = given.only.split(","), given.turns
    found: dict[str, Any] = {"turns": turns, "processors": os.cpu_count()}
    found["load"] = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as directory:
        host = Path(directory)
        if "start" in names:
            found["start"] = await start(host, turns=turns)
        mounts = [Mount(directory, AT)]
        async with Sandbox(image="debian", mounts=mounts, ephemeral=True) as vm:
            found["accelerator"] = vm.accelerator
            found["options"] = (await vm.execute(f"grep {AT} /proc/mounts")).stdout.split()[3]
            bench = Bench(vm, host, given)
            measured = [name for name in names if name != "start"]
            await bench.prepare(measured)
            async with bench.served_by(given.published) as places:
                for name in measured:
                    at = {"all": ""} if name == "wire" else dict(places)
                    if name in AT_DISK:
                        at["disk"] = DISK
                    found[name] = await bench.compare(name, at)
    found["load"].append(os.getloadavg()[0])
    return found


MEASURES = ("start", "wire", "read", "write", "small", "unpack", "owners", "walk", "status")
AT_DISK = ("read", "write", "small", "unpack", "owners")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a mount from within a guest.")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default=",".join(MEASURES), help="which, by commas")
    parser.add_argument("--option", action="append", default=[], help="for the guest's client")
    parser.add_argument("--without", action="append", default=[], help="an option it has")
    parser.add_argument("--published", type=Path, help="where the published server is unpacked")
    parser.add_argument("--tree", type=int, default=TREE, help="files that are looked at")
    given = parser.parse_args()
    if unknown := set(given.only.split(",")) - set(MEASURES):
        parser.error(f"--only knows {', '.join(MEASURES)}, not {', '.join(sorted(unknown))}")
    kept = [one for one in mounting.OPTIONS if one not in given.without]
    mounting.OPTIONS = (*kept, *given.option)
    print(json.dumps(asyncio.run(measure(given)), indent=1))


if __name__ == "__main__":
    main()
