"""Measures the API server with E2B's own SDK beside the engine without it. Prints JSON.

python bench/api.py SDK_PYTHON [ROUNDS [PART…]]

SDK_PYTHON is an interpreter that has the package e2b. The parts are `create` (a sandbox of a
template, to its first command's output), `run` (`true` in one that runs), `upload` and `download`
(MEGABYTES, the SDK's form and its raw body) and `list` (50 sandboxes). Each is measured in turn
with its control, the same done by the engine in this process, so that a busy host slows both:
`ratio` is what the API takes to what the engine does. Medians of ROUNDS (5).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from quicksand import Sandbox
from quicksand.base.paths import Paths, paths
from quicksand.life.sandbox_removal import remove_sandbox
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.records.sandboxes import new_id as engine_id
from quicksand_e2b.places import api_dir
from quicksand_e2b.records import Records, SandboxRecord, State, new_id, new_token

from tests.conftest import fresh_places

MEGABYTES = 64
LISTED = 50
PARTS = ("create", "run", "upload", "download", "list")
PROGRAM = (sys.executable, "-m", "quicksand_tui")
SDK = """
import io, json, sys, time
from e2b import Sandbox
data, box = b"x" * (MEGABYTES << 20), None

def create():
    made = Sandbox.create(timeout=300)
    assert made.commands.run("echo hi").stdout == "hi\\n"
    return made

def only_create():
    return Sandbox.create(timeout=300)

def run(): box.commands.run("true")
def upload_form(): box.files.write("/dev/shm/data", data)
def upload_raw(): box.files.write("/dev/shm/data", io.BytesIO(data))
def download():
    assert len(box.files.read("/dev/shm/data", format="bytes")) == len(data)
def listed():
    pages = Sandbox.list(limit=100)
    assert len(pages.next_items()) >= LISTED

print("{}", flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "box":
        box = Sandbox.create(timeout=3600)
        print(json.dumps({"id": box.sandbox_id}), flush=True)
        continue
    began = time.perf_counter()
    made = globals()[word]()
    print(json.dumps({"s": time.perf_counter() - began}), flush=True)
    if made is not None:
        made.kill()
"""

Way = Callable[[], Awaitable[float]]
Figures = dict[str, Any]


class Client:
    """A process that runs the SDK and follows our orders."""

    def __init__(self, python: str, environment: dict[str, str]) -> None:
        script = SDK.replace("MEGABYTES", str(MEGABYTES)).replace("LISTED", str(LISTED))
        self._process = subprocess.Popen(
            [python, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the SDK has failed"
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, word: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._answer()

    def way(self, word: str) -> Way:
        async def go() -> float:
            return float((await asyncio.to_thread(self.ask, word))["s"])

        return go

    def end(self) -> None:
        self._process.communicate()


def timed(work: Callable[[], Awaitable[object]]) -> Way:
    async def go() -> float:
        began = time.perf_counter()
        await work()
        return time.perf_counter() - began

    return go


async def by_turns(rounds: int, ways: dict[str, Way], control: str) -> Figures:
    """Measure each way in turn, after a turn that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, work in ways.items():
            found = await work()
            if number:
                taken[name].append(found)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    return {
        name: {
            "s": round(medians[name], 4),
            "min_s": round(min(values), 4),
            "ratio": round(medians[name] / medians[control], 2),
        }
        for name, values in taken.items()
    }


class Bench:
    """A server, the SDK, and the engine beside them."""

    def __init__(self, places: Paths, client: Client, rounds: int) -> None:
        self._registry = Registry(places)
        self._client = client
        self._rounds = rounds
        self._data = b"x" * (MEGABYTES << 20)
        self.box = Sandbox.attach(f"api-{client.ask('box')['id']}")

    async def create(self) -> Figures:
        async def engine() -> float:
            began = time.perf_counter()
            made = Sandbox(image="debian", name="control", memory="512M", cpus=1, ephemeral=False)
            await made.start()
            made.detach()
            await made.execute(["/bin/bash", "-l", "-c", "echo hi"], user="root")
            taken = time.perf_counter() - began
            made.close()
            await remove_sandbox(self._registry, made.id, now=True, stop=True)
            return taken

        ways = {"engine": engine, "sdk": self._client.way("create")}
        return await by_turns(self._rounds, ways, "engine")

    async def run(self) -> Figures:
        async def engine() -> object:
            return await self.box.execute(["/bin/bash", "-l", "-c", "true"], user="user")

        ways = {"engine": timed(engine), "sdk": self._client.way("run")}
        return await by_turns(4 * self._rounds, ways, "engine")

    async def upload(self) -> Figures:
        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(self._data), 256 * 1024):
                yield self._data[at : at + 256 * 1024]

        async def engine() -> object:
            return await self.box.files.write("/dev/shm/data", pieces(), user="user")

        ways = {
            "engine": timed(engine),
            "sdk, form": self._client.way("upload_form"),
            "sdk, raw": self._client.way("upload_raw"),
        }
        return _with_rate(await by_turns(self._rounds, ways, "engine"))

    async def download(self) -> Figures:
        await self.box.files.write("/dev/shm/data", self._data, user="user")

        async def engine() -> object:
            return [None async for _ in self.box.files.stream("/dev/shm/data")]

        ways = {"engine": timed(engine), "sdk": self._client.way("download")}
        return _with_rate(await by_turns(self._rounds, ways, "engine"))

    async def list(self) -> Figures:
        async def engine() -> object:
            return await asyncio.to_thread(self._registry.list)

        ways = {"engine": timed(engine), "sdk": self._client.way("listed")}
        return await by_turns(4 * self._rounds, ways, "engine")


