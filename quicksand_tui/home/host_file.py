"""Reads the machines of the config, and changes them there."""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from quicksand_tui.home.host_table import HOSTS, hosts_of

_HEADER = re.compile(r"\s*\[\s*hosts\s*\]\s*(#.*)?")
_ANY_HEADER = re.compile(r"\s*\[")


class HostsError(Exception):
    """The table cannot be changed."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def read_hosts(path: Path) -> dict[str, str]:
    """Returns the addresses by their names, as far as the config is valid. A missing config has
    none. Raises OSError."""
    try:
        table = tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise HostsError(
            f"{path} cannot be read: {error}", hint="`quicksand-tui config check` tells more"
        ) from error
    return hosts_of(table.get(HOSTS, {}))[0]


def add_host(path: Path, name: str, address: str) -> None:
    """Adds a machine to the config, which is made if there is none. All else in it stays as it is.
    Raises HostsError, OSError."""
    lines = _read_lines(path)
    ending = "\r" if lines and lines[0].endswith("\r") else ""
    line = f'{name} = "{address}"{ending}'
    headers = [number for number, text in enumerate(lines) if _HEADER.fullmatch(text)]
    if headers:
        lines.insert(headers[0] + 1, line)
    else:
        lines += [*([ending] if lines else []), f"[{HOSTS}]{ending}", line]
    _replace(path, lines, {**read_hosts(path), name: address})


def remove_host(path: Path, name: str) -> None:
    """Removes a machine from the config; all else in it stays. Raises HostsError, OSError."""
    lines = _read_lines(path)
    kept = read_hosts(path)
    kept.pop(name, None)
    own = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
    places = [number for number in _in_table(lines) if own.match(lines[number])]
    if places:
        del lines[places[0]]
    _replace(path, lines, kept)


def _read_lines(path: Path) -> list[str]:
    """Returns the lines as they are: one of a file from Windows ends with "\\r"."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return file.read().removesuffix("\n").split("\n") if path.stat().st_size else []
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise HostsError(f"{path} is not UTF-8") from error


def _in_table(lines: list[str]) -> Iterator[int]:
    """Yields the numbers of the lines below the header."""
    inside = False
    for number, text in enumerate(lines):
        if _ANY_HEADER.match(text):
            inside = _HEADER.fullmatch(text) is not None
        elif inside:
            yield number


def _replace(path: Path, lines: list[str], wanted: Mapping[str, str]) -> None:
    """Writes the config if the new text has the ``wanted`` machines, and all else as before."""
    text = "\n".join(lines) + "\n"
    before = _rest(path.read_text("utf-8-sig") if path.exists() else "")
    try:
        is_right = _rest(text) == before and tomllib.loads(text).get(HOSTS, {}) == wanted
    except ValueError:
        is_right = False
    if not is_right:
        raise HostsError(
            f"the table [hosts] of {path} is written in a way that is not changed by itself",
            hint='change it by hand: NAME = "ssh://…" in a line of its own below [hosts]',
        )
    place = path.resolve()  # the target of a link is replaced, not the link
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.urandom(4).hex()}")
    mode = place.stat().st_mode & 0o777 if place.exists() else 0o600
    try:
        temporary.write_text(text, "utf-8", newline="")
        temporary.chmod(mode)
        temporary.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _rest(text: str) -> dict[str, object]:
    """Returns all other settings of a config."""
    return {key: value for key, value in tomllib.loads(text).items() if key != HOSTS}
