"""Other machines by name: the table [hosts] of the user's config, as the engine reads it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from quicksand.base.errors import ConfigError
from quicksand.base.paths import config_place
from quicksand.base.regular import read_file

VARIABLE = "QUICKSAND_CONFIG"
SIZE_MAX = 1024 * 1024


def config_file() -> Path:
    """The user's config; it need not exist."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).absolute()
    return config_place() / "config.toml"


def read_addresses() -> dict[str, str]:
    """The addresses of all machines by their names. Raises ConfigError."""
    path = config_file()
    try:
        table = tomllib.loads(read_file(path).decode("utf-8-sig")) if path.exists() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    hosts = table.get("hosts")
    if not isinstance(hosts, dict):
        return {}
    return {name: one for name, one in hosts.items() if isinstance(one, str)}


def find_address(name: str) -> str:
    """The address of the machine of that name. Raises ConfigError."""
    address = read_addresses().get(name)
    if address is None:
        raise ConfigError(
            f"there is no host {name!r:.100} in {config_file()}",
            hint="write its address, ssh://USER@HOST, or add it to the table [hosts] there",
        )
    return address
