"""The config file: its settings, its problems, and changes while the app runs."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from quicksand.things.frozen import frozen

from quicksand_tui.actions.all_actions import Action, Scope, default_keymap, in_scope
from quicksand_tui.actions.rebinding import Assignment, bind
from quicksand_tui.home.host_table import HOSTS, hosts_of
from quicksand_tui.home.state import read_some
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.keymap import (
    DEFAULT_PREFIX,
    Keymap,
    KeyNameError,
    Prefix,
    key_text,
    parse_prefix,
)
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import sanitise

LOOK_EVERY_S = 0.5
"""The default seconds between two looks at the disk."""


@frozen
class Problem:
    """A part of the config that is ignored, and the reason."""

    line: int = 0
    """The line from 1; 0 for the whole file."""
    key: str = ""
    """The setting, such as "keys.stop"."""
    what: str

    @property
    def text(self) -> str:
        """The problem in one sanitised line."""
        where = f"line {self.line}: " if self.line else ""
        key = f"{self.key}: " if self.key else ""
        return sanitise(f"{where}{key}{self.what}")


@frozen
class Config:
    """The settings, with their defaults."""

    theme: str = ""
    """The name of a theme, which `check_theme` checks; "" lets the terminal decide."""
    ascii: bool | None = None
    """Whether to draw with ASCII only; None lets the locale decide."""
    mouse: bool = True
    read_only: bool = False
    graphics: str = "auto"
    """One of `GRAPHICS`."""
    look_every_s: float = LOOK_EVERY_S
    memory_dir: str = ""
    """The directory where new sandboxes keep the memory of their checkpoints; "" leaves the choice
    to the engine."""
    prefix: Prefix = DEFAULT_PREFIX
    keymap: Keymap = field(default_factory=default_keymap)
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Addresses of other machines by their names."""

    @property
    def usual_machine(self) -> dict[str, str]:
        """The options that the config has for new machines."""
        return {"memory_dir": self.memory_dir} if self.memory_dir else {}


