"""The base of the main screen's parts, and the line that a part shares with the one above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from quicksand_tui.actions.all_actions import Doer, in_scope
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.key_handling import ActionScreen
from quicksand_tui.model.keymap import key_text
from quicksand_tui.model.text import clip, plain
from quicksand_tui.views.main_layout import NO_EDGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from quicksand_tui.actions.all_actions import Scope
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.views.main_layout import Edge


class Confirm(Protocol):
    """Asks before something is lost; ``then`` runs after a yes. See `screens.dialogs`."""

    def __call__(
        self,
        title: str,
        losses: Iterable[str],
        verb: str,
        then: Callable[[], None],
        *,
        undo: str = ...,
    ) -> None: ...


class Asked(Message):
    """A key after the prefix asks the screen to carry out an action; later keys wait for that."""

    def __init__(self, scope: Scope, action_id: str) -> None:
        super().__init__()
        self.scope = scope
        self.action_id = action_id


class DesktopChanged(Message):
    """The desktop has lost its screen, or waits for the key after the prefix."""


class ShellsLeft(Message):
    """The sandbox's last pane was closed."""


class ShellsZoomed(Message):
    """A shell should fill the whole area, as before."""


class MountMoved(Message):
    """The cursor is on another mount."""


class KnownChanged(Message):
    """The app has learnt something of the selected sandbox."""


class PartWidget(Doer, Widget):
    """A part with its own keys: those of ``scope`` in the registry. It carries out the actions that
    it has methods for, and the main screen the others."""

    scope: ClassVar[Scope]
    ascii_only: bool = False

    def action_do(self, action_id: str) -> None:
        # At once, because the next keys may be meant for the widget that gets the focus.
        screen = self.screen
        assert isinstance(screen, ActionScreen)
        screen.action_do(action_id, self.scope.value)

    def fit(self, text: str) -> Content:
        """Returns text, never markup, in characters that the terminal can show."""
        return Content(plain(text) if self.ascii_only else text)


class PrefixedPart(PartWidget):
    """A part whose keys go to a guest; after the prefix, they are those of its scope."""

    _app_keys: Keys

    def carry_out_prefixed(self, key: str, send: Callable[[bytes], None]) -> None:
        """Carries out the key after the prefix, or tells that it does nothing; the prefix itself is
        given to ``send`` for the guest."""
        keymap, prefix = self._app_keys.map, self._app_keys.prefix
        meant = (a for a in in_scope(self.scope) if key in keymap.keys_of(a))
        action = next(meant, None)
        if key == prefix.key:
            send(prefix.data)
        elif action is None:
            shows = f"{prefix.text} {keymap.hint('help', self.scope.value)} shows what there is"
            tell(self, f"{prefix.text} {key_text(key)} does nothing; {shows}")
        else:
            self.post_message(Asked(self.scope, action.id))
            return
        self._app_keys.panes.command_done()


WORDS_MIN = 12
"""Cells below which the words of the box above are left out."""
AROUND = 4
"""Cells around the words: a blank at each side, and a dash."""
DASHES = "─━-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """The way in which the first line of a box meets the last one of another."""

    edge: Edge = NO_EDGE
    above: Widget | None = None
    """The box above, if it shares the line."""
    words: str = ""
    """The words at the right end of the line."""
    urgent: bool = False
    """The words go first, and the title has the rest of the line."""


def joined_line(line: Strip, join: Join, *, ascii_only: bool) -> Strip:
    """Returns ``line``, the first line of a box's frame, as it is drawn where it meets another."""
    edge, words = join.edge, join.words
    left, dash, right = edge.line(ascii_only=ascii_only)
    width = line.cell_length
    if width < 4:
        return line
    style = words_style = next(iter(line)).style or Style.null()
    if join.above is not None:
        above_style, words_style = _styles_of(join.above)
        style = above_style if edge.above_lit else style
    inner = [
        Segment(dash * len(text), style) if text.strip(DASHES) == "" else Segment(text, own)
        for text, own, _ in line.crop(1, width - 1)
    ]
    middle = Strip(inner)
    free = cell_len(inner[-1].text) if inner and inner[-1].text.strip(dash) == "" else 0
    if join.urgent:
        free = max(free, min(width * 3 // 5, cell_len(words) + AROUND))
    shown = _fitting(words, free - AROUND)
    if shown:
        shown = plain(shown) if ascii_only else shown
        kept = middle.cell_length - cell_len(shown) - AROUND + 1
        tail = [Segment(f" {shown} ", words_style), Segment(dash, style)]
        middle = Strip([*middle.crop(0, kept), *tail])
    return Strip([Segment(left, style), *middle, Segment(right, style)], width)


def _styles_of(box: Widget) -> tuple[Style, Style]:
    """Returns the styles of the last line of a box's frame and of the words in it, as the app's
    filters leave them."""
    width, height = box.outer_size
    drawn = box.render_lines(Region(0, height - 1, width, 1)) if width and height else []
    segments = list(drawn[0]) if drawn else []
    if not segments:
        return Style.null(), Style.null()
    line = segments[0].style or Style.null()
    words = (one.style for one in segments[1:-1] if one.text.strip(f" {DASHES}"))
    return line, next(words, None) or line


def _fitting(words: str, room: int) -> str:
    """Returns as many of the parts of ``words`` as fit, whole if there are several."""
    if room < WORDS_MIN and cell_len(words) > room:
        return ""
    parts = words.split(" · ")
    while len(parts) > 1 and cell_len(" · ".join(parts)) > room:
        parts.pop()
    return clip(" · ".join(parts), room)
