"""Jobs, and a command in many sandboxes, as rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.amounts import age_text, seconds_text
from quicksand_tui.model.jobs import (
    CANCELLABLE,
    CommandOutput,
    EndedJob,
    Job,
    JobVerb,
    Run,
    RunState,
)
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import clip
from quicksand_tui.views.sandbox_rows import PADDING
from quicksand_tui.views.tables import Cell, Column, Row

if TYPE_CHECKING:
    from quicksand_tui.model.world import World

BAR_CELLS = 8
DONE, LEFT = "█", "░"
JOB_NAME_MAX = 28
PROGRESS_CELLS = 41
"""Width of a bar, a stage, a rate and the time left."""
NAME_CELLS = 40
"""Width of a name within a sentence."""

WORDS = {
    JobVerb.REMOVE: "delete",
    JobVerb.DISCARD: "delete",
    JobVerb.VERIFY: "verify",
    JobVerb.RESTORE: "restore",
    JobVerb.RUN: "run",
}
"""The words of jobs in rows where the value of the `JobVerb` is a noun or too long."""
DOING = {
    JobVerb.EXPORT: "exporting",
    JobVerb.IMPORT: "importing",
    JobVerb.VERIFY: "verifying",
    JobVerb.DISCARD: "removing",
    JobVerb.RESTORE: "restoring",
}
"""The words of jobs about saves in the rows of these."""
ENDS = {"done": ("✓", "success"), "failed": ("✗", "error"), "cancelled": ("○", "warning")}
"""The glyph and the colour of each outcome."""

NOTHING = "No jobs yet.\nYou can follow and cancel longer actions here."


def plan_jobs_columns(width: int) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells."""
    columns = [Column("what", "Job", 12)]
    if width >= 44:
        columns.append(Column("since", "Since", 5, right=True))
    left = width - sum(column.width + PADDING for column in columns) - PADDING
    if width >= 34:
        name = max(6, min(JOB_NAME_MAX, left - PADDING - PROGRESS_CELLS))
        columns.insert(1, Column("name", "Of", name))
        left -= name + PADDING
    return (*columns, Column("progress", "Progress", max(4, left)))


