"""`quicksand-tui screenshot, record, type, key, mouse, vnc`: the screen of a sandbox, its keyboard
and its mouse."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
from quicksand.base.errors import ConfigError
from quicksand.display.asked import choose_format, write_picture
from quicksand.display.hands import pixel_on
from quicksand.display.place import vnc_errors
from quicksand.life.sandbox_display import SCROLL_MAX, TEXT_MAX
from quicksand.sandbox import Sandbox
from quicksand_vnc import parse_keys, together_of

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.guests.executing import FdWriter
from quicksand_tui.cli.output import Exit, print_json, say
from quicksand_tui.cli.runner import attached, chosen_host, opened, run_async
from quicksand_tui.door.engine_screen import recorded_text
from quicksand_tui.model.amounts import age_text
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.cli.runner import Signals


STANDARD = "-"
_PLACE = re.compile(r"(-?\d{1,9}),(-?\d{1,9})")
"""A place, also a negative one: the engine knows the places of this screen."""
_REGION = re.compile(r"(\d{1,9}),(\d{1,9}),(\d{1,9}),(\d{1,9})")
HOLD_S = 0.02

NO_KEY = "+ stands between keys; its own key is pressed as shift+equal"


def stopped_hint(name: str) -> str:
    """Returns the hint for a sandbox with a display that does not run."""
    return f"a sandbox that does not run has no screen: `quicksand-tui start {name}` starts it"


@command_of("screenshot")
def screenshot_command(
    name: str,
    file: str,
    region: str | None,
    scale: float | None,
    form: str | None,
    at: str | None,
) -> int:
    """Take a picture of a sandbox's screen. FILE is a PNG, or a PPM if its name ends so; - is
    stdout.

    A paused sandbox shows its last picture. With --at, the sandbox need not run; the picture is a
    PNG of at most 320 pixels a side.
    """
    part = _read_region(region)
    if file == STANDARD and sys.stdout.isatty():
        raise ConfigError(
            "a picture is not written to a terminal",
            hint=f"name a file, or `quicksand-tui screenshot {name} - | …`",
        )
    if at is not None and (part, scale, form) != (None, None, None):
        raise ConfigError(
            "the picture of a checkpoint is written as it is, a small PNG",
            hint="leave --region, --scale and --format out, or --at",
        )
    if at is not None and choose_format(None, None if file == STANDARD else Path(file)) != "png":
        raise ConfigError(
            f"the picture of a checkpoint is a PNG, and {file!r} names another format",
            hint="give it a name with .png",
        )

    async def main(signals: Signals) -> int:
        if at is not None:
            async with chosen_host() as host:
                return await _write_kept(Sandbox.open(name, host=host), at, file)
        async with opened(name, hint=stopped_hint(name), with_display=True) as sandbox:
            if file != STANDARD:
                await sandbox.screenshot(Path(file), region=part, scale=scale, format=form)
                return Exit.OK
            kind: Literal["png", "ppm"] = "ppm" if form == "ppm" else "png"
            data = await sandbox.screenshot(region=part, scale=scale, format=kind)
        await _write_out(data)
        return Exit.OK

    return run_async(main)


async def _write_kept(sandbox: Sandbox, tag: str, file: str) -> int:
    """Writes the picture of a checkpoint; closes the sandbox."""
    with contextlib.closing(sandbox):
        data = await sandbox.checkpoint_screen(tag)
    if data is None:
        raise ConfigError(
            f"the checkpoint {tag!r} of {sandbox.name!r} has no picture",
            hint="those of a sandbox with a display have one (`run --display`)",
        )
    if file == STANDARD:
        await _write_out(data)
    else:
        await asyncio.to_thread(write_picture, Path(file), data)
    return Exit.OK


async def _write_out(data: bytes) -> None:
    writer = FdWriter(sys.stdout.fileno())
    await writer.write(data)
    await writer.close()


def _read_region(text: str | None) -> tuple[int, int, int, int] | None:
    if text is None:
        return None
    if (match := _REGION.fullmatch(text)) is None:
        raise ConfigError(
            f"{text!r} is not X,Y,WIDTH,HEIGHT", hint="in pixels, as in --region 0,0,640,480"
        )
    x, y, width, height = (int(number) for number in match.groups())
    return x, y, width, height


@command_of("type")
def type_command(name: str, text: str) -> int:
    """Type a text on a sandbox's keyboard, as a person there would; - reads all of stdin.

    A text console must have the US layout. On a desktop, other layouts and characters that a US
    keyboard lacks need xdotool in the guest; the image debian-desktop has it.
    """
    wanted = _read_stdin() if text == STANDARD else text

    async def main(signals: Signals) -> int:
        async with attached(name, with_display=True) as sandbox:
            await sandbox.type_text(wanted)
        return Exit.OK

    return run_async(main)


def _read_stdin() -> str:
    data = sys.stdin.buffer.read(4 * TEXT_MAX + 1)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError("what comes on stdin is no text in UTF-8, or too much of it") from None


@command_of("key")
def key_command(name: str, chords: tuple[str, ...], hold: float | None) -> int:
    """Press keys on a sandbox's keyboard, one after the other: `key NAME ctrl+l ret`.

    Keys joined by + are pressed together. QEMU's names are used: a to z, 0 to 9, ret, spc, tab,
    esc, backspace, delete, up, pgdn, f1, ctrl, alt, shift, meta_l …
    """
    # First all of them are read, so that a wrong one is found before the first is pressed.
    wanted = [_read_chord(chord, name) for chord in chords]

    async def main(signals: Signals) -> int:
        async with attached(name, with_display=True) as sandbox:
            for keys in wanted:
                await sandbox.press_key(*keys, hold=HOLD_S if hold is None else hold)
        return Exit.OK

    return run_async(main)


def _read_chord(chord: str, name: str) -> tuple[str, ...]:
    parts = chord.split("+")
    if "" in parts:
        raise ConfigError(f"{chord!r} lacks a key", hint=NO_KEY)
    try:
        with vnc_errors():
            return parse_keys(parts)
    except ConfigError:
        if not (together := together_of(chord)):
            raise
        words = "+".join(together)
        raise ConfigError(
            f"{chord!r} is no key; did you mean {words!r}?",
            hint=f"keys that are pressed together: `quicksand-tui key {name} {words}`",
        ) from None


@command_of("mouse", with_negatives=True)
def mouse_command(
    name: str,
    action: str,
    places: tuple[str, ...],
    button: str,
    absolute: bool,
    as_json: bool,
) -> int:
    """Use a sandbox's mouse.

    \b
    move X,Y           move the pointer to a pixel
    click [X,Y]        click there, or at the pointer's place
    double [X,Y]       click twice
    down, up [X,Y]     press a button and hold it; release it
    drag X,Y X,Y...    press, move along, release
    scroll up|down N   turn the wheel by N notches (1)
    where              print the pixel under the pointer
    """
    notches = _read_scroll(places) if action == "scroll" else 0
    path = _read_places(action, places) if action != "scroll" else []

    async def main(signals: Signals) -> int:
        async with attached(name, with_display=True) as sandbox:
            if action == "where":
                await _print_place(sandbox, absolute, as_json)
            elif action == "scroll":
                await sandbox.mouse_scroll(notches)
            elif action == "drag":
                await sandbox.mouse_drag(*path, button=button, pixels=not absolute)
            else:
                await _point(sandbox, action, path, button, absolute)
        return Exit.OK

    return run_async(main)


PLACES = {
    "move": (1, 1, "one place, as in `move 640,400`"),
    "drag": (2, 1000, "2 to 1000 places, as in `drag 100,100 640,400`"),
    "where": (0, 0, "no place: it prints one"),
}
"""The least and the most places of each action, with the words for that; others take one or
none."""


def _read_places(action: str, words: tuple[str, ...]) -> list[tuple[int, int]]:
    found = []
    for word in words:
        if (match := _PLACE.fullmatch(word)) is None:
            if word.startswith("-"):
                raise _no_option(word)
            raise ConfigError(
                f"{word!r} is not X,Y", hint=f"as in `quicksand-tui mouse NAME {action} 640,400`"
            )
        found.append((int(match[1]), int(match[2])))
    usual = (0, 1, f"at most one place, as in `{action} 640,400`")
    least, most, says = PLACES.get(action, usual)
    if not least <= len(found) <= most:
        given = f"{len(found)} were given" if found else "none was given"
        raise ConfigError(f"`{action}` takes {says}; {given}")
    return found


def _no_option(word: str) -> click.NoSuchOption:
    """Returns click's own error, which it leaves to commands with negative numbers."""
    ctx = click.get_current_context()
    flags = [flag for found in ctx.command.params for flag in found.opts if flag.startswith("--")]
    near = difflib.get_close_matches(word, flags)
    return click.NoSuchOption(word, possibilities=near, ctx=ctx)


