"""`Desktop`, the part of a sandbox that has a screen, a keyboard and a pointer."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from quicksand.base.errors import ConfigError
from quicksand.life.sandbox_life import Life

if TYPE_CHECKING:
    from PIL.Image import Image

    from quicksand.display.place import RfbClient
    from quicksand.display.recording import Recording
    from quicksand.life.sandbox_display import Display, Region


class Desktop:
    """The desktop of a sandbox with ``enable_display``; each method is one of `Sandbox`, too.

    Without it all but `vnc_port` and `vnc_password`, which are then None, raise NoDisplayError (a
    StateError); they raise StateError if the sandbox is not running, MachineError if its VM has
    ended. An argument of a wrong kind is a ConfigError, like one that is out of bounds. Methods
    that use the keyboard or the pointer also raise StateError if the VM is paused or its kernel
    does not drive the device, and DisplayError if the guest takes no input for 10 s. Any number of
    tasks and programs may call these methods: each call is a whole gesture, one after the other.

    Places of the pointer are from 0 to 32767 on both sides of the screen; pixels are counted from
    its upper left corner.
    """

    def __init__(self, life: Life) -> None:
        self._life = life

    @cached_property
    def _display(self) -> Display:
        from quicksand.life.sandbox_display import Display  # noqa: PLC0415

        return Display(self._life)

    # The screen

    def display(self) -> AbstractAsyncContextManager[RfbClient]:
        """A connection to the screen, for viewers: ``async with sandbox.display() as client`` (see
        `quicksand_vnc.client`). The ``async with`` and the client's methods raise DisplayError."""
        return self._display.connect()

    @property
    def vnc_socket(self) -> Path:
        """The Unix socket of QEMU's VNC server, which needs no password and which only this user
        can open. After a revert it is another one."""
        return self._display.machine().vnc_socket

    @property
    def vnc_port(self) -> int | None:
        """The port of 127.0.0.1 at which VNC viewers find the screen; None without the option
        ``vnc_port`` or while the sandbox is stopped."""
        return self._display.vnc_port()

    @property
    def vnc_password(self) -> str | None:
        """The password of viewers at `vnc_port`, a secret that changes with every start; None
        without that port."""
        return self._display.vnc_password()

    @overload
    async def screenshot(
        self,
        path: str | Path,
        *,
        region: Region | None = None,
        scale: float | None = None,
        format: str | None = None,
    ) -> Path: ...

    @overload
    async def screenshot(
        self,
        path: None = None,
        *,
        region: Region | None = None,
        scale: float | None = None,
        format: Literal["png", "ppm"] | None = None,
    ) -> bytes: ...

    @overload
    async def screenshot(
        self,
        path: None = None,
        *,
        region: Region | None = None,
        scale: float | None = None,
        format: Literal["image"],
    ) -> Image: ...

    async def screenshot(
        self,
        path: str | Path | None = None,
        *,
        region: Region | None = None,
        scale: float | None = None,
        format: str | None = None,  # noqa: A002
    ) -> Path | bytes | Image:
        """Take a picture of the screen.

        With ``path`` it is written there and the path is returned; without, the file's bytes are,
        or with the format "image" an image of Pillow's. The format is "png" or "ppm"; by default
        the path's suffix says which, and without one it is "png". ``region`` is the part at (x, y,
        width, height) in pixels; ``scale`` makes the picture larger or smaller, up to 8 times. The
        picture shows the pointer if the guest draws it itself, as the image debian-desktop does.

        Raises ConfigError, PathError, DiskSpaceError, DisplayError. A file that was there is then
        unchanged.
        """
        if path is None and format == "image":
            return (await self._display.picture(region, scale)).to_image()
        target = None if path is None else Path(path).absolute()
        data = await self._display.screenshot(target, region, scale, format)
        return data if target is None else target

    def record(
        self,
        path: str | Path,
        *,
        seconds: float = 600.0,
        fps: float = 10.0,
        scale: float = 1.0,
        replace: bool = False,
    ) -> AbstractAsyncContextManager[Recording]:
        """Record the screen into an animated file while the context lasts::

            async with sandbox.record("demo.gif", fps=5) as recording:
                await sandbox.type_text("hello")
            print(recording.result.pictures)

        The path's suffix says the format: ``.gif``, ``.png`` (APNG) or ``.webp``. A picture is
        added when the screen has changed, at most ``fps`` a second (30); fewer if they cannot be
        packed as fast. The recording has ``scale`` times the first picture's width and height; when
        the guest changes the size, its screen is fitted into that. A revert does not end it.

        It ends after ``seconds`` (at most a day), with the sandbox, or at 2 GiB; ``await
        recording.wait()`` waits for that, ``recording.stop()`` ends it before. In each case, also
        after an exception or a cancellation, the file is complete when the context is left; until
        then there is none. Leaving it raises what prevented the file, if nothing else was raised.

        Raises ConfigError, PathError (also if the file exists, without ``replace``),
        DiskSpaceError, HostError without Pillow, DisplayError.
        """
        return self._display.record(
            Path(path).absolute(), seconds=seconds, fps=fps, scale=scale, replace=replace
        )

    async def query_display_size(self) -> tuple[int, int]:
        """The width and height of the screen in pixels. Raises DisplayError."""
        return await self._display.size()

    async def set_display_size(self, width: int, height: int) -> None:
        """Ask the guest to give its screen another size; whether and when it follows is up to it,
        and `query_display_size` tells. A size has at most 2**24 pixels. Raises ConfigError,
        DisplayError."""
        await self._display.set_size(width, height)

    async def wait_for_screen(
        self,
        until: str = "stable",
        *,
        timeout: float = 30.0,
        quiet: float = 1.0,
        region: Region | None = None,
        text: str | None = None,
    ) -> None:
        """Wait until the screen changes ("change"), or until it has not changed for ``quiet``
        seconds ("stable"); with ``region``, that part of it. Pictures from before the guest has
        initialised the screen do not count.

        "text" waits until ``text`` is shown, by asking the guest, without recognising pictures. The
        text must be on the guest's text console, if that is shown, or else in the title of a window
        of its X server, which need not be in front; the contents of windows are not searched. The
        guest needs xdotool and xprop to report titles; a program in it can lie.

        Raises DisplayTimeoutError (a TimeoutError) after ``timeout`` seconds, ConfigError,
        DisplayError; for a text StateError if the VM is paused, AgentError.
        """
        await self._display.wait(until, timeout, quiet, region, text)

    # The keyboard

    async def type_text(self, text: str) -> None:
        """Type a text by the keys of a US keyboard. If it has other characters, or is for an X
        server with another keyboard layout, xdotool in the guest types it. A text console must have
        the US layout.

        Line feed, tab and backspace press those keys. While a long text is typed, other clients get
        their turns, a few each second. Raises ConfigError for other control characters and for more
        than 65536 characters, DisplayError if the guest has no xdotool and needs it, AgentError.
        """
        await self._display.type(text)

    async def press_key(self, *keys: str, hold: float = 0.02) -> None:
        """Press keys together, hold them for ``hold`` seconds, and release them:
        ``press_key("ctrl", "alt", "t")``. Keys are called as in QEMU (`Key`). Raises ConfigError.
        """
        await self._display.press(keys, hold)

    async def key_down(self, *keys: str) -> None:
        """Press keys and leave them so, until `key_up` or a checkpoint. Raises ConfigError."""
        await self._display.set_keys(keys, True)

    async def key_up(self, *keys: str) -> None:
        """Release keys. Raises ConfigError."""
        await self._display.set_keys(keys, False)

    # The pointer

    async def mouse_move(self, x: int, y: int, *, pixels: bool = False) -> None:
        """Move the pointer to a place, counted from 0 to 32767 across and down the screen whatever
        its size; with ``pixels`` to that pixel.

        All methods of the pointer that take or return places count in this way. Raises ConfigError,
        DisplayError for pixels.
        """
        await self._display.move(*await self._place(x, y, pixels=pixels))

    async def mouse_move_px(self, x: int, y: int) -> None:
        """`mouse_move` with ``pixels``."""
        await self.mouse_move(x, y, pixels=True)

    @overload
    async def mouse_click(self, button: str = "left", *, double: bool = False) -> None: ...

    @overload
    async def mouse_click(
        self, x: int, y: int, /, *, double: bool = False, pixels: bool = False
    ) -> None: ...

    @overload
    async def mouse_click(
        self, button: str, x: int, y: int, /, *, double: bool = False, pixels: bool = False
    ) -> None: ...

    @overload
    async def mouse_click(
        self, button: str = "left", *, x: int, y: int, double: bool = False, pixels: bool = False
    ) -> None: ...

    async def mouse_click(
        self,
        button: str | int = "left",
        first: int | None = None,
        second: int | None = None,
        *,
        x: int | None = None,
        y: int | None = None,
        double: bool = False,
        pixels: bool = False,
    ) -> None:
        """Click "left", "middle", "right", "side" or "extra" where the pointer is, or at a place,
        which is that of `mouse_move`::

            await sandbox.mouse_click()
            await sandbox.mouse_click(400, 300, pixels=True)
            await sandbox.mouse_click("right", 400, 300, pixels=True)

        Raises ConfigError, DisplayError for pixels.
        """
        at = None
        if isinstance(button, int):
            across, down = button, first if second is None else None
            button, first, second = "left", across, down
        if (x, y) != (None, None) and (first, second) == (None, None):
            first, second = x, y
            x = y = None
        if first is not None and second is not None and x is None and y is None:
            at = await self._place(first, second, pixels=pixels)
        elif pixels or (first, second, x, y) != (None, None, None, None):
            raise ConfigError("a place has x and y", hint="mouse_click(400, 300, pixels=True)")
        await self._display.click(button, 2 if double else 1, at)

    async def _place(self, x: int, y: int, *, pixels: bool) -> tuple[int, int]:
        return await self._display.place_of(x, y) if pixels else (x, y)

    async def mouse_down(self, button: str = "left") -> None:
        """Press a button and leave it so, until `mouse_up` or a checkpoint. Raises ConfigError."""
        await self._display.set_button(button, True)

    async def mouse_up(self, button: str = "left") -> None:
        """Release a button. Raises ConfigError."""
        await self._display.set_button(button, False)

    async def mouse_drag(
        self, *path: tuple[int, int], button: str = "left", pixels: bool = False
    ) -> None:
        """Press a button at the first place of ``path``, move along it, and release it at the last
        one: ``mouse_drag((100, 100), (3000, 100))``. With ``pixels`` the places are pixels. Raises
        ConfigError."""
        await self._display.drag(path, button, pixels=pixels)

    async def mouse_scroll(self, notches: int) -> None:
        """Turn the wheel by so many notches, down if positive, else up. Raises ConfigError."""
        await self._display.scroll(notches)

    async def query_mouse_position(self, *, pixels: bool = False) -> tuple[int, int]:
        """Return the place of the pointer: (x, y) as in `mouse_move`. A guest with an X server and
        xdotool is asked, since viewers and programs move the pointer, too. For another guest it is
        the place to which a method of this class, in any program, moved it last; raises StateError
        if none has since the machine started or was reverted."""
        place = await self._display.position()
        return await self._display.pixel_of(place) if pixels else place
