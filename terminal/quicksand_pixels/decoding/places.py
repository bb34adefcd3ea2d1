"""Pictures of a guest's programs as they are shown: the parts of them in each cell."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol
from weakref import WeakSet

from PIL import Image

COUNT_MAX: Final = 1024
"""The most places, and the most pictures that are kept without a place."""

NUMBERS_MAX: Final = 0xFFFFFFFF
"""The largest number of a part, which has 32 bits in the scrollback."""


@dataclass(eq=False, slots=True)
class Stored:
    """A picture, which several places may show."""

    image: Image.Image
    """The picture, in the mode RGBA."""
    image_id: int = 0
    """Kitty's id; 0 for none."""
    number: int = 0
    """Kitty's image number, which several pictures may share; 0 for none."""
    is_kept: bool = False
    """It may be shown again, though no place shows it."""

    is_decoded: bool = True
    """The picture is there, and not only its size."""
    when_decoded: list[Callable[[], None]] = field(default_factory=list)
    """Calls to make then."""
    _opaque: bool | None = None

    @property
    def pixels(self) -> int:
        return self.image.width * self.image.height

    @property
    def is_opaque(self) -> bool:
        """Whether nothing shows through it. It looks at each pixel the first time."""
        if self._opaque is None:
            self._opaque = self.image.getchannel("A").getextrema() == (255, 255)
        return self._opaque

    def take(self, image: Image.Image) -> None:
        """Takes the picture, which was not there yet."""
        self.image = image
        self.is_decoded, self._opaque = True, None
        waiting, self.when_decoded = self.when_decoded, []
        for call in waiting:
            call()


@dataclass(eq=False, slots=True, weakref_slot=True)
class Placed:
    """A picture in a rectangle of cells."""

    stored: Stored
    first: int
    """The number of its first part; the others follow row by row."""
    columns: int
    rows: int
    cell: tuple[float, float]
    """The width and height of a cell's contents, in pixels of the picture."""
    source: tuple[int, int, int, int]
    """Left, top, right and bottom of the part of the picture that is shown."""
    offset: tuple[float, float] = (0.0, 0.0)
    """The beginning of that part within the first cell, in pixels of the picture."""
    placement_id: int = 0
    z: int = 0
    own: Stored = field(init=False)
    """The picture, without others that show through it."""

    def __post_init__(self) -> None:
        self.own = self.stored

    def show(self, stored: Stored, cell: tuple[int, int]) -> None:
        """Shows another picture instead, in so many pixels for each cell."""
        self.stored, self.cell, self.offset = stored, cell, (0.0, 0.0)
        self.source = (0, 0, *stored.image.size)

    def reduce(self, cell: tuple[int, int]) -> None:
        """Shows a copy with so many pixels for each cell, empty until the picture is there."""
        original = replace(self)
        whole = (0, 0, self.columns, self.rows, cell)
        if self.stored.is_decoded:
            copy = Stored(original.part(*whole))
        else:
            empty = Image.new("RGBA", (self.columns * cell[0], self.rows * cell[1]))
            copy = Stored(empty, is_decoded=False)
            self.stored.when_decoded.append(lambda: copy.take(original.part(*whole)))
        self.show(copy, cell)

    @property
    def end(self) -> int:
        return self.first + self.columns * self.rows

    def part(
        self, column: int, row: int, columns: int, rows: int, cell: tuple[int, int]
    ) -> Image.Image:
        """Returns the contents of some of its cells, in so many pixels for each cell, as RGBA."""
        wide, high = self.cell
        left = column * wide - self.offset[0] + self.source[0]
        top = row * high - self.offset[1] + self.source[1]
        size = (columns * cell[0], rows * cell[1])
        x = _span(left, left + columns * wide, self.source[0::2], size[0])
        y = _span(top, top + rows * high, self.source[1::2], size[1])
        # Only the picture itself is scaled: cells may show an area beyond it that is a thousand
        # times as large.
        inner = (x.target[1] - x.target[0], y.target[1] - y.target[0])
        if min(inner) <= 0:
            return Image.new("RGBA", size)
        box = (math.floor(x.first), math.floor(y.first), math.ceil(x.last), math.ceil(y.last))
        cut = self.stored.image.crop(box)
        within = (x.first - box[0], y.first - box[1], x.last - box[0], y.last - box[1])
        if cut.size != inner or within != (0, 0, *inner):
            smaller = wide > cell[0] or high > cell[1]
            how = Image.Resampling.BOX if smaller else Image.Resampling.BILINEAR
            cut = cut.resize(inner, how, box=within)
        if inner == size:
            return cut
        whole = Image.new("RGBA", size)
        whole.paste(cut, (x.target[0], y.target[0]))
        return whole


