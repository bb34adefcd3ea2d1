"""Carries out what was typed on the `:` line, through what the keys use: the screens' actions, the
operations, the forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from quicksand_tui.command_text import CommandError
from quicksand_tui.commands import Target, selection_of, why_not
from quicksand_tui.saves_checks import find_save_name_problem
from quicksand_tui.saves_spec import SaveSpec
from quicksand_tui.spec import find_name_problem, find_problems, find_tag_problem
from quicksand_tui.specs import CheckpointSpec, CloneSpec, NewSpec

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.snapshot import Selection, Snapshot


def check(target: Target, snapshot: Snapshot, selection: Selection) -> None:
    """Raises CommandError for what cannot be carried out: with the reasons of the keys, and the
    checks of the forms. Blocks for the engine's import the first time."""
    if (why := why_not(target, snapshot, selection)) is not None:
        raise CommandError(why)
    if target.verb.name in NEED_SANDBOX and _sandbox(target, selection) is None:
        raise CommandError("no sandbox is selected")
    problem = _find_problem(target, snapshot, selection)
    if problem:
        raise CommandError(problem)


def _find_problem(target: Target, snapshot: Snapshot, selection: Selection) -> str:
    """What is wrong with names that are new."""
    match target.verb.name:
        case "checkpoint" if tag := target.word("TAG"):
            sandbox = _sandbox(target, selection)
            return "" if sandbox is None else _about("tag", find_tag_problem(tag, sandbox.past))
        case "save" if name := target.word("SAVE"):
            return _about("save", find_save_name_problem(name, snapshot))
        case "new" if name := target.word("NAME"):
            if target.image is None:
                return _about("name", find_name_problem(name, snapshot))
            problems = find_problems(_new_spec(target), snapshot)
            return "; ".join(_about(field, problem) for field, problem in problems.items())
    return ""


def _about(what: str, problem: str) -> str:
    return f"{what}: {problem}" if problem else ""


def _sandbox(target: Target, selection: Selection) -> SandboxView | None:
    return target.sandbox if target.sandbox is not None else selection.sandbox


def carry_out(app: QuicksandApp, target: Target, selection: Selection) -> None:
    """Do what was found possible by `check`."""
    if (special := SPECIAL.get(target.verb.name)) is not None and special(app, target, selection):
        return
    action = target.action
    if action is None:
        return
    if action is target.verb.here and target.sandbox is None:
        app.do_here(action.id)
        return
    app.go_to_main()
    app.main.act(action.id, selection_of(target, selection))


# What takes more than an action. Each says whether it was all: else the action follows.


def _new(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    if target.image is None and target.save is None:
        return False
    app.go_to_main()
    if target.word("NAME"):
        app.main.create(_new_spec(target))
    elif target.image is not None:
        app.dialogs.ask_for_new(target.image.name, app.main.create)
    elif (save := target.save) is not None:
        app.dialogs.ask_for_new(None, app.main.create, save=save.key)
    return True


def _new_spec(target: Target) -> NewSpec:
    if (save := target.save) is not None:
        # Memory, CPUs and network are those of the sandbox that was saved.
        origin = {"image": save.address, "save": save.key}
        return NewSpec(**origin, name=target.word("NAME"), memory="", cpus="", network="")
    image = target.image.name if target.image is not None else ""
    return NewSpec(image=image, name=target.word("NAME"))


def _start(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    if target.checkpoint is None or target.sandbox is None:
        return False
    app.operations.start_at(target.sandbox, target.checkpoint)
    return True


def _revert(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    if target.checkpoint is None or target.sandbox is None:
        return False
    app.operations.revert(target.sandbox, target.checkpoint)
    return True


def _checkpoint(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    sandbox = _sandbox(target, selection)
    if sandbox is None or not target.order.words:
        return False  # nothing is said of it: the form asks
    spec = CheckpointSpec(tag=target.word("TAG"), note=target.word("NOTE"))
    app.operations.checkpoint(sandbox, spec)
    return True


def _clone(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    sandbox = _sandbox(target, selection)
    if sandbox is None or not target.order.words:
        return False
    at = target.checkpoint.id if target.checkpoint is not None else ""
    app.operations.clone(sandbox, CloneSpec(count=target.count, at=at))
    return True


def _save(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    sandbox = _sandbox(target, selection)
    if sandbox is None or not target.word("SAVE"):
        return False
    spec = SaveSpec(name=target.word("SAVE"), note=target.word("NOTE"))
    app.save_operations.save(sandbox, spec)
    return True


def _tree(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    if (sandbox := _sandbox(target, selection)) is not None:
        app.open_tree(sandbox)
    return True


def _theme(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    if target.theme:
        app.theme = target.theme
    else:
        app.action_change_theme()
    return True


def _filter(app: QuicksandApp, target: Target, selection: Selection) -> bool:
    if not (words := target.word("WORDS")):
        return False
    if not app.filter_here(words):
        app.go_to_main()
        app.filter_here(words)
    return True


NEED_SANDBOX = frozenset({"tree"})
"""Commands without an action that could say so."""

SPECIAL: Mapping[str, Callable[[QuicksandApp, Target, Selection], bool]] = {
    "new": _new,
    "start": _start,
    "revert": _revert,
    "checkpoint": _checkpoint,
    "clone": _clone,
    "save": _save,
    "tree": _tree,
    "theme": _theme,
    "filter": _filter,
}
