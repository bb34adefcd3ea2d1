"""Every test runs in places of its own; after all of them nothing may be left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from quicksand.base.faults import MARK
from quicksand.base.paths import Paths, paths
from quicksand.base.processes import MONITOR, Process
from quicksand.qemu.command import machine_name
from quicksand.qemu.planning import resolve_image
from quicksand.qemu.stopping import find_orphans
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots.history import Origin
from quicksand.warm import template_maker

PREFIX = f"qst-{os.getpid()}-"
"""Of every directory that this run makes in /tmp; others may be running beside it. Not in
pytest's long directories: a Unix socket's path has 104 bytes."""


GZIP_MAGIC = b"\x1f\x8b"
"""RFC 1952, 2.3.1."""

ID_MAX = 80

_SECONDS: dict[str, float] = {}
"""The seconds that each test file has taken so far."""


# The same examples in each run, and few; `make soak` draws fresh ones. What those find is kept as
# an @example of its test, not in a database that nobody else has. No example is too slow on a busy
# host.
hypothesis.settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, max_examples=34
)
hypothesis.settings.register_profile("fresh", deadline=None, max_examples=300, print_blob=True)


def examples(count: int) -> int:
    """How many a property test draws: ``count`` in `make soak`, a third of them where they are the
    same each time."""
    settings = hypothesis.settings.default
    return count // 3 if settings is not None and settings.derandomize else count


YOUNG_MAX = 20_000
"""Objects that may be made between two looks for garbage. An app makes some hundred thousand, and
with Python's own 700 every third second of its tests was spent on garbage."""


VM_PART = 0.85
"""The part of a run in which tests on VMs begin. The rest is short: workers end together."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests wait for guests and terminals are begun by turns with those of unit tests,
    which never wait: so workers keep the processors busy, and guests are less often late."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.split("::")[0], []).append(item)
    units = [name for name in files if name.startswith("tests/unit/")]
    waiting = [name for name in files if name not in set(units)]
    place = {name: number / len(units) for number, name in enumerate(units)}
    place |= {name: VM_PART * number / len(waiting) for number, name in enumerate(waiting)}
    items[:] = [item for name in sorted(files, key=place.__getitem__) for item in files[name]]


def pytest_collection_finish() -> None:
    """What all modules and tests are made of stays to the end: no look for garbage needs to pass
    it."""
    gc.collect()
    gc.freeze()
    # The older are looked at twice as often as usual, since that many more are made meanwhile.
    gc.set_threshold(YOUNG_MAX, 5, 5)
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """A shell has what it runs in the background ignore Ctrl-C; and so would the programs that
    tests interrupt, which would never end. Nothing becomes garbage while tests are collected."""
    gc.disable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["PATH"] += f":{paths().data / 'tools' / 'bin'}"
    if not config.getoption("--hypothesis-profile"):
        hypothesis.settings.load_profile("same")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts the seconds of each test file, for `make quick`."""
    file = report.nodeid.split("::")[0]
    _SECONDS[file] = _SECONDS.get(file, 0.0) + report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Notes the seconds of files of which all tests ran."""
    cache = getattr(session.config, "cache", None)  # not with -p no:cacheprovider
    if cache is None or hasattr(session.config, "workerinput") or _is_part(session.config):
        return
    known = cache.get("quicksand/seconds", {})
    taken = {file: round(seconds, 2) for file, seconds in _SECONDS.items()}
    cache.set("quicksand/seconds", {**known, **taken})


def _is_part(config: pytest.Config) -> bool:
    """Whether a run has only some tests of its files."""
    other = config.option.markexpr != "not soak"
    return bool(other or config.option.keyword or any("::" in word for word in config.args))


def pytest_make_parametrize_id(val: object) -> str | None:
    """Whole disks are no names of tests, nor is what gzip packed: it holds the second in which that
    was, and workers that collect in different seconds would not agree on the tests."""
    if isinstance(val, bytes) and val.startswith(GZIP_MAGIC):
        return "gzip"
    if not isinstance(val, str | bytes) or len(val) <= ID_MAX:
        return None
    data = val if isinstance(val, bytes) else val.encode("utf-8", "surrogatepass")
    return f"{len(val)}-long-{zlib.crc32(data):x}"


@pytest.fixture(scope="session")
def prepared() -> Paths:
    """The user's own places, where `make setup` put QEMU and the image."""
    return paths()


