"""The base of the main screen's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from quicksand_tui.actions.all_actions import Doer, in_scope
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.key_handling import ActionScreen
from quicksand_tui.model.keymap import key_text
from quicksand_tui.model.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from quicksand_tui.actions.all_actions import Scope
    from quicksand_tui.kit.key_handling import Keys


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
