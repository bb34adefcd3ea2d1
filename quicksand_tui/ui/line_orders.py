"""Ways to actions besides keys: the commands of the `:` line, and the palette. Both are imported on
first use."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from quicksand.things.save import SaveFacts
from textual.app import SystemCommand

from quicksand_tui.actions.all_actions import Scope, in_scope
from quicksand_tui.actions.line import Target, selection_of, verbs_of
from quicksand_tui.forms.line_calls import call_for, mount_of, new_spec_of, sandbox_of
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.key_handling import ActionScreen
from quicksand_tui.verbs.mounts import unmount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from textual.app import App
    from textual.screen import Screen

    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.world import Selection, World
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.ui.key_routing import ScreenStack


class Orders:
    """Carries out commands that passed `forms.line_calls.check`."""

    def __init__(
        self,
        app: App[int],
        stack: ScreenStack,
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
    ) -> None:
        self._app = app
        self._stack = stack
        self._begin = operations
        self._dialogs = dialogs
        self._keys = keys

    def carry_out(self, target: Target, selection: Selection) -> None:
        """Carries out a command for the selection at the time when the line was opened."""
        special = self._special.get(target.verb.name)
        if special is not None and special(target, selection):
            return
        call, sandbox = call_for(target), sandbox_of(target, selection)
        if special is None and call is not None and sandbox is not None:
            self._begin.do(call, sandbox)
            return
        action = target.action
        if action is None:
            return
        if action is target.verb.here and target.sandbox is None:
            self._do_here(action.id)
            return
        self._stack.go_to_main()
        self._stack.main.act(action.id, selection_of(target, selection))

    def _do_here(self, action_id: str) -> None:
        """Carries out an action of the front screen, as its key does."""
        self._keys.hands.meant()
        if (screen := self._stack.with_actions) is not None:
            screen.action_do(action_id)

    # Commands that take more than an action. Each returns whether it is done; if not, the action
    # follows.

    @cached_property
    def _special(self) -> Mapping[str, Callable[[Target, Selection], bool]]:
        return {
            "new": self._new,
            "unmount": self._unmount,
            "tree": self._tree,
            "diff": self._diff,
            "theme": self._theme,
            "filter": self._filter,
            "install": self._install,
        }

    def _new(self, target: Target, selection: Selection) -> bool:
        source = target.found.get("image")
        if source is None:
            return False
        self._stack.go_to_main()
        create = self._stack.main.create
        if target.word("name"):
            create(self._dialogs.with_usual(new_spec_of(target)))
        elif isinstance(source, SaveFacts):
            self._dialogs.ask_for_new(None, create, save=source)
        else:
            self._dialogs.ask_for_new(source.name, create)
        return True

    def _install(self, target: Target, selection: Selection) -> bool:
        if not (name := target.word("names")):
            return False
        self._stack.go_to_main()
        self._dialogs.ask_to_install(name)
        return True

    def _unmount(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is not None and (mount := mount_of(target, sandbox)) is not None:
            self._begin.do(unmount(mount.named), sandbox)
        return True

    def _tree(self, target: Target, selection: Selection) -> bool:
        if (sandbox := sandbox_of(target, selection)) is not None:
            self._stack.open_tree(sandbox)
        return True

    def _diff(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is None:
            return False
        first = target.found.get("a") or selection.checkpoint
        first = first or sandbox.tree.find(sandbox.tree.head)
        if first is None:
            tell(self._app, f"{sandbox.name} has no checkpoint", severity="warning")
            return True
        self._stack.go_to_main()
        everywhere = self._stack.main.everywhere
        self._dialogs.open_diff(sandbox, first, target.found.get("b"), everywhere)
        return True

    def _theme(self, target: Target, selection: Selection) -> bool:
        if theme := target.found.get("theme"):
            self._app.theme = theme
        else:
            self._app.action_change_theme()
        return True

    def _filter(self, target: Target, selection: Selection) -> bool:
        if not (words := target.word("words")):
            return False
        self._stack.filter_by(words)
        return True


def palette_commands(
    screen: Screen[Any],
    world: World,
    keys: Keys,
    *,
    change_theme: Callable[[], None],
    open_line: Callable[[str], None],
) -> Iterator[SystemCommand]:
    """Yields the actions with their keys, each with the reason if it is not possible now; the
    themes; and the commands with arguments."""
    if isinstance(screen, ActionScreen):
        yield from _actions(screen, world, keys)
    yield SystemCommand("Theme", "Change the colours", change_theme)
    scope = screen.scope if isinstance(screen, ActionScreen) else Scope.MAIN
    for verb in verbs_of(scope).values():
        if verb.arguments:
            yield SystemCommand(f":{verb.usage}", verb.about, partial(open_line, f"{verb.name} "))


def _actions(screen: ActionScreen, world: World, keys: Keys) -> Iterator[SystemCommand]:
    possible, others = [], []
    for action in in_scope(screen.scope):
        if action.id == "escape":
            continue
        key = world.keymap.first_of(action)
        title = action.label.capitalize() + (f" ({key})" if key else "")
        do = partial(_do, keys, screen, action.id)
        if (reason := action.disabled_reason(world, screen.selection)) is None:
            possible.append(SystemCommand(title, action.tooltip, do))
        else:
            others.append(SystemCommand(title, f"Not now: {reason}", do))
    yield from (*possible, *others)


def _do(keys: Keys, screen: ActionScreen, action_id: str) -> None:
    keys.hands.meant()
    screen.action_do(action_id)
