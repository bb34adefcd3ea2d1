"""The record of one option of a machine, and reading the values of options: words from a command
line, values from Python and JSON, and sizes as people write them.

The command, the form, the completion, the help, the manifest and the checks of foreign saves derive
from the record; it is the field of the config class.
"""

from __future__ import annotations

import difflib
import functools
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from quicksand.base.error_text import choose, gib_text
from quicksand.base.errors import ConfigError, UnknownOptionError
from quicksand.base.paths import expand

_METADATA = "machine option"


def _same(value: Any) -> Any:
    return value


def _reaches_nothing(value: Any) -> str:
    return ""


class MachineOption(NamedTuple):
    """One option of a machine.

    Its value has three forms: the one that a caller or JSON gives (``decode`` reads it, ``encode``
    writes it as JSON), the value itself, and the words that a user types in a form or on a command
    line (``read`` turns one word into what ``decode`` takes).
    """

    default: Any
    flags: tuple[str, ...]
    """Its flags on the command line. An option that is true or false has a single one, which makes
    it true."""
    help: str
    """Its help in one or two sentences; ``{default}`` stands for the default as a user types it."""
    label: str
    """Its label in the form, at most 10 characters."""
    keyword: str = ""
    """The name of the field, which `options_of` fills in."""
    metavar: str = ""
    """The name of the value in the help; "" shows the choices, and only these are then accepted."""
    hint: str = ""
    """Shown in the form while nothing is typed: how a value is written, or what applies without one
    (``{default}`` as in ``help``)."""
    limit: int = 200
    """The most characters that can be typed in the form."""
    choices: Mapping[str, str] = MappingProxyType({})
    """The values to choose from, with a note on each; empty if any value can be typed."""
    is_usual: bool = False
    """Whether the form shows it at once, not only when the user asks for more."""
    needs: str = ""
    """The keyword of the switch that gives it a meaning; the form shows it only with that
    switch."""
    split: Callable[[str], Sequence[str]] | None = None
    """Splits a typed text into words if the option takes several. Raises ConfigError."""
    read: Callable[[str], Any] = _same
    """Reads one typed word. Raises ConfigError for a word without a meaning."""
    decode: Callable[[Any], Any] = _same
    """Reads a value of a caller or of JSON. Raises ConfigError for an impossible one."""
    encode: Callable[[Any], Any] = _same
    limits: Callable[[Any], object] = _same
    """Checks a value against limits. Raises ConfigError for one that no machine can have."""
    place: str = ""
    """The name of the sandbox's link to a directory of its own in the directory of this host that
    is the value (`place_option`)."""
    reaches: Callable[[Any], str] = _reaches_nothing
    """Returns in words how a value lets the guest reach beyond itself; "" if it does not. A save
    that is not trusted gets the default instead."""

    @property
    def is_switch(self) -> bool:
        """Whether the option is true or false."""
        return isinstance(self.default, bool)

    @property
    def default_text(self) -> str:
        """Returns the default as a user types it; "" if there is none."""
        if self.is_switch:
            return YES if self.default else NO
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return "" if self.default in (None, ()) else str(self.default)

    @property
    def flags_shown(self) -> tuple[str, ...]:
        """Returns `flags`, with the opposite of a switch: ``--x/--no-x``."""
        return (f"{self.flags[0]}/{self._taken_back}",) if self.is_switch else self.flags

    @property
    def _taken_back(self) -> str:
        return f"--no-{self.flags[0].removeprefix('--')}"

    def check(self, value: Any) -> None:
        """Raises ConfigError for a value that no machine can have."""
        if self.is_switch and not isinstance(value, bool):
            raise ConfigError(f"{self.keyword} must be true or false, not {value!r}")
        self.limits(value)

    def parse_text(self, text: str) -> Any:
        """Turns a typed text into what `decode` takes. Raises ConfigError."""
        if self.is_switch:
            return text == YES
        if self.split is None:
            return self.read(text)
        return [self.read(word) for word in self.split(text)]

    def words(self, text: str) -> list[str]:
        """Returns the words of a command line that mean the same as a typed text."""
        if self.is_switch:
            return [self.flags[0] if text == YES else self._taken_back]
        if self.choices:
            return [self.flags[-1], text]
        try:
            parts = [text] if self.split is None else self.split(text)
        except ConfigError:
            parts = [text]  # the command is shown even while the text is incomplete
        return [word for part in parts for word in (self.flags[-1], part)]


NO, YES = "no", "yes"


def option(default: Any, *flags: str, **said: Any) -> Any:
    """Makes a field of a config class that is an option of the machine. ``said`` are fields of
    `MachineOption`."""
    if isinstance(default, bool):
        said["choices"] = {NO: "", YES: ""}
    record = MachineOption(default=default, flags=flags, **said)
    return field(default=default, metadata={_METADATA: record}, kw_only=True)


def place_option(place: str, *flags: str, **said: Any) -> Any:
    """Makes a field of a config class that names a directory of this host, in which the sandbox has
    one of its own for its ``place``, such as its memory: it is made with the sandbox, measured and
    removed with it, and never mounted. Saves, templates and other hosts do not get it."""
    said |= {"decode": decode_directory, "metavar": "DIR", "limit": 1000, "place": place}
    said["reaches"] = lambda directory: f"{place} in {directory}" if directory else ""
    return option(None, *flags, **said)


def options_of(config: Any) -> tuple[MachineOption, ...]:
    """Returns the options of a config class, in the order of its fields."""
    return _options_of(config)  # mypy does not accept the class of a dataclass as Hashable


