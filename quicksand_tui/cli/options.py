"""Values of options and detach keys: the common part of several commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import click
from quicksand.base.errors import ConfigError
from quicksand.remote.passed_on import take_values

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