def job_row(job: Job, now: float) -> Row:
    """Returns the row of a running job; ``now`` is Unix time."""
    cells = {
        "what": Cell(f"◐ {word_of(job)}", "warning"),
        "name": Cell(job.name),
        "since": Cell(age_text(now - job.started), "muted"),
        "progress": Cell(progress_text(job, now)),
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


def progress_text(job: Job, now: float) -> str:
    """Returns text such as "██░░░░░░ reading 34% · 120M/s · 12s left"."""
    progress = job.progress_at(now)
    if job.cancelling:
        return "cancelling: what it had begun is undone"
    share = share_of(job)
    if share is None:
        return progress or "under way"
    return f"{bar_of(share)} {progress}"


def bar_of(share: float) -> str:
    """Returns a bar that is full to a share from 0 to 1."""
    full = int(share * BAR_CELLS)
    return DONE * full + LEFT * (BAR_CELLS - full)


def share_of(job: Job) -> float | None:
    """Returns the share that is done, from 0 to 1; None if unknown."""
    if job.share is not None:
        return job.share
    if job.total > 0:
        return max(0.0, min(1.0, job.done / job.total))
    if job.steps > 0:
        return max(0.0, min(1.0, (job.step - 1) / job.steps))
    return None


def end_text(ended: EndedJob) -> str:
    took = f"{ended.outcome}, {seconds_text(ended.seconds)}"
    said = ended.failure.message if ended.failure is not None else ended.told
    return f"{took}: {said}" if said else took


def find_cancel_problem(job: Job) -> str:
    """Returns why a job cannot be cancelled; "" if it can."""
    if job.cancelling:
        return "it is being cancelled"
    if job.verb not in CANCELLABLE:
        return f"a {job.verb.value} cannot be cancelled half-way"
    return ""


def cancel_text(job: Job) -> str:
    """Returns the effect of cancelling a job."""
    if job.verb is JobVerb.DISCARD:
        return "It stops where it is: what is removed already stays so"
    where = "in" if job.verb is JobVerb.RUN else "of"
    what = f"Cancelling the {job.verb.value} {where} {clip(job.name, NAME_CELLS)}"
    return what if job.verb in (JobVerb.VERIFY, JobVerb.RUN) else f"{what}: nothing of it stays"


def describe_ended(ended: EndedJob, now: float) -> Told:
    """Returns the report of an ended job without a failure."""
    how = "It has failed" if ended.outcome == "failed" else f"It was {ended.outcome}"
    ago = f"{age_text(now - ended.ended)} ago, after {seconds_text(ended.seconds)}"
    said = ended.told or ("Nothing of it stays." if ended.outcome == "cancelled" else "")
    lines = (f"{how} {ago}.", *([said] if said else []), "", f"$ {ended.job.command}")
    return Told(summary=f"{word_of(ended.job)} {clip(ended.job.name, NAME_CELLS)}", lines=lines)


def describe_job(job: Job, now: float) -> Told:
    progress = job.progress_at(now) or "no news yet"
    lines = [f"Under way for {age_text(now - job.started)}: {progress}"]
    lines += ["", f"$ {job.command}"] if job.command else []
    return Told(summary=f"{word_of(job)} {clip(job.name, NAME_CELLS)}", lines=tuple(lines))


def job_text(job: Job) -> str:
    doing = "cancelling" if job.cancelling else DOING.get(job.verb, job.verb.value)
    return f"◐ {doing}" if job.cancelling or not job.progress else f"◐ {doing}: {job.progress}"


def jobs_text(world: World) -> str:
    """Returns the single running job if no sandbox's row shows it, else the number of jobs."""
    jobs, own = world.jobs, world.save_jobs
    if len(jobs) == 1 and own:
        return f"{job_text(own[0])} ({clip(own[0].name, 24)})"
    return f"◐ {len(jobs)} under way (J)" if jobs else ""


RUN_NAME_MAX = 24
STATES = {
    RunState.READY: ("–", "muted"),
    RunState.WAITING: ("◐ waiting", "muted"),
    RunState.RUNNING: ("◐ running", "warning"),
    RunState.FAILED: ("✗ failed", "error"),
    RunState.CANCELLED: ("○ cancelled", "warning"),
    RunState.SKIPPED: ("○ skipped", "muted"),
}
CUT = "… it wrote more, which is left out"


def plan_run_columns(width: int) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells."""
    columns = [Column("exit", "Exit", 11)]
    if width >= 50:
        columns.append(Column("time", "Time", 7, right=True))
    left = width - sum(column.width + PADDING for column in columns) - 2 * PADDING
    name = max(6, min(RUN_NAME_MAX, left // 3))
    return (
        Column("name", "Sandbox", name),
        *columns,
        Column("output", "Output", max(4, left - name)),
    )


def run_row(run: Run, now: float) -> Row:
    """Returns the row of one sandbox; ``now`` is monotonic time."""
    output = run.output
    text, role = STATES.get(run.state, ("", ""))
    seconds = ""
    if output is not None:
        text, role = exit_text(output), "error" if output.exit_code else "success"
        seconds = seconds_text(output.seconds)
    elif run.state is RunState.RUNNING:
        seconds = seconds_text(now - run.begun)
    cells = {
        "name": Cell(run.name, "muted" if run.state is RunState.SKIPPED else ""),
        "exit": Cell(text, role),
        "time": Cell(seconds, "muted"),
        "output": Cell(run.note or first_line(output), "muted" if run.note else ""),
    }
    return Row(run.sandbox_id, cells)


def exit_text(output: CommandOutput) -> str:
    if output.timed_out:
        return "✗ timed out"
    return f"{'✗' if output.exit_code else '✓'} {output.exit_code}"


def first_line(output: CommandOutput | None) -> str:
    """Returns the first line that is not blank."""
    lines = output.lines if output is not None else ()
    return next((line.strip() for line in lines if line.strip()), "")


def describe_run(run: Run) -> tuple[str, list[str]]:
    """Returns a title and the output."""
    output = run.output
    if output is None:
        state, _ = STATES[run.state]
        return f"{run.name} · {state}", [run.note or "There is no output of it."]
    lines = [*output.lines, *([CUT] if output.is_cut else [])]
    title = f"{run.name} · {exit_text(output)} · {seconds_text(output.seconds)}"
    return title, lines or ["It wrote nothing."]
