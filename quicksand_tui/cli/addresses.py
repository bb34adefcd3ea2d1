"""Addresses to listen at, as commands take them."""

from __future__ import annotations

import re

from quicksand.base.errors import ConfigError

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Returns the host and the port of an address to listen at; a port alone is one of the
    loopback. Raises ConfigError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"{text!r} is no address", hint="as in 2222, 0.0.0.0:2222 or [::]:2222")
    return (match["host"] or LOOPBACK).strip("[]"), int(match["port"])