def _with_rate(found: Figures) -> Figures:
    for figures in found.values():
        figures["MB/s"] = round(MEGABYTES * 1.048576 / figures["s"], 1)
    return found


async def make_paused(places: Paths) -> None:
    """Put paused sandboxes on disk, which take no memory."""
    registry, records = Registry(places), Records(api_dir(places), print)
    records.prepare()
    for _ in range(LISTED):
        record = SandboxRecord(
            id=new_id(), owner="default", template="base", state=State.PAUSED, on_timeout="kill",
            created=time.time(), ends=time.time() + 9999, auto_resume=False, pauses_memory=True,
            token=new_token(), traffic_token=new_token(), cpus=1, memory_mb=512, disk_mb=4096,
        )  # fmt: skip
        await records.save(record)
        machine = Record(
            id=engine_id(), name=record.name, config=SandboxConfig(image="debian"),
            image_digest="", chain=(), created=time.time(), committed=True, discard=False,
        )  # fmt: skip
        os.close(registry.create(machine))


def start_server() -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    server = subprocess.Popen([*PROGRAM, "api", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE)
    assert server.stdout is not None
    found = re.search(rb"http://(\S+:\d+)", server.stdout.readline())
    assert found is not None, "the server did not start"
    command = [*PROGRAM, "api", "env", "--listen", found[1].decode()]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return server, dict(re.findall(r"export (\w+)=(\S+)", printed))


async def main(python: str, rounds: int, parts: tuple[str, ...], places: Paths) -> None:
    # The kind of machine that the server makes: starts go on from its template.
    subprocess.run([*PROGRAM, "images", "warm", "debian"], check=True, stdout=sys.stderr)
    if "list" in parts:
        await make_paused(places)
    server, environment = start_server()
    client = Client(python, environment)
    try:
        bench = Bench(places, client, rounds)
        found = {part: await getattr(bench, part)() for part in parts}
        print(json.dumps({"load": os.getloadavg()[0], **found}, indent=1))
        bench.box.close()
    finally:
        client.end()
        server.terminate()
        server.wait(30)
        for entry in Registry(places).list():
            with suppress(OSError):
                await remove_sandbox(Registry(places), entry.id, now=True, stop=True)


if __name__ == "__main__":
    chosen = tuple(sys.argv[3:]) or PARTS
    if len(sys.argv) < 2 or not set(chosen) <= set(PARTS):
        sys.exit(__doc__)
    with fresh_places(paths()) as fresh:
        asyncio.run(main(sys.argv[1], int((sys.argv[2:] or ["5"])[0]), chosen, fresh))