class _Span(NamedTuple):
    """The visible part of a picture in one direction."""

    first: float
    last: float
    """The beginning and the end in the picture, in its pixels."""
    target: tuple[int, int]
    """The beginning and the end in the result, in whole pixels."""


def _span(first: float, last: float, source: tuple[int, ...], size: int) -> _Span:
    """Returns the visible part if ``size`` pixels show the picture from ``first`` to ``last``, and
    only ``source`` of it exists."""
    begin, end = max(first, source[0]), min(last, source[1])
    scale = size / (last - first)
    target = (round((begin - first) * scale), round((end - first) * scale))
    return _Span(begin, end, target if begin < end else (0, 0))


class Part(NamedTuple):
    """The part of a picture that a cell shows."""

    placed: Placed
    column: int
    row: int


class Places:
    """The places and pictures of one terminal, within a budget. Places on no screen are dropped
    first, then the oldest."""

    def __init__(self, budget: Budget, look: Callable[[], Iterable[int]]) -> None:
        """``look`` returns the numbers of the parts that are on the screens."""
        self._budget = budget
        self._look = look
        self._placed: list[Placed] = []
        """The places, by their first number."""
        self._kept: dict[int, Stored] = {}
        """Kitty's pictures by id, the oldest first."""
        self._next = 1
        self._uses: dict[Stored, tuple[int, int]] = {}
        """The number of a picture's uses (places, and being kept), and the pixels counted for
        it."""
        self._pixels = 0
        """The pixels of these pictures."""
        self.coming = 0
        """The pixels that the received data of a picture could take."""
        budget.join(self)

    # Finding

    @property
    def pixels(self) -> int:
        return self._pixels + self.coming

    def _use(self, stored: Stored) -> None:
        uses, pixels = self._uses.get(stored, (0, stored.pixels))
        if not uses:
            self._pixels += pixels
        self._uses[stored] = uses + 1, pixels

    def _release(self, stored: Stored) -> None:
        uses, pixels = self._uses.pop(stored)
        if uses > 1:
            self._uses[stored] = uses - 1, pixels
        else:
            self._pixels -= pixels

    def find(self, number: int) -> Part | None:
        """Returns the part with a number; None if it is forgotten."""
        at = bisect_right(self._placed, number, key=lambda placed: placed.first) - 1
        if at < 0 or number >= self._placed[at].end:
            return None
        placed = self._placed[at]
        row, column = divmod(number - placed.first, placed.columns)
        return Part(placed, column, row)

    def of(self, numbers: Iterable[int]) -> list[Placed]:
        """Returns the places that have parts with these numbers."""
        found: dict[Placed, None] = {}
        if not self._placed:
            return []
        first = end = 0
        for number in numbers:
            if not first <= number < end and (part := self.find(number)) is not None:
                found[part.placed] = None
                first, end = part.placed.first, part.placed.end
        return list(found)

    @property
    def placed(self) -> tuple[Placed, ...]:
        return tuple(self._placed)

    def stored(self, image_id: int, number: int = 0) -> Stored | None:
        """Returns the picture with an id, or the newest with a number."""
        if image_id:
            return self._kept.get(image_id)
        numbered = [one for one in self._kept.values() if number and one.number == number]
        return numbered[-1] if numbered else None

    def free_id(self) -> int:
        """Returns an id that no picture has."""
        found = 0x7FFFFFFF
        while found in self._kept:
            found -= 1
        return found

    # Changes

    def numbers(self, cells: int) -> int:
        """Returns the first of so many numbers that no part has had lately."""
        if self._next + cells > NUMBERS_MAX:
            self.clear()
            self._next = 1
        first, self._next = self._next, self._next + cells
        return first

    def keep(self, stored: Stored) -> bool:
        """Keeps a picture under its id; returns False if there is no room for it."""
        self.forget(stored.image_id)
        if len(self._kept) >= COUNT_MAX:
            for image_id in list(self._kept)[: COUNT_MAX // 4]:
                self.forget(image_id)
        if not self._budget.make_room(self, stored.pixels):
            return False
        stored.is_kept = True
        self._kept[stored.image_id] = stored
        self._use(stored)
        return True

    def place(self, placed: Placed) -> bool:
        """Adds a place; returns False if there is no room for its picture."""
        if len(self._placed) >= COUNT_MAX:
            self._thin_out()
        is_new = not placed.stored.is_kept
        if is_new and not self._budget.make_room(self, placed.stored.pixels):
            return False
        insort(self._placed, placed, key=lambda one: one.first)
        self._use(placed.stored)
        return True

    def has_room(self) -> bool:
        """Whether the received data fits, if other pictures are dropped for it."""
        return self._budget.make_room(self, 0)

    def _thin_out(self) -> None:
        """Removes a quarter of the places, at first those that are on no screen."""
        shown = set(self.of(self._look()))
        order = sorted(self._placed, key=lambda one: one in shown)
        self._remove_all(set(order[: COUNT_MAX // 4]))

    def remove(self, placed: Placed) -> None:
        """Removes a place; its picture is forgotten unless it is kept."""
        at = bisect_right(self._placed, placed.first, key=lambda one: one.first) - 1
        if at >= 0 and self._placed[at] is placed:
            del self._placed[at]
            self._release(placed.stored)

    def _remove_all(self, gone: set[Placed]) -> None:
        if gone:
            self._placed = [one for one in self._placed if one not in gone]
            for placed in gone:
                self._release(placed.stored)

    def forget(self, image_id: int) -> None:
        """Forgets a picture, and removes its places."""
        if (stored := self._kept.get(image_id)) is not None:
            self.drop(stored)

    def drop(self, stored: Stored) -> None:
        """Forgets a picture, whether it has an id or not, and removes its places."""
        if self._kept.get(stored.image_id) is stored:
            del self._kept[stored.image_id]
            stored.is_kept = False
            self._release(stored)
        self._remove_all({placed for placed in self._placed if placed.own is stored})

    def is_shown(self, stored: Stored) -> bool:
        """Whether a place shows a picture."""
        return any(placed.own is stored for placed in self._placed)

    def clear(self) -> None:
        for stored in self._kept.values():
            stored.is_kept = False
        self._placed.clear()
        self._kept.clear()
        self._uses.clear()
        self._pixels = 0

    def drop_one(self) -> bool:
        shown = set(self.of(self._look()))
        in_use = {placed.own for placed in shown}
        hidden = (one.own for one in self._placed if one not in shown)
        unused = (one for one in self._kept.values() if one not in in_use)
        alone = (one for one in hidden if not one.is_kept and one not in in_use)
        found = next(itertools.chain(alone, unused, (one.own for one in self._placed)), None)
        if found is None:
            return False
        self.drop(found)
        return True


PIXELS_MAX: Final = 4 << 20
"""Pixels that one terminal keeps, 16 MiB: two screens of 1920x1080."""
ALL_PIXELS_MAX: Final = 16 << 20
"""Pixels that all terminals keep together, 64 MiB."""


WAITING_MAX: Final = 4
"""The most pictures that wait to be decoded; others are refused, but for one of each terminal."""


class Keeper(Protocol):
    """Keeps pictures of one terminal."""

    @property
    def pixels(self) -> int:
        """The number of pixels that it keeps."""

    def drop_one(self) -> bool:
        """Drops the picture that is missed least; returns False if it has none."""


class Budget:
    """The pixels that several keepers may keep together. It is for one thread."""

    def __init__(self, each: int = PIXELS_MAX, together: int = ALL_PIXELS_MAX) -> None:
        self._each = each
        self._together = together
        self._keepers: WeakSet[Keeper] = WeakSet()
        self.waiting = 0
        """The number of pictures that wait to be decoded."""

    def join(self, keeper: Keeper) -> None:
        self._keepers.add(keeper)

    def make_room(self, keeper: Keeper, pixels: int) -> bool:
        """Has pictures dropped until this keeper may keep so many more pixels; returns False if
        that cannot be."""
        if pixels > min(self._each, self._together):
            return False
        while keeper.pixels + pixels > self._each:
            if not keeper.drop_one():
                return False
        while sum(one.pixels for one in self._keepers) + pixels > self._together:
            most = max(self._keepers, key=lambda one: one.pixels)
            if not most.drop_one():
                return False
        return True
