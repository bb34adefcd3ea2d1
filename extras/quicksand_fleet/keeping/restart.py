"""`Restart`: the wish that a sandbox of a fleet be restarted elsewhere if its machine is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quicksand.errors import ConfigError

from quicksand_fleet.keeping.wire import LEASE_LEAST_S, LEASE_MOST_S

EVERY_LEAST_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """How a sandbox is kept that is restarted elsewhere if its machine is lost, from the last save
    that was exported to another machine."""

    every: float | None = 600.0
    """Seconds between two exported saves; None for one at the start and one after each
    `Sandbox.save` only. Whatever was written after the last of them is lost with the machine."""
    lease: float = 30.0
    """Seconds for which the machine may go on without an answer to its requests; then it ends the
    sandbox. 6 to 3600."""

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        _require_seconds("lease", self.lease, LEASE_LEAST_S, LEASE_MOST_S)
        if self.every is not None:
            _require_seconds("every", self.every, EVERY_LEAST_S, 7 * 86400.0)


def _require_seconds(name: str, value: object, least: float, most: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        raise ConfigError(f"{name} must be {least:g} to {most:g} seconds, not {value!r:.80}")


def find_restart(restart: Restart | bool | None, own: Mapping[str, Any]) -> Restart | None:
    """Return the `Restart` that a caller means; None for a sandbox that is not kept. Raises
    ConfigError."""
    if restart is None or restart is False:
        return None
    if restart is not True and not isinstance(restart, Restart):
        raise ConfigError(f"restart must be a Restart or True, not {restart!r:.80}")  # pyright: ignore[reportUnreachable]  # for callers without types
    if own["name"] is None:
        raise ConfigError(
            "a sandbox that is restarted elsewhere needs a name, by which it is found there",
            hint="pass name=",
        )
    if own["ephemeral"]:
        raise ConfigError("a sandbox that is restarted elsewhere cannot be ephemeral")
    return Restart() if restart is True else restart
