"""Jump mode: letters on every row and pane; a typed letter leads there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from textual.widgets import Static

from quicksand_tui.kit.base import Dialog, tell
from quicksand_tui.model.keymap import jump_codes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.screen import Screen

    from quicksand_tui.model.world import World


class Target(NamedTuple):
    """A place to jump to."""

    x: int
    y: int
    """The cell of the screen where its letters begin."""
    go: Callable[[], object]


class JumpScreen(Dialog[None]):
    """Lies over the main screen; goes to the chosen place. Its letters follow the screen below: a
    tree that the key before has opened may appear when this is open already."""

    DEFAULT_CSS = """
    JumpScreen {
        background: transparent;
        layers: letters;
    }
    JumpScreen > Static {
        layer: letters;
        position: absolute;
        width: auto;
        height: 1;
        background: $warning;
        color: $background;
        text-style: bold;
    }
    """

    def __init__(self, find: Callable[[], Sequence[Target]], below: Screen[Any]) -> None:
        """``find`` returns the places of the screen ``below``, as it is laid out."""
        super().__init__()
        self._find = find
        self._below = below
        self._codes: dict[str, Target] = {}
        self._typed = ""

    def compose(self) -> ComposeResult:
        self._read()
        for code, target in self._codes.items():
            letters = Static(code, markup=False, name=code)
            letters.styles.offset = (target.x, target.y)
            letters.display = code.startswith(self._typed)
            yield letters

    def on_mount(self) -> None:
        self._below.screen_layout_refresh_signal.subscribe(self, lambda _: self._look())

    def on_unmount(self) -> None:
        # The signal lives as long as the screen below, and its callback would keep this one.
        self._below.screen_layout_refresh_signal.unsubscribe(self)

    def update_world(self, world: World) -> None:
        self._look()

    def _read(self) -> None:
        targets = self._find()
        self._codes = dict(zip(jump_codes(len(targets)), targets, strict=False))

    def _look(self) -> None:
        """Takes over changes of the screen below."""
        before = {code: target[:2] for code, target in self._codes.items()}
        self._read()
        if before != {code: target[:2] for code, target in self._codes.items()}:
            self.refresh(recompose=True)

    def drops_key(self, key: events.Key) -> bool:
        """Takes a letter when it is read, so that the next key goes to the chosen place."""
        if key.key == "escape":
            return False
        self._press(key.character or "\0")
        return True

    def _press(self, letter: str) -> None:
        self._typed += letter
        if (target := self._codes.get(self._typed)) is not None:
            self.dismiss(None)
            target.go()
            return
        left = [code for code in self._codes if code.startswith(self._typed)]
        if not left:
            tell(self, "No place has that letter: type one that is shown; esc leaves")
            self._typed = ""
        for letters in self.query(Static):
            name = letters.name or ""
            letters.display = name.startswith(self._typed)
