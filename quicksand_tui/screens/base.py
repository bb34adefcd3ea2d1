"""What all screens of the app share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen, ScreenResultType

from quicksand_tui.keymap import UNBOUND
from quicksand_tui.screens.compositor import TellingCompositor

if TYPE_CHECKING:
    from quicksand_tui.actions import Action, Scope
    from quicksand_tui.snapshot import Selection


def refuse_paste(event: events.Paste) -> str:
    """Stop a paste that no input has taken: its letters would be commands. Returns what to say."""
    event.stop()
    event.prevent_default()
    return "Pasting is refused here: the text would be taken for keys"


def bindings_of(actions: Iterable[Action]) -> list[Binding]:
    """The key bindings of a screen, from the registry; the app's keymap replaces them by their
    ids, so each action has one."""
    return [
        Binding(
            ",".join(action.keys) or UNBOUND,
            f"do('{action.id}')",
            action.label,
            show=False,
            tooltip=action.tooltip,
            id=f"{action.scope.value}.{action.id}",
        )
        for action in actions
    ]


class ActionScreen(Screen[None]):
    """Its keys are the registry's actions of its scope; each has a method ``do_<id>``."""

    scope: ClassVar[Scope]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._compositor = TellingCompositor()

    @property
    def selection(self) -> Selection:
        """What the cursor is on."""
        raise NotImplementedError

    def action_do(self, action_id: str) -> None:
        """Carry out an action of the registry, or say why not."""
        raise NotImplementedError


class Dialog(ModalScreen[ScreenResultType]):
    """A modal screen. Escape leaves it with no result."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self._compositor = TellingCompositor()

    def action_leave(self) -> None:
        self.dismiss(None)

    def on_paste(self, event: events.Paste) -> None:
        self.notify(refuse_paste(event), severity="warning", markup=False)
