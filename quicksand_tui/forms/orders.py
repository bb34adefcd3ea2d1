"""What is wrong with a command of the `:` line, checked as keys and forms check it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.actions import reasons
from quicksand_tui.actions.line import CommandError, Target, why_not
from quicksand_tui.forms.checks import (
    find_name_problem,
    find_problems,
    find_save_name_problem,
    find_tag_problem,
)
from quicksand_tui.forms.mounts import find_mount_problems, read_spec
from quicksand_tui.forms.ports import find_forward_problem, find_unforward_problem
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.world import Selection, World
from quicksand_tui.verbs.rows import find_verb

if TYPE_CHECKING:
    from quicksand_tui.model.sandboxes import MountView, SandboxView

MOUNT_WORD = find_verb("mount").parameter("mount").word
"""The name of HOST:GUEST[:ro|:protect] on the `:` line."""

FORWARD_WORD = find_verb("forward").parameter("ports").word
"""The name of [HOST:]GUEST there."""

NEED_SANDBOX = frozenset({"diff", "tree", "unmount"})
"""Commands that need a sandbox and have no action to check that."""


def check(target: Target, world: World, selection: Selection) -> None:
    """Checks a command as keys and forms would. Raises CommandError if it cannot be carried out.
    Blocks for the engine's import the first time."""
    if (why := why_not(target, world, selection)) is not None:
        raise CommandError(why)
    if target.verb.name in NEED_SANDBOX and sandbox_of(target, selection) is None:
        raise CommandError("no sandbox is selected")
    problem = _find_problem(target, world, selection)
    if problem:
        raise CommandError(problem)


def _find_problem(target: Target, world: World, selection: Selection) -> str:
    """Returns what is wrong with the words, or ""."""
    sandbox = sandbox_of(target, selection)
    problem = ""
    match target.verb.name:
        case "checkpoint" if sandbox is not None and (tag := target.word("TAG")):
            problem = _about("tag", find_tag_problem(tag, sandbox.tree))
        case "save" if name := target.word("SAVE"):
            problem = _about("save", find_save_name_problem(name, world))
        case "mount" if sandbox is not None and (word := target.word(MOUNT_WORD)):
            problem = _find_mount_problem(word, sandbox)
        case "forward" if word := target.word(FORWARD_WORD):
            problem = find_forward_problem(word, world)
        case "unforward" if sandbox is not None and (word := target.word(FORWARD_WORD)):
            problem = find_unforward_problem(word, sandbox)
        case "unmount":
            problem = _find_unmount_problem(target, world, selection)
        case "new" if name := target.word("NAME"):
            problem = _find_new_problem(target, name, world)
    return problem


def _find_new_problem(target: Target, name: str, world: World) -> str:
    if target.image is None:
        return _about("name", find_name_problem(name, world))
    problems = find_problems(new_spec_of(target), world)
    return "; ".join(_about(field, problem) for field, problem in problems.items())


def _find_mount_problem(word: str, sandbox: SandboxView) -> str:
    try:
        spec = read_spec(word)
    except ValueError as error:
        return str(error)
    # The engine tells what is wrong with the directory: a look at it could take long.
    return "; ".join(find_mount_problems(spec, sandbox).values())


def _find_unmount_problem(target: Target, world: World, selection: Selection) -> str:
    sandbox = sandbox_of(target, selection)
    mount = mount_of(target, sandbox)
    if sandbox is not None and mount is None and (guest := target.word("GUEST")):
        return f"nothing is mounted at {guest} in {sandbox.name}"
    about = Selection(sandbox=sandbox, mount=mount)
    return reasons.guarded(reasons.unmount)(world, about) or ""


def mount_of(target: Target, sandbox: SandboxView | None) -> MountView | None:
    """Returns the mount that is named by its path in the guest, or else the only one."""
    if sandbox is None:
        return None
    guest = target.word("GUEST")
    found = [mount for mount in sandbox.mounts if guest in ("", mount.guest)]
    return found[0] if len(found) == 1 else None


def _about(what: str, problem: str) -> str:
    return f"{what}: {problem}" if problem else ""


def sandbox_of(target: Target, selection: Selection) -> SandboxView | None:
    return target.sandbox if target.sandbox is not None else selection.sandbox


def new_spec_of(target: Target) -> NewSpec:
    if (save := target.save) is not None:
        return NewSpec(image=save.address, save=save.key, name=target.word("NAME"))
    image = target.image.name if target.image is not None else ""
    return NewSpec(image=image, name=target.word("NAME"))
