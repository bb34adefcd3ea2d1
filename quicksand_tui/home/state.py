"""The app's memory between runs, in small JSON files that it can do without."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from quicksand_tui.model.text import LINE_MAX
from quicksand_tui.views.main_layout import USUAL_NEEDS, Needs, Shape, Tab

APP = "quicksand"
CONFIG_VARIABLE = "QUICKSAND_CONFIG"


def config_file() -> Path:
    """Returns the path of the config, or that in QUICKSAND_CONFIG; it need not exist."""
    if chosen := os.environ.get(CONFIG_VARIABLE):
        return Path(chosen).absolute()
    return base_dir("XDG_CONFIG_HOME", ".config") / APP / "config.toml"


def base_dir(variable: str, usual: str) -> Path:
    """Returns a base directory of the XDG specification: that in ``variable``, else ``usual`` in
    the home directory; on macOS, Application Support. (platformdirs would delay the first paint.)
    Raises OSError if the system knows no home directory."""
    base = os.environ.get(variable, "")
    if base.startswith("/"):  # the specification says to ignore relative paths
        return Path(base)
    try:
        home = Path.home()
    except RuntimeError as error:  # no entry in passwd, and no HOME
        raise OSError(errno.ENOENT, "this user has no home directory: set HOME") from error
    return home / ("Library/Application Support" if sys.platform == "darwin" else usual)


def is_config_named() -> bool:
    """Whether the user has named a config, which then must exist."""
    return bool(os.environ.get(CONFIG_VARIABLE))


SIZE_MAX = 256 * 1024
"""The largest state file in bytes; a larger one is not the app's."""


def state_dir() -> Path:
    """Returns the directory of the state files: QUICKSAND_STATE_DIR, or the system's usual one."""
    if place := os.environ.get("QUICKSAND_STATE_DIR"):
        return Path(place).absolute()
    return base_dir("XDG_STATE_HOME", ".local/state") / APP


