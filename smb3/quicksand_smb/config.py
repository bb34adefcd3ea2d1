"""The configuration: a JSON file that says what is shared.

    {"shares": {"NAME": {"path": "/on/the/host", "read_only": false, "protect": false}},
     "secret": "password of any user, or null: everybody is a guest",
     "posix": true, "resynchronise": false, "leases": "none"}

With `"directory": N` in a share the descriptor N, which the process has inherited, is its
directory, and `path` only names it: what stands there by now is not looked at.

The published server's names for the fields, `host_path` and `readonly`, are understood, too.
"""

from quicksand_smb.minimal_stdlib import Any, Final, NamedTuple

MOST_SHARES: Final = 256
LARGEST: Final = 1 << 20
"""Bytes of a configuration."""


LEASES: Final = ("none", "directories", "read", "all")
"""Nothing; what they have read of directories, or of files that no client writes, until anybody
changes these; or what they ask for of files, which is only true if nobody else changes them."""


class ConfigError(Exception):
    """The configuration is wrong; the message is for whoever started the server, not the guest."""


class ShareConfig(NamedTuple):
    name: str
    path: str
    is_read_only: bool
    is_protected: bool = False
    """What programs of the host run by themselves (triggers.py) is read-only."""
    directory: int | None = None
    """A descriptor that was opened by whoever started the server. None: `path` is opened."""


class Config(NamedTuple):
    shares: tuple[ShareConfig, ...]
    secret: str | None = None
    """The password of every user. None: there are only guests."""
    posix: bool = True
    """Offer the POSIX extensions."""
    resynchronise: bool = False
    """The stream has no end of connection: a NEGOTIATE begins a new one."""
    leases: str = "none"
    """What clients may keep of files, `LEASES`."""


def load(path: str) -> Config:
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(text) > LARGEST:
        raise ConfigError(f"{path}: larger than {LARGEST} bytes")
    return parse(text)


def parse(text: bytes) -> Config:
    try:
        values = _read_json(text)
    except ValueError as error:
        raise ConfigError(f"no JSON: {error}") from error
    shares = values.get("shares") if isinstance(values, dict) else None
    if not isinstance(shares, dict):
        raise ConfigError('"shares" must be an object')
    unknown = set(values) - {"shares", "secret", "posix", "resynchronise", "leases"}
    if unknown:
        raise ConfigError(f"unknown: {', '.join(sorted(unknown))}")
    if len(shares) > MOST_SHARES:
        raise ConfigError(f"more than {MOST_SHARES} shares")
    secret = values.get("secret")
    if secret is not None and (not isinstance(secret, str) or not secret):
        raise ConfigError('"secret" must be a text, or null')
    leases = values.get("leases", "none")
    if leases not in LEASES:
        raise ConfigError(f'"leases" must be one of {", ".join(LEASES)}')
    return Config(
        tuple(_share(name, value) for name, value in shares.items()),
        secret,
        _flag(values, "posix", default=True),
        _flag(values, "resynchronise", default=False),
        leases,
    )


def _read_json(text: bytes) -> Any:
    """As `json.loads`, whose regular expressions take longer to load than all else here: the
    scanner behind it is asked alone where the interpreter has it."""
    plain = text.decode().strip()
    try:
        import _json

        scan: Any = _json.make_scanner
        values, end = scan(_Plain())(plain, 0)
        if end == len(plain):
            return values
    except (ImportError, AttributeError, StopIteration):
        pass  # another interpreter, or an error, which the whole reader words better
    import json

    return json.loads(plain)


class _Plain:
    """What a scanner asks of its decoder: values are as they come."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int

    def __init__(self) -> None:
        self.memo: dict[str, str] = {}


def _share(name: str, value: Any) -> ShareConfig:
    if (
        not name
        or len(name) > 80
        or name.upper() == "IPC$"
        or any(char in '\\/:*?"<>|\0' for char in name)
    ):
        raise ConfigError(f"no name for a share: {name!r}")
    if not isinstance(value, dict):
        raise ConfigError(f"share {name!r} must be an object")
    unknown = set(value) - {"path", "host_path", "read_only", "readonly", "protect", "directory"}
    if unknown:
        raise ConfigError(f"share {name!r}: unknown: {', '.join(sorted(unknown))}")
    path = value.get("path", value.get("host_path"))
    if not isinstance(path, str) or (not path.startswith("/") and path[1:2] != ":"):
        raise ConfigError(f"share {name!r} needs an absolute path")
    key = "read_only" if "read_only" in value else "readonly"
    directory = value.get("directory")
    if directory is not None and (type(directory) is not int or directory < 3):
        raise ConfigError(f"share {name!r}: no descriptor: {directory!r}")
    is_protected = _flag(value, "protect", default=False)
    return ShareConfig(name, path, _flag(value, key, default=False), is_protected, directory)


def _flag(values: dict[str, Any], name: str, *, default: bool) -> bool:
    value = values.get(name, default)
    if not isinstance(value, bool):
        raise ConfigError(f'"{name}" must be true or false')
    return value
