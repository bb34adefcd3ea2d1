"""A verb with the values of its parameters: its command as it is shown, and the call that carries
it out, which its command and its job have in common."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from quicksand.things.frozen import frozen

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import shown, split_host
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.index import find_verb
from quicksand_tui.verbs.verb import Kind

if TYPE_CHECKING:
    from typing import Self

    from quicksand.base.progress import Progress as EngineProgress
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.life.kept_things import KeptThings
    from quicksand.sandbox import Sandbox

    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.specs import Told
    from quicksand_tui.verbs.verb import AnyVerb, Parameter


COMMAND_MAX = 4000
"""The most characters of a shown command; the rest is cut."""

OF_HOSTS = frozenset({Kind.SANDBOX, Kind.TRASHED})
"""Kinds of things that may be those of another machine."""

Value = object
"""The value of a parameter: a list if the parameter can be repeated, else any value that is written
as its text. None, False, "", an empty list and the default leave the parameter out; a required
argument may be ""."""


def command_line(verb: str, /, **values: Value) -> str:
    """Returns the command of a verb, quoted for a shell and sanitised for the screen. ``values``
    and errors are those of `command_words`."""
    return shown_command(command_words(verb, **values))


def shown_command(words: Iterable[str], host: str = "") -> str:
    """Returns a command on the machine ``host``, quoted for a shell, sanitised for the screen."""
    there = ("--host", host) if host else ()
    return sanitise(shlex.join(["quicksand-tui", *there, *words]), limit=COMMAND_MAX)


def command_words(verb: str, /, **values: Value) -> list[str]:
    """Returns the words of a verb's command, without that of the program.

    ``values`` are named as the verb's parameters, and their words keep this order, but options of a
    verb that takes the rest come first. From the first argument on that could be taken for an
    option or for a part of the verb, arguments move to the end, behind ``--``. Raises LookupError
    for a verb or a parameter that does not exist.
    """
    return _words_of(find_verb(verb), values)


def command_about(verb: str, subject: str, /, *flags: str, **values: Value) -> str:
    """Returns the command of a verb with ``flags``, and ``subject`` as its first argument unless
    that is "". A sandbox of another machine is named as the app does (`at_host`)."""
    found = find_verb(verb)
    subject, host = split_subject(found, subject)
    given = {**dict.fromkeys(flags, True), **values}
    return shown_command(words_of(found, subject, given, as_shown=True), host)


def split_subject(verb: AnyVerb, subject: str) -> tuple[str, str]:
    """Returns the name of a verb's subject, and the machine where that is, "" for this one."""
    if verb.subject is not None and verb.subject.kind in OF_HOSTS:
        return split_host(subject)
    return subject, ""


def words_of(
    verb: AnyVerb, subject: str, values: Mapping[str, Value], *, as_shown: bool = False
) -> list[str]:
    """Returns the words of `command_words`: flags, ``subject``, other options, other arguments,
    each in the order of the help. ``subject`` is left out if it is "" or among the values. Things
    go by their names if the words are to be shown."""
    first = verb.subject
    if first is None or not subject or first.name in values:
        first = None
    else:
        values = {**values, first.name: subject}

    def place(found: Parameter) -> int:
        return 0 if found.is_flag else 1 if found == first else 2 if found.flags else 3

    given = {
        one.name: values[one.name]
        for one in sorted(verb.parameters, key=place)
        if one.name in values
    }
    return _words_of(
        verb, {name: _shown(one) for name, one in given.items()} if as_shown else given
    )


def _shown(value: Value) -> Value:
    if isinstance(value, str):
        return shown(value)
    return [*map(shown, value)] if isinstance(value, list | tuple) else value


def _words_of(verb: AnyVerb, values: Mapping[str, Value]) -> list[str]:
    words, behind = verb.name.split(), list[str]()
    given = [(verb.parameter(name), value) for name, value in values.items()]
    if verb.takes_rest:
        given.sort(key=lambda one: not one[0].flags)
    for parameter, value in given:
        found = _words(parameter, value)
        if not parameter.flags and (behind or _is_mistakable(verb, parameter, found)):
            behind += found
        else:
            words += found
    return [*words, *(["--", *behind] if behind else [])]


