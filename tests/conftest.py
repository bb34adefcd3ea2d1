"""Every test runs in places of its own; after all of them nothing may be left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from quicksand import template_maker
from quicksand.config import SandboxConfig
from quicksand.host.paths import Paths, paths
from quicksand.planning import resolve_image
from quicksand.registry import Record, Registry
from quicksand.snapshots.origins import Origin

PREFIX = f"qst-{os.getpid()}-"
"""Of every directory that this run makes in /tmp; others may be running beside it. Not in
pytest's long directories: a Unix socket's path has 104 bytes."""


ID_MAX = 80


def pytest_configure() -> None:
    """A shell has what it runs in the background ignore Ctrl-C; and so would the programs that
    tests interrupt, which would never end. And no example is too slow on a busy host."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("patient", deadline=None)
    hypothesis.settings.load_profile("patient")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Whole disks are no names of tests."""
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
    """Fresh runtime and data directories; images and QEMU are the user's, by a link."""
    root = Path(tempfile.mkdtemp(prefix=PREFIX))
    (root / "data").mkdir(mode=0o700)
    for name in ("images", "qemu"):
        (root / "data" / name).symlink_to(prepared.data / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSAND_RUNTIME_DIR", str(root / "run"))
        patch.setenv("QUICKSAND_DATA_DIR", str(root / "data"))
        patch.setenv("QUICKSAND_STATE_DIR", str(root / "state"))
        patch.setenv("QUICKSAND_TEMPLATES", "use")
        # Not the user's config, nor what the user typed.
        patch.setenv("XDG_CONFIG_HOME", str(root / "config"))
        patch.setenv("QUICKSAND_STATE_DIR", str(root / "state"))
        patch.delenv("QUICKSAND_CONFIG", raising=False)
        yield paths()
    leftovers = sorted(str(p.relative_to(root)) for p in (root / "run").rglob("*"))
    shutil.rmtree(root)
    assert not leftovers, f"runtime files are left: {leftovers}"


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


@pytest.fixture(scope="session", autouse=True)
def nothing_left(prepared: Paths) -> Iterator[None]:
    """After the last test: no process, no directory of ours, no open descriptor is left."""
    before = set(Path("/tmp").glob(f"{PREFIX}*"))
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    wait_for(lambda: not our_processes(), what="processes of tests to end", timeout=10)
    left = set(Path("/tmp").glob(f"{PREFIX}*")) - before
    assert not left, f"directories are left: {left}"
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 8, "descriptors are left open"


def our_processes(mark: str = f"/{PREFIX}") -> list[str]:
    """Command lines of keepers and QEMUs that work in a test's directory."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (
                (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            )
            if mark in line and ("qemu-system" in line or "keeper.py" in line):
                found.append(line[:300])
    return found


def wait_for(condition: Callable[[], object], *, what: str, timeout: float = 10.0) -> None:
    """Wait until ``condition`` is true; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        time.sleep(0.01)


def left_when_reaped(places: Paths) -> set[str]:
    """Ids of sandboxes that have a directory, for data or for what runs, once what the dead left is
    removed. To be waited for: a process that is being torn down has lost its command line and still
    holds its locks."""
    Registry(places).reap()
    found = (path for root in (places.sandboxes, places.runtime) for path in root.glob("*"))
    return {path.name for path in found if not path.name.startswith(".")}