def _read_scroll(words: tuple[str, ...]) -> int:
    direction, *rest = words or ("",)
    count = rest[0] if rest else "1"
    if direction not in ("up", "down") or len(rest) > 1 or not count.isdecimal():
        raise ConfigError(
            f"`scroll {' '.join(words)}` says no way to turn the wheel",
            hint="`scroll up`, `scroll down 3`",
        )
    if len(count) > len(str(SCROLL_MAX)) or int(count) > SCROLL_MAX:
        raise ConfigError(
            f"the wheel turns by at most {SCROLL_MAX} notches, not by {count}",
            hint="for more say it several times",
        )
    return int(count) * (1 if direction == "down" else -1)


async def _point(
    sandbox: Sandbox, action: str, path: list[tuple[int, int]], button: str, absolute: bool
) -> None:
    for x, y in path:
        await (sandbox.mouse_move(x, y) if absolute else sandbox.mouse_move_px(x, y))
    match action:
        case "click" | "double":
            await sandbox.mouse_click(button, double=action == "double")
        case "down":
            await sandbox.mouse_down(button)
        case "up":
            await sandbox.mouse_up(button)


async def _print_place(sandbox: Sandbox, absolute: bool, as_json: bool) -> None:
    """Prints a place in the form of other actions: pixels or, with ``absolute``, 0 to 32767."""
    place = await sandbox.query_mouse_position()
    if absolute and not as_json:
        print(f"{place[0]},{place[1]}")
        return
    pixel = pixel_on(await sandbox.query_display_size(), place)
    if as_json:
        found = {"pixels": pixel, "absolute": place}
        print_json({kind: {"x": at[0], "y": at[1]} for kind, at in found.items()})
    else:
        print(f"{pixel[0]},{pixel[1]}")


