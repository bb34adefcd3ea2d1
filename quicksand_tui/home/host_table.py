"""Other machines by name: the table `[hosts]` of the config."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOSTS = "hosts"
"""The name of the table."""
LOCAL = "local"
"""The name of this machine."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
SCHEME = "ssh://"
NODE_SCHEME = "node://"
"""The beginning of the address of a local node of a fleet, which no config has."""
ADDRESS_MAX = 600
LOOKED_AT = 1024 * 1024
"""Bytes of a config that are searched."""


def may_have_hosts(path: Path, environ: Mapping[str, str]) -> bool:
    """Returns whether the app may have other machines to show, as far as can be told without
    parsing the config, which takes longer."""
    try:
        with path.open("rb") as file:
            return bool(environ.get("QUICKSAND_HOST")) or b"hosts" in file.read(LOOKED_AT)
    except OSError:
        return bool(environ.get("QUICKSAND_HOST"))


def hosts_of(table: object) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Returns the addresses in the table by their names, and the problems by names; "" stands for
    the table itself."""
    if not isinstance(table, dict):
        return {}, [("", 'this is no table: put [hosts] in a line, and NAME = "ssh://…" below it')]
    found, problems = {}, []
    for name, address in table.items():
        if what := problem_of(name, address):
            problems.append((name, what))
        else:
            found[name] = str(address)
    return found, problems


def problem_of(name: str, address: object) -> str:
    """Returns the problem of a name or an address; "" if none is seen here."""
    if not NAME.fullmatch(name) or name == LOCAL:
        return f"a name has letters, digits, _ and -, and is not {LOCAL}"
    if (
        not isinstance(address, str)
        or not address.startswith(SCHEME)
        or not address.isprintable()
        or len(address) > ADDRESS_MAX
    ):
        return 'this is no address in quotes, such as "ssh://me@box"'
    return ""