@frozen
class Loaded:
    """The content of a config file."""

    config: Config = field(default_factory=Config)
    problems: tuple[Problem, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each setting, by its key."""


class ConfigFile:
    """Watches a config file for changes. Used in one thread at a time."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        self._must_exist = must_exist
        self._stamp: tuple[int, ...] = ()

    def read(self) -> Loaded:
        self._stamp = self._look()
        if not self._stamp and not self._must_exist:
            return Loaded()
        return read_config(self.path, must_exist=self._must_exist)

    def read_if_changed(self) -> Loaded | None:
        """Reads the file; returns None if it has not changed since the last read."""
        return None if self._look() == self._stamp else self.read()

    def _look(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except (OSError, ValueError):
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)


SIZE_MAX = 64 * 1024
"""The largest config in bytes."""
CUTS_MAX = 50
"""The most times that invalid TOML is shortened before all of it is ignored."""
LOOK_LIMITS_S = (0.1, 60.0)
"""The least and the most seconds between two looks."""
KEYS = "keys"
GRAPHICS = ("auto", "kitty", "half")
"""Ways to draw a guest's screen in the app."""


class _ValueProblemError(ValueError):
    """An invalid value. The message follows the name of the setting and a colon."""


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return sanitise(repr(value), limit=60)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _ValueProblemError(f"{_shown(value)} is not true or false")


def _theme(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _ValueProblemError(f'{_shown(value)} is no text in quotes, such as "quicksand"')


def _graphics(value: object) -> str:
    if isinstance(value, str) and value in GRAPHICS:
        return value
    raise _ValueProblemError(f"{_shown(value)} is none of {', '.join(GRAPHICS)}")


def _seconds(value: object) -> float:
    low, high = LOOK_LIMITS_S
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise _ValueProblemError(f"{_shown(value)} is no number of seconds from {low} to {high:.0f}")


def _directory(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and value.startswith(("/", "~/")):
        return str(Path(value).expanduser())
    raise _ValueProblemError(f'{_shown(value)} is no absolute path in quotes, such as "/fast"')


def _prefix(value: object) -> Prefix:
    if not isinstance(value, str):
        raise _ValueProblemError(f'{_shown(value)} is no text in quotes, such as "ctrl-a"')
    try:
        return parse_prefix(value)
    except KeyNameError as error:
        raise _ValueProblemError(f"{_shown(value)} {error}") from error


@frozen(kw_only=False)
class Setting:
    """One setting. Reading, the example config and the docs all derive from the table of them."""

    name: str
    take: Callable[[object], Any]
    """Converts a value. Raises ValueError if it is invalid."""
    example: str
    about: str
    """An explanation in a sentence or two."""
    live: bool = True
    """Whether a change applies while the app runs."""


SETTINGS = (
    Setting(
        "theme",
        _theme,
        '"quicksand"',
        "The colours. `:theme` in the app lists them; without it the terminal decides.",
    ),
    Setting(
        "ascii",
        _flag,
        "false",
        "Draw with ASCII characters only. Without it the locale decides.",
        live=False,
    ),
    Setting(
        "mouse",
        _flag,
        "true",
        "Take the mouse; without, the terminal selects text as it usually does.",
        live=False,
    ),
    Setting(
        "read_only",
        _flag,
        "false",
        "Change nothing and open no shells, as with --read-only.",
        live=False,
    ),
    Setting(
        "graphics",
        _graphics,
        '"auto"',
        "How desktops are drawn: with kitty's graphics where the terminal can show them in text "
        '(kitty, Ghostty), else in half cells; "kitty" and "half" choose.',
    ),
    Setting(
        "look_every_s",
        _seconds,
        str(LOOK_EVERY_S),
        "Seconds between two looks at the disk; more costs less.",
    ),
    Setting(
        "memory_dir",
        _directory,
        '"/fast/quicksand"',
        "Where new sandboxes keep the memory of their checkpoints, such as a directory on a faster "
        "disk. Without it, where QUICKSAND_MEMORY_DIR says, or in their own directories.",
    ),
    Setting(
        "prefix",
        _prefix,
        f'"{DEFAULT_PREFIX.text}"',
        "The key in front of commands to the panes: ctrl and a letter or one of @ \\ ] ^ _.",
    ),
)


def parse_config(text: str) -> Loaded:
    """Parses a config. Never raises: errors are among the problems."""
    table, problems = _parse_toml(text)
    lines = dict(_lines_of(text))
    values: dict[str, Any] = {}
    known = {setting.name: setting for setting in SETTINGS}
    for name, value in table.items():
        if name in (KEYS, HOSTS):
            continue
        if (setting := known.get(name)) is None:
            what = f"there is no such setting{_near(name, [*known, KEYS, HOSTS])}"
            problems.append(Problem(line=lines.get(name, 0), key=name, what=what))
            continue
        try:
            values[name] = setting.take(value)
        except _ValueProblemError as error:
            problems.append(Problem(line=lines.get(name, 0), key=name, what=str(error)))
    assignments = list(_assignments(table.get(KEYS, {}), lines, problems))
    keymap, key_problems = bind(assignments, values.get("prefix", DEFAULT_PREFIX))
    problems += [
        Problem(line=one.line, key=f"{KEYS}.{one.target}", what=one.what) for one in key_problems
    ]
    hosts, host_problems = hosts_of(table.get(HOSTS, {}))
    for host, what in host_problems:
        key = f"{HOSTS}.{host}" if host else HOSTS
        problems.append(Problem(line=lines.get(key, 0), key=key, what=what))
    return Loaded(
        config=Config(**values, keymap=keymap, hosts=hosts),
        problems=tuple(sorted(problems, key=lambda problem: problem.line)),
        lines=lines,
    )


def check_theme(loaded: Loaded, themes: Collection[str]) -> Loaded:
    """Returns the config, without its theme if ``themes`` does not have it."""
    theme = loaded.config.theme
    if not theme or theme in themes:
        return loaded
    what = f"there is no theme {_shown(theme)}{_near(theme, sorted(themes))}"
    problem = Problem(line=loaded.lines.get("theme", 0), key="theme", what=what)
    problems = tuple(sorted((*loaded.problems, problem), key=lambda one: one.line))
    return replace(loaded, config=replace(loaded.config, theme=""), problems=problems)


def _parse_toml(text: str) -> tuple[dict[str, Any], list[Problem]]:
    """Parses the text up to its first error, which becomes a problem."""
    import tomllib  # noqa: PLC0415

    problems: list[Problem] = []
    for _ in range(CUTS_MAX):
        try:
            return tomllib.loads(text), problems
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            lines = text.split("\n")
            found = re.search(r"at line (\d+)", str(error))
            bad = min(int(found[1]), len(lines)) if found is not None else len(lines)
            if not problems:
                what = str(error).partition(" (at ")[0].rstrip(".") or type(error).__name__
                note = f"this is no TOML: {what[:1].lower()}{what[1:]}; all from here on is ignored"
                problems.append(Problem(line=bad, what=note))
            text = "\n".join(lines[: bad - 1])
    return {}, problems


_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")
_SET = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[^=\s.]+)*)\s*=")


def _lines_of(text: str) -> Iterator[tuple[str, int]]:
    """Yields the line of each key as far as it is easy to find; tomllib does not tell."""
    table = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if (header := _HEADER.match(line)) is not None:
            table = f"{_bare(header[1])}."
        elif (found := _SET.match(line)) is not None:
            yield f"{table}{_bare(found[1])}", number


def _bare(key: str) -> str:
    return re.sub(r"[\s\"']", "", key)


def _assignments(
    table: object, lines: Mapping[str, int], problems: list[Problem]
) -> Iterator[Assignment]:
    """Yields the keys of actions, whose names may include their screen."""
    if not isinstance(table, dict):
        what = f"{_shown(table)} is no table: put [keys] in a line of its own, and keys below it"
        problems.append(Problem(line=lines.get(KEYS, 0), key=KEYS, what=what))
        return
    for name, value in table.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for rest, wish in inner:
            target = f"{name}.{rest}" if rest else name
            line = lines.get(f"{KEYS}.{target}", lines.get(KEYS, 0))
            keys = [wish] if isinstance(wish, str) and wish else wish or []
            if isinstance(keys, list) and all(isinstance(key, str) and key for key in keys):
                yield Assignment(target=target, keys=tuple(keys), line=line)
                continue
            what = f'{_shown(wish)} is no key: "x", ["x", "ctrl+x"], or "" for none'
            problems.append(Problem(line=line, key=f"{KEYS}.{target}", what=what))


def _near(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"


# The file


def read_config(path: Path, *, must_exist: bool = False) -> Loaded:
    """Reads a config file. Never raises: errors are among the problems. A missing file is an empty
    config, unless the user has named it (``must_exist``)."""
    try:
        data = read_some(path, SIZE_MAX + 1)
    except FileNotFoundError:
        return _unreadable(path, "there is no such file") if must_exist else Loaded()
    except (OSError, ValueError) as error:
        return _unreadable(path, getattr(error, "strerror", None) or str(error))
    if len(data) > SIZE_MAX:
        return _unreadable(path, f"it is larger than {size_text(SIZE_MAX, wide=True)}")
    try:
        return parse_config(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return Loaded(problems=(Problem(line=line, what="this is not UTF-8; all is ignored"),))


def _unreadable(path: Path, why: str) -> Loaded:
    return Loaded(problems=(Problem(what=f"{path} cannot be read: {why}"),))


class Settings:
    """The present settings. `look` may be called in a thread, other methods in the UI's."""

    def __init__(self, file: ConfigFile | None = None, *, read_only: bool = False) -> None:
        """``read_only`` overrides the file."""
        self._file = file
        self._loaded = file.read() if file is not None else Loaded()
        self._changed: Loaded | None = None
        self.read_only = read_only or self._loaded.config.read_only
        """Fixed at the start, since a change would strand open shells."""

    @property
    def config(self) -> Config:
        return self._loaded.config

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._loaded.problems

    @property
    def keymap(self) -> Keymap:
        return self.config.keymap

    def check(self, themes: Collection[str]) -> None:
        """Drops an unknown theme, and adds a problem."""
        if self.config.theme:
            self._loaded = check_theme(self._loaded, themes)

    def look(self) -> None:
        """Reads the file if it has changed; blocks for the disk."""
        if self._file is not None and (loaded := self._file.read_if_changed()) is not None:
            self._changed = loaded

    def take_change(self, themes: Collection[str]) -> str | None:
        """Applies what `look` has read. Returns a message; None if nothing has changed."""
        loaded, self._changed = self._changed, None
        if loaded is None:
            return None
        before = self.config
        self._loaded = loaded
        self.check(themes)
        later = [
            setting.name
            for setting in SETTINGS
            if not setting.live
            and getattr(before, setting.name) != getattr(self.config, setting.name)
        ]
        count = "; at the next start " + ", ".join(later) if later else ""
        return f"The config was read again{count}"

    def report(self) -> Told | None:
        """Returns a report of the problems; None if there are none."""
        if not self.problems:
            return None
        path = "" if self._file is None else f" in {self._file.path}"
        number = len(self.problems)
        summary = f"{number} problem{'s' if number != 1 else ''}{path}: the rest applies"
        return Told(summary=summary, lines=tuple(problem.text for problem in self.problems))


WIDTH = 90
SCREENS = {
    Scope.MAIN: "The main screen",
    Scope.LOG: "A log",
    Scope.TREE: "The tree of checkpoints",
    Scope.DIFF: "What differs between two checkpoints",
    Scope.MOUNTS: "The mounts",
    Scope.SAVES: "The saves",
    Scope.TRASH: "The trash",
    Scope.WALL: "The wall",
    Scope.PANES: "Shells, behind the prefix",
    Scope.DESKTOP: "The desktop, behind the prefix",
}


def example_config() -> str:
    """Returns a config with all settings and keys at their defaults, each in a comment."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# The config of quicksand-tui. Take the # from what you want otherwise;"
    yield "# `quicksand-tui config check` says what is wrong with it."
    for setting in SETTINGS:
        later = "" if setting.live else " Takes effect at the next start."
        yield ""
        yield from textwrap.wrap(
            setting.about + later, WIDTH, initial_indent="# ", subsequent_indent="# "
        )
        yield f"# {setting.name} = {setting.example}"
    yield ""
    yield "[keys]"
    yield '# A key, a list of keys, or "" for none; `quicksand-tui config keys` tells what keys are'
    yield "# called. Without the screen in front it counts on every screen that has such an action:"
    yield '# help = ["?", "f1"]'
    for scope, title in SCREENS.items():
        yield ""
        yield f"# {title}"
        for action in in_scope(scope):
            yield f"# {action.address} = {_keys(action)}  # {action.tooltip}"


def _keys(action: Action) -> str:
    keys = ["'\"'" if key == "quotation_mark" else f'"{key_text(key)}"' for key in action.keys]
    return keys[0] if len(keys) == 1 else f"[{', '.join(keys)}]"
