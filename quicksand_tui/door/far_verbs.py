"""Carries out verbs on another machine, each once, whatever the connection does: by the methods of
a sandbox there, or by the command line of what is about no sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from quicksand.base.errors import QuicksandError, RemoteUnreachableError
from quicksand.base.typed_values import ForeignValueError
from quicksand.guest.agent.wire import Stream
from quicksand.remote.asking import AskedCommand, CommandLine

from quicksand_tui.door.far_lines import Lines
from quicksand_tui.door.far_sandbox import patient
from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.model.shown_sandboxes import at_host
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.call import Progress, Relayed
from quicksand_tui.verbs.telling import TELL, TELL_JSON

if TYPE_CHECKING:
    from collections.abc import Callable

    from quicksand_tui.door.far_host import FarHost
    from quicksand_tui.verbs.call import Call, Report

T = TypeVar("T")

OUTPUT_MAX = 4 * 1024 * 1024
"""The most bytes of JSON that a command prints."""

NOTICES_MAX = 20
WORDS_MAX = 600
"""The most characters of a message."""
LINES_KEPT = 20
LINE_SHOWN = 200

FOUND = 1
"""The exit code of a command that has found what it was to look for (`cli.output.Exit`)."""

UNDONE_S = 60.0
"""Seconds that a cancelled command has to undo what it began."""


async def carry_out_there(host: FarHost, verb: Call[T], sandbox_id: str, report: Report) -> T:
    """Carries a verb out on a machine, as `Call.carry_out` does here; ``sandbox_id`` is an id
    there. Raises OperationError, and RemoteError if the machine is away, or if it is unknown
    whether the verb was done."""
    if verb.only_here or (verb.run is not None and verb.there is None):
        raise _failure(verb, f"{verb.name} is not done on other machines from here")
    if not host.connection:
        # A machine that is away shows its last known state: nothing is begun with that. A machine
        # that goes away later is waited for.
        raise RemoteUnreachableError(host.away_words)
    if verb.there is not None:
        return await _relay(host, verb, verb.there, sandbox_id, report)

    def report_there(progress: Progress) -> None:
        report(replace(progress, sandbox_id=at_host(progress.sandbox_id, host.name)))

    way = patient(host, lambda words: report(Progress("", words)))
    return await verb.carry_out(sandbox_id, report_there, host=way)


async def _relay(
    host: FarHost,
    verb: Call[T],
    read: Callable[[Relayed], T],
    sandbox_id: str,
    report: Report,
) -> T:
    """Has the verb's command carried out there; ``read`` makes the result of its report."""
    listener = _Listener(lambda progress: report(_with_id(progress, host, verb.spec)))
    before = host.sandbox(sandbox_id)
    line = CommandLine(
        argv=verb.relayed_words(sandbox_id), env={TELL: TELL_JSON}, changes=not verb.only_reads
    )
    asked = AskedCommand(host.link, line)
    try:
        await asked.start()
        async for stream, data in asked.pieces():
            listener.take(stream, data)
    except asyncio.CancelledError:
        await _undone(asked)
        raise
    except ForeignValueError as error:
        asked.signal("TERM")
        raise _failure(verb, f"{host.name} answers what makes no sense: {error}") from error
    if asked.exit_code and not (verb.finds_faults and listener.has_found(asked.exit_code)):
        raise OperationError(listener.failure(verb.failed, asked.exit_code))
    try:
        return read(listener.relayed(before))
    except (LookupError, TypeError, ValueError) as error:
        raise _failure(
            verb,
            f"{host.name} has done it, but what it tells of it makes no sense: {error}",
        ) from error


def _with_id(progress: Progress, host: FarHost, spec: object) -> Progress:
    """Returns the progress of a start with the id of the new sandbox, as soon as it has one."""
    if not isinstance(spec, NewSpec):
        return progress
    name = at_host(spec.name, host.name)
    found = next((view.id for view in host.sandboxes if view.name == name), "")
    return replace(progress, sandbox_id=found)


async def _undone(asked: AskedCommand) -> None:
    """Has a command undo what it began, as here, and waits for that."""
    asked.signal("INT")

    async def wait() -> None:
        with contextlib.suppress(QuicksandError, OSError, TimeoutError):
            async with asyncio.timeout(UNDONE_S):
                async for _ in asked.pieces():
                    pass

    waiting = asyncio.create_task(wait(), name="quicksand-undone")
    while not waiting.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(waiting)


def _failure(verb: Call[Any], message: str) -> OperationError:
    return OperationError(Failure(title=sanitise(verb.failed), message=sanitise(message)))


def _share_of(told: object) -> float | None:
    """Returns the share of a whole that another machine tells; None if it tells none."""
    return float(told) if isinstance(told, int | float) and 0 <= told <= 1 else None


class _Listener:
    """Takes the output of a command: JSON on stdout, and lines of it on stderr
    (`verbs.telling`)."""

    def __init__(self, report: Callable[[Progress], None]) -> None:
        self._report = report
        self._printed = bytearray()
        self._lines = Lines()
        self._notices: list[str] = []
        self._errors: list[tuple[str, str]] = []
        """Messages with their hints."""
        self._other: list[str] = []

    def take(self, stream: int, data: bytes) -> None:
        """Takes a piece of output. Raises ForeignValueError if there is too much."""
        if stream == Stream.STDOUT:
            self._printed += data
            if len(self._printed) > OUTPUT_MAX:
                raise ForeignValueError(f"it printed more than {OUTPUT_MAX} bytes")
            return
        for line in self._lines.feed(data):
            self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            told = None
        match told:
            case {"progress": {"stage": str(stage), **more}}:
                counts = (more.get(name, 0) for name in ("step", "steps", "done", "total"))
                steps = [one for one in counts if type(one) is int and 0 <= one < 2**63]
                if len(steps) == 4:
                    shown, share = sanitise(stage, limit=LINE_SHOWN), _share_of(more.get("share"))
                    self._report(replace(Progress("", shown, *steps), share=share))
            case {"error": {"message": str(message), **more}}:
                hint = more.get("hint", "")
                self._errors.append((message, hint if isinstance(hint, str) else ""))
                del self._errors[:-NOTICES_MAX]
            case {"notice": str(notice)}:
                self._notices.append(notice)
                del self._notices[:-NOTICES_MAX]
            case {"said": str()}:
                pass
            case _:
                text = line.decode("utf-8", "replace")
                self._other = [*self._other, sanitise(text, limit=LINE_SHOWN)][-LINES_KEPT:]

    def has_found(self, exit_code: int) -> bool:
        """Whether the command has ended well, and has found faults."""
        return exit_code == FOUND and bool(self._printed.strip()) and not self._errors

    def relayed(self, before: Any) -> Relayed:
        """Returns the report. Raises ValueError if it is no JSON."""
        text = self._printed.decode("utf-8", "replace").strip()
        printed = json.loads(text) if text[:1] in ("{", "[") else None
        return Relayed(json=printed, notices=tuple(self._notices), sandbox=before)

    def failure(self, title: str, exit_code: int) -> Failure:
        """Returns why the command failed."""
        if not self._errors:
            message, hint = f"the command there ended with exit code {exit_code}", ""
        else:
            message, hint = self._errors[-1]
            message = "; ".join([one for one, _ in self._errors[:-1]] + [message])
        return Failure(
            title=sanitise(title),
            message=sanitise(message, limit=WORDS_MAX),
            hint=sanitise(hint, limit=WORDS_MAX),
            log=tuple(self._other),
        )
