"""The keys that a gateway takes, and the sandboxes that each of them leads to."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import asyncssh
from quicksand.base.errors import ConfigError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import open_regular

_LINE = re.compile(r'sandboxes="(?P<names>[A-Za-z0-9._*?,-]+)"\s+(?P<key>\S.*)')

SIZE_MAX = 1024 * 1024
"""The most bytes of the file."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and the sandboxes that it leads to."""

    public: asyncssh.SSHKey
    names: tuple[str, ...]
    """Names of sandboxes, with * and ? as in shells."""
    comment: str

    def leads_to(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.names)


def read_keys(file: Path) -> list[Key]:
    """Reads a file with a line for each key, such as ``sandboxes="web,ci-*" ssh-ed25519 AAAA… me``.

    Raises ConfigError for a file that others can write, and for any other line, by its number: an
    unknown option might have been meant as a limit. Raises HostError.
    """
    with map_os_errors(file):
        descriptor = open_regular(file)
    with map_os_errors(file), os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"others can write {file}", hint=f"chmod go-w {file}")
        if found.st_size > SIZE_MAX:
            raise ConfigError(f"{file} has more than {SIZE_MAX} bytes")
        text = opened.read(SIZE_MAX).decode("utf-8", "replace")
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        try:
            if match is None:
                raise ValueError('it does not begin with sandboxes="NAME,…"')
            key = asyncssh.import_public_key(match["key"])
        except (ValueError, asyncssh.KeyImportError) as error:
            raise ConfigError(
                f"{file}, line {number}: {error}",
                hint='a line is sandboxes="web,ci-*" and the key as in id_ed25519.pub; "*" is all',
            ) from error
        keys.append(Key(key, tuple(match["names"].split(",")), match["key"].split(None, 2)[-1]))
    return keys
