"""The record of one option of a machine. The command, the form, the completion, the help, the
manifest and the checks of foreign saves derive from it; it is the field of the config class."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from types import MappingProxyType
from typing import Any, NamedTuple

from quicksand.base.errors import ConfigError

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


def options_of(config: Any) -> tuple[MachineOption, ...]:
    """Returns the options of a config class, in the order of its fields."""
    return _options_of(config)  # mypy does not accept the class of a dataclass as Hashable


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
