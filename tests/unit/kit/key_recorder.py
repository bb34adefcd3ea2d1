"""The app on this terminal, writing down each key that reaches it. Usage: key_recorder.py FILE."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from textual import events

from quicksand_tui.opening.opening import run_app
from quicksand_tui.ui import app as application

LOG = Path(sys.argv[1])


class Recording(application.QuicksandApp):
    seen: events.Event | None = None

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and event is not self.seen:
            self.seen = event  # it comes back from the screen
            with LOG.open("a") as file:
                file.write(f"{event.key if isinstance(event, events.Key) else 'paste'}\n")
            if isinstance(event, events.Key) and event.key != "q":
                return  # what a key does is no matter here
        await super().on_event(event)


application.QuicksandApp = Recording  # type: ignore[misc]
if wait := os.environ.get("WAIT_FOR"):
    # Loading takes longer than the terminal takes to answer.
    import quicksand_tui.opening.opening as module

    spare = module.spare_the_line

    def slowly(environ: dict[str, str]) -> bool:
        while not Path(str(wait)).exists():
            pass
        return spare(environ)

    module.spare_the_line = slowly  # type: ignore[assignment]
sys.exit(run_app())