@contextlib.contextmanager
def fresh_places(prepared: Paths) -> Iterator[Paths]:
    """Fresh runtime and data directories. QEMU is the user's, by a link, and so is each version of
    an image in a store of the test's own."""
    root = Path(tempfile.mkdtemp(prefix=PREFIX))
    (root / "data").mkdir(mode=0o700)
    (root / "data" / "qemu").symlink_to(prepared.data / "qemu")
    link_images(prepared.images, root / "store")
    # By a link too, as users have it whose images are on another disk.
    (root / "data" / "images").symlink_to(root / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSAND_RUNTIME_DIR", str(root / "run"))
        patch.setenv("QUICKSAND_DATA_DIR", str(root / "data"))
        patch.setenv("QUICKSAND_STATE_DIR", str(root / "state"))
        patch.setenv("QUICKSAND_TEMPLATES", "use")
        patch.setenv("QUICKSAND_SPARES", "off")
        # Not the user's config, nor what the user typed.
        patch.setenv("XDG_CONFIG_HOME", str(root / "config"))
        patch.setenv("XDG_PICTURES_DIR", str(root / "pictures"))
        patch.setenv("QUICKSAND_STATE_DIR", str(root / "state"))
        patch.delenv("QUICKSAND_CONFIG", raising=False)
        yield paths()
    leftovers = sorted(str(p.relative_to(root)) for p in everything_below(root / "run"))
    shutil.rmtree(root)
    assert not leftovers, f"runtime files are left: {leftovers}"


def everything_below(root: Path) -> Iterator[Path]:
    """Yield what is in a directory at any depth. `Path.rglob` ends with an error where a running
    sandbox removes a directory meanwhile."""
    for place, directories, files in os.walk(root):
        yield from (Path(place) / name for name in (*directories, *files))


def link_images(users: Path, store: Path) -> None:
    """Make a store of a test's own with the user's images: what is published there, or made the
    current version, is the test's."""
    store.mkdir(mode=0o700)
    for image in users.glob("[!.]*"):
        (store / image.name).mkdir(mode=0o700)
        for entry in image.glob("[!.]*"):
            if entry.is_dir():
                (store / image.name / entry.name).symlink_to(entry.resolve())
            else:
                shutil.copy(entry, store / image.name)


def images_of(store: Path) -> dict[str, str]:
    """The versions of the images in a store, and which are the current ones."""
    found = {f"{path.parent.name}/{path.name}": "" for path in store.glob("[!.]*/[!.]*")}
    return found | {
        f"{path.parent.name}/current": path.read_text() for path in store.glob("[!.]*/current")
    }


def share_findings(prepared: Paths, cache: Path) -> None:
    """Have a cache of a test's own know of this host what the user's does: only to find out that
    KVM does not work takes four seconds."""
    cache.mkdir(parents=True, exist_ok=True)
    for name in ("accelerators.json", "qemu-versions.json", "qemu-whole.json", "tick-rate.json"):
        if (prepared.cache / name).exists():
            shutil.copy(prepared.cache / name, cache / name)


@pytest.fixture(scope="session")
def template(prepared: Paths) -> None:
    """The user's template of the usual machine: what most tests start from."""
    make_template(SandboxConfig.parse({"image": "debian"}), prepared)


def make_template(config: SandboxConfig, places: Paths) -> Origin:
    registry = Registry(places)
    image, _ = resolve_image(registry, blank_record(config))
    record = replace(
        blank_record(config),
        committed=True,
        image_digest=image.digest,
        chain=tuple(str(path) for path in image.chain),
    )
    return asyncio.run(template_maker.make_template(registry, record))


def blank_record(config: SandboxConfig) -> Record:
    return Record(
        id="0" * 12,
        name="blank",
        config=config,
        image_digest="",
        chain=(),
        created=0.0,
        committed=False,
        discard=False,
    )


@pytest.fixture(autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Every test has its own; a module with a VM for all its tests overrides this."""
    with fresh_places(prepared) as found:
        yield found


def faults_in(log: Path, start: int = 0) -> str:
    """The text of a log from its first fault on; "" if there is none. The first ``start`` bytes are
    passed over."""
    text = log.read_bytes()[start:].decode("utf-8", "replace") if log.exists() else ""
    return text[text.index(MARK) :] if MARK in text else ""


@pytest.fixture
def faults(places: Paths) -> Callable[[], str]:
    """For a test that has the program make mistakes: what the log has from the first one on."""
    return lambda: faults_in(places.engine_log)


@pytest.fixture(autouse=True)
def no_faults(places: Paths, request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that does not use `faults`: the program has noted no fault of its own."""
    log = places.engine_log
    before = log.stat().st_size if log.exists() else 0
    yield
    if "faults" not in request.fixturenames and log.exists():
        found = faults_in(log, before if log.stat().st_size >= before else 0)
        assert not found, f"the program has made mistakes:\n{found}"


@pytest.fixture(scope="session", autouse=True)
def nothing_left(prepared: Paths) -> Iterator[None]:
    """After the last test: no process, no directory of ours, no open descriptor is left, and the
    user's cache and images are what they were."""
    images = images_of(prepared.images)
    cached = {path.name for path in prepared.cache.glob("*.json")}
    before = set(Path("/tmp").glob(f"{PREFIX}*"))
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    wait_for(lambda: not our_processes(), what="processes of tests to end")
    gc.collect()  # which also warns of what was not closed
    left = set(Path("/tmp").glob(f"{PREFIX}*")) - before
    assert not left, f"directories are left: {left}"
    still_open = sorted(targets_of_descriptors())
    assert len(still_open) <= descriptors + 8, f"descriptors are left open: {still_open}"
    gone = cached - {path.name for path in prepared.cache.glob("*.json")}
    assert not gone, f"gone from the user's cache: {gone}"
    assert images_of(prepared.images).items() >= images.items(), "a test changed the user's images"


def targets_of_descriptors() -> Iterator[str]:
    """What this process has open."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            yield os.readlink(f"/proc/self/fd/{name}")


OUR_PROGRAMS = ("qemu-system", "keeper.py", "quicksand_smb")


def our_processes(mark: str = f"/{PREFIX}") -> list[str]:
    """Command lines of keepers, QEMUs and servers of mounts that work in a test's directory."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (
                (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            )
            if mark in line and any(word in line for word in OUR_PROGRAMS):
                found.append(line[:300])
    return found


PATIENCE_S = 60.0
"""Seconds. A deadline is for what never comes; a shorter one tells how busy the host is."""


LOOK_S = 0.05
"""Seconds between two looks, in the end."""


class Patience:
    """Seconds that one waits for something that is looked at again and again. Of the time from one
    look to the next half a second counts at most: a host that stands still for seconds holds up
    what is waited for, too."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._last = time.monotonic()

    def is_over(self) -> bool:
        now = time.monotonic()
        self._left -= min(now - self._last, 0.5)
        self._last = now
        return self._left <= 0


async def in_time(attempt: Callable[[], Awaitable[float]], seconds: float) -> bool:
    """Whether an attempt takes less time than that: a busy host may be late, but not each time.
    ``attempt`` returns the seconds that it took."""
    for _ in range(3):
        if await attempt() < seconds:
            return True
    return False


def wait_for(condition: Callable[[], object], *, what: str, timeout: float = PATIENCE_S) -> None:
    """Wait until ``condition`` is true; fail after ``timeout`` seconds."""
    patience, pause_s = Patience(timeout), 0.01
    while not condition():
        assert not patience.is_over(), f"waited {timeout} s for {what}"
        time.sleep(pause_s)
        # A look may be a program or all of /proc: it takes the time of what is waited for.
        pause_s = min(pause_s * 1.2, LOOK_S)


def free_port() -> int:
    """A port of this host that is free. It is none that systems give by themselves (from 32768 on,
    ip(7)), so that no other test is given it before it is used."""
    while True:
        with socket.socket() as asked, contextlib.suppress(OSError):
            asked.bind(("127.0.0.1", random.randrange(20_000, 32_768)))
            return int(asked.getsockname()[1])


def listens(port: int) -> bool:
    """Whether somebody listens at a port of this host. Who takes a connection and resets it at
    once, since nothing in the guest takes it, does; the reset may come before the connection is
    told of."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        return True
    return True


@contextlib.contextmanager
def fake_qemu(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with the command line of a QEMU of the sandbox in ``place``; killed in the end."""
    monitor = ["-chardev", f"{MONITOR}9"]
    words = ["qemu-system-x86_64", "-c", "input()", "-name", machine_name(str(place)), *monitor]
    with subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE) as process:
        cmdline = Path(f"/proc/{process.pid}/cmdline")
        # Until then it is a copy of this process.
        wait_for(lambda: MONITOR.encode() in cmdline.read_bytes(), what="it to be executed")
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def own_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """`clean` ends processes whose sandbox is gone wherever that was: here those of this process's
    tests alone, since others, which run beside it, have such ones on purpose."""

    def own() -> list[Process]:
        return [orphan for orphan in find_orphans() if f"/{PREFIX}" in orphan.of]

    monkeypatch.setattr("quicksand_tui.cli.lazy_commands.find_orphans", own)


def left_when_reaped(places: Paths) -> set[str]:
    """Ids of sandboxes that have a directory, for data or for what runs, once what the dead left is
    removed. To be waited for: a process that is being torn down has lost its command line and still
    holds its locks."""
    Registry(places).reap()
    found = (path for root in (places.sandboxes, places.runtime) for path in root.glob("*"))
    return {path.name for path in found if not path.name.startswith(".")}
