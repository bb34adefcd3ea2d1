"""The literal of a verb, from which its command, its form, the `:` line, its job, the command that
the app shows, and the help derive."""

from __future__ import annotations

import inspect
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from typing import Protocol, Self

    from quicksand.things.status import Status

    from quicksand_tui.model.shown_sandboxes import SandboxView

    class Makeable(Protocol):
        """A call (`quicksand_tui.verbs.call`), as a verb needs it."""

        def of(self, verb: AnyVerb, values: Mapping[str, Any]) -> Self: ...


P = ParamSpec("P")
Made_co = TypeVar("Made_co", bound="Makeable", covariant=True)


class Kind(Enum):
    """The meaning of a parameter. It decides how the value is checked and completed."""

    SANDBOX = auto()
    NEW_TAG = auto()
    """The tag of a new checkpoint."""
    NEW_SAVE = auto()
    """The name of a new save."""
    CHECKPOINT = auto()
    """A checkpoint of the sandbox that is named before it. On the `:` line, that may be the
    selected sandbox."""
    TARGET = auto()
    """The same as CHECKPOINT; commands also take OTHER:TAG for a checkpoint of another sandbox."""
    IMAGE = auto()
    STORED = auto()
    """An image in the store."""
    RECIPE = auto()
    """A recipe of ours, or the file of a recipe."""
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
    """HOST:GUEST[:ro|:protect]: a directory of this host, and its place in the guest."""
    FORWARD = auto()
    """[HOST:]GUEST[/udp]: a port of this host, and the guest's port to which it leads."""
    MOUNTED = auto()
    """The path in the guest of a mount of the sandbox that is named before it."""
    COPIED = auto()
    """NAME:/path in a guest, or a path of this host."""
    FILE = auto()
    OWN_FILE = auto()
    """A file of the machine that carries the command out: it is read, and written."""
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
    """Any text; nothing completes it."""
    ENV = auto()
    """K=V or K: a variable of the guest's environment."""
    ARGV = auto()
    """A command of the guest with its arguments."""
    HOST = auto()
    """Another machine, by its name in the config."""
    THEME = auto()
    REST = auto()
    """The rest of the `:` line, as it is."""
    MACHINE = auto()
    """Stands in the place of the options of a new machine (`quicksand_tui.cli.click_commands`)."""


_WORDS = {
    Kind.SANDBOX: "SANDBOX",
    Kind.CHECKPOINT: "CHECKPOINT",
    Kind.TARGET: "CHECKPOINT",
    Kind.SOURCE: "SOURCE",
    Kind.MOUNT: "HOST:GUEST[:ro|:protect]",
    Kind.FORWARD: "PORTS",
    Kind.NEW_TAG: "TAG",
    Kind.PACKAGE: "PACKAGE",
}


# Named tuples, since frozen dataclasses take several times as long to define and to create.


class Parameter(NamedTuple):
    """An argument or an option."""

    name: str
    """The name of its value for the command's function and for `verbs.call`."""
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
    """Returns the largest number that is taken. This and other callables are called when the values
    are needed, since they read the engine."""
    above_least: bool = False
    """Whether ``least`` itself is too little."""
    on_line: bool = False
    """Whether the `:` line takes it. All parameters are optional there: a missing one is the
    selected object, or the app asks for it."""
    by_place: bool = False
    """Whether the `:` line also takes the option's value without its flag."""
    changes: bool = False
    """Whether a verb that only reads changes something with this flag."""
    asked: Asked | None = None
    """The way the app's form asks for it; None if it does not."""
    completer: str = ""
    """The function that completes it, ``module:function``, if it is not that of the kind."""

    @property
    def word(self) -> str:
        """Its name for the `:` line, in capitals."""
        # Two of one kind are told apart by letters.
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
        """The largest number that is taken."""
        return self.most() if self.most is not None else None

    @property
    def is_flag(self) -> bool:
        return self.kind in (Kind.FLAG, Kind.SWITCH)

    @property
    def shown_flag(self) -> str:
        """The flag that the app's commands use."""
        return self.flags[0].partition("/")[0]

    @property
    def takes_place(self) -> bool:
        """Whether the `:` line takes it without a flag in front."""
        return self.by_place or not self.flags


