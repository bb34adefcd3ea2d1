"""Make screenshots/*.svg: the real app showing real sandboxes, in places of their own.

Needs what `make setup` prepares. Called by `make screenshots`; with the word `hosts`, it makes only
the picture of other machines, for which it runs an sshd of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from quicksand import NetworkMode, PortForward, QuicksandError, Sandbox
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand_driver.textual_compositor import drawn_text
from quicksand_panes.widgets import Pane
from textual.pilot import Pilot

from quicksand_tui.door.service import EngineService
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.ui.app_pictures import picture, write_picture
from quicksand_tui.ui.shots import ShotSpec

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "screenshots"
WIDE, LARGE, SMALL = (200, 50), (120, 36), (80, 24)
WAIT_S = 30.0
KEY_S = 0.3
"""Seconds between keys, as typed by a person: keys at once would be a text."""

BOXES: tuple[dict[str, Any], ...] = (
    {
        "name": "web",
        "network_mode": NetworkMode.FULL,
        "port_forwards": [PortForward(0, 80)],
    },
    {"name": "build-linux", "memory": "1G", "cpus": 2},
    {"name": "agent-7"},
    {"name": "db", "memory": "1G", "network_mode": NetworkMode.NONE},
)
WORK = {
    "web": "seq 1 200000 | sha256sum; dd if=/dev/zero of=/root/cache bs=1M count=24 2>&1",
    "build-linux": "while :; do :; done",
}


AGENTS = {
    "fix-login": "read -p 'Apply this edit to login.py? [y/n] ' answer",
    "watch": "top -d 2",
    "fuzz": "df -h /; head -c 100M /dev/urandom | sha256sum",
    "train": 'for n in $(seq 1 900); do echo "step $n  loss 0.$((999 - n))"; sleep 0.5; done',
    "scan": "find /usr/lib -size +1M -exec ls -sh {} + | sort -h | tail",
    "packages": "dpkg -l | tail -n +6 | cut -c 5-40 | head -12",
    "release": "cat /etc/os-release",
    "memory": "dpkg -l | wc -l; free -m; ls --color /",
    "disk": "cd /usr/share && du -d 1 -h | sort -h | tail -20",
}
"""The commands on the wall, each in a sandbox of its own."""


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


@contextlib.contextmanager
def places() -> Iterator[None]:
    """Fresh places with the user's image and QEMU; removed at the end with all their contents."""
    prepared = paths()
    with tempfile.TemporaryDirectory(prefix="qsp-") as directory:
        root = Path(directory)
        (root / "data").mkdir(mode=0o700)
        for name in ("images", "qemu"):
            (root / "data" / name).symlink_to(prepared.data / name)
        fresh = {
            "QUICKSAND_RUNTIME_DIR": str(root / "run"),
            "QUICKSAND_DATA_DIR": str(root / "data"),
            "QUICKSAND_SPARES": "off",
        }
        with mock.patch.dict(os.environ, fresh):
            try:
                yield
            finally:
                asyncio.run(end_all())


async def end_all() -> None:
    for entry in Registry(paths()).list():
        with contextlib.suppress(QuicksandError):
            await Sandbox.attach(entry.id).kill()


async def prepare() -> None:
    """Four sandboxes: two run, one has crashed, one is stopped."""
    for options in BOXES:
        say(f"starting {options['name']}")
        sandbox = Sandbox(image="debian", **options)
        await sandbox.start()
        sandbox.detach()
        if work := WORK.get(sandbox.name):
            await sandbox.spawn(work, detach=True)
        if sandbox.name == "web":
            await make_past(sandbox)
        sandbox.close()
    run = Registry(paths()).find("agent-7").run
    assert run is not None
    os.kill(run.qemu_pid, signal.SIGKILL)
    await Sandbox.attach("db").stop()


async def make_past(sandbox: Sandbox) -> None:
    """Checkpoints of two attempts, the first of them given up."""
    await sandbox.checkpoint("clean", note="as it was booted")
    await sandbox.execute("head -c 20M /dev/urandom > /root/packages")
    await sandbox.checkpoint("nginx", note="installed, not configured")
    await sandbox.execute("head -c 3M /dev/urandom > /root/site")
    await sandbox.revert("clean")
    await sandbox.execute("head -c 12M /dev/urandom > /root/packages")
    await sandbox.checkpoint("caddy", note="serves the site")
    # A sandbox from a template has not booted: its console has nothing to show.
    lines = "site: 12 pages\\nsite: listening on port 80\\nsite: ready after 0.8 s\\n"
    await sandbox.execute(f"printf '{lines}' > /dev/console")
    await sandbox.checkpoint("load-test", note="all of it up, before the test")


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the app does not show what it should")
        await asyncio.sleep(0.02)


