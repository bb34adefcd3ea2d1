"""The sandboxes that hosts stand for in ssh: NAME.qs is one of this machine, NAME.HOST.qs one of
another."""

from __future__ import annotations

import re
from typing import NamedTuple

from quicksand.base.errors import ConfigError
from quicksand.base.paths import paths
from quicksand.records.registry import Registry

from quicksand_tui.cli.ssh.ssh_files import SUFFIX

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Names that can be given to ssh: the sandboxes of other machines are not known here."""


class SshName(NamedTuple):
    """A sandbox and its machine."""

    name: str
    host: str = ""
    """The machine, as `--host` takes it; "" for this one."""

    @property
    def word(self) -> str:
        """The host that ssh is given."""
        return f"{self.name}.{self.host}{SUFFIX}" if self.host else f"{self.name}{SUFFIX}"

    @property
    def has_word(self) -> bool:
        """Whether that host stands for it: a machine without a name has none, nor has a sandbox
        whose host is the name of one on this machine."""
        return find_ssh_name(self.word) == self


def find_ssh_name(word: str) -> SshName:
    """Returns the sandbox that a host of ours stands for, which need not exist: first one of this
    machine, since that may be called like a host of another machine. Raises ConfigError."""
    bare = word.removesuffix(SUFFIX)
    name, _, host = bare.rpartition(".")
    if name and Registry(paths()).named(bare) is None:
        from quicksand_tui.cli.hosts.hosts import has_name  # noqa: PLC0415

        if has_name(host):
            return there(name, host)
    return SshName(bare)


def find_typed(word: str) -> SshName:
    """Returns the sandbox that a word of a command names: one of this machine by its name or id, or
    else another machine's. Raises QuicksandError."""
    registry = Registry(paths())
    # A sandbox may itself be called like a host of ours: then it goes first.
    if (named := registry.named(word)) is not None:
        return SshName(named.name)
    found = find_ssh_name(word)
    return found if found.host else SshName(registry.find(found.name).name)


def there(name: str, host: str) -> SshName:
    """Returns a sandbox of another machine. Raises ConfigError for a text that cannot be a name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r:.100} is no name of a sandbox")
    return SshName(name, host)
