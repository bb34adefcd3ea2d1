"""The stats tab: a sandbox's use of the host, with history, and of its guest."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from quicksand.things.status import Status
from textual import work
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.shown_sandboxes import TrafficMeter
from quicksand_tui.model.text import plain
from quicksand_tui.views.overview import stats_lines
from quicksand_tui.views.tables import MUTED

if TYPE_CHECKING:
    from quicksand.things.sandbox_facts import TrafficRates
    from textual.app import ComposeResult

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.model.shown_sandboxes import GuestView, SandboxView

ASK_EVERY_S = 2.0
"""Seconds between two questions to the guest."""
STYLES = {"muted": MUTED, "heading": "bold", "accent": "$text-accent", "": ""}


class StatsPanel(VerticalScroll, can_focus=True):
    """Shows a sandbox's use of the host, and asks its guest while it is visible."""

    def __init__(self, service: EngineService, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self._service = service
        self._ascii = ascii_only
        self._text = Static(markup=False)
        self._sandbox: SandboxView | None = None
        self._asked = ""
        """The id of the sandbox whose guest is asked."""
        self._guest: GuestView | None = None
        self._rates: TrafficRates | None = None
        self._why = ""

    def compose(self) -> ComposeResult:
        yield self._text

    def show(self, sandbox: SandboxView | None) -> None:
        """Shows a sandbox; with None, which means hidden, stops asking its guest."""
        self._sandbox = sandbox
        runs = sandbox is not None and sandbox.state is Status.RUNNING
        asked = sandbox.id if sandbox is not None and runs else ""
        if asked != self._asked:
            self._asked, self._guest, self._why = asked, None, ""
            self._rates = None
            if asked:
                self._ask(asked)
            else:
                self.workers.cancel_group(self, "guest")
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    @work(group="guest", exclusive=True)
    async def _ask(self, sandbox_id: str) -> None:
        meter = TrafficMeter()
        while True:
            try:
                self._guest = await self._service.ask(
                    "The guest does not tell", lambda engine: engine.look_inside(sandbox_id)
                )
                meter.add(self._guest.traffic, time.monotonic())
                self._rates = meter.rates
                self._why = ""
            except OperationError as error:
                self._guest, self._why = None, error.failure.message
            self._draw()
            await asyncio.sleep(ASK_EVERY_S)

    def _draw(self) -> None:
        sandbox = self._sandbox
        if sandbox is None or not self.is_mounted:
            return
        why = self._why or ("" if self._asked else f"it is {sandbox.state.value}")
        width = max(20, self.scrollable_content_region.width)
        lines = stats_lines(sandbox, self._guest, why, width, self._rates)
        content = Content("\n").join(
            Content.assemble(*((self._fit(text), STYLES[role]) for text, role in line))
            for line in lines
        )
        self._text.update(content)

    def _fit(self, text: str) -> str:
        return plain(text) if self._ascii else text
