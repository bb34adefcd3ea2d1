"""Measures a mounted directory from within a guest. Prints JSON.

python bench/mounts.py [--turns N] [--only read,write,...] [--option NAME]... [--without NAME]...
                       [--published DIRECTORY] [--tree N]

Every figure is the median of several turns; `load` is the host's before and after, since others may
compute at the same time, and `accelerator` says how the guest's processor is made. `disk_*` is the
same work on the guest's own disk: what the guest itself takes for it. `--option` and `--without`
change the options of the guest's client, to compare.

`status` is `git status`, which looks at each file of a tree: with the host's own git, and a
repository on the guest's disk. With `--published` it is done by turns on a second mount, which
another server serves on another stream of QEMU's: the package `quicksand_smb` in DIRECTORY, as it
is published (`pip download --no-deps quicksand-smb`, unpacked), mounted as its own engine does.
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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from quicksand import Mount, Sandbox
from quicksand.config import SHARE_IP, SHARE_PORT
from quicksand.host.paths import paths
from quicksand.layout import SHARES, runtime_dir
from quicksand.mounts import mounting

LARGE, SMALL, FILES, TREE = 64, 8, 700, 20_000
"""MiB of a large file, and of one that is written in pieces of 4 KiB; files that are unpacked, and
those of a tree that is looked at."""
AT, DISK, PUBLISHED = "/mnt/bench", "/var/tmp/bench", "/mnt/published"
GIT = "/var/tmp/git"
PUBLISHED_OPTIONS = "username=quicksand,password=,sec=none,vers=3.0,nosharesock"
"""Those that the published engine mounts with."""
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
    """All measures, in one guest with one mount."""

    def __init__(self, vm: Sandbox, host: Path, given: argparse.Namespace) -> None:
        self.vm, self.host, self.given = vm, host, given
        self.turns: int = given.turns

    async def say(self, command: str) -> str:
        result = await self.vm.execute(command, timeout=600)
        if result.exit_code:
            raise RuntimeError(f"{command}: {result.stderr}")
        return result.stdout.strip()

    async def seconds(self, command: str, *, before: str = "true") -> float:
        """What a command takes by the guest's clock."""
        words = f"{before}; a=$(date +%s%N); {command}; b=$(date +%s%N); echo $((b - a))"
        return int((await self.say(f"set -e; {words}")).split()[-1]) / 1e9

    async def sent(self) -> int:
        """Messages that the guest's client has sent so far, on all mounts; those joined to one
        frame count each. No other work on the host changes it."""
        text = await self.say("cat /proc/fs/cifs/Stats")
        return sum(map(int, re.findall(r"^SMBs: (\d+)", text, re.MULTILINE)))

    async def median(self, work: Callable[[], Awaitable[float]], scale: float = 0) -> float:
        """Seconds; with ``scale``, as many of it a second."""
        took = statistics.median([await work() for _ in range(self.turns)])
        return round(scale / took if scale else took, 2)

    async def read(self) -> dict[str, float]:
        (self.host / "large").write_bytes(os.urandom(LARGE << 20))
        size = (LARGE << 20) / 1e6
        dd = "dd if={}/large of=/dev/null bs=1M status=none"
        read = dd.format(AT)
        await self.say(f"cp {AT}/large {DISK}/large")
        return {
            "mb_s": await self.median(lambda: self.seconds(read, before=COLD), size),
            "again_mb_s": await self.median(lambda: self.seconds(read), size),
            "disk_again_mb_s": await self.median(lambda: self.seconds(dd.format(DISK)), size),
        }

    async def write(self) -> dict[str, float]:
        size = (LARGE << 20) / 1e6
        command = f"dd if=/dev/zero of={AT}/written bs=1M count={LARGE} conv=fsync status=none"
        return {"mb_s": await self.median(lambda: self.seconds(command), size)}

    async def small(self) -> dict[str, float]:
        """Writes of 4 KiB, with one fsync in the end."""
        size = (SMALL << 20) / 1e6
        command = f"python3 /root/small.py {AT}/small {SMALL << 8}"

        async def once() -> float:
            return float(await self.say(command))

        return {"mb_s": await self.median(once, size)}

    async def unpack(self) -> dict[str, float]:
        """As root, who tries to keep owners, and without. The messages are those to clean up after
        the turn before, too."""
        found = {}
        for name, where, words in (
            ("s", AT, "--no-same-owner"),
            ("with_owners_s", AT, ""),
            ("disk_s", DISK, ""),
        ):
            clean = f"rm -rf {where}/u; mkdir {where}/u"
            command = f"tar xf /root/t.tar -C {where}/u {words}"
            before = await self.sent()
            found[name] = await self.median(lambda: self.seconds(command, before=clean))  # noqa: B023
            if where == AT:
                sent = await self.sent() - before
                found[f"{name.removesuffix('s')}messages"] = round(sent / self.turns)
        return found

    async def walk(self) -> dict[str, float]:
        """A look at each of many files by its name, as `git status` has it."""
        plant(self.host / "tree", self.given.tree)
        command = f"python3 /root/walk.py {AT}/tree {self.given.tree}"

        async def cold() -> float:
            await self.say(COLD)
            return float(await self.say(command))

        async def listed() -> float:
            await self.say(COLD)
            return await self.seconds(f"find {AT}/tree -size 1 | wc -l")

        return {
            "cold_s": await self.median(cold),
            "listed_s": await self.median(listed),
        }

    async def status(self) -> dict[str, Any]:
        """`git status` with nothing in the guest's caches, and again after two seconds, when the
        guest asks anew."""
        if not shutil.which("git"):
            return {"installed": False}
        git = await self._carry_git()
        places = {"ours": f"{AT}/tree"}
        if self.given.published is None:
            return await self._compare(git, places)
        async with self._serve_published(self.given.published):
            return await self._compare(git, {**places, "published": f"{PUBLISHED}/tree"})

    async def _compare(self, git: str, places: dict[str, str]) -> dict[str, Any]:
        times: dict[str, list[float]] = {}
        messages: dict[str, int] = {}
        for _ in range(self.turns):
            for name, tree in places.items():
                command = f"{git} --work-tree={tree} status --porcelain > {DISK}/told"
                before = await self.sent()
                cold = await self.seconds(command, before=COLD)
                messages[f"{name}_messages"] = await self.sent() - before
                again = await self.seconds(command, before="sleep 2")
                if told := await self.say(f"head -c 200 {DISK}/told"):
                    raise RuntimeError(f"{name}: {told}")
                times.setdefault(f"{name}_s", []).append(cold)
                times.setdefault(f"{name}_again_s", []).append(again)
        found: dict[str, float] = dict(messages)
        found |= {name: round(statistics.median(each), 2) for name, each in times.items()}
        if "published_s" in found:
            for kind in ("s", "again_s"):
                ratio = found[f"published_{kind}"] / found[f"ours_{kind}"]
                found[f"published_to_ours_{kind.removesuffix('s')}ratio"] = round(ratio, 2)
        return found

    async def _carry_git(self) -> str:
        """Plant a tree, take it into a repository, and bring that and the host's git into the
        guest. Returns the words that start it there."""
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
        # What differs between the two sides (inodes, owners, times of change) is not compared.
        alike = "-c core.checkStat=minimal -c core.trustctime=false -c core.fileMode=false"
        start = f"{GIT}/{loader} --library-path {GIT} {GIT}/git"
        safe = "--no-optional-locks -c safe.directory=*"
        return f"HOME={DISK} {start} {safe} {alike} --git-dir={GIT}"

    @asynccontextmanager
    async def _serve_published(self, packages: Path) -> AsyncIterator[None]:
        """Mount the same directory by the server in ``packages``, on the last of the streams."""
        number = SHARES - 1
        config = self.host / "published.json"
        config.write_text(json.dumps({"shares": {"RW": {"host_path": str(self.host)}}}))
        machine = runtime_dir(paths(), self.vm.id).current()
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(machine.share_socket(number)))
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


def plant(tree: Path, count: int) -> None:
    """So many files, a hundred in a directory, none of them changed lately."""
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
            await bench.say(f"mkdir -p {DISK}")
            await vm.files.write("/root/small.py", WRITE_SMALL)
            await vm.files.write("/root/walk.py", WALK)
            await vm.files.write("/root/t.tar", archive())
            for name in names:
                if name != "start":
                    found[name] = await getattr(bench, name)()
    found["load"].append(os.getloadavg()[0])
    return found


MEASURES = ("start", "read", "write", "small", "unpack", "walk", "status")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a mount from within a guest.")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default=",".join(MEASURES), help="which, by commas")
    parser.add_argument("--option", action="append", default=[], help="for the guest's client")
    parser.add_argument("--without", action="append", default=[], help="an option it has")
    parser.add_argument("--published", type=Path, help="where the published server is unpacked")
    parser.add_argument("--tree", type=int, default=TREE, help="files that are looked at")
    given = parser.parse_args()
    kept = [one for one in mounting.OPTIONS if one not in given.without]
    mounting.OPTIONS = (*kept, *given.option)
    print(json.dumps(asyncio.run(measure(given)), indent=1))


if __name__ == "__main__":
    main()
