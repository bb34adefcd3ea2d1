"""Standing orders: how many spares of which machines the user wants ready at any time."""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, StateError
from quicksand.base.fields import Fields
from quicksand.base.files import lock_within, map_os_errors, read_json, write_json
from quicksand.base.limits import SPARES_MAX
from quicksand.base.paths import Paths, make_private_dir
from quicksand.records.config import Accelerator, SandboxConfig
from quicksand.records.machine_options import write_size

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
