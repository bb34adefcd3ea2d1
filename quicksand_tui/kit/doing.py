"""Finds the method that carries out an action, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from quicksand_tui.actions.all_actions import ACTIONS, Scope

Handlers = Mapping[str, Callable[[], None]]
"""The methods that carry out actions, by the ids of these in the registry."""

DO = "do_"


class Doer:
    """Carries out actions: its method ``do_stop`` carries out the action "stop" of its ``scope``,
    or of any scope if it has none. A class with a method for no action cannot be made."""

    _does: ClassVar[tuple[str, ...]] = ()
    """The ids of its actions."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = [name.removeprefix(DO) for name in vars(cls) if name.startswith(DO)]
        scope: Scope | None = getattr(cls, "scope", None)
        known = {action.id for action in ACTIONS if scope in (None, action.scope)}
        for action_id in own:
            if action_id not in known:
                raise TypeError(f"{cls.__name__}.{DO}{action_id} is for no action of {scope}")
        cls._does = tuple(dict.fromkeys((*cls._does, *own)))

    @property
    def handlers(self) -> Handlers:
        """The method of each action that it carries out, by its id."""
        return {action_id: getattr(self, DO + action_id) for action_id in self._does}
