"""Carries out commands of the `:` line through the same actions that keys use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from quicksand_tui.actions import reasons
from quicksand_tui.actions.line import (
    CommandError,
    Target,
    selection_of,
    why_not,
)
from quicksand_tui.forms.checks import (
    find_name_problem,
    find_problems,
    find_save_name_problem,
    find_tag_problem,
)
from quicksand_tui.forms.mounts import find_mount_problems, read_spec
from quicksand_tui.model.specs import CheckpointSpec, CloneSpec, NewSpec, SaveSpec
from quicksand_tui.model.verbs import find_verb
from quicksand_tui.model.world import Selection

if TYPE_CHECKING:
    from quicksand_tui.model.sandboxes import MountView, SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.ui.host import Host

MOUNT_WORD = find_verb("mount").parameter("mount").word
"""The name of HOST:GUEST[:ro|:protect] on the `:` line."""


def check(target: Target, world: World, selection: Selection) -> None:
    """Checks a command as keys and forms would. Raises CommandError if it cannot be carried out.
    Blocks for the engine's import the first time."""
    if (why := why_not(target, world, selection)) is not None:
        raise CommandError(why)
    if target.verb.name in NEED_SANDBOX and _sandbox(target, selection) is None:
        raise CommandError("no sandbox is selected")
    problem = _find_problem(target, world, selection)
    if problem:
        raise CommandError(problem)


def _find_problem(target: Target, world: World, selection: Selection) -> str:
    """Returns what is wrong with the words, or ""."""
    match target.verb.name:
        case "checkpoint" if tag := target.word("TAG"):
            sandbox = _sandbox(target, selection)
            return "" if sandbox is None else _about("tag", find_tag_problem(tag, sandbox.tree))
        case "save" if name := target.word("SAVE"):
            return _about("save", find_save_name_problem(name, world))
        case "mount" if word := target.word(MOUNT_WORD):
            sandbox = _sandbox(target, selection)
            return "" if sandbox is None else _find_mount_problem(word, sandbox)
        case "unmount":
            return _find_unmount_problem(target, world, selection)
        case "new" if name := target.word("NAME"):
            return _find_new_problem(target, name, world)
    return ""


def _find_new_problem(target: Target, name: str, world: World) -> str:
    if target.image is None:
        return _about("name", find_name_problem(name, world))
    problems = find_problems(_new_spec(target), world)
    return "; ".join(_about(field, problem) for field, problem in problems.items())


def _find_mount_problem(word: str, sandbox: SandboxView) -> str:
    try:
        spec = read_spec(word)
    except ValueError as error:
        return str(error)
    # The engine tells what is wrong with the directory: a look at it could take long.
    return "; ".join(find_mount_problems(spec, sandbox).values())


def _find_unmount_problem(target: Target, world: World, selection: Selection) -> str:
    sandbox = _sandbox(target, selection)
    mount = _mount(target, sandbox)
    if sandbox is not None and mount is None and (guest := target.word("GUEST")):
        return f"nothing is mounted at {guest} in {sandbox.name}"
    about = Selection(sandbox=sandbox, mount=mount)
    return reasons.guarded(reasons.unmount)(world, about) or ""


def _mount(target: Target, sandbox: SandboxView | None) -> MountView | None:
    """Returns the mount that is named by its path in the guest, or else the only one."""
    if sandbox is None:
        return None
    guest = target.word("GUEST")
    found = [mount for mount in sandbox.mounts if guest in ("", mount.guest)]
    return found[0] if len(found) == 1 else None


def _about(what: str, problem: str) -> str:
    return f"{what}: {problem}" if problem else ""


def _sandbox(target: Target, selection: Selection) -> SandboxView | None:
    return target.sandbox if target.sandbox is not None else selection.sandbox


def carry_out(app: Host, target: Target, selection: Selection) -> None:
    """Carries out a command that passed `check`."""
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


# Commands that take more than an action. Each returns whether it is done; if not, the action
# follows.


def _new(app: Host, target: Target, selection: Selection) -> bool:
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
        return NewSpec(image=save.address, save=save.key, name=target.word("NAME"))
    image = target.image.name if target.image is not None else ""
    return NewSpec(image=image, name=target.word("NAME"))


def _start(app: Host, target: Target, selection: Selection) -> bool:
    if target.checkpoint is None or target.sandbox is None:
        return False
    app.operations.start_at(target.sandbox, target.checkpoint)
    return True


def _revert(app: Host, target: Target, selection: Selection) -> bool:
    if target.checkpoint is None or target.sandbox is None:
        return False
    app.operations.revert(target.sandbox, target.checkpoint)
    return True


def _checkpoint(app: Host, target: Target, selection: Selection) -> bool:
    sandbox = _sandbox(target, selection)
    if sandbox is None or not target.order.words:
        return False  # without arguments, the form asks
    spec = CheckpointSpec(tag=target.word("TAG"), note=target.word("NOTE"))
    app.operations.checkpoint(sandbox, spec)
    return True


def _clone(app: Host, target: Target, selection: Selection) -> bool:
    sandbox = _sandbox(target, selection)
    if sandbox is None or not target.order.words:
        return False
    at = target.checkpoint.id if target.checkpoint is not None else ""
    app.operations.clone(sandbox, CloneSpec(count=target.count, at=at))
    return True


def _save(app: Host, target: Target, selection: Selection) -> bool:
    sandbox = _sandbox(target, selection)
    if sandbox is None or not target.word("SAVE"):
        return False
    spec = SaveSpec(name=target.word("SAVE"), note=target.word("NOTE"))
    app.save_operations.save(sandbox, spec)
    return True


def _make_mount(app: Host, target: Target, selection: Selection) -> bool:
    sandbox = _sandbox(target, selection)
    if sandbox is None or not (word := target.word(MOUNT_WORD)):
        return False
    app.operations.mount(sandbox, read_spec(word))
    return True


def _unmount(app: Host, target: Target, selection: Selection) -> bool:
    sandbox = _sandbox(target, selection)
    if sandbox is not None and (mount := _mount(target, sandbox)) is not None:
        app.operations.unmount(sandbox, mount)
    return True


def _tree(app: Host, target: Target, selection: Selection) -> bool:
    if (sandbox := _sandbox(target, selection)) is not None:
        app.open_tree(sandbox)
    return True


def _theme(app: Host, target: Target, selection: Selection) -> bool:
    if target.theme:
        app.theme = target.theme
    else:
        app.action_change_theme()
    return True


def _filter(app: Host, target: Target, selection: Selection) -> bool:
    if not (words := target.word("WORDS")):
        return False
    if not app.filter_here(words):
        app.go_to_main()
        app.filter_here(words)
    return True


NEED_SANDBOX = frozenset({"tree", "unmount"})
"""Commands that need a sandbox and have no action to check that."""

SPECIAL: Mapping[str, Callable[[Host, Target, Selection], bool]] = {
    "new": _new,
    "start": _start,
    "revert": _revert,
    "checkpoint": _checkpoint,
    "clone": _clone,
    "save": _save,
    "mount": _make_mount,
    "unmount": _unmount,
    "tree": _tree,
    "theme": _theme,
    "filter": _filter,
}
