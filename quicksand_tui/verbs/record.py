"""The record of a verb with its parameters: what its command and its job share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from quicksand_tui.model.frozen import frozen
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.verbs import engine
from quicksand_tui.verbs.commands import Value, command_about, shown_command, words_about
from quicksand_tui.verbs.rows import find_verb

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.specs import Told

AS_JSON = "as_json"
"""The name of the option ``--json``."""

T = TypeVar("T")


@frozen(kw_only=False)
class Progress:
    """How far a verb is."""

    sandbox_id: str
    """"" if unknown; a new sandbox's id as soon as it exists."""
    stage: str = ""
    step: int = 0
    steps: int = 0
    done: int = 0
    total: int = 0
    """``done`` of ``total`` bytes; both are 0 if bytes are not counted."""


Report = Callable[[Progress], None]
"""Receives progress; may be called from any thread."""


def ignore(_: Any) -> None:
    """Receives progress that nobody follows, or a sandbox that nobody looks at."""


def _no_message(name: str, result: Any, keymap: Keymap) -> None:
    return None


def _no_facts(name: str, result: Any) -> None:
    return None


@frozen
class Relayed:
    """What the command of a verb has told on another machine. Nothing of it is sanitised."""

    json: Any = None
    """What ``--json`` printed; None if the command has no such option."""
    notices: tuple[str, ...] = ()
    """What it could not do."""
    sandbox: SandboxView | None = None
    """The sandbox as it was before."""


def no_result(_: Relayed) -> None:
    """The result of a verb that has none."""


def not_there(_: Relayed) -> Any:
    """The result of a verb that is not carried out on other machines."""
    raise LookupError


@frozen
class Verb(ABC, Generic[T]):
    """A verb with its parameters. `carry_out` calls the engine; its result is ``T``."""

    name: str
    """Its command, such as "checkpoint rm" (`quicksand_tui.verbs.rows`)."""
    failed: str
    """The title of its failure, such as "The revert failed"."""
    job: JobVerb = JobVerb.CHANGE
    """What its job is called, and how it is shown and can be cancelled, if that is special."""
    doing: str = ""
    """What is under way, as in "stopping web"."""
    stage: str = ""
    """What is under way, where the name of the sandbox stands before it: "web: going back"."""
    done: str = ""
    """What the sandbox is then, as in "web is stopped", if its row shows the result."""
    flags: tuple[str, ...] = ()
    """The flags of the command that does the same, by the names of their parameters."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """Its further parameters, in the order in which the command shows them."""
    spec: object = None
    """What it works on, if that is one value: what a form asked for, or the keys of saves."""
    tell: Callable[[str, T, Keymap], str | Told | None] = _no_message
    """Turns the result for the sandbox of that name into a message of the app; None if the
    sandbox's row shows it. Raises OperationError for a result that is a failure."""
    facts: Callable[[str, T], Any] = _no_facts
    """Turns the result for the sandbox of that name into what ``--json`` prints."""
    there: Callable[[Relayed], Any] = not_there
    """Makes what `tell` takes of what the command has told on another machine. Raises LookupError,
    TypeError or ValueError for what makes no sense."""
    words: Callable[[str], Sequence[str]] | None = None
    """Returns the words of its command about a subject, if `values` are only to be shown."""
    host: str = ""
    """The machine on which it is done, if it is about no sandbox, which says that itself."""
    finds_faults: bool = False
    """Whether its command ends with 1 when it has found what it looks for: that is no failure."""

    def command_for(self, subject: str = "") -> str:
        """Returns the command that does the same to ``subject``."""
        if self.host:
            words = words_about(self.name, subject, *self.flags, **self.values)
            return shown_command(words, self.host)
        return command_about(self.name, subject, *self.flags, **self.values)

    @property
    def can_be_relayed(self) -> bool:
        """Whether it is carried out on other machines, too."""
        return self.there is not not_there

    def relayed_words(self, subject: str) -> Sequence[str]:
        """Returns the words of its command about ``subject``, with ``--json`` if it has that."""
        if self.words is not None:
            return self.words(subject)
        names = {parameter.name for parameter in find_verb(self.name).parameters}
        more: dict[str, Value] = {AS_JSON: True} if AS_JSON in names else {}
        return words_about(self.name, subject, *self.flags, **more, **self.values)

    @abstractmethod
    async def carry_out(self, name: str, report: Report = ignore) -> T:
        """Does it to the sandbox of that name or id. A cancelled call returns after it has undone
        what it began. Raises QuicksandError or OSError as the engine does, or OperationError."""


def open_any(name: str, report: Report) -> Sandbox:
    """Opens a sandbox, running or not."""
    return engine.Sandbox.open(name)


def attach(name: str, report: Report) -> Sandbox:
    """Opens a running sandbox."""
    return engine.Sandbox.attach(name)


@frozen
class SandboxVerb(Verb[T]):
    """A verb that is done to one sandbox, which is opened for it."""

    act: Callable[[Sandbox, Report], Awaitable[T]]
    """Does it to an open sandbox."""
    open: Callable[[str, Report], Sandbox] = open_any
    """Opens the sandbox of that name or id."""

    async def carry_out(
        self, name: str, report: Report = ignore, opened: Callable[[Sandbox], None] = ignore
    ) -> T:
        """Does it as `Verb.carry_out`; ``opened`` gets the sandbox first."""
        sandbox = self.open(name, report)
        try:
            opened(sandbox)
            return await self.act(sandbox, report)
        finally:
            sandbox.close()


@frozen
class HostVerb(Verb[T]):
    """A verb that opens no sandbox: it makes one, or works on what stands on disk."""

    run: Callable[[str, Report], Awaitable[T]]
    """Does it to the sandbox of that name or id; what is about none ignores that."""

    async def carry_out(self, name: str, report: Report = ignore) -> T:
        return await self.run(name, report)
