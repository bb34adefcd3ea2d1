"""The configuration: a JSON file that says what is shared.

    {"shares": {"NAME": {"path": "/on/the/host", "read_only": false, "protect": false,
                       "commands": []}},
     "secret": "password of any user, or null: everybody is a guest",
     "posix": true, "resynchronise": false, "hang_up": false, "leases": "none"}

With `"directory": N` in a share the descriptor N, which the process has inherited, is its
directory, and `path` only names it: what stands there by now is not looked at.

The published server's names for the fields, `host_path` and `readonly`, are understood, too.
"""

from quicksand_smb.minimal_stdlib import Any, Final, NamedTuple

MOST_SHARES: Final = 256
LARGEST: Final = 1 << 20
"""The largest configuration in bytes."""


LEASES: Final = ("none", "directories", "read", "all")
"""The caching that clients may do: none; of directories they have read; of files that no client
writes; or all that they ask for of files. The last is correct only if nobody else changes the
files. The others end when somebody changes the file or directory."""


class ConfigError(Exception):
    """The configuration is wrong. The message is for whoever started the server, not for the
    guest."""


class ShareConfig(NamedTuple):
    name: str
    path: str
    is_read_only: bool
    is_protected: bool = False
    """Files that programs of the host run by themselves (triggers.py) are read-only."""
    directory: int | None = None
    """An inherited descriptor of the directory. None means that `path` is opened."""
    commands: tuple[str, ...] = ()
    """Absolute paths of further files and directories that programs of the host run or obey."""


class Config(NamedTuple):
    shares: tuple[ShareConfig, ...]
    secret: str | None = None
    """The password of every user. None means that every user is a guest."""
    posix: bool = True
    """The server offers the POSIX extensions."""
    resynchronise: bool = False
    """The stream has no end of connection: each NEGOTIATE begins a new one."""
    hang_up: bool = False
    """The client may still have a connection to a server before this one: it is ended first."""
    leases: str = "none"
    """The caching that clients may do, one of `LEASES`."""


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
    unknown = set(values) - {"shares", "secret", "posix", "resynchronise", "hang_up", "leases"}
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
        _flag(values, "hang_up", default=False),
        leases,
    )


def _read_json(text: bytes) -> Any:
    """Parse JSON with the interpreter's scanner if it has one. Loading `json` with its regular
    expressions takes 3.8 ms of processor time."""
    plain = text.decode().strip()
    try:
        import _json  # noqa: PLC0415

        scan: Any = _json.make_scanner
        values, end = scan(_Plain())(plain, 0)
        if end == len(plain):
            return values
    except (ImportError, AttributeError, StopIteration):
        pass  # another interpreter, or an error, which `json` explains better
    import json  # noqa: PLC0415

    return json.loads(plain)


class _Plain:
    """The decoder settings that the scanner reads. Values are returned as they are."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int

    def __init__(self) -> None:
        self.memo: dict[str, str] = {}


_OF_SHARE: Final = frozenset(
    {"path", "host_path", "read_only", "readonly", "protect", "directory", "commands"}
)


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
    unknown = set(value) - _OF_SHARE
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
    commands = value.get("commands", [])
    if not isinstance(commands, list) or not all(
        isinstance(one, str) and one.startswith("/") for one in commands
    ):
        raise ConfigError(f'share {name!r}: "commands" must be a list of absolute paths')
    return ShareConfig(
        name, path, _flag(value, key, default=False), is_protected, directory, tuple(commands)
    )


def _flag(values: dict[str, Any], name: str, *, default: bool) -> bool:
    value = values.get(name, default)
    if not isinstance(value, bool):
        raise ConfigError(f'"{name}" must be true or false')
    return value
