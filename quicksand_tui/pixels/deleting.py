"""The meaning of kitty's command to delete: the places of pictures that it removes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from quicksand_vt import Box

if TYPE_CHECKING:
    from quicksand_vt import Surface

    from quicksand_tui.pixels.kitty_reading import Command
    from quicksand_tui.pixels.placed import Placed, Places

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
