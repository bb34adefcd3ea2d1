"""Carries out commands of the `:` line through the same actions that keys use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from quicksand_tui.actions.line import Target, checkpoint_named, selection_of
from quicksand_tui.actions.registry import Scope
from quicksand_tui.forms.mounts import read_spec
from quicksand_tui.forms.orders import (
    FORWARD_WORD,
    MOUNT_WORD,
    mount_of,
    new_spec_of,
    sandbox_of,
)
from quicksand_tui.forms.ports import wanted_forward
from quicksand_tui.kit.telling import tell
from quicksand_tui.model.specs import CheckpointSpec, CloneSpec, SaveSpec
from quicksand_tui.verbs import checkpoints, mounts, ports, saves, starting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.app import App

    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.keys import Keys
    from quicksand_tui.model.world import Selection
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.ui.stack import ScreenStack


class Orders:
    """Carries out commands that passed `forms.orders.check`."""

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
        """Carries out a command for the selection that there was when the line was opened."""
        special = self._special.get(target.verb.name)
        if special is not None and special(target, selection):
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
            "start": self._start,
            "revert": self._revert,
            "checkpoint": self._checkpoint,
            "clone": self._clone,
            "save": self._save,
            "mount": self._mount,
            "unmount": self._unmount,
            "forward": self._forward,
            "unforward": self._unforward,
            "tree": self._tree,
            "diff": self._diff,
            "theme": self._theme,
            "filter": self._filter,
            "install": self._install,
        }

    def _new(self, target: Target, selection: Selection) -> bool:
        if target.image is None and target.save is None:
            return False
        self._stack.go_to_main()
        create = self._stack.main.create
        if target.word("NAME"):
            create(self._dialogs.with_usual(new_spec_of(target)))
        elif target.image is not None:
            self._dialogs.ask_for_new(target.image.name, create)
        elif (save := target.save) is not None:
            self._dialogs.ask_for_new(None, create, save=save)
        return True

    def _install(self, target: Target, selection: Selection) -> bool:
        if not (name := target.word("PACKAGE")):
            return False
        self._stack.go_to_main()
        self._dialogs.ask_to_install(name)
        return True

    def _start(self, target: Target, selection: Selection) -> bool:
        if target.checkpoint is None or target.sandbox is None:
            return False
        checkpoint = target.checkpoint
        self._begin.do(starting.start(checkpoint.id, shown=checkpoint.name), target.sandbox)
        return True

    def _revert(self, target: Target, selection: Selection) -> bool:
        if target.checkpoint is None or target.sandbox is None:
            return False
        checkpoint = target.checkpoint
        self._begin.do(checkpoints.revert(checkpoint.id, shown=checkpoint.name), target.sandbox)
        return True

    def _checkpoint(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is None or not target.order.words:
            return False  # without arguments, the form asks
        spec = CheckpointSpec(tag=target.word("TAG") or None, note=target.word("NOTE"))
        self._begin.do(checkpoints.take(spec), sandbox)
        return True

    def _clone(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is None or not target.order.words:
            return False
        at = target.checkpoint
        spec = CloneSpec(count=target.count, at=at.id if at is not None else None)
        verb = starting.clone(spec, shown_at=at.name if at is not None else "")
        self._begin.do(verb, sandbox)
        return True

    def _save(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is None or not target.word("SAVE"):
            return False
        spec = SaveSpec(name=target.word("SAVE"), note=target.word("NOTE"))
        self._dialogs.save_operations.do_to(sandbox, saves.save(spec))
        return True

    def _mount(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is None or not (word := target.word(MOUNT_WORD)):
            return False
        self._begin.do(mounts.mount(read_spec(word)), sandbox)
        return True

    def _unmount(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is not None and (mount := mount_of(target, sandbox)) is not None:
            verb = mounts.unmount(mount.key, host=mount.host, shown=mount.guest)
            self._begin.do(verb, sandbox)
        return True

    def _forward(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is None or not (word := target.word(FORWARD_WORD)):
            return False
        wanted = wanted_forward(word)
        self._begin.do(ports.forward(wanted.guest, wanted.host, wanted.protocol), sandbox)
        return True

    def _unforward(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is None or not (word := target.word(FORWARD_WORD)):
            return False
        given = wanted_forward(word)
        self._begin.do(ports.unforward(given.host or given.guest, given.protocol), sandbox)
        return True

    def _tree(self, target: Target, selection: Selection) -> bool:
        if (sandbox := sandbox_of(target, selection)) is not None:
            self._stack.open_tree(sandbox)
        return True

    def _diff(self, target: Target, selection: Selection) -> bool:
        sandbox = sandbox_of(target, selection)
        if sandbox is None:
            return False
        found = [
            checkpoint_named(word, sandbox) if (word := target.word(name)) else None
            for name in ("A", "B")
        ]
        first = found[0] or selection.checkpoint or sandbox.tree.find(sandbox.tree.head)
        if first is None:
            tell(self._app, f"{sandbox.name} has no checkpoint", severity="warning")
            return True
        self._stack.go_to_main()
        everywhere = self._stack.main.handlers_of(Scope.MAIN)
        self._dialogs.open_diff(sandbox, first, found[1], everywhere)
        return True

    def _theme(self, target: Target, selection: Selection) -> bool:
        if target.theme:
            self._app.theme = target.theme
        else:
            self._app.action_change_theme()
        return True

    def _filter(self, target: Target, selection: Selection) -> bool:
        if not (words := target.word("WORDS")):
            return False
        self._stack.filter_by(words)
        return True
