"""Arguments of the display's methods, checked before a machine is asked, and the files of
pictures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from quicksand_vnc import Format, is_number, is_whole

from quicksand.base.error_text import choose
from quicksand.base.errors import ConfigError, PathError
from quicksand.base.files import map_os_errors
from quicksand.base.remedies import Words


def check_wait(what: str, seconds: float) -> None:
    """Raises ConfigError if ``seconds``, the argument ``what``, is not a time to wait."""
    if not is_number(seconds) or not seconds >= 0:  # NaN is not, either
        raise ConfigError(
            f"{what} must be 0 seconds or more, not {seconds!r}",
            hint=f"a number of seconds, as in {what}=2.5",
        )


def check_path(path: Iterable[object], most: int) -> list[tuple[int, int]]:
    """Return ``path`` if it is 2 to ``most`` pairs of whole numbers. Raises ConfigError."""
    places = list(path)
    hint = "from where to where, as in mouse_drag((100, 100), (3000, 100))"
    if not 2 <= len(places) <= most:
        raise ConfigError(f"a drag has 2 to {most} places, not {len(places)}", hint=hint)
    found = []
    for place in places:
        pair = tuple(place) if isinstance(place, Iterable) else ()
        if len(pair) != 2 or not all(map(is_whole, pair)):
            raise ConfigError(f"{place!r} is no place (x, y) of a drag", hint=hint)
        found.append((pair[0], pair[1]))
    return found


def choose_format(wanted: str | None, path: Path | None) -> Format:
    """Return the requested format, or the one named by the path's suffix, or PNG without a
    suffix. Raises ConfigError."""
    suffix = path.suffix if path is not None else ""
    try:
        return Format(str(wanted or suffix.removeprefix(".") or Format.PNG).lower())
    except ValueError:
        if wanted is not None:
            raise ConfigError(f"{wanted!r} is not a picture format: {choose(Format)}") from None
    assert path is not None
    # A PNG must not be called .jpg: whoever opened it would be told that it is damaged.
    raise ConfigError(
        f"the name {path.name!r} has no suffix of a picture",
        hint=Words(
            "it must end with .png or .ppm; or say which, whatever the name is ",
            Words('(`--format png`, format="png")', python='(format="png")'),
        ),
    )


def check_target(path: Path) -> None:
    """Raises PathError if ``path`` cannot be a new file: it is a directory, or not in one."""
    if path.is_dir() and not path.is_symlink():
        raise PathError(
            f"cannot write {path}: it is a directory",
            hint=f"name a file in it: {path / 'NAME'}",
        )
    if not path.parent.is_dir():
        raise PathError(
            f"cannot write {path}: there is no directory {path.parent}",
            hint="make that directory first, or choose another one",
        )


def write_picture(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, which then is a new complete file, or unchanged. A symbolic link
    there is replaced, not followed. Blocks. Raises PathError, DiskSpaceError."""
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}")
    with map_os_errors(path):
        check_target(path)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