def _is_mistakable(verb: AnyVerb, parameter: Parameter, words: list[str]) -> bool:
    """Whether words could be taken for an option, or for a part of the verb: ``checkpoint rm`` is
    one, but a sandbox may be called rm, too."""
    if any(word.startswith("-") for word in words):
        return True
    parts = (part.name.rpartition(" ")[2] for part in verb.parts)
    return parameter == verb.subject and not set(words).isdisjoint(parts)


def _words(parameter: Parameter, value: Value) -> list[str]:
    if parameter.is_flag:
        return [parameter.shown_flag] if value else []
    if value is None or (value == "" and not parameter.required):
        return []
    if parameter.flags and value == parameter.default:
        return []
    if isinstance(value, Iterable) and not isinstance(value, str):
        given = [*map(str, value)]
    else:
        given = [str(value)]
    if not parameter.flags:
        return given
    return [word for one in given for word in (parameter.shown_flag, one)]


AS_JSON = "as_json"
"""The name of the option ``--json``."""

T = TypeVar("T")


@frozen(kw_only=False)
class Progress:
    """The progress of a verb."""

    sandbox_id: str
    """"" if unknown; a new sandbox's id as soon as it exists."""
    stage: str = ""
    step: int = 0
    steps: int = 0
    done: int = 0
    total: int = 0
    """``done`` of ``total`` bytes; both are 0 if bytes are not counted."""
    share: float | None = None
    """The share of the whole that is done, from 0 to 1, if all stages have one count."""


Report = Callable[[Progress], None]
"""Takes progress; may be called from any thread."""


def ignore(_: Any) -> None:
    """Takes progress that nobody follows, or a sandbox that nobody looks at."""


def _no_message(name: str, result: Any, keymap: Keymap) -> None:
    return None


def _no_facts(name: str, result: Any) -> None:
    return None


def _nothing(name: str, result: Any) -> Iterable[Any]:
    return ()


def _none(sandbox: Sandbox) -> Iterable[str]:
    return ()


class UsageError(ValueError):
    """Raised for values that do not go together."""


class Table(NamedTuple):
    """A table for a command to print."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]


def open_any(name: str, report: Report, host: RemoteHost | None) -> Sandbox:
    """Opens a sandbox, running or not."""
    return lazy_engine.Sandbox.open(name, host=host)


def attach(name: str, report: Report, host: RemoteHost | None) -> Sandbox:
    """Opens a running sandbox."""
    return lazy_engine.Sandbox.attach(name, host=host)


def things_of(host: RemoteHost | None) -> KeptThings:
    """Returns the sandboxes, saves and trash on the disk of a machine; None is this one."""
    if host is None:
        return lazy_engine.KeptThings(lazy_engine.paths())
    return lazy_engine.FarThings(host)


def steps_to(report: Report) -> EngineProgress:
    """Returns the engine's callback for work that counts things."""
    return lambda stage, done, total: report(Progress("", stage, done, total))


async def _not_in_a_sandbox(sandbox: Sandbox, report: Report) -> Any:
    raise LookupError("it opens no sandbox")


