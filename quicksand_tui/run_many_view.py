"""A command in many sandboxes as lines of a table: pure functions, no widgets."""

from __future__ import annotations

from quicksand_tui.run_many import CommandOutput, Run, RunState
from quicksand_tui.view import PADDING, Cell, Column, Row

NAME_MAX = 24
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
    """The columns that fit into ``width`` cells."""
    columns = [Column("exit", "Exit", 11)]
    if width >= 50:
        columns.append(Column("time", "Time", 7, right=True))
    left = width - sum(column.width + PADDING for column in columns) - 2 * PADDING
    name = max(6, min(NAME_MAX, left // 3))
    return (
        Column("name", "Sandbox", name),
        *columns,
        Column("output", "Output", max(4, left - name)),
    )


def run_row(run: Run, now: float) -> Row:
    """One sandbox; ``now`` is monotonic time."""
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


def seconds_text(seconds: float) -> str:
    return f"{seconds:.1f} s"


def first_line(output: CommandOutput | None) -> str:
    """The first one that says something."""
    lines = output.lines if output is not None else ()
    return next((line.strip() for line in lines if line.strip()), "")


def describe_run(run: Run) -> tuple[str, list[str]]:
    """A title, and all that it wrote."""
    output = run.output
    if output is None:
        state, _ = STATES[run.state]
        return f"{run.name} · {state}", [run.note or "There is no output of it."]
    lines = [*output.lines, *([CUT] if output.is_cut else [])]
    title = f"{run.name} · {exit_text(output)} · {seconds_text(output.seconds)}"
    return title, lines or ["It wrote nothing."]
