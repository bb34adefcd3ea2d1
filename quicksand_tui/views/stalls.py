"""Words about a sandbox that stands still without being stopped: it is silent, or paused."""

from __future__ import annotations

from quicksand.things.status import Status

from quicksand_tui.model.amounts import age_text
from quicksand_tui.model.shown_sandboxes import SILENT_S, SandboxView


def silence_text(view: SandboxView, now: float) -> str:
    """Returns the time for which a running sandbox has not answered; "" if it answers."""
    if view.state is not Status.RUNNING or view.away or view.silent_since is None:
        return ""
    seconds = now - view.silent_since
    return no_answer_text(seconds) if seconds >= SILENT_S else ""


def no_answer_text(seconds: float) -> str:
    """Returns words about a guest, or a machine, that has not answered for so long."""
    return f"no answer for {age_text(seconds)}"


def pause_text(view: SandboxView, resumes: str) -> str:
    """Returns words about a paused sandbox, with the reason as the engine tells it; if somebody has
    paused it, ``resumes`` says how it is resumed."""
    return f"paused: {view.error or resumes}"


def stall_text(view: SandboxView, now: float, resumes: str) -> str:
    """Returns the reason why a pane of a sandbox shows nothing new; "" if none is known.
    ``resumes`` says how a paused sandbox is resumed."""
    if view.state is Status.PAUSED:
        return pause_text(view, resumes)
    return silence_text(view, now)
