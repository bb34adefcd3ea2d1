"""Jobs as lines of a table: pure functions, no widgets."""

from __future__ import annotations

from quicksand_tui.operations import CANCELLABLE, EndedJob
from quicksand_tui.saves_spec import Told
from quicksand_tui.snapshot import Job, Verb
from quicksand_tui.text import age_text, clip
from quicksand_tui.view import PADDING, Cell, Column, Row

BAR_CELLS = 8
DONE, LEFT = "█", "░"
NAME_MAX = 28
PROGRESS_CELLS = 41
"""A bar, a stage, a rate and the time that is left."""
NAME_CELLS = 40
"""Of a name within a sentence."""

WORDS = {
    Verb.REMOVE: "delete",
    Verb.DISCARD: "delete",
    Verb.VERIFY: "verify",
    Verb.RESTORE: "restore",
    Verb.RUN: "run",
}
"""What a line calls a job whose verb is no verb."""
ENDS = {"done": ("✓", "success"), "failed": ("✗", "error"), "cancelled": ("○", "warning")}
"""Glyph and colour of each outcome; its word stands beside it."""

NOTHING = "Nothing was done yet.\nWhat takes a while can be followed and cancelled here."


def plan_jobs_columns(width: int) -> tuple[Column, ...]:
    """The columns that fit into ``width`` cells."""
    columns = [Column("what", "Job", 12)]
    if width >= 44:
        columns.append(Column("since", "Since", 5, right=True))
    left = width - sum(column.width + PADDING for column in columns) - PADDING
    if width >= 34:
        name = max(6, min(NAME_MAX, left - PADDING - PROGRESS_CELLS))
        columns.insert(1, Column("name", "Of", name))
        left -= name + PADDING
    return (*columns, Column("progress", "Progress", max(4, left)))


def job_row(job: Job, now: float) -> Row:
    """One that is under way."""
    cells = {
        "what": Cell(f"◐ {word_of(job)}", "warning"),
        "name": Cell(job.name),
        "since": Cell(age_text(now - job.started), "muted"),
        "progress": Cell(progress_text(job)),
    }
    return Row(key_of(job), cells)


def ended_row(ended: EndedJob, now: float) -> Row:
    glyph, role = ENDS[ended.outcome]
    cells = {
        "what": Cell(f"{glyph} {word_of(ended.job)}", role),
        "name": Cell(ended.job.name, "muted"),
        "since": Cell(age_text(now - ended.ended), "muted"),
        "progress": Cell(end_text(ended), role if ended.outcome == "failed" else "muted"),
    }
    return Row(key_of_ended(ended), cells)


def key_of(job: Job) -> str:
    return f"job:{job.sandbox_id}"


def key_of_ended(ended: EndedJob) -> str:
    return f"ended:{ended.number}"


def word_of(job: Job) -> str:
    return WORDS.get(job.verb, job.verb.value)


def progress_text(job: Job) -> str:
    """For example "██░░░░░░ reading 34% · 120M/s · 12s left"."""
    if job.cancelling:
        return "cancelling: what it had begun is undone"
    share = share_of(job)
    if share is None:
        return job.progress or "under way"
    full = int(share * BAR_CELLS)
    return f"{DONE * full}{LEFT * (BAR_CELLS - full)} {job.progress}"


def share_of(job: Job) -> float | None:
    """How much of it is done, 0 to 1; None where nobody knows."""
    if job.total > 0:
        return max(0.0, min(1.0, job.done / job.total))
    if job.steps > 0:
        return max(0.0, min(1.0, (job.step - 1) / job.steps))
    return None


def end_text(ended: EndedJob) -> str:
    took = f"{ended.outcome}, {ended.seconds:.1f} s"
    said = ended.failure.message if ended.failure is not None else ended.told
    return f"{took}: {said}" if said else took


def find_cancel_problem(job: Job) -> str:
    """Why a job cannot be cancelled; "" if it can."""
    if job.cancelling:
        return "it is being cancelled"
    if job.verb not in CANCELLABLE:
        return f"a {job.verb.value} cannot be cancelled half-way"
    return ""


def cancel_text(job: Job) -> str:
    """What cancelling it means."""
    if job.verb is Verb.DISCARD:
        return "It stops where it is: what is removed already stays so"
    where = "in" if job.verb is Verb.RUN else "of"
    what = f"Cancelling the {job.verb.value} {where} {clip(job.name, NAME_CELLS)}"
    return what if job.verb in (Verb.VERIFY, Verb.RUN) else f"{what}: nothing of it stays"


def describe_ended(ended: EndedJob, now: float) -> Told:
    """All there is to know about one that has no failure to show."""
    how = "It has failed" if ended.outcome == "failed" else f"It was {ended.outcome}"
    ago = f"{age_text(now - ended.ended)} ago, after {ended.seconds:.1f} s"
    said = ended.told or ("Nothing of it stays." if ended.outcome == "cancelled" else "")
    lines = (f"{how} {ago}.", *([said] if said else []), "", f"$ {ended.job.command}")
    return Told(summary=f"{word_of(ended.job)} {clip(ended.job.name, NAME_CELLS)}", lines=lines)


def describe_job(job: Job, now: float) -> Told:
    lines = [f"Under way for {age_text(now - job.started)}: {job.progress or 'no news yet'}"]
    lines += ["", f"$ {job.command}"] if job.command else []
    return Told(summary=f"{word_of(job)} {clip(job.name, NAME_CELLS)}", lines=tuple(lines))