class Verb(Generic[P, Made_co]):
    """A command, as all parts of the app describe it. Called with the values of its parameters by
    their names, it returns the action (`quicksand_tui.verbs.call`)."""

    def __init__(
        self,
        name: str,
        parameters: tuple[Parameter, ...] = (),
        *,
        module: str = "",
        after: str = "",
        summary: str = "",
        reads: bool = False,
        takes_rest: bool = False,
        states: Collection[Status] | None = None,
        hint: str = "",
        form: Form | None = None,
        make: Callable[P, Made_co] | None = None,
    ) -> None:
        self.name = name
        """Its name. The name of a part begins with that of its verb: "checkpoint rm"."""
        self.parameters = parameters
        """Its parameters, in the order of the help."""
        self.module = module
        """The module that has the function of its command: ".guests.run" is one of
        `quicksand_tui.cli`, other packages give the full name; "" if the command only carries the
        call out."""
        self.after = after
        """The verb that another package's follows in the help; "" puts it at the end."""
        self.summary = summary
        """Its line in the help of all commands."""
        self.reads = reads
        """Whether it only reads, unless one of its parameters says otherwise (`only_reads`)."""
        self.takes_rest = takes_rest
        """Whether all words after its first argument are arguments, whatever they look like: they
        are for another program. Options come before."""
        self.states = states
        """The states of a sandbox in which it can be done; None for all."""
        self.hint = hint
        """The remedy if the sandbox is in none of them, with {} for its name."""
        self.form = form
        """The way the app asks for its parameters; None if it asks for none, or in its own way."""
        self._make = make
        self.parts: tuple[Verb[..., Any], ...] = ()
        """The verbs that are called with a second word."""

    def __repr__(self) -> str:
        return f"<verb {self.name}>"

    def __call__(self, *args: P.args, **values: P.kwargs) -> Made_co:
        """Returns the action with these values. Raises LookupError for a mere command."""
        if self._make is None:
            raise LookupError(f"{self.name} is only a command")
        given = {**dict(zip(self.taken, args, strict=False)), **values}
        return self._make(*args, **values).of(self, given)

    @property
    def help(self) -> str:
        """The help of its command, if that is not the docstring of a function in `module`."""
        return inspect.cleandoc((self._make.__doc__ if self._make else None) or "")

    @property
    def can_be_made(self) -> bool:
        """Whether it can be called."""
        return self._make is not None

    @property
    def taken(self) -> Collection[str]:
        """The names of the parameters that a call takes."""
        return () if self._make is None else inspect.signature(self._make).parameters

    @property
    def on_line(self) -> tuple[Parameter, ...]:
        """The parameters that the `:` line takes."""
        return tuple(found for found in self.parameters if found.on_line)

    @property
    def asked(self) -> tuple[Parameter, ...]:
        """The parameters that its form asks for."""
        return tuple(found for found in self.parameters if found.asked is not None)

    @property
    def subject(self) -> Parameter | None:
        """The first argument, which names the verb's object; None if there are no arguments."""
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

    def walk(self) -> Iterator[Verb[..., Any]]:
        """Yields the verb and its parts."""
        yield self
        for part in self.parts:
            yield from part.walk()


AnyVerb = Verb[..., Any]
"""A verb, whatever it takes and does."""


def command(
    name: str,
    module: str,
    summary: str,
    *parameters: Parameter,
    reads: bool = False,
    takes_rest: bool = False,
    after: str = "",
    parts: tuple[AnyVerb, ...] = (),
    form: Form | None = None,
) -> AnyVerb:
    """Makes a verb whose command is a function in a module, named as `Verb.module` says. ``reads``:
    it only reads. ``after``: the verb that it follows in the help, if it is of another package."""
    made: AnyVerb = Verb(
        name,
        parameters,
        module=module,
        after=after,
        summary=summary,
        reads=reads,
        takes_rest=takes_rest,
        form=form,
    )
    made.parts = parts
    return made


def part(name: str, *parameters: Parameter, reads: bool = False) -> AnyVerb:
    """Makes a part of a verb, such as "images build", whose function is in the same module."""
    return Verb(name, parameters, reads=reads)


def verb(
    name: str, *parameters: Parameter, **more: Any
) -> Callable[[Callable[P, Made_co]], Verb[P, Made_co]]:
    """Makes a verb of the function below, which returns the action. The function takes the values
    of ``parameters`` by their names, but not that of the subject; its docstring is the help of the
    command. ``more`` are keywords of `Verb`."""

    def make(function: Callable[P, Made_co]) -> Verb[P, Made_co]:
        return Verb(name, parameters, make=function, **more)

    return make


def family(name: str, values: Iterable[object]) -> dict[str, AnyVerb]:
    """Returns a verb and its parts, found among these values, by name. The verb gets the parts."""
    made = [one for one in values if isinstance(one, Verb)]
    found = next(one for one in made if one.name == name)
    parts = tuple(one for one in made if one.name.rpartition(" ")[0] == name)
    found.parts = parts or found.parts
    return {one.name: one for one in found.walk()}


def argument(name: str, kind: Kind = Kind.TEXT, metavar: str = "", **more: Any) -> Parameter:
    """Makes an argument, known by its place. It is required unless ``more`` says otherwise."""
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


class Choice(NamedTuple):
    """One of the values that a form offers."""

    value: str
    label: str
    note: str = ""


class Asked(NamedTuple):
    """The field of the app's form that asks for a parameter."""

    label: str
    hint: str = ""
    """The text shown while the field is empty."""
    limit: int | Callable[[], int] = 200
    """The most characters that can be typed."""
    choices: tuple[Choice, ...] = ()
    """The values to choose from; without them, and without choices of the parameter itself, the
    value is typed."""
    endings: tuple[str, ...] = ()
    """The endings of the files by whose paths it is completed."""
    remarks: tuple[str, str] = ("", "")
    """The meaning of the parameter if it is not given, and if it is."""
    of: Callable[[SandboxView], bool] | None = None
    """Whether the form of a sandbox has the field; None means always."""


class Form(NamedTuple):
    """The app's form for the parameters of a verb that have `Parameter.asked`."""

    title: str
    """The title, with {} for the name of the verb's subject."""
    button: str
    does: str
    """The effect of Enter, as in "takes the checkpoint"."""