async def shoot(
    name: str,
    screen: str = "main",
    sandbox: str = "web",
    *keys: str,
    size: tuple[int, int] = LARGE,
    theme: str = "quicksand",
    hosts: Mapping[str, str] = MappingProxyType({}),
    then: Callable[[QuicksandApp], Awaitable[None]] | None = None,
) -> None:
    """Make one picture: a screen with the cursor on ``sandbox``, after ``keys``. ``hosts`` are
    other machines."""

    async def finish(pilot: Pilot[int]) -> None:
        app = pilot.app
        assert isinstance(app, QuicksandApp)
        # CPU use needs two readings.
        await until(lambda: any(view.cpu_percent for view in app.world.sandboxes))
        await pilot.press(*keys)
        if then is not None:
            await then(app)

    service = EngineService()
    service.meet(hosts)
    spec = ShotSpec(screen=screen, sandbox=sandbox, size=size, theme=theme)
    try:
        write_picture(TARGET / f"{name}.svg", await picture(service, spec, then=finish))
    finally:
        service.close()
    say(f"made {name}.svg")


async def log_shown(app: QuicksandApp) -> None:
    await until(lambda: app.main.area.logs.view.line_count)


async def stats_shown(app: QuicksandApp) -> None:
    """Show the guest's figures, and some readings of the host."""
    await until(lambda: "COMMAND" in str(app.main.area.stats.query_one("Static").render()))
    await until(lambda: any(len(view.history.cpu) > 3 for view in app.world.sandboxes))


async def at_work(app: QuicksandApp) -> None:
    """Show some work in a shell, and its neighbour."""
    shells = app.main.area.shells
    await until(lambda: shells.pane is not None and "web" in text_of(shells.pane))
    type_into(app, "ls --color /\r")
    await until(lambda: shells.pane is not None and "usr" in text_of(shells.pane))
    shells.do_split_below()
    await until(lambda: shells.workspace is not None and len(shells.workspace.panes) == 2)
    await until(lambda: shells.pane is not None and "web" in text_of(shells.pane))
    type_into(app, "ps -eo pid,rss,comm --sort -rss | head -8\r")
    await until(lambda: shells.pane is not None and "PID" in text_of(shells.pane))


async def disk_seen(app: QuicksandApp) -> None:
    """Show the files that differ."""
    await until(lambda: any(word in drawn_text(app.screen) for word in (" on disk", "Files that")))
    await until(lambda: "looking at the disk" not in drawn_text(app.screen))


async def found_again(app: QuicksandApp) -> None:
    """Show the shells of the picture before."""
    shells = app.main.area.shells
    await until(lambda: shells.workspace is not None and len(shells.workspace.panes) == 2)
    await until(lambda: shells.workspace and all(map(text_of, shells.workspace.panes)))
    await until(lambda: "2 bash" in drawn_text(app.screen))


async def left_for_the_overview(app: QuicksandApp) -> None:
    """Show the overview, with the last lines of a shell."""
    await found_again(app)
    for key in ("ctrl+right_square_bracket", "d", "i"):
        app.simulate_key(key)
        await asyncio.sleep(KEY_S)
    await until(lambda: "PID" in drawn_text(app.screen))
    await disk_seen(app)


def type_into(app: QuicksandApp, text: str) -> None:
    pane = app.main.area.shells.pane
    assert pane is not None
    pane.type(text.encode())


def text_of(pane: Pane) -> str:
    terminal = pane.terminal
    lines = range(terminal.screen_line, terminal.end_line)
    return "\n".join("".join(run.text for run in terminal.line(n)) for n in lines)


async def start_shown(app: QuicksandApp) -> None:
    """Leave the picture while a start is under way; it is cancelled with the app."""
    await until(lambda: any(job.step for job in app.operations.jobs))


async def put_agents_to_work() -> None:
    """Leave the earlier sandboxes, and fill the wall."""
    await end_all()
    for name, command in AGENTS.items():
        sandbox = Sandbox(image="debian", name=name, memory="256M")
        say(f"starting {sandbox.name}")
        await sandbox.start()
        shell = await sandbox.shell(columns=62, rows=13)
        async for piece in shell.output():
            if b"#" in piece:
                break  # the prompt: text typed before it would be shown twice
        await shell.write(f"{command}\r".encode())
        await shell.detach()
        sandbox.detach()
        sandbox.close()


