"""Keys: whoever presents one may use the API, as the owner of the key.

They are random, and stand in one file that only its user can read, since `api env` shows them
again. Who can read that file can as well use the sandboxes themselves.
"""

from __future__ import annotations

import builtins
import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from quicksand import ConfigError, PathError
from quicksand.extending import Fields, make_private_dir, read_json, write_json

SCHEMA = 1
FIRST_OWNER = "default"
PREFIX = "e2b_"
KEY_BYTES = 20
"""The bytes of a key, as hexadecimal digits behind `PREFIX`: older clients insist on that form."""

OWNERS_MAX = 1000
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key and its owner."""

    owner: str
    key: str
    created: float
    """Unix time."""


class Keys:
    """The keys in one file, which is read anew when it has changed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "keys.json"
        self._owners: dict[str, str] = {}
        self._seen: tuple[int, int] | None = None

    def owner_of(self, presented: str) -> str | None:
        """Returns the owner of a key; None if nobody has it. It is looked up by its digest, so the
        time of the search tells nothing of the keys. Raises PathError if the file cannot be
        read."""
        self._refresh()
        return self._owners.get(_digest(presented))

    def list(self) -> list[Key]:
        """Returns all keys. Raises PathError if the file cannot be read."""
        try:
            found = read_json(self.path)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise PathError(f"the keys in {self.path} cannot be read: {error}") from error
        try:
            return _parse_all(found)
        except ValueError as error:
            raise PathError(f"the keys in {self.path} cannot be read: {error}") from error

    def add(self, owner: str) -> Key:
        """Makes a key for an owner who has none. Raises ConfigError, PathError."""
        if not _OWNER.fullmatch(owner):
            raise ConfigError(
                f"{owner!r:.80} is no name for an owner",
                hint="1 to 63 of A-Z a-z 0-9 _ . -, the first a letter or digit",
            )
        known = self.list()
        if any(key.owner == owner for key in known):
            raise ConfigError(
                f"{owner!r} has a key already",
                hint=f"`quicksand-tui api keys --remove {owner}` first",
            )
        if len(known) >= OWNERS_MAX:
            raise ConfigError(f"there are {len(known)} keys; {OWNERS_MAX} is the most")
        made = Key(owner=owner, key=PREFIX + os.urandom(KEY_BYTES).hex(), created=time.time())
        self._write([*known, made])
        return made

    def remove(self, owner: str) -> None:
        """Removes the key of an owner. Raises ConfigError if there is none, PathError."""
        known = self.list()
        kept = [key for key in known if key.owner != owner]
        if len(kept) == len(known):
            raise ConfigError(
                f"no key is {owner!r:.80}'s", hint="`quicksand-tui api keys` lists them"
            )
        self._write(kept)

    def require(self, owner: str = FIRST_OWNER) -> Key:
        """Returns the key of an owner; that of `FIRST_OWNER` is made if it is missing. Raises
        ConfigError, PathError."""
        for key in self.list():
            if key.owner == owner:
                return key
        if owner != FIRST_OWNER:
            raise ConfigError(
                f"{owner!r:.80} has no key", hint=f"`quicksand-tui api keys --add {owner:.80}`"
            )
        return self.add(owner)

    def _write(self, keys: builtins.list[Key]) -> None:
        make_private_dir(self.path.parent)
        listed = [{"owner": k.owner, "key": k.key, "created": k.created} for k in keys]
        write_json(self.path, {"schema_version": SCHEMA, "keys": listed}, read=_parse_all)

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
            seen = (status.st_mtime_ns, status.st_ino)
        except OSError:
            seen = None
        if seen != self._seen or seen is None:
            self._owners = {_digest(key.key): key.owner for key in self.list()}
            self._seen = seen


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _parse_all(value: object) -> list[Key]:
    """Reads the keys of a file. Raises ValueError."""
    fields = Fields(value, "bad keys")
    if fields.whole("schema_version") != SCHEMA:
        raise ValueError("they are of another version")
    return [_parse(item) for item in fields.items("keys")]


def _parse(value: object) -> Key:
    """Reads a key. Raises ValueError."""
    found = Fields(value, "bad key")
    return Key(owner=found.text("owner"), key=found.text("key"), created=found.real("created"))
