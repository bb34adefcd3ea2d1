"""A command's messages to a program. With `TELL` set to `TELL_JSON` each line that it writes to
stderr is a JSON object with one of these keys:

- ``progress``: {"stage", "step", "steps", "done", "total", "share"}, as `record.Progress`
- ``error``: {"message", "hint"}
- ``notice``: a part that could not be done, though the others were
- ``said``: anything else for people

The app on another machine reads these messages of the commands that are relayed for it.
"""

from __future__ import annotations

TELL = "QUICKSAND_TELL"
"""The environment variable."""

TELL_JSON = "json"
