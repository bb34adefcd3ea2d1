"""What the display's methods are given is checked before a machine is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import ConfigError
from quicksand.display.hands import pixel_on, place_on
from quicksand.display.recording import Recording
from quicksand.life.sandbox_display import Display

from tests.each import each

Call = Callable[[Display], Awaitable[None]]

WRONG: dict[str, tuple[Call, str, str]] = {
    "a drag to a number": (lambda d: drag(d, (1, 1), 5), "5 is no place", "mouse_drag("),
    "a drag to half a place": (
        lambda d: drag(d, (1, 1), (5,)),
        r"\(5,\) is no place",
        "mouse_drag(",
    ),
    "a drag to nowhere": (lambda d: drag(d, (1, 1)), "2 to 10000 places, not 1", "mouse_drag("),
    "a size that is none": (lambda d: d.set_size("a", 5), "cannot have 'a'x5", "whole numbers"),  # type: ignore[arg-type]
    "an empty size": (lambda d: d.set_size(0, 0), "cannot have 0x0", "from 1 to 65535"),
    "a huge size": (lambda d: d.set_size(5000, 4000), "cannot have 5000x4000", "16777216 pixels"),
    "a hold": (lambda d: d.press(["a"], "x"), "hold must be 0 to 60", "key_down"),  # type: ignore[arg-type]
    "a long hold": (lambda d: d.press(["a"], 61), "hold must be 0 to 60", "key_down"),
    "a rest": (lambda d: wait(d, quiet="x"), "quiet must be 0 seconds or more, not 'x'", "quiet="),
    "a wait": (lambda d: wait(d, timeout=-1), "timeout must be 0 seconds or more", "timeout="),
    "no wait": (lambda d: wait(d, timeout=float("nan")), "timeout must be", "timeout="),
    "a turn of the wheel": (lambda d: d.scroll("x"), "notches must be", "down"),  # type: ignore[arg-type]
}


async def drag(display: Display, *path: Any) -> None:
    await display.drag(path, "left", pixels=False)


async def wait(display: Display, timeout: Any = 1, quiet: Any = 1) -> None:
    await display.wait("stable", timeout, quiet, None, None)


@each("name", WRONG)
async def test_wrong_arguments_are_told(name: str) -> None:
    call, why, hint = WRONG[name]
    # There is no machine that could be asked.
    with pytest.raises(ConfigError, match=why) as caught:
        await call(Display(None))  # type: ignore[arg-type]
    assert hint in caught.value.hint


@each(
    ("changes", "hint"),
    [
        ({"seconds": 0}, "lasts at most"),
        ({"seconds": "x"}, "lasts at most"),
        ({"fps": 31}, "in a second"),
        ({"scale": "x"}, "0.5 halves"),
    ],
)
async def test_what_a_recording_is_not(changes: dict[str, Any], hint: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"seconds": 1, "fps": 1, "scale": 1, "replace": False, **changes}
    with pytest.raises(ConfigError, match="must be above 0") as caught:
        async with Recording.open(tmp_path / "a.gif", lambda: None, **options):
            pass
    assert hint in caught.value.hint


@each("size", [(1280, 800), (1, 1), (1366, 768), (5120, 2160), (16383, 9)])
def test_the_pixel_of_a_place_is_the_one_that_was_aimed_at(size: tuple[int, int]) -> None:
    width, height = size
    for x in range(width):
        pixel = x, x % height
        assert pixel_on(size, place_on(size, *pixel)) == pixel
    assert pixel_on(size, (0, 0)) == (0, 0)
    assert pixel_on(size, (32767, 32767)) == (width - 1, height - 1)


@each("pixel", [(-5, 10), (640, 0), (0, 480), ("a", 1)])
def test_what_is_no_pixel(pixel: Any) -> None:
    with pytest.raises(ConfigError, match="is no pixel") as caught:
        place_on((640, 480), *pixel)
    assert "0,0 to 639,479" in caught.value.hint
