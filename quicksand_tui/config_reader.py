"""Reads the user's config: whatever is wrong in it is said by its line, and the rest counts. No
import of Textual here: commands read it, too."""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quicksand_tui.config import LOOK_EVERY_S, Config, Loaded, Problem
from quicksand_tui.keymap import DEFAULT_PREFIX, KeyNameError, Prefix, parse_prefix
from quicksand_tui.rebinding import Assignment, bind
from quicksand_tui.text import sanitise

SIZE_MAX = 64 * 1024
"""Bytes; more is no config."""
CUTS_MAX = 50
"""How often a file that is no TOML is shortened before nothing of it counts."""
LOOK_LIMITS_S = (0.1, 60.0)
KEYS = "keys"


class _ValueProblemError(ValueError):
    """A value that does not do. The message ends "theme: …"."""


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


def _seconds(value: object) -> float:
    low, high = LOOK_LIMITS_S
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise _ValueProblemError(f"{_shown(value)} is no number of seconds from {low} to {high:.0f}")


def _prefix(value: object) -> Prefix:
    if not isinstance(value, str):
        raise _ValueProblemError(f'{_shown(value)} is no text in quotes, such as "ctrl-a"')
    try:
        return parse_prefix(value)
    except KeyNameError as error:
        raise _ValueProblemError(f"{_shown(value)} {error}") from error


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: the table of them feeds reading, the example and the docs."""

    name: str
    take: Callable[[object], Any]
    """Raises ValueError for a value that does not do."""
    example: str
    about: str
    """A sentence or two."""
    live: bool = True
    """Whether a change counts while the app runs."""


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
        "look_every_s",
        _seconds,
        str(LOOK_EVERY_S),
        "Seconds between two looks at the disk; more costs less.",
    ),
    Setting(
        "prefix",
        _prefix,
        f'"{DEFAULT_PREFIX.text}"',
        "The key in front of commands to the panes: ctrl and a letter or one of @ \\ ] ^ _.",
    ),
)


def parse_config(text: str) -> Loaded:
    """What a config says. Never raises: what is wrong is among the problems."""
    table, problems = _parse_toml(text)
    lines = dict(_lines_of(text))
    values: dict[str, Any] = {}
    known = {setting.name: setting for setting in SETTINGS}
    for name, value in table.items():
        if name == KEYS:
            continue
        if (setting := known.get(name)) is None:
            what = f"there is no such setting{_near(name, [*known, KEYS])}"
            problems.append(Problem(line=lines.get(name, 0), key=name, what=what))
            continue
        try:
            values[name] = setting.take(value)
        except _ValueProblemError as error:
            problems.append(Problem(line=lines.get(name, 0), key=name, what=str(error)))
    assignments = list(_assignments(table.get(KEYS, {}), lines, problems))
    keymap, key_problems = bind(assignments, values.get("prefix", DEFAULT_PREFIX))
    problems += [
        Problem(line=found.line, key=f"{KEYS}.{found.target}", what=found.what)
        for found in key_problems
    ]
    return Loaded(
        config=Config(**values, keymap=keymap),
        problems=tuple(sorted(problems, key=lambda found: found.line)),
        lines=lines,
    )


def check_theme(loaded: Loaded, themes: Collection[str]) -> Loaded:
    """The same without a theme that is not there."""
    theme = loaded.config.theme
    if not theme or theme in themes:
        return loaded
    what = f"there is no theme {_shown(theme)}{_near(theme, sorted(themes))}"
    problem = Problem(line=loaded.lines.get("theme", 0), key="theme", what=what)
    problems = tuple(sorted((*loaded.problems, problem), key=lambda found: found.line))
    return replace(loaded, config=replace(loaded.config, theme=""), problems=problems)


def _parse_toml(text: str) -> tuple[dict[str, Any], list[Problem]]:
    """As much of it as is TOML: what comes before the first error."""
    import tomllib

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
                note = f"this is no TOML: {what[:1].lower()}{what[1:]}; it and what follows it "
                problems.append(Problem(line=bad, what=f"{note}does not count"))
            text = "\n".join(lines[: bad - 1])
    return {}, problems


_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")
_SET = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*[^=\s.]+)*)\s*=")


def _lines_of(text: str) -> Iterator[tuple[str, int]]:
    """Where each key is set, as far as that is plain to see; tomllib does not tell."""
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
    """The table of keys: by action, or by screen and action."""
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
    """What the file at ``path`` says. Never raises; one that is not there sets nothing, which is
    fine unless somebody has named it (``must_exist``)."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would never end
            return _unreadable(path, "that is no file")
        with path.open("rb") as file:
            data = file.read(SIZE_MAX + 1)
    except FileNotFoundError:
        return _unreadable(path, "there is no such file") if must_exist else Loaded()
    except (OSError, ValueError) as error:
        return _unreadable(path, getattr(error, "strerror", None) or str(error))
    if len(data) > SIZE_MAX:
        return _unreadable(path, f"it is larger than {SIZE_MAX // 1024} KiB")
    try:
        return parse_config(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return Loaded(problems=(Problem(line=line, what="this is not UTF-8; nothing counts"),))


def _unreadable(path: Path, why: str) -> Loaded:
    return Loaded(problems=(Problem(what=f"{path} cannot be read: {why}"),))