@command_of("vnc")
def vnc_command(name: str, as_json: bool) -> int:
    """Show the address of a sandbox's screen for VNC viewers: a Unix socket that only you can open.

    TigerVNC takes its path: `vncviewer "$(quicksand-tui vnc NAME)"`. A viewer on another host
    reaches it through SSH: `ssh -L 5900:PATH HOST`, and then localhost:5900. With `run --vnc-port`
    the address is a port, and its password is shown, too.
    """

    async def main(signals: Signals) -> int:
        async with opened(name, hint=stopped_hint(name), with_display=True) as sandbox:
            path, port, password = sandbox.vnc_socket, sandbox.vnc_port, sandbox.vnc_password
        if as_json:
            print_json({"socket": str(path), "port": port, "password": password})
        elif port is None:
            print(path)
        else:
            print(f"127.0.0.1::{port}")
            say(f"the password is {password}; without one, for you only: {path}")
        return Exit.OK

    return run_async(main)


@command_of("record")
def record_command(
    name: str, file: str, seconds: float, fps: float, scale: float, replace: bool
) -> int:
    """Record a sandbox's screen into an animated GIF, PNG or WebP.

    The recording ends after --seconds, with Ctrl-C or SIGTERM, or with the sandbox, and FILE is
    complete in each case. A revert does not end it. If a script starts it with &, end it by `kill
    PID`, because such a process does not get Ctrl-C.

    GIF has 256 colours; PNG and WebP have all. Nothing is written while the screen does not change.
    If the guest changes the screen's size, the picture is fitted into the first size.
    """

    async def main(signals: Signals) -> int:
        async with opened(name, hint=stopped_hint(name), with_display=True) as sandbox:
            recording = sandbox.record(
                Path(file), seconds=seconds, fps=fps, scale=scale, replace=replace
            )
            async with recording as running:
                with signals.all_to(running.stop):
                    most = age_text(seconds, wide=True)
                    say(f"recording {clean(sandbox.name)} for {most} at most; Ctrl-C ends it")
                    done = await running.wait()
        say(recorded_text(done, str(done.path)))
        return Exit.OK

    return run_async(main)
