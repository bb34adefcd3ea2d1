"""The record of a verb, from which its command, its `:` line, the command that the app shows, and
the help derive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import Enum, auto
from typing import Any, NamedTuple


class Kind(Enum):
    """What a parameter stands for. This decides how its value is checked and completed."""

    SANDBOX = auto()
    CHECKPOINT = auto()
    """A checkpoint of the sandbox that is named before it. On the `:` line, that may be the
    selected sandbox."""
    TARGET = auto()
    """The same as CHECKPOINT; commands also take OTHER:TAG for a checkpoint of another sandbox."""
    IMAGE = auto()
    STORED = auto()
    """An image in the store."""
    RECIPE = auto()
    """A recipe of ours, or the file of one."""
    PACKAGE = auto()
    """A published image, QEMU, or the file of a wheel."""
    INSTALLED = auto()
    """An image that was installed from a package."""
    SOURCE = auto()
    """The image or the save that a sandbox starts from."""
    SAVE = auto()
    EXPORTED = auto()
    """A save; with ``--tree`` a sandbox."""
    TRASHED = auto()
    """A sandbox or a save in the trash."""
    TRASHED_SAVE = auto()
    MOUNT = auto()
    """HOST:GUEST[:ro|:protect]: a directory of this host, and where it is in the guest."""
    MOUNTED = auto()
    """The path in the guest of something that is mounted in the sandbox that is named before it."""
    COPIED = auto()
    """NAME:/path in a guest, or a path of this host."""
    FILE = auto()
    STREAM = auto()
    """A file, or "-" for a standard stream."""
    DIRECTORY = auto()
    FLAG = auto()
    SWITCH = auto()
    """A flag and its opposite, ``--x/--no-x``; None if neither is given."""
    COUNT = auto()
    """A whole number from ``least`` to ``most``."""
    NUMBER = auto()
    """A number from ``least``, with decimals."""
    CHOICE = auto()
    TEXT = auto()
    """Anything; nothing completes it."""
    ENV = auto()
    """K=V or K: a variable of the guest's environment."""
    ARGV = auto()
    """A command of the guest with its arguments."""
    HOST = auto()
    """Another machine, by its name in the config."""
    FLEET_HOST = auto()
    """A machine of the fleet: one of those, or a local node."""
    THEME = auto()
    REST = auto()
    """The rest of the `:` line, as it is."""
    MACHINE = auto()
    """Stands where the options of a new machine go (`quicksand_tui.cli.machine`)."""


_WORDS = {
    Kind.SANDBOX: "SANDBOX",
    Kind.CHECKPOINT: "CHECKPOINT",
    Kind.TARGET: "CHECKPOINT",
    Kind.SOURCE: "SOURCE",
    Kind.MOUNT: "HOST:GUEST[:ro|:protect]",
    Kind.PACKAGE: "PACKAGE",
}


# Named tuples, since every command defines all records when it starts: frozen dataclasses take
# several times as long to define and to create.


