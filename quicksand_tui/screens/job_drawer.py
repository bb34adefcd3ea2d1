"""The drawer of jobs: the running ones, and the outcomes of the last ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.kit.base import Dialog, tell
from quicksand_tui.model.text import plain
from quicksand_tui.screens.reports import FailureScreen, ReportScreen
from quicksand_tui.views.job_rows import (
    NOTHING,
    cancel_text,
    describe_ended,
    describe_job,
    ended_row,
    find_cancel_problem,
    job_row,
    key_of,
    key_of_ended,
    plan_jobs_columns,
)
from quicksand_tui.widgets.long_table import LongTable

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.jobs import EndedJob, Job
    from quicksand_tui.model.specs import Told
    from quicksand_tui.model.world import World
    from quicksand_tui.views.tables import Row

KEYS = "enter shows details · c cancels · esc closes"


class JobsScreen(Dialog[None]):
    """Lists running jobs, the oldest first, and below them ended jobs, the latest first."""

    CSS_PATH = "jobs.tcss"
    AUTO_FOCUS = "LongTable"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", show=False),
        Binding("c,x", "cancel", show=False),
        Binding("q,J", "leave", show=False),
    ]

    def __init__(
        self, operations: Operations, keys: Keys, world: World, *, ascii_only: bool
    ) -> None:
        super().__init__()
        self._operations = operations
        self._app_keys = keys
        self._now = world.taken
        self._ascii = ascii_only
        self._table = LongTable(plan_jobs_columns, ascii_only=ascii_only)
        self._jobs: dict[str, Job] = {}
        self._ended: dict[str, EndedJob] = {}

    def compose(self) -> ComposeResult:
        with Vertical(id="drawer") as box:
            box.border_title = Content("Jobs")
            box.border_subtitle = self._text(KEYS)
            yield self._table
            yield Static(self._text(NOTHING), markup=False, id="nothing")

    def on_mount(self) -> None:
        self._show()

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    def update_world(self, world: World) -> None:
        self._now = world.taken
        if self.is_mounted:
            self._show()

    def _show(self) -> None:
        # Sorted, because a job's place among the operations' changes with its progress.
        jobs = sorted(self._operations.jobs, key=lambda job: (job.started, job.name))
        self._jobs = {key_of(job): job for job in jobs}
        self._ended = {key_of_ended(ended): ended for ended in reversed(self._operations.ended)}
        keys = [*self._jobs, *self._ended]
        self.set_class(not keys, "-empty")
        self._table.show(keys, self._row, ())
        count = f"{len(self._jobs)} under way" if self._jobs else "nothing under way"
        self.query_one("#drawer").border_title = self._text(f"Jobs · {count}")

    def _row(self, key: str) -> Row:
        if (job := self._jobs.get(key)) is not None:
            return job_row(job, self._now)
        return ended_row(self._ended[key], self._now)

    @on(LongTable.Opened)
    def action_open(self) -> None:
        """Shows all details of the selected job; for a failed one, its failure."""
        key = self._table.selected_key or ""
        if (job := self._jobs.get(key)) is not None:
            self._report(describe_job(job, self._now))
        elif (ended := self._ended.get(key)) is not None and ended.failure is not None:
            self.app.push_screen(FailureScreen(ended.failure))
        elif ended is not None:
            self._report(describe_ended(ended, self._now))

    def _report(self, told: Told) -> None:
        self.app.push_screen(ReportScreen(told, ascii_only=self._ascii))

    def action_cancel(self) -> None:
        # The cursor may have moved by the time of the cancellation.
        key = self._table.selected_key or ""
        self._app_keys.carefully(lambda: self._cancel(key))

    def _cancel(self, key: str) -> None:
        job = self._jobs.get(key)
        if job is None:
            tell(self, "only a running job can be cancelled", severity="warning")
        elif problem := find_cancel_problem(job):
            tell(self, problem, severity="warning")
        else:
            self._operations.cancel(job.sandbox_id)
            tell(self, cancel_text(job))