def places_of(config: Any) -> tuple[MachineOption, ...]:
    """Returns the options of a config class that name directories of this host."""
    return tuple(record for record in options_of(config) if record.place)


@functools.cache
def _options_of(config: type) -> tuple[MachineOption, ...]:
    found = ((f.name, f.metadata.get(_METADATA)) for f in fields(config))
    return tuple(_complete(record, name) for name, record in found if record is not None)


def _complete(record: MachineOption, keyword: str) -> MachineOption:
    default = record.default_text
    return record._replace(
        keyword=keyword,
        help=record.help.format(default=default),
        hint=record.hint.format(default=default),
    )


def parse_choice(kind: type[Any], value: object, what: str, *, extra: Iterable[str] = ()) -> Any:
    """Returns the member of the StrEnum ``kind`` that ``value`` names. Raises ConfigError, which
    lists the members and ``extra``."""
    try:
        return kind(str(value).lower().replace("-", "_"))
    except ValueError:
        choices = [*extra, *(str(member.value) for member in kind)]
        raise ConfigError(f"{what} {str(value)!r} is unknown: {choose(choices)}") from None


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raises UnknownOptionError for the first of ``given`` that is not in ``known``, and suggests a
    name."""
    accepted = frozenset(known)
    for name in given:
        if name not in accepted:
            names = sorted(accepted)
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
            raise UnknownOptionError(
                f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                hint=f"the options are {', '.join(names)}",
            )


def reader(kind: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    """Makes a reader of one typed value. Raises ConfigError saying that it is not ``what``."""

    def read(word: str) -> Any:
        try:
            return kind(word)
        except ValueError:
            raise ConfigError(f"{word!r} is not {what}") from None

    return read


def split_arguments(text: str) -> list[str]:
    """Splits a text into words as a shell does. Raises ConfigError."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"the quotes do not match: {error}") from None


def decode_items(name: str, decode: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Makes a decoder for the list that is given as ``name``; None is an empty list."""

    def decode_all(value: Any) -> tuple[Any, ...]:
        if value is None:
            return ()
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ConfigError(f"{name} must be a list, not {value!r}")
        return tuple(decode(item) for item in value)

    return decode_all


def decode_directory(value: object) -> str | None:
    """Returns the whole path of a directory. Raises ConfigError, PathError."""
    if value is None:
        return None
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ConfigError(f"{value!r} is no path of a directory")
    return str(expand(str(value)).absolute())


MIB = 1024 * 1024

MEMORY_MIN = 64 * MIB
"""Bytes; with less, Debian's kernel does not start its first process."""

MEMORY_MAX = 1024 * 1024 * MIB
"""Bytes; QEMU's own CPU models have 40 bits of physical address (target/i386/cpu.h,
TCG_PHYS_ADDR_BITS)."""

DISK_SIZE_MAX = 4 * 1024**4
"""Bytes of the largest disk that an overlay of ours can map (`quicksand_disks.qcow2`)."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT])(?:i?B)?|(B))?\s*", re.IGNORECASE)
_UNITS = {"B": 1, "K": 1024, "M": MIB, "G": 1024 * MIB, "T": 1024 * 1024 * MIB}


def parse_memory(text: str | int) -> int:
    """Returns the bytes of a memory size. A number without a unit is in MiB, as for QEMU's -m.
    Raises ConfigError.

    >>> parse_memory("1.5G") == parse_memory("1536") == 1536 * 1024 * 1024
    True
    """
    size = parse_size(text, what="memory", default_unit="M")
    if size < MEMORY_MIN:
        raise ConfigError(f"memory {text!r} is too little", hint="64M is the least, 512M usual")
    if size > MEMORY_MAX:
        raise ConfigError(f"memory {text!r} is too much", hint="1T is the most, 512M usual")
    return size - size % MIB


def parse_disk_size(text: str | int) -> int:
    """Returns the bytes of a disk size such as "10G". Raises ConfigError."""
    size = parse_size(text, what="disk_size")
    if size > DISK_SIZE_MAX:
        raise ConfigError(f"disk_size {text!r} is too large", hint="4T is the most")
    return size


def check_disk_size(size: int, least: int, what: str) -> None:
    """Raises ConfigError if a disk of ``size`` bytes (0: not given) is requested on top of
    ``what``, whose disk has ``least`` bytes."""
    if 0 < size < least:
        raise ConfigError(
            f"a disk_size of {size} bytes is too small: the disk of {what} has {least} "
            f"({gib_text(least)})",
            hint="leave it out, or say a larger one",
        )


def parse_size(text: str | int, *, what: str, default_unit: str = "") -> int:
    """Returns the bytes of a size such as "512M", "1.5G", "512MiB". Raises ConfigError that names
    ``what``."""
    match = _SIZE.fullmatch(str(text)) if not isinstance(text, bool) else None
    if match is None:
        raise ConfigError(
            f"{what} {text!r} is not a size", hint='write it like "512M", "1.5G" or "2048"'
        )
    unit = (match[2] or match[3] or default_unit).upper()
    size = float(match[1]) * _UNITS.get(unit, 1)
    if not 0 < size < 2**60:
        raise ConfigError(f"{what} {text!r} is out of range")
    return int(size)


def write_size(size: int) -> str:
    """Returns the shortest text that `parse_size` reads as ``size`` bytes.

    >>> [write_size(parse_size(text, what="")) for text in ("1024M", "1.5G", "1000")]
    ['1G', '1536M', '1000B']
    """
    unit = next((unit for unit in "TGMK" if size % _UNITS[unit] == 0), "B")
    return f"{size // _UNITS[unit]}{unit}"
