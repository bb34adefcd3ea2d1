"""Values of options, detach keys and addresses to listen at, as several commands take them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import click
from quicksand.base.errors import ConfigError
from quicksand.remote.passed_on import take_values

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Returns the host and the port of an address to listen at; a port alone is one of the
    loopback. Raises ConfigError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(f"{text!r} is no address", hint="as in 2222, 0.0.0.0:2222 or [::]:2222")
    return (match["host"] or LOOPBACK).strip("[]"), int(match["port"])


_CONTROL = "ctrl-"


def parse_keys(text: str) -> bytes:
    """Returns the bytes of a sequence of keys such as "ctrl-],d". Raises ConfigError.

    >>> parse_keys("ctrl-],d")
    b'\\x1dd'
    """
    codes = bytearray()
    for key in text.split(","):
        name = key.strip()
        if name.lower().startswith(_CONTROL) and len(name) == len(_CONTROL) + 1:
            code = ord(name[-1].upper()) ^ 0x40
        else:
            code = ord(name) if len(name) == 1 else -1
        if not 0 <= code < 0x80 or (len(name) > 1 and code >= 0x20):
            raise ConfigError(
                f"{key!r} in the keys {text!r} is no key",
                hint='one character or ctrl- and one of a-z @ [ ] \\ ^ _, as in "ctrl-],d"',
            )
        codes.append(code)
    return bytes(codes)


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def parse_env(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Returns environment variables for the guest by their names. A name without a value takes the
    value that it has here, if any; here is the machine of the user who has us called by another
    one. Raises click.BadParameter."""
    passed_on = take_values(os.environ)
    ours = os.environ if passed_on is None else passed_on
    found = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise click.BadParameter(f"{text!r} does not begin with a variable's name")
        if equals:
            found[name] = value
        elif name in ours:
            found[name] = ours[name]
    return found