@frozen
class Call(Generic[T]):
    """What is to be done. `carry_out` asks it of the engine; its result is ``T``."""

    failed: str
    """The title of its failure, such as "The revert failed"."""
    act: Callable[[Sandbox, Report], Awaitable[T]] = _not_in_a_sandbox
    """Does it to an open sandbox."""
    open: Callable[[str, Report, RemoteHost | None], Sandbox] = open_any
    """Opens the sandbox of that name or id for it, on this machine if there is no other."""
    run: Callable[[str, Report], Awaitable[T]] | None = None
    """Does it instead on this machine, and on no other, where no sandbox is to be opened. A call
    that is about none ignores the name."""
    anywhere: Callable[[str, Report, RemoteHost | None], Awaitable[T]] | None = None
    """Does it instead on any machine, where no sandbox is to be opened, to the one of that name or
    id: it makes one, or works on what stands on the disk there. Without a machine it is this
    one."""
    job: JobVerb = JobVerb.CHANGE
    """The verb of its job, which says how the job is shown and cancelled, if that is special."""
    doing: str = ""
    """The words while it is under way, as in "stopping web"."""
    stage: str = ""
    """The words while it is under way, where the name of the sandbox stands before them: "web:
    going back"."""
    done: str = ""
    """The state of the sandbox then, as in "web is stopped", if its row shows the result."""
    spec: object = None
    """The object of its work, if that is one value: a form's values, or the keys of saves."""
    tell: Callable[[str, T, Keymap], str | Told | None] = _no_message
    """Turns the result for the sandbox of that name into a message of the app; None if the
    sandbox's row shows it. Raises OperationError for a result that is a failure."""
    facts: Callable[[str, T], Any] = _no_facts
    """Turns the result for the sandbox of that name into the object that ``--json`` prints."""
    lines: Callable[[str, T], Table | Iterable[str]] = _nothing
    """Turns the result into the output of the command."""
    said: Callable[[str, T], Iterable[str]] = _nothing
    """Turns the result into further messages of the command, on stderr."""
    notices: Callable[[str, T], Iterable[tuple[str, Sequence[str]]]] = _nothing
    """Turns the result into notices of parts that could not be done, by names of sandboxes."""
    warnings: Callable[[Sandbox], Iterable[str]] = _none
    """Returns the command's warnings about a sandbox before the action."""
    only_here: bool = False
    """Whether it is not carried out on other machines."""
    host: str = ""
    """The machine on which it is done, if it is about no sandbox."""
    verb: AnyVerb | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    """The values of its verb's parameters by their names, except the subject's."""

    def of(self, verb: AnyVerb, values: Mapping[str, Any]) -> Self:
        """Returns this as the call of ``verb`` with those of these values that are parameters of
        its command."""
        names = {parameter.name for parameter in verb.parameters}
        given = {name: value for name, value in values.items() if name in names}
        return replace(self, verb=verb, values={**given, **self.values})

    @property
    def name(self) -> str:
        """The name of its verb, such as "checkpoint rm"."""
        return self._verb.name

    @property
    def _verb(self) -> AnyVerb:
        assert self.verb is not None, "a call is made by its verb"
        return self.verb

    def command_for(self, subject: str = "") -> str:
        """Returns the command that does the same to ``subject``."""
        subject, host = split_subject(self._verb, subject)
        words = words_of(self._verb, subject, self.values, as_shown=True)
        return shown_command(words, self.host or host)

    @property
    def only_reads(self) -> bool:
        """Whether it changes nothing."""
        return self._verb.only_reads([name for name, value in self.values.items() if value])

    async def carry_out(
        self,
        name: str,
        report: Report = ignore,
        opened: Callable[[Sandbox], None] = ignore,
        host: RemoteHost | None = None,
    ) -> T:
        """Does it to the sandbox of that name or id, which ``opened`` gets first if it is opened,
        on another machine if a ``host`` is given. A cancelled call returns after it has undone what
        it began. Raises QuicksandError or OSError as the engine does, or OperationError."""
        if self.run is not None:
            return await self.run(name, report)
        if self.anywhere is not None:
            return await self.anywhere(name, report, host)
        sandbox = self.open(name, report, host)
        try:
            await sandbox.look()
            opened(sandbox)
            return await self.act(sandbox, report)
        finally:
            sandbox.close()


STAGES = {
    # A start
    "image": "finding the image",
    "accelerator": "probing the accelerator",
    "disk": "making the disk",
    "qemu": "starting QEMU",
    "guest": "booting the guest",
    "desktop": "waiting for the desktop",
    # Work that moves bytes
    "copy": "copying",
    "compress": "compressing",
}
"""The words, by the engine's names of its stages."""


def stage_text(stage: str) -> str:
    """Returns a stage of the engine in words; the engine's own if it has none here."""
    return STAGES.get(stage, stage)