class Parameter(NamedTuple):
    """An argument or an option."""

    name: str
    """The name of its value for the command's function and for `verbs.commands`."""
    kind: Kind
    flags: tuple[str, ...] = ()
    """The flags of an option, first the one that the app's commands use. An argument has none."""
    metavar: str = ""
    """The name of the value in the command's help; "" leaves it to click."""
    help: str | Callable[[], str] = ""
    required: bool = False
    repeatable: bool = False
    default: str | int | float | None = None
    shows_default: bool = False
    """Whether the help shows the default by itself."""
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    least: float | None = None
    most: Callable[[], int] | None = None
    """Returns the largest number that is taken. This and the others that are called are read from
    the engine when they are needed."""
    above_least: bool = False
    """Whether ``least`` itself is too little."""
    on_line: bool = False
    """Whether the `:` line takes it. All parameters are optional there: a missing one is the
    selected object, or the app asks for it."""
    by_place: bool = False
    """Whether the `:` line also takes the option's value without its flag."""
    changes: bool = False
    """Whether a verb that only reads changes something with this flag."""

    @property
    def word(self) -> str:
        """Returns its name for the `:` line, in capitals."""
        # Where there are two of one kind, they are called by letters.
        by_kind = _WORDS.get(self.kind) if len(self.name) > 1 else None
        return by_kind or self.name.upper()

    @property
    def help_text(self) -> str:
        return self.help() if callable(self.help) else self.help

    @property
    def all_choices(self) -> tuple[str, ...]:
        return self.choices() if callable(self.choices) else self.choices

    @property
    def limit(self) -> int | None:
        """Returns the largest number that is taken."""
        return self.most() if self.most is not None else None

    @property
    def is_flag(self) -> bool:
        return self.kind in (Kind.FLAG, Kind.SWITCH)

    @property
    def shown_flag(self) -> str:
        """Returns the flag that the app's commands use."""
        return self.flags[0].partition("/")[0]

    @property
    def takes_place(self) -> bool:
        """Returns whether the `:` line takes it without a flag in front."""
        return self.by_place or not self.flags


class VerbRecord(NamedTuple):
    """A command, as all parts of the app describe it."""

    name: str
    """Its name. The name of a part begins with that of its verb: "checkpoint rm"."""
    parameters: tuple[Parameter, ...] = ()
    """Its parameters, in the order of the help."""
    module: str = ""
    """The module in `quicksand_tui.cli` that has its function."""
    section: str = ""
    """The section of the help in which it stands."""
    summary: str = ""
    """Its line in that section."""
    reads: bool = False
    """Whether it only reads, unless one of its parameters says otherwise (`only_reads`)."""
    parts: tuple[VerbRecord, ...] = ()
    """The verbs that are called with a second word."""
    takes_rest: bool = False
    """Whether all words after its first argument are arguments, whatever they look like: they are
    for another program. Options come before."""

    @property
    def on_line(self) -> tuple[Parameter, ...]:
        """Returns the parameters that the `:` line takes."""
        return tuple(found for found in self.parameters if found.on_line)

    @property
    def subject(self) -> Parameter | None:
        """Returns the first argument, which names the object of the verb; None if there are no
        arguments."""
        return next((found for found in self.parameters if not found.flags), None)

    def parameter(self, name: str) -> Parameter:
        """Finds a parameter by its name. Raises LookupError."""
        for found in self.parameters:
            if found.name == name:
                return found
        raise LookupError(f"{self.name} has no {name}")

    def only_reads(self, given: Collection[str]) -> bool:
        """Returns whether it changes nothing, with the parameters of these names ``given``."""
        return self.reads and not any(
            found.changes and found.name in given for found in self.parameters
        )

    def walk(self) -> Iterator[VerbRecord]:
        """Yields the verb and its parts."""
        yield self
        for part in self.parts:
            yield from part.walk()


def argument(name: str, kind: Kind = Kind.TEXT, metavar: str = "", **more: Any) -> Parameter:
    """Makes an argument, which is known by its place. It is required unless ``more`` says
    otherwise."""
    more.setdefault("required", "default" not in more)
    return Parameter(name, kind, metavar=metavar, **more)


def option(
    flags: str,
    kind: Kind,
    metavar: str,
    help_text: str | Callable[[], str],
    *,
    name: str = "",
    **more: Any,
) -> Parameter:
    """Makes an option with a value. ``flags`` are separated by spaces; the name is that of the long
    flag unless ``name`` is given."""
    found = tuple(flags.split())
    long = max(found, key=len).partition("/")[0].removeprefix("--").replace("-", "_")
    return Parameter(name or long, kind, found, metavar, help_text, **more)


def flag(flags: str, help_text: str, *, name: str = "", **more: Any) -> Parameter:
    """Makes an option without a value."""
    kind = Kind.SWITCH if "/" in flags else Kind.FLAG
    return option(flags, kind, "", help_text, name=name, **more)