def read_some(path: Path, limit: int) -> bytes:
    """Returns at most ``limit`` bytes of a regular file. Raises OSError, also for a FIFO, on whose
    writer it would have to wait. (The engine has the same in `base.regular`; importing that would
    delay the first paint.)"""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "that is no file", os.fspath(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


class StateFile:
    """A JSON object on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """The reason why the last read failed; "" if it succeeded or the file does not exist."""

    def read(self) -> dict[str, Any]:
        """Returns the object; an empty one if it cannot be read. Never raises."""
        self.problem = ""
        try:
            text = read_some(self.path, SIZE_MAX + 1)
            if len(text) > SIZE_MAX:
                raise ValueError(f"it is larger than {SIZE_MAX} bytes")
            value = json.loads(text)
            if not isinstance(value, dict):
                raise ValueError("it is not a JSON object")
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.problem = error.strerror or str(error)
            return {}
        except (ValueError, RecursionError) as error:
            self.problem = str(error)
            return {}
        return value

    def write(self, value: dict[str, Any]) -> None:
        """Replaces the file atomically. Raises OSError, also if its directory is another user's or
        open to others."""
        _make_own(self.path.parent)
        temporary = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(value, file, indent=1)
                file.write("\n")
            temporary.replace(self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def terminals_file() -> StateFile:
    """Returns the file with the abilities of the terminals that were asked."""
    return StateFile(state_dir() / "terminals.json")


def _make_own(directory: Path) -> None:
    """Makes a directory for this user only, unless it exists. Raises OSError, also if it is another
    user's or all may write to it. (People keep such directories elsewhere by a link.)"""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
        raise OSError(errno.EACCES, "it is another user's, or open to others", os.fspath(directory))


MEMORY_FILE = "app.json"


def memory() -> Remembered:
    """Returns the values remembered for this user."""
    return Remembered(StateFile(state_dir() / MEMORY_FILE))


class Remembered:
    """Values by name. Without a file, they last for this run only."""

    def __init__(self, file: StateFile | None = None) -> None:
        self._file = file
        self._values = file.read() if file is not None else {}
        self._writing = threading.Lock()

    def get(self, name: str) -> object:
        """Returns a value or None. It may be any JSON, since users may edit the file."""
        return self._values.get(name)

    def put(self, name: str, value: object) -> bool:
        """Sets a JSON value; returns whether it has changed, so that it must be written."""
        is_new = bool(self._values.get(name) != value)
        self._values[name] = value
        return is_new

    def write(self, name: str) -> None:
        """Writes a value for the next run; an OSError drops it. Blocks; called in a thread."""
        if self._file is None:
            return
        with self._writing, contextlib.suppress(OSError):
            # Another app may have written other values meanwhile.
            kept = self._file.read()
            kept[name] = self._values[name]
            self._file.write(kept)


SHAPE_NAME = "layout"
"""The name of the shape in `Remembered`."""
SHAPE_CELLS_MAX = 1000


def recall_shape(remembered: Remembered) -> Shape:
    """Returns the shape of the last run; invalid parts get their defaults."""
    kept = remembered.get(SHAPE_NAME)
    if not isinstance(kept, dict):
        return Shape()
    tab = kept.get("tab")
    return Shape(
        lists=_cells(kept.get("lists")),
        # Not the shells' tab, which would open a shell that nobody asked for.
        tab=Tab(tab) if tab in list(Tab) and tab != Tab.SHELLS else Tab.DETAILS,
    )


def kept_shape(shape: Shape) -> dict[str, object]:
    return {"lists": shape.lists, "tab": shape.tab.value}


NEEDS_NAME = "needs"
"""The name of the needs in `Remembered`, for the outline of the next run."""


def recall_needs(remembered: Remembered) -> Needs:
    """Returns the needs of the last run."""
    kept = remembered.get(NEEDS_NAME)
    if not isinstance(kept, dict):
        return USUAL_NEEDS
    return Needs(
        listed=_cells(kept.get("listed")),
        drawn=_cells(kept.get("drawn")),
        aside=kept.get("aside") is True,
    )


def kept_needs(needs: Needs) -> dict[str, object]:
    return {
        "listed": min(needs.listed, SHAPE_CELLS_MAX),
        "drawn": min(needs.drawn, SHAPE_CELLS_MAX),
        "aside": needs.aside,
    }


def _cells(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= SHAPE_CELLS_MAX else 0


PANES_FILE = "panes.json"

SANDBOXES_MAX = 32
"""The number of sandboxes whose panes are kept: the most recently changed ones."""


class PaneMemory:
    """JSON values by sandbox id, newest last. Without a file, they last for this run only.

    `put` is for the UI's thread; the blocking methods are for another one.
    """

    def __init__(self, file: StateFile | None = None) -> None:
        self._file = file
        self._values: dict[str, object] = {}
        """The values that this app has put."""
        self._writing = threading.Lock()

    def read(self, sandbox_id: str) -> object:
        """Returns the value that this app or another one has kept, or None. It may be any JSON,
        since users may edit the file. Blocks."""
        if self._file is None:
            return self._values.get(sandbox_id)
        return self._file.read().get(sandbox_id)

    def put(self, sandbox_id: str, value: object) -> bool:
        """Sets a value, or drops it with None; returns whether it must be written."""
        is_new = sandbox_id not in self._values or self._values[sandbox_id] != value
        self._values[sandbox_id] = value
        return is_new

    def write(self, sandbox_id: str, known: Collection[str]) -> None:
        """Writes the value of a sandbox, and drops those of sandboxes not in ``known``; gives up on
        an OSError. Blocks."""
        if self._file is None:
            return
        with self._writing, contextlib.suppress(OSError):
            # Another app may have written other sandboxes meanwhile.
            kept = {id_: value for id_, value in self._file.read().items() if id_ in known}
            kept.pop(sandbox_id, None)
            if (value := self._values.get(sandbox_id)) is not None and sandbox_id in known:
                kept[sandbox_id] = value
            for oldest in list(kept)[:-SANDBOXES_MAX]:
                del kept[oldest]
            self._file.write(kept)


LINES_MAX = 200
"""The most lines that the history keeps."""


class CommandHistory:
    """The history of the `:` line, the latest last. Both methods block for a small file, and never
    raise: without a usable file, there is no history."""

    def __init__(self, file: StateFile) -> None:
        self._file = file

    def read(self) -> list[str]:
        lines = self._file.read().get("lines")
        if not isinstance(lines, list):
            return []
        return [line for line in lines if isinstance(line, str) and _is_line_fit(line)][-LINES_MAX:]

    def add(self, line: str) -> None:
        """Puts a line at the end and removes an older copy of it. If two apps do this at once, one
        of the lines may be lost, but never the file."""
        line = line.strip()
        if not _is_line_fit(line):
            return
        lines = [*(old for old in self.read() if old != line), line][-LINES_MAX:]
        with contextlib.suppress(OSError):
            self._file.write({"lines": lines})


def _is_line_fit(line: str) -> bool:
    return 0 < len(line) <= LINE_MAX and line.isprintable()


AUTO = "auto"
"""Stands for the theme that fits the terminal."""

THEME_FILE = "appearance.json"


class ThemeChoice:
    """The user's choice of a theme; ``name`` is "" if the terminal decides."""

    def __init__(self, file: StateFile | None = None, *, wish: str = "") -> None:
        """``wish`` is for this run only; "auto" overrides the remembered theme."""
        self._file = file
        self._facts = {} if file is None else file.read()
        remembered = self._facts.get("theme")
        self.name = wish or (remembered if isinstance(remembered, str) else "")
        if self.name == AUTO:
            self.name = ""
        self.problem = ""
        """A message about an unreadable file, or ""."""
        if file is not None and file.problem:
            self.problem = f"{file.path} cannot be read and is ignored: {file.problem}"

    def remember(self, name: str) -> None:
        """Keeps ``name`` for the next runs; "" lets the terminal decide again. Raises OSError."""
        self.name = name
        if self._file is None or self._facts.get("theme", "") == name:
            return
        self._facts = {**self._facts, "theme": name}
        self._file.write(self._facts)


def theme_wish(said: str, environ: Mapping[str, str]) -> str:
    """Returns the theme for this run: ``--theme``, or that of the environment."""
    return said or environ.get("QUICKSAND_THEME", "") or environ.get("TEXTUAL_THEME", "")
