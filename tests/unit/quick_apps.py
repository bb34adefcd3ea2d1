"""What keeps some thousand tests of the app quick: a pilot goes on as soon as the app is idle, and
the style sheets, which are the same for every test, are parsed once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from time import process_time
from typing import Any

import textual.app
import textual.pilot
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation

SOON_S = 0.01
"""A timer due within this is waited for, as that of Textual's screen: it draws every 1/120 s."""

COMPUTES_S = 0.0005
"""A thread that uses less of the processor in `SOON_S` waits for something itself."""

usual_wait = textual.pilot.wait_for_idle  # type: ignore[attr-defined]
"""Textual's own `wait_for_idle`."""

_parse_rules = Stylesheet._parse_rules
_parsed: dict[tuple[object, ...], list[RuleSet]] = {}


def install() -> None:
    """Have Textual use what is here."""
    textual.app.wait_for_idle = wait_for_idle  # type: ignore[attr-defined]
    textual.pilot.wait_for_idle = wait_for_idle  # type: ignore[attr-defined]
    Stylesheet._parse_rules = parse_once  # type: ignore[method-assign]


async def wait_for_idle(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Wait until no callback is ready, no timer is due soon and no thread computes, at most
    ``max_sleep`` seconds of the processor and of sleep that was meant. A host that is too busy to
    let this process go on takes nothing of them: what a key has caused may need twenty turns of the
    loop, each of which may come late.

    Textual's own goes by the clock: the process has used next to no processor for 20 ms. That costs
    the 20 ms twice behind each key, and takes a process that did not get its turn on a busy host
    for idle. ``min_sleep`` is of use to that only.
    """
    # What is looked at here of asyncio is private, and the same from Python 3.11 on.
    loop: Any = asyncio.get_running_loop()
    waited, looks = 0.0, 0
    # Between two looks the loop has taken what its sockets and pipes have.
    while looks < 2 and waited < max_sleep:
        began = process_time()
        await asyncio.sleep(0)
        slept = 0.0 if loop._ready else await _wait_for_timer(loop)
        if slept is None and await _computes(loop):
            slept = SOON_S
        looks = looks + 1 if slept is None else 0
        waited += process_time() - began + (slept or 0.0)


async def _wait_for_timer(loop: Any) -> float | None:
    """Wait for a timer that is due soon; returns how long, or None if there is none."""
    now = loop.time()
    timers = (timer.when() for timer in loop._scheduled if not timer.cancelled())
    due = min(timers, default=now + 1)
    if due > now + SOON_S:
        return None
    await asyncio.sleep(max(0.0, due - now))
    return float(max(0.0, due - now))


async def _computes(loop: Any) -> bool:
    """Whether a thread of `asyncio.to_thread` is at work, and does not just wait for something."""
    pool = loop._default_executor
    if pool is None or pool._idle_semaphore._value >= len(pool._threads):
        return False
    used = process_time()
    await asyncio.sleep(SOON_S)
    return process_time() - used > COMPUTES_S or any(map(_wants_its_turn, pool._threads))


def _wants_its_turn(thread: threading.Thread) -> bool:
    """Whether the host was too busy to let that thread go on, or it waits for a disk (proc(5))."""
    try:
        stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except OSError:  # the thread has just ended, or this is not Linux
        return False
    return stat.rpartition(")")[2].split()[0] in "RD"


def parse_once(
    self: Stylesheet,
    css: str,
    read_from: CSSLocation,
    is_default_rules: bool = False,
    tie_breaker: int = 0,
    scope: str = "",
) -> list[RuleSet]:
    """The rules of a sheet. Textual keeps them, too, but only as long as an app lives."""
    variables = frozenset(self._variables.items())
    key = (css, read_from, is_default_rules, tie_breaker, scope, variables)
    if key not in _parsed:
        _parsed[key] = _parse_rules(self, css, read_from, is_default_rules, tie_breaker, scope)
    return _parsed[key]
