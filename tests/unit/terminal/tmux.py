"""tmux as a judge: what it shows for a program's output."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COLUMNS, ROWS = 80, 24
DEADLINE_S = 60.0
DONE = "everything was written"


def tmux_screen(data: bytes, columns: int = COLUMNS, rows: int = ROWS) -> dict[str, Any]:
    """The screen after ``data``: rows with the SGR that tmux writes for them, and the cursor."""
    with _pane(data, columns, rows) as socket:
        captured = _tmux(socket, "capture-pane", "-p", "-e", "-N")
        place = _tmux(socket, "display", "-p", "#{cursor_x} #{cursor_y} #{alternate_on}")
    x, y, alternate = (int(word) for word in place.split())
    return {
        "columns": columns,
        "rows": rows,
        "cursor": [x, y],
        "alternate": bool(alternate),
        "lines": captured.removesuffix("\n").split("\n"),
    }


FACTS = (
    *("alternate_on", "cursor_flag", "insert_flag", "keypad_cursor_flag", "keypad_flag"),
    *("mouse_all_flag", "mouse_any_flag", "mouse_button_flag", "mouse_sgr_flag", "mouse_utf8_flag"),
    *("mouse_standard_flag", "origin_flag", "wrap_flag", "pane_tabs"),
    *("scroll_region_lower", "scroll_region_upper", "pane_fg", "pane_bg", "pane_path"),
)
"""What tmux tells of a pane's state (tmux(1), FORMATS)."""


def tmux_facts(data: bytes) -> dict[str, str]:
    """The pane's state after ``data``."""
    with _pane(data, COLUMNS, ROWS) as socket:
        told = _tmux(socket, "display", "-p", "\n".join(f"#{{{name}}}" for name in FACTS))
    return dict(zip(FACTS, told.split("\n"), strict=False))


@contextlib.contextmanager
def _pane(data: bytes, columns: int, rows: int) -> Iterator[Path]:
    """A server of tmux, by its socket, whose pane has got ``data``."""
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
            yield socket
        finally:
            _tmux(socket, "kill-server")


def _tmux(socket: Path, *words: str) -> str:
    # By its path: it may be one that was unpacked for the tests (scripts/tools.py).
    program = shutil.which("tmux") or "tmux"
    command = (program, "-S", str(socket), "-f", "/dev/null", *words)
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    return done.stdout.decode()