async def wall_shown(app: QuicksandApp) -> None:
    await until(lambda: "wants an answer" in drawn_text(app.screen))
    await until(lambda: "step 9" in drawn_text(app.screen))


# Other machines

FAR = ("ci", "fuzz")
"""The sandboxes of the other machine."""


@contextlib.contextmanager
def other_machine() -> Iterator[str]:
    """The address of another machine with sandboxes: this one, with places of its own."""
    sys.path.insert(0, str(ROOT))
    from tests.ssh_server import BIN, with_sshd

    with tempfile.TemporaryDirectory(prefix="qsp-") as directory:
        root = Path(directory)
        (root / "data").mkdir(mode=0o700)
        for name in ("images", "qemu"):
            (root / "data" / name).symlink_to((paths().data / name).resolve())
        far = {
            "PATH": f"{BIN}{os.pathsep}{os.defpath}",
            "QUICKSAND_DATA_DIR": str(root / "data"),
            "QUICKSAND_RUNTIME_DIR": str(root / "run"),
            "QUICKSAND_SPARES": "off",
        }

        def there(*words: str) -> None:
            program = [sys.executable, "-m", "quicksand_tui", *words]
            subprocess.run(program, env={**os.environ, **far}, check=True, stdout=sys.stderr)

        with with_sshd(root, far) as found:
            os.environ["PATH"] = found.environ()["PATH"]
            try:
                for name in FAR:
                    say(f"starting {name} there")
                    there("run", "debian", "--name", name, "--detach")
                there("checkpoint", "ci", "clean", "--note", "fresh system")
                there("exec", "ci", "--", "sh", "-c", "head -c 9M /dev/urandom > /root/build")
                there("checkpoint", "ci", "built", "--note", "before the tests")
                there("stop", "fuzz")
                yield found.address
            finally:
                there("kill", "ci")


async def shell_there(app: QuicksandApp) -> None:
    """A shell in a sandbox of the other machine."""
    lists = app.main.lists
    await until(lambda: lists.sandboxes.table.select(_id_of(app, "ci@box")))
    await until(lambda: app.main.selection.sandbox is not None)
    await until(lambda: "away" in drawn_text(app.screen))
    app.main.action_do("shell")
    shells = app.main.area.shells
    await until(lambda: shells.pane is not None and "#" in text_of(shells.pane))
    type_into(app, "uname -sr; du -sh /root\r")
    await until(lambda: shells.pane is not None and "Linux" in text_of(shells.pane))


def _id_of(app: QuicksandApp, name: str) -> str:
    return next((view.id for view in app.world.sandboxes if view.name == name), "")


async def shoot_hosts() -> None:
    say("starting web")
    sandbox = Sandbox(image="debian", name="web")
    await sandbox.start()
    sandbox.detach()
    sandbox.close()
    with other_machine() as address:
        hosts = {"box": address, "lab": "ssh://lab.invalid"}
        await shoot("hosts", sandbox="", hosts=hosts, then=shell_there)


async def shoot_all() -> None:
    TARGET.mkdir(exist_ok=True)
    await shoot("shells", "shells", then=at_work)
    await shoot("wide", "shells", size=WIDE, then=found_again)
    await shoot("main", "shells", then=left_for_the_overview)
    await shoot("stats", "stats", then=stats_shown)
    await shoot("small", size=SMALL)
    await shoot("light", theme="quicksand-light")
    await shoot("contrast", theme="quicksand-contrast")
    await shoot("crashed", "main", "agent-7")
    await shoot("new", "new")
    await shoot("tree", "tree", then=disk_seen)
    await shoot("delete", "delete", "build-linux")
    await shoot("log", "log", then=log_shown)
    await shoot("help", "help")
    await shoot("starting", "main", "db", "a", then=start_shown)
    await put_agents_to_work()
    await shoot("wall", "wall", "", size=WIDE, then=wall_shown)


def main() -> int:
    if sys.argv[1:] != ["hosts"]:
        with places():
            asyncio.run(prepare())
            asyncio.run(shoot_all())
            asyncio.run(end_all())
    with places():
        asyncio.run(shoot_hosts())
    return 0


if __name__ == "__main__":
    sys.exit(main())
