"""`quicksand-tui events`: the events of sandboxes, for people and for scripts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from quicksand.base.errors import QuicksandError

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import Exit, complain
from quicksand_tui.door.event_watch import EventWatch, read_cursor, write_cursor
from quicksand_tui.model.amounts import clock_text
from quicksand_tui.model.happened import Happened, HappenedKind, words_of
from quicksand_tui.model.text import clean

LOOK_EVERY_S = 0.5
"""Seconds between two looks at the disk."""


@command_of("events")
def events_command(
    names: tuple[str, ...], follow: bool, lines: int | None, since: Path | None, as_json: bool
) -> int:
    """Show what happened to sandboxes, or with -f what happens.

    Sandboxes that are created, change their state, are renamed or deleted; checkpoints; reverts;
    mounts; and commands that end (of `exec`, of the app and of Python). It does not matter which
    process does it. Without -f it shows what is known of the past: when sandboxes were created and
    started, checkpoints, and the last commands of those that run.

    With --json each event is an object on a line of its own, with "time" (Unix), "event", "id",
    "name", and what belongs to the event. With -f the first one is {"event": "watching"}: what
    happens after it is told. The disk is looked at twice a second; of states that follow each other
    faster, only the last one is told.

    With --since, what happened while no reader ran is told first: FILE keeps how far the reader
    before has come. It is written after each event, so one that is killed in between is told again.
    The first time, when there is no FILE, it begins as without it.
    """
    cursor = None if since is None else read_cursor(since)
    watch = EventWatch(cursor)
    past = watch.look()
    wanted = (0 if follow and cursor is None else len(past)) if lines is None else lines
    chosen = _of(past, names)
    _show(chosen[max(0, len(chosen) - wanted) :], as_json=as_json)
    _note(watch, since)
    if follow:
        if as_json:
            _show([Happened(kind=HappenedKind.WATCHING, time=time.time())], as_json=True)
        _follow(watch, names, since, as_json=as_json)
    return Exit.OK


def _note(watch: EventWatch, since: Path | None) -> None:
    """Notes the position of the watch. Raises HostError."""
    if since is not None and watch.cursor is not None:
        write_cursor(since, watch.cursor)


def _follow(
    watch: EventWatch, names: tuple[str, ...], since: Path | None, *, as_json: bool
) -> None:
    """Shows the events, until it is interrupted."""
    is_told = False
    while True:
        time.sleep(LOOK_EVERY_S)
        try:
            happened = watch.look()
        except (OSError, QuicksandError) as error:
            # It is tried again; the trouble is told once.
            if not is_told:
                complain(error, about="the sandboxes cannot be read now")
            is_told = True
            continue
        is_told = False
        _show(_of(happened, names), as_json=as_json)
        if happened:
            _note(watch, since)


def _of(events: Iterable[Happened], names: tuple[str, ...]) -> list[Happened]:
    """Returns the events of the sandboxes with these names or ids; all without names."""
    return [event for event in events if not names or event.name in names or event.id in names]


def _show(events: list[Happened], *, as_json: bool) -> None:
    if as_json:
        lines = [json.dumps(event.to_json()) for event in events]
    else:
        now = time.time()
        lines = [
            f"{clock_text(event.time, now)}  {event.name}  {clean(words_of(event))}"
            for event in events
        ]
    for line in lines:
        # DEL is the only character that a terminal acts on and JSON does not escape.
        print(line.replace("\x7f", "\\u007f"))
    sys.stdout.flush()
