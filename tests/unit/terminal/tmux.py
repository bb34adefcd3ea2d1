"""tmux as a judge: what it shows for a program's output."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

COLUMNS, ROWS = 80, 24
DEADLINE_S = 20.0
DONE = "everything was written"


def tmux_screen(data: bytes, columns: int = COLUMNS, rows: int = ROWS) -> dict[str, Any]:
    """The screen after ``data``: rows with the SGR that tmux writes for them, and the cursor."""
    with tempfile.TemporaryDirectory(prefix="qst-tmux-") as directory:
        socket, output = Path(directory, "socket"), Path(directory, "output")
        output.write_bytes(data)
        # The title is set when everything before it was read: so it is known when that is.
        shell = (
            f"stty raw -echo; cat {output}; printf '\\030\\033]2;{DONE}\\033\\\\'; exec sleep 1000"
        )
        start = ("new-session", "-d", "-x", str(columns), "-y", str(rows), shell)
        options = ("set", "-g", "status", "off", ";", "set", "-g", "remain-on-exit", "on", ";")
        try:
            _tmux(socket, *options, *start)
            deadline = time.monotonic() + DEADLINE_S
            while _tmux(socket, "display", "-p", "#{pane_title}").strip() != DONE:
                assert time.monotonic() < deadline, "tmux did not read it all"
            captured = _tmux(socket, "capture-pane", "-p", "-e", "-N")
            place = _tmux(socket, "display", "-p", "#{cursor_x} #{cursor_y} #{alternate_on}")
        finally:
            _tmux(socket, "kill-server")
    x, y, alternate = (int(word) for word in place.split())
    return {
        "columns": columns,
        "rows": rows,
        "cursor": [x, y],
        "alternate": bool(alternate),
        "lines": captured.removesuffix("\n").split("\n"),
    }


def _tmux(socket: Path, *words: str) -> str:
    # By its path: it may be one that was unpacked for the tests (scripts/tools.py).
    program = shutil.which("tmux") or "tmux"
    command = (program, "-S", str(socket), "-f", "/dev/null", *words)
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    return done.stdout.decode()
