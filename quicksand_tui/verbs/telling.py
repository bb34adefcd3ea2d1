"""How a command tells a program what it is doing. With `TELL` set to `TELL_JSON` each line that it
writes to stderr is a JSON object with one of these keys:

- ``progress``: {"stage", "step", "steps", "done", "total"}, as `record.Progress`
- ``error``: {"message", "hint"}
- ``notice``: what could not be done, though the rest was
- ``said``: anything else for people

The app on another machine reads this of the commands that are relayed for it.
"""

from __future__ import annotations

TELL = "QUICKSAND_TELL"
"""The environment variable."""

TELL_JSON = "json"
