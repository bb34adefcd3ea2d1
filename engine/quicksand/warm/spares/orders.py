"""Standing orders: how many spares of which machines the user wants ready at any time."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.background import run_later
from quicksand.base.effort import best_effort
from quicksand.base.errors import ConfigError, StateError
from quicksand.base.fields import Fields
from quicksand.base.files import lock_within, map_os_errors, read_json, try_lock, write_json
from quicksand.base.limits import SPARES_MAX
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.progress import BootTiming
from quicksand.base.settings import SPARES, USE
from quicksand.records.config import Accelerator, SandboxConfig
from quicksand.records.machine_options import write_size
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.warm.spares.spare import has_spares, is_off

SCHEMA = 1

LOCK_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class SpareOrder:
    """The number of spares of one machine that should be ready."""

    config: SandboxConfig
    count: int


class Orders:
    """The standing orders of this user, in ``<data>/spares.json``."""

    def __init__(self, paths: Paths) -> None:
        self._path: Path = paths.data / "spares.json"
        self._lock = paths.data / ".spares.json.lock"

    def list(self) -> list[SpareOrder]:
        """List all orders. An unreadable file counts as none. Blocks for I/O."""
        with contextlib.suppress(StateError):
            return self.read()
        return []

    def read(self) -> builtins.list[SpareOrder]:
        """Read all orders. Blocks for I/O. Raises StateError naming a file that cannot be read."""
        try:
            return _parse(read_json(self._path))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise StateError(
                f"{self._path} cannot be read: {error}",
                hint="repair it, or remove it and order the spares again",
            ) from error

    def set(self, config: SandboxConfig, count: int) -> int:
        """Order ``count`` spares from now on; 0 ends the order. Returns the earlier number. A file
        that cannot be read is left as it is. Raises ConfigError, StateError, HostError."""
        wanted = SpareOrder(plain(config), _count(count))
        make_private_dir(self._path.parent)
        with self._locked():
            orders = self.read()
            before = next((o.count for o in orders if o.config == wanted.config), 0)
            orders = [order for order in orders if order.config != wanted.config]
            orders += [wanted] if count else []
            found = [{"config": o.config.to_json(), "count": o.count} for o in orders]
            write_json(self._path, {"schema_version": SCHEMA, "orders": found}, read=_parse)
        return before

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with map_os_errors(self._lock):
            lock = lock_within(self._lock, LOCK_WAIT_S)
        if lock is None:
            raise StateError("another process has been changing the orders of spares for too long")
        try:
            yield
        finally:
            os.close(lock)


def _parse(value: object) -> list[SpareOrder]:
    """Raises ValueError."""
    found = Fields(value, "bad orders of spares")
    if found.any("schema_version") != SCHEMA:
        raise ValueError(f"schema_version {found.any('schema_version')!r:.80} is not {SCHEMA}")
    orders = [Fields(order, "bad order of spares") for order in found.items("orders")]
    # Two texts may mean the same machine: the later one was the user's last word.
    counts = {
        plain(SandboxConfig.parse(order.fields("config"))): _count(order.any("count"))
        for order in orders
    }
    return [SpareOrder(config, count) for config, count in counts.items()]


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SPARES_MAX:
        raise ConfigError(f"{value!r} is no number of spares", hint=f"0 to {SPARES_MAX}")
    return value


def plain(config: SandboxConfig) -> SandboxConfig:
    """Return a config without the options that a start gives to a spare (ports and mounts), and
    with one text for each value: two configs of the same machine are equal."""
    usual = SandboxConfig(image=config.image)
    disk = config.disk_size_bytes
    return replace(
        config,
        memory=write_size(config.memory_bytes),
        disk_size=None if disk is None else write_size(disk),
        arch=None if config.arch is Architecture.host() else config.arch,
        accel=Accelerator.TCG if config.accel is None else config.accel,
        port_forwards=(),
        mounts=(),
        boot_timeout=usual.boot_timeout,
    )


def digest_of(config: SandboxConfig) -> str:
    """Return a short name, equal for machines that `plain` makes equal."""
    text = json.dumps(plain(config).to_json(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


AFTER_S = 3
"""Seconds to wait after a start, so that the user's first actions come first."""

MAKER = "quicksand.warm.spares.maker"
MODES = ("template", "spare")

ORDERS = "orders"
"""The part of a lock's name that replaces the digest of one machine."""


def may_take(paths: Paths) -> bool:
    """Whether a start may find a spare. Blocks for I/O."""
    return not is_off() and has_spares(paths)


async def expect_next(registry: Registry, record: Record, timing: BootTiming) -> None:
    """Have a spare made in the background for the next start like that of ``record``, and the
    ordered ones. A start that has booted gets no spare, for there is no template yet. Does nothing
    if a process is about to do that already. Its errors are not reported."""
    if makes_none():
        return
    if timing.mode in MODES:
        await _run_maker(registry.paths, digest_of(record.config), record.to_json())
    elif await asyncio.to_thread(Orders(registry.paths).list):
        await restock_later(registry.paths)


async def restock_later(paths: Paths) -> None:
    """Have the ordered spares made, with the templates that they need, as `expect_next` does."""
    if not makes_none():
        await _run_maker(paths, ORDERS, None)


def makes_none() -> bool:
    """Whether the user has turned off making spares in the background."""
    return bool(is_off()) or SPARES.read() == USE


async def _run_maker(paths: Paths, of: str, value: Any) -> None:
    """Start the program; it holds the lock ``of`` its spares."""
    with best_effort("have spares made", paths.engine_log):
        lock = await asyncio.to_thread(_lock, paths, of)
        if lock is None:
            return
        try:
            await run_later(MAKER, value, seconds=AFTER_S, descriptors=(lock,))
        finally:
            os.close(lock)


def _lock(paths: Paths, of: str) -> int | None:
    """Take the lock of the maker of spares ``of`` one kind of machine; None if there is a maker."""
    path = paths.sandboxes / f".spares-{of}.lock"
    with map_os_errors(path):
        return try_lock(path)
