"""A verb with the values of its parameters, ready to be carried out: the common part of its command
and its job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from quicksand.things.frozen import frozen

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.shown_commands import Value, shown_command, split_subject, words_of

if TYPE_CHECKING:
    from typing import Self

    from quicksand.base.progress import Progress as EngineProgress
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.life.kept_things import KeptThings
    from quicksand.sandbox import Sandbox

    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.specs import Told
    from quicksand_tui.verbs.verb import AnyVerb

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
