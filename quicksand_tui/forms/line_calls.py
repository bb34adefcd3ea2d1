"""Commands of the `:` line: they are checked as keys and forms are, and become calls of verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quicksand.things.image_info import ImageInfo
from quicksand.things.mount_facts import MountFacts
from quicksand.things.save import SaveFacts

from quicksand_tui.actions import reasons
from quicksand_tui.actions.line import CommandError, Target, why_not
from quicksand_tui.forms.form_fields import find_name_problem, find_problems
from quicksand_tui.forms.verb_forms import find_problem, find_unforward_problem, read_value
from quicksand_tui.model.shown_sandboxes import CheckpointView
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.world import Selection, World
from quicksand_tui.verbs.verb import Kind

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.verbs.call import Call
    from quicksand_tui.verbs.verb import AnyVerb, Parameter

NEED_SANDBOX = frozenset({"diff", "tree", "unmount"})
"""Commands that need a sandbox and have no action to check that."""

REMOVE = "remove"


def check(target: Target, world: World, selection: Selection) -> None:
    """Checks a command as keys and forms would. Raises CommandError if it cannot be carried out.
    Blocks for the engine's import the first time."""
    if (why := why_not(target, world, selection)) is not None:
        raise CommandError(why)
    sandbox = sandbox_of(target, selection)
    if target.verb.name in NEED_SANDBOX and sandbox is None:
        raise CommandError("no sandbox is selected")
    if target.verb.name == "new":
        problem = _find_new_problem(target, world)
    elif target.verb.name == "unmount":
        about = Selection(sandbox=sandbox, mount=mount_of(target, sandbox))
        why = reasons.READ_ONLY if world.read_only else reasons.unmount(world, about)
        problem = why or ""
    else:
        problem = "" if sandbox is None else _find_problem(target, sandbox, world)
    if problem:
        raise CommandError(problem)


def _find_problem(target: Target, sandbox: SandboxView, world: World) -> str:
    """Returns the problem of the words, or ""."""
    for parameter in target.verb.arguments:
        if not (word := target.word(parameter.name)):
            continue
        if parameter.kind is Kind.FORWARD and REMOVE in _flags(target):
            problem = find_unforward_problem(word, sandbox)
        else:
            problem = find_problem(parameter, word, sandbox, world)
        if problem:
            return _about(parameter, problem)
    return ""


def _about(parameter: Parameter, problem: str) -> str:
    if parameter.kind in (Kind.NEW_TAG, Kind.NEW_SAVE, Kind.COUNT):
        return f"{parameter.name}: {problem}"
    return problem


def _find_new_problem(target: Target, world: World) -> str:
    if not (name := target.word("name")):
        return ""
    source = target.found.get("image")
    if not isinstance(source, ImageInfo):
        problem = find_name_problem(name, world)
        return f"name: {problem}" if problem else ""
    problems = find_problems(new_spec_of(target), world)
    return "; ".join(f"{field}: {problem}" for field, problem in problems.items())


def _flags(target: Target) -> tuple[str, ...]:
    return target.action.flags if target.action is not None else ()


def call_for(target: Target) -> Call[Any] | None:
    """Returns the call of a command that says enough; None if its action asks for the rest."""
    verb = target.verb.verb
    if verb is None or not verb.can_be_made:
        return None
    taken = {name: target.found[name] for name in verb.taken if name in target.found}
    # A verb that asks for all its values is done unasked if only the sandbox is named.
    if not taken and not (verb.form and target.order.words):
        return None
    if not {one.name for one in _required(verb)} <= set(taken):
        return None
    values = {name: _value(verb.parameter(name), value) for name, value in taken.items()}
    call: Call[Any] = verb(**values, **dict.fromkeys(_flags(target), True))
    return call


def _required(verb: AnyVerb) -> list[Parameter]:
    return [one for one in verb.parameters if one.required and one is not verb.subject]


def _value(parameter: Parameter, found: Any) -> Any:
    if isinstance(found, CheckpointView | MountFacts):
        return found.named
    return read_value(parameter, found)


def mount_of(target: Target, sandbox: SandboxView | None) -> MountFacts | None:
    """Returns the mount that is named by its path in the guest, or else the only one."""
    if isinstance(named := target.found.get("guest"), MountFacts):
        return named
    return sandbox.mounts[0] if sandbox is not None and len(sandbox.mounts) == 1 else None


def sandbox_of(target: Target, selection: Selection) -> SandboxView | None:
    return target.sandbox if target.sandbox is not None else selection.sandbox


def new_spec_of(target: Target) -> NewSpec:
    """Returns the new sandbox that a command names. Its image is "" if none is named."""
    name = target.word("name")
    match target.found.get("image"):
        case SaveFacts() as save:
            return NewSpec(image=save.address, save=save.key, name=name)
        case ImageInfo() as image:
            return NewSpec(image=image.name, name=name)
    return NewSpec(image="", name=name)
