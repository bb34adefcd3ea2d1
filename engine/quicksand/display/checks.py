"""The numbers that the display's methods are given, checked before a machine is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from quicksand.base.errors import ConfigError
from quicksand.display.picture import PIXELS_MAX, Rect

SCALE_MAX = 8.0
SIDE_MAX = 2**16 - 1
"""Pixels of a side for which a screen can be asked (RFB, SetDesktopSize: 16 bits)."""

REGION = "a region is (x, y, width, height) in whole pixels, as in (0, 0, 640, 480)"


def is_whole(value: object) -> TypeGuard[int]:
    """Whether ``value`` is a whole number, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a number, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_region(region: object) -> Rect:
    """``region`` as a rectangle. Raises ConfigError if it is not four whole numbers."""
    numbers = tuple(region) if isinstance(region, Iterable) else ()
    if len(numbers) != len(Rect._fields) or not all(map(is_whole, numbers)):
        raise ConfigError(f"{region!r} is no region of the screen", hint=REGION)
    return Rect(*numbers)


def check_within(rect: Rect, width: int, height: int) -> None:
    """Raises ConfigError if ``rect`` is empty or not within a screen of that size."""
    outside = rect.x + rect.width > width or rect.y + rect.height > height
    if min(rect) < 0 or not rect.width or not rect.height or outside:
        raise ConfigError(
            f"the region {tuple(rect)} is not within the screen",
            hint=f"x, y, width and height in pixels; the screen has {width}x{height}",
        )


def check_scale(scale: float) -> float:
    """Return ``scale`` if a picture can be enlarged that much. Raises ConfigError."""
    if not is_number(scale) or not 0 < scale <= SCALE_MAX:
        raise ConfigError(
            f"scale must be above 0 and at most {SCALE_MAX:g}, not {scale!r}",
            hint="1 leaves the picture as it is, 0.5 halves its width and height",
        )
    return scale


def check_size(width: int, height: int) -> None:
    """Raises ConfigError for a size that no display can have."""
    fits = all(is_whole(side) and 0 < side <= SIDE_MAX for side in (width, height))
    if not fits or width * height > PIXELS_MAX:
        raise ConfigError(
            f"a display cannot have {width!r}x{height!r} pixels",
            hint=f"whole numbers from 1 to {SIDE_MAX}, and {PIXELS_MAX} pixels in all, which is "
            "4096x4096",
        )


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
