"""Pictures that a guest's programs draw in their terminal, with sixels or kitty's protocol.

A guest's pictures are hostile: sizes, pixels kept, cells covered and work per second are bounded,
and nothing raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from PIL import Image
from quicksand_vt import After, Allowance, Box

from quicksand_pixels.decoding.kitty_reading import Command, RefusedError, Transmission, parse
from quicksand_pixels.decoding.places import PIXELS_MAX, WAITING_MAX, Part, Placed, Places, Stored
from quicksand_pixels.decoding.sixel_reading import SixelPicture, SixelReader

if TYPE_CHECKING:
    from quicksand_vt import Surface

    from quicksand_pixels.decoding.places import Budget


FILLED_BURST: Final = 16 << 20
FILLED_RATE: Final = 16 << 20
"""Pixels, at once and per second, for which memory is filled: fifty pictures of 640x480 a second,
a twentieth of a slow core."""

SCALED: Final = 8
"""The pixels that are filled in the time of scaling one."""

REDUCED: Final = 2
"""The pixels that are filled in the time of reducing one."""
LARGER: Final = 4
"""The pixels of a picture, as a multiple of those of its cells, from which it is reduced once when
it is shown: else it would be reduced for each drawing of a part, in each of its places."""

DRAWN_BURST: Final = 6 << 20
DRAWN_RATE: Final = 40 << 20
"""Pixels, at once and per second, that sixels draw over: at once 0.1 s, then half of a slow core. A
picture of 640x480 with 128 colours takes 2 million."""

AT_ONCE: Final = 1 << 20
"""The cost (`Transmission.cost`) up to which a picture is decoded at once, in some 5 ms."""
CELLS_MAX: Final = 1000
"""The most rows and the most columns that a picture takes."""

Decode = Callable[[], Image.Image]
Decoded = Callable[[Image.Image | RefusedError], None]
Elsewhere = Callable[[Decode, Decoded], None]
"""Calls the first function on another thread, and then the second on this one with the outcome."""


def outcome(decode: Decode) -> Image.Image | RefusedError:
    """Decodes a picture; returns it, or why it cannot be decoded."""
    try:
        return decode()
    except RefusedError as error:
        return error


def here(decode: Decode, done: Decoded) -> None:
    """Decodes at once: an `Elsewhere` for callers that can wait."""
    done(outcome(decode))


@dataclass(frozen=True, slots=True)
class Shape:
    """The way a picture lies in cells; see `Placed`."""

    columns: int
    rows: int
    cell: tuple[float, float]
    source: tuple[int, int, int, int]
    offset: tuple[float, float] = (0.0, 0.0)


class GuestGraphics:
    """The pictures of one terminal (`quicksand_vt.Graphics`)."""

    def __init__(
        self,
        surface: Surface,
        budget: Budget,
        *,
        elsewhere: Elsewhere = here,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        """``elsewhere`` decodes pictures that take long; ``changed`` is called when there is
        something new to draw or to answer after it."""
        self._surface = surface
        self._elsewhere = elsewhere
        self._changed = changed
        self.places = Places(budget, lambda: surface.shown(everywhere=True))
        self._filled = Allowance(FILLED_BURST, FILLED_RATE, surface.clock)
        self._drawn = Allowance(DRAWN_BURST, DRAWN_RATE, surface.clock)
        self._budget = budget
        self._waiting = 0
        """The number of its pictures that wait to be decoded."""
        self._coming: Transmission | None = None
        """The picture whose commands have not all come."""

    def find(self, number: int) -> Part | None:
        """Returns the contents of the cell with this number; None if they are forgotten."""
        return self.places.find(number)

    def forget(self) -> None:
        self.places.clear()
        self._coming, self.places.coming = None, 0

    # Sixels

    def sixels(self, parameters: str) -> SixelReader:
        return SixelReader(
            parameters,
            self._show_sixels,
            foreground=self._surface.foreground,
            allows=self._filled.take,
            draws=self._drawn.take,
        )

    def _show_sixels(self, picture: SixelPicture) -> None:
        image, surface = picture.image, self._surface
        after = surface.after_sixels
        wide, high = surface.cell
        whole = (0, 0, *image.size)
        columns, rows = -(-image.width // wide), min(-(-image.height // high), CELLS_MAX)
        self._place(
            Stored(image),
            Shape(columns, rows, (wide, high), whole),
            after,
            overlays=picture.overlays,
            erases=True,
        )
        # The cursor ends up in the row where the last sixels begin.
        last = (picture.height_before_last // high) + 1
        if after in (After.LAST_ROW, After.BEHIND) and last < rows:
            surface.move_up(rows - last)

    # Places

    def _place(
        self,
        stored: Stored,
        shape: Shape,
        after: After,
        *,
        overlays: bool,
        erases: bool,
        placement_id: int = 0,
        z: int = 0,
    ) -> bool:
        """Shows a picture at the cursor; returns False if there is no room. With ``overlays``,
        pictures below show through it; with ``erases``, text below is gone."""
        surface, places = self._surface, self.places
        columns, rows = shape.columns, shape.rows
        # Numbers are only taken for cells: else commands that are refused would soon use them up.
        if not surface.may_show(columns, rows, after):
            return False
        first = places.numbers(columns * rows)
        placed = Placed(
            stored, first, columns, rows, shape.cell, shape.source, shape.offset, placement_id, z
        )
        if overlays and (whole := self._overlaid(placed, after)) is not None:
            placed.show(Stored(whole), surface.cell)
        elif (cost := self._reducing(placed)) > 0:
            if not self._filled.take(cost):
                return False
            placed.reduce(surface.cell)
        # The pixels of a picture that is still to come concern its places.
        placed.own = stored if stored.is_kept or not stored.is_decoded else placed.stored
        if not places.place(placed):
            return False
        surface.show(columns, rows, first, after=after, erases=erases)
        return True

    def _reducing(self, placed: Placed) -> int:
        """Returns the cost of reducing a picture to its cells; 0 if it is not much larger."""
        left, top, right, bottom = placed.source
        there = (right - left) * (bottom - top)
        wide, high = self._surface.cell
        shown = placed.columns * wide * placed.rows * high
        return REDUCED * there if there > LARGER * shown else 0

    def _overlaid(self, placed: Placed, after: After) -> Image.Image | None:
        """Returns a picture together with those below it; None if it has none, or hides them."""
        surface, (wide, high) = self._surface, self._surface.cell
        y, x = (0, 0) if after is After.TOP else surface.cursor
        right = min(x + placed.columns, surface.size[0])
        parts = surface.parts(Box(y, x, y + placed.rows, right))
        stored = placed.stored
        if not any(map(any, parts)) or not stored.is_decoded or stored.is_opaque:
            return None
        size = (placed.columns * wide, placed.rows * high)
        cost = 2 if placed.cell == (wide, high) else SCALED
        if size[0] * size[1] > PIXELS_MAX or not self._filled.take(
            cost * size[0] * size[1] + self._reducing(placed)
        ):
            return None
        whole = Image.new("RGBA", size)
        for row, numbers in enumerate(parts):
            for column, count, part in _runs(numbers, self.places):
                cut = part.placed.part(part.column, part.row, count, 1, (wide, high))
                whole.paste(cut, (column * wide, row * high))
        whole.alpha_composite(placed.part(0, 0, placed.columns, placed.rows, (wide, high)))
        return whole

    # Kitty's protocol

    def command(self, text: str) -> None:
        command = parse(text)
        if command is None:
            return
        if self._coming is not None and command.action not in ("d", "p"):
            self._go_on(self._coming, command)
            return
        self._coming, self.places.coming = None, 0
        try:
            match command.action:
                case "t" | "T" | "q":
                    self._begin(command)
                case "p":
                    self._put(command)
                case "d":
                    self._delete(command)
                case _:
                    raise RefusedError("EINVAL:animations are not shown")
        except RefusedError as error:
            self._answer(command, str(error))

    def _answer(
        self,
        command: Command,
        text: str,
        image_id: int = 0,
        quiet: int = 0,
        *,
        late: bool = False,
    ) -> None:
        """Answers a command that names a picture, as far as the command asks for it."""
        named = image_id or command.positive("i")
        quiet = max(quiet, command.number("q"))
        if not (named or command.number("I")) or quiet >= (1 if text == "OK" else 2):
            return
        words = [f"i={named}"] if named else []
        words += [f"{key}={command.positive(key)}" for key in "Ip" if command.positive(key)]
        self._surface.reply(f"\x1b_G{','.join(words)};{text}\x1b\\", late=late)

    def _begin(self, command: Command) -> None:
        """Takes the first command of a picture."""
        if command.positive("i") and command.positive("I"):
            raise RefusedError("EINVAL:a picture has an id or a number, not both")
        if command.number("U"):
            raise RefusedError("EINVAL:Unicode placeholders are not shown")
        self._go_on(Transmission(command), command)

    def _go_on(self, coming: Transmission, command: Command) -> None:
        """Takes a part of a picture, perhaps the last one."""
        self._coming = None
        coming.quiet = max(coming.quiet, command.number("q"))
        try:
            coming.add(command.payload)
            self.places.coming = coming.held // 4
            if not self.places.has_room():
                raise RefusedError("ENOSPC:there is no room for the picture")
            if command.number("m"):
                self._coming = coming
                return
            self.places.coming = 0
            coming.finish()
            if not self._filled.take(2 * coming.pixels):
                raise RefusedError("EBUSY:too many pictures came at once")
            self._receive(coming)
        except RefusedError as error:
            self._answer(coming.command, str(error), quiet=coming.quiet)
        self.places.coming = 0

    def _receive(self, coming: Transmission) -> None:
        """Shows or keeps a picture that has come in full. Raises `RefusedError`."""
        command = coming.command
        if coming.cost <= AT_ONCE:
            stored = self._take(command, coming.decode())
            self._answer(command, "OK", stored.image_id, coming.quiet)
            return
        if self._waiting and self._budget.waiting >= WAITING_MAX:
            raise RefusedError("EBUSY:too many pictures came at once")
        # Later output is to find it in its place.
        stored = self._take(command, Image.new("RGBA", coming.size), is_decoded=False)
        answers = self._surface.answers
        self._waiting += 1
        self._budget.waiting += 1

        def done(found: Image.Image | RefusedError) -> None:
            self._waiting -= 1
            self._budget.waiting -= 1
            text = "OK"
            if isinstance(found, RefusedError):
                self.places.drop(stored)
                text = str(found)
            else:
                stored.take(found)
            if answers:
                self._answer(command, text, stored.image_id, coming.quiet, late=True)
            self._surface.touch()
            self._changed()

        self._elsewhere(coming.decode, done)

    def _take(self, command: Command, image: Image.Image, *, is_decoded: bool = True) -> Stored:
        """Keeps a picture if it has an id, and shows it if that is wanted. Raises
        `RefusedError`."""
        stored = Stored(image, command.positive("i"), command.positive("I"), is_decoded=is_decoded)
        if command.action == "q":
            return stored
        if stored.number and not stored.image_id:
            stored.image_id = self.places.free_id()
        if stored.image_id and not self.places.keep(stored):
            raise RefusedError("ENOSPC:there is no room for the picture")
        if command.action == "T":
            self._show(stored, command)
        return stored

    def _put(self, command: Command) -> None:
        """Shows a picture that came before. Raises `RefusedError`."""
        stored = self.places.stored(command.positive("i"), command.positive("I"))
        if stored is None:
            raise RefusedError("ENOENT:there is no such picture")
        if command.number("U"):
            raise RefusedError("EINVAL:Unicode placeholders are not shown")
        self._show(stored, command)
        self._answer(command, "OK", stored.image_id)

    def _show(self, stored: Stored, command: Command) -> None:
        """Shows a picture as the command says. Raises `RefusedError`."""
        shape = shape_of(stored.image.size, self._surface.cell, command)
        placement_id = command.positive("p")
        if placement_id and stored.image_id:
            for placed in self.places.placed:
                if placed.own is stored and placed.placement_id == placement_id:
                    self.places.remove(placed)
                    self._surface.touch()
        shown = self._place(
            stored,
            shape,
            After.SAME if command.number("C") == 1 else After.BEHIND,
            overlays=True,
            erases=False,
            placement_id=placement_id,
            z=command.number("z"),
        )
        if not shown:
            raise RefusedError("ENOSPC:there is no room for the picture")

    def _delete(self, command: Command) -> None:
        what = command.letters.get("d", "a")
        for placed in to_delete(what.lower(), command, self._surface, self.places):
            self.places.remove(placed)
            if what.isupper() and not self.places.is_shown(placed.own):
                self.places.forget(placed.own.image_id)
        if what in ("I", "N"):
            stored = self.places.stored(command.positive("i"), command.positive("I"))
            if stored is not None and not self.places.is_shown(stored):
                self.places.forget(stored.image_id)
        self._surface.touch()


def _runs(numbers: list[int], places: Places) -> Iterator[tuple[int, int, Part]]:
    """Yields the parts of pictures in the cells of a row: the cell where adjacent parts begin,
    their number, and the first part."""
    at = 0
    while at < len(numbers):
        part = places.find(numbers[at]) if numbers[at] else None
        count = 1
        if part is not None:
            most = min(part.placed.columns - part.column, len(numbers) - at)
            while count < most and numbers[at + count] == numbers[at] + count:
                count += 1
            yield at, count, part
        at += count


def shape_of(size: tuple[int, int], cell: tuple[int, int], command: Command) -> Shape:
    """Returns the way a picture of this size is shown. Raises `RefusedError`."""
    wide, high = cell
    left, top = min(command.positive("x"), size[0]), min(command.positive("y"), size[1])
    across, down = size[0] - left, size[1] - top
    across = min(command.positive("w") or across, across)
    down = min(command.positive("h") or down, down)
    if not across or not down:
        raise RefusedError("EINVAL:nothing of the picture is to be shown")
    source = (left, top, left + across, top + down)
    columns, rows = command.positive("c"), command.positive("r")
    offset = (min(command.positive("X"), wide - 1), min(command.positive("Y"), high - 1))
    if columns and rows:
        shape = Shape(columns, rows, (across / columns, down / rows), source)
    elif columns or rows:
        # In proportion: pixels of the picture for one of the screen.
        scale = across / (columns * wide) if columns else down / (rows * high)
        columns = columns or max(1, math.ceil(across / scale / wide))
        rows = rows or max(1, math.ceil(down / scale / high))
        shape = Shape(columns, rows, (wide * scale, high * scale), source)
    else:
        columns = -(-(across + offset[0]) // wide)
        rows = -(-(down + offset[1]) // high)
        shape = Shape(columns, rows, (wide, high), source, offset)
    if max(shape.columns, shape.rows) > CELLS_MAX:
        raise RefusedError(f"EINVAL:a picture has at most {CELLS_MAX} rows and columns")
    return shape


# The places that kitty's command to delete means.

Chooses = Callable[["Command", "Surface", "Places"], Iterable["Placed"]]


def to_delete(what: str, command: Command, surface: Surface, places: Places) -> list[Placed]:
    """Returns the places to be removed; ``what`` is the value of the key d in lower case."""
    chooses = _CHOICES.get(what)
    return [] if chooses is None else list(chooses(command, surface, places))


def _all(_: Command, surface: Surface, places: Places) -> Iterable[Placed]:
    return places.of(surface.shown())


def _by_id(command: Command, _: Surface, places: Places) -> Iterable[Placed]:
    return _of_picture(command, command.positive("i"), 0, places)


def _by_number(command: Command, _: Surface, places: Places) -> Iterable[Placed]:
    return _of_picture(command, 0, command.positive("I"), places)


def _of_picture(command: Command, image_id: int, number: int, places: Places) -> Iterable[Placed]:
    stored = places.stored(image_id, number)
    wanted = command.positive("p")
    if stored is None:
        return []
    return [
        placed
        for placed in places.placed
        if placed.own is stored and wanted in (0, placed.placement_id)
    ]


def _in_box(box: Box, surface: Surface, places: Places) -> list[Placed]:
    return places.of(number for row in surface.parts(box) for number in row if number)


def _at_cursor(_: Command, surface: Surface, places: Places) -> Iterable[Placed]:
    y, x = surface.cursor
    return _in_box(Box(y, x, y + 1, x + 1), surface, places)


def _at_cell(command: Command, surface: Surface, places: Places) -> Iterable[Placed]:
    y, x = command.positive("y"), command.positive("x")
    return _in_box(Box(y - 1, x - 1, y, x), surface, places) if x and y else []


def _at_cell_and_depth(command: Command, surface: Surface, places: Places) -> Iterable[Placed]:
    depth = command.number("z")
    return [placed for placed in _at_cell(command, surface, places) if placed.z == depth]


def _in_column(command: Command, surface: Surface, places: Places) -> Iterable[Placed]:
    x = command.positive("x")
    return _in_box(Box(0, x - 1, surface.size[1], x), surface, places) if x else []


def _in_row(command: Command, surface: Surface, places: Places) -> Iterable[Placed]:
    y = command.positive("y")
    return _in_box(Box(y - 1, 0, y, surface.size[0]), surface, places) if y else []


def _at_depth(command: Command, _: Surface, places: Places) -> Iterable[Placed]:
    return [placed for placed in places.placed if placed.z == command.number("z")]


def _in_range(command: Command, _: Surface, places: Places) -> Iterable[Placed]:
    first, last = command.positive("x"), command.positive("y")
    return [placed for placed in places.placed if first <= (placed.own.image_id or -1) <= last]


_CHOICES: Final[Mapping[str, Chooses]] = {
    "a": _all,
    "c": _at_cursor,
    "i": _by_id,
    "n": _by_number,
    "p": _at_cell,
    "q": _at_cell_and_depth,
    "r": _in_range,
    "x": _in_column,
    "y": _in_row,
    "z": _at_depth,
}
