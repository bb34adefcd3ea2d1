"""The commands of the `:` line: splits a line into words, and finds the action and its
arguments."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from quicksand_tui.actions import reasons
from quicksand_tui.actions.record import Action, Group, Scope
from quicksand_tui.actions.registry import in_scope
from quicksand_tui.model.text import LINE_MAX, did_you_mean, sanitise
from quicksand_tui.model.world import Selection, World
from quicksand_tui.verbs import rows as records
from quicksand_tui.verbs.row import Kind, Parameter

if TYPE_CHECKING:
    from quicksand_tui.actions.wrapped import Reason
    from quicksand_tui.model.checkpoints import CheckpointView
    from quicksand_tui.model.sandboxes import ImageView, SandboxView
    from quicksand_tui.model.saves import SaveView


class CommandError(Exception):
    """Raised when a line is no command or cannot be carried out. The message is fit to be shown."""

    def __init__(self, what: str) -> None:
        super().__init__(sanitise(what))


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a line, without its quotes."""

    text: str
    start: int
    """The offset in the line where it begins, with its quotes."""
    is_whole: bool = True
    """Whether its quotes are closed."""


def split_words(line: str) -> list[Word]:
    """Splits a line into words as a shell does. Never raises."""
    words: list[Word] = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        start, text, quote = at, "", ""
        while at < len(line) and (quote or not line[at].isspace()):
            char = line[at]
            if char == quote:
                quote = ""
            elif not quote and char in "\"'":
                quote = char
            elif char == "\\" and quote != "'" and at + 1 < len(line):
                at += 1
                text += line[at]
            else:
                text += char
            at += 1
        words.append(Word(text, start, is_whole=not quote))
    return words


def whole_words(line: str) -> list[str]:
    """Splits a complete line into words. Raises CommandError for a quote that is not closed."""
    if len(line) > LINE_MAX:
        raise CommandError(f"a command has at most {LINE_MAX} characters")
    words = split_words(line)
    if any(not word.is_whole for word in words):
        raise CommandError("a quote is not closed")
    return [word.text for word in words]


def current_word(line: str) -> tuple[list[str], Word]:
    """Returns the words before the cursor, which is at the end of the line, and the word at the
    cursor."""
    words = split_words(line)
    if words and (not line[-1:].isspace() or not words[-1].is_whole):
        return [word.text for word in words[:-1]], words[-1]
    return [word.text for word in words], Word("", len(line))


def quoted(text: str) -> str:
    """Returns a name with the quotes that it needs in a line."""
    return shlex.quote(text)


SELECTED = "."
"""Means the selected sandbox in place of a name."""

SANDBOX = Parameter("name", Kind.SANDBOX)
"""The parameter of an action on a sandbox that has no command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineVerb:
    """A command of the `:` line."""

    name: str
    about: str
    action: Action | None = None
    """The action of the main screen; None if only the `:` line can do it."""
    here: Action | None = None
    """The action of the shown screen with the same id, which is meant if no sandbox is named."""
    arguments: tuple[Parameter, ...] = ()
    """The arguments, all optional: what is missing is the selected one, or the app asks for it."""
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """Returns the command with its arguments, for a hint."""
        words = [self.name]
        for argument in self.arguments:
            option = "" if argument.takes_place else f"{argument.shown_flag} "
            words.append(f"[{option}{argument.word}]")
        return " ".join(words)

    @property
    def places(self) -> tuple[Parameter, ...]:
        """The arguments that need no flag in front of them."""
        return tuple(found for found in self.arguments if found.takes_place)

    def option(self, word: str) -> Parameter | None:
        """Returns the option with the flag ``word``; None if there is none."""
        return next((found for found in self.arguments if word in found.flags), None)


MORE = (
    LineVerb(name="theme", about="Change the colours", arguments=(Parameter("theme", Kind.THEME),)),
    LineVerb(
        name="tree",
        about="Look at a sandbox's checkpoints",
        arguments=records.find_verb("tree").on_line,
    ),
    LineVerb(
        name="diff",
        about="Show files that differ between two checkpoints",
        arguments=tuple(
            found for found in records.find_verb("diff").on_line if found.kind is Kind.CHECKPOINT
        ),
    ),
    LineVerb(
        name="unmount",
        about="Take a directory of this host away",
        arguments=records.find_verb("unmount").on_line,
    ),
)
"""The commands that are not actions."""

NOT_TYPED = frozenset({"escape", "back", "command"})
"""Ids of the actions that have keys but no command."""


def verbs_of(scope: Scope) -> dict[str, LineVerb]:
    """Returns the commands of a screen by name: those of the main screen, and its own actions."""
    verbs: dict[str, LineVerb] = {}
    main, own = list(in_scope(Scope.MAIN)), list(in_scope(scope))
    for action in (*main, *own):
        name = action.id.replace("_", "-")
        if action.id not in NOT_TYPED and name not in verbs:
            here = next((found for found in own if found.id == action.id), None)
            verbs[name] = _verb_of(name, action, here)
    for verb in MORE:
        verbs.setdefault(verb.name, verb)
    return verbs


def _verb_of(name: str, action: Action, here: Action | None) -> LineVerb:
    # Also accept the name of the shell command: rm for delete, logs for log.
    shell = action.verb.split()[:1]
    on_main = action.scope is Scope.MAIN
    return LineVerb(
        name=name,
        about=action.tooltip,
        action=action if on_main else None,
        here=here,
        arguments=_arguments_of(action) if on_main else (),
        aliases=tuple(word for word in (*shell, *action.aliases) if word != name),
    )


def _arguments_of(action: Action) -> tuple[Parameter, ...]:
    """Returns an action's own arguments, or those of its verb that the line takes."""
    if action.takes:
        return action.takes
    if action.verb:
        return records.find_verb(action.verb).on_line
    return (SANDBOX,) if action.group is Group.SANDBOX else ()


def find_verb(word: str, verbs: Mapping[str, LineVerb]) -> LineVerb:
    """Finds a command by its name or an alias. Raises CommandError."""
    if (verb := verbs.get(word)) is not None:
        return verb
    for verb in verbs.values():
        if word in verb.aliases:
            return verb
    names = [name for verb in verbs.values() for name in (verb.name, *verb.aliases)]
    raise CommandError(f"there is no command {word!r}{_near(word, names)}")


def _near(word: str, names: Iterable[str]) -> str:
    return did_you_mean(word, names, cutoff=0.65)


@dataclass(frozen=True, slots=True)
class Order:
    """A command as typed: its words, by the names of its arguments."""

    verb: LineVerb
    words: Mapping[str, str] = field(default_factory=dict)


def parse(line: str, verbs: Mapping[str, LineVerb]) -> Order | None:
    """Parses a line; returns None if it is empty. Raises CommandError, and nothing else."""
    line = line.lstrip(": \t")
    words = whole_words(line)
    if not words:
        return None
    verb = find_verb(words[0], verbs)
    rest = next((found for found in verb.arguments if found.kind is Kind.REST), None)
    if rest is not None:
        return Order(verb, {rest.word: _rest_of(line)})
    found: dict[str, str] = {}
    given = iter(words[1:])
    is_option = True
    for word in given:
        if word == "--" and is_option:
            is_option = False
        elif is_option and len(word) > 1 and word.startswith("-"):
            argument, value = _take_option(verb, word, given)
            _put(found, argument, value)
        elif left := [argument for argument in verb.places if argument.word not in found]:
            found[left[0].word] = word
        else:
            raise CommandError(f"{word!r} is too much: {verb.usage}")
    return Order(verb, found)


def _rest_of(line: str) -> str:
    words = split_words(line)
    return line[words[1].start :].strip() if len(words) > 1 else ""


def _take_option(verb: LineVerb, word: str, given: Iterable[str]) -> tuple[Parameter, str]:
    name, equals, value = word.partition("=")
    if (argument := verb.option(name)) is None:
        names = [option for found in verb.arguments for option in found.flags]
        takes = f"it takes {', '.join(names)}" if names else "it takes none"
        raise CommandError(f"{verb.name} has no option {name!r}: {takes}")
    if equals:
        return argument, value
    for following in given:
        return argument, following
    raise CommandError(f"{name} needs a {argument.word} behind it")


def _put(found: dict[str, str], argument: Parameter, word: str) -> None:
    name = argument.word
    if name in found:
        raise CommandError(f"there are two {name}s: {found[name]!r} and {word!r}")
    found[name] = word


# What a command is about


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The objects that an order names."""

    order: Order
    sandbox: SandboxView | None = None
    """The sandbox that was named."""
    checkpoint: CheckpointView | None = None
    image: ImageView | None = None
    save: SaveView | None = None
    count: int = 1
    theme: str = ""

    @property
    def verb(self) -> LineVerb:
        return self.order.verb

    @property
    def action(self) -> Action | None:
        """Returns the action: that of the shown screen, or of the main screen if another sandbox is
        named."""
        here, main = self.verb.here, self.verb.action
        return here if here is not None and self.sandbox is None else main

    def word(self, name: str) -> str:
        """Returns an argument as typed; "" if it is missing."""
        return self.order.words.get(name, "")


def resolve(
    order: Order, world: World, selected: SandboxView | None, themes: Iterable[str]
) -> Target:
    """Finds the objects that an order's words name. Raises CommandError."""
    sandbox: SandboxView | None = None
    target = Target(order=order)
    for argument in order.verb.arguments:
        word = order.words.get(argument.word)
        if word is None:
            continue
        match argument.kind:
            case Kind.SANDBOX:
                sandbox = _find_sandbox(word, world, selected)
                target = _with(target, sandbox=sandbox)
            case Kind.CHECKPOINT | Kind.TARGET:
                found = checkpoint_named(word, sandbox or selected)
                target = _with(target, checkpoint=found, sandbox=sandbox or selected)
            case Kind.SOURCE:
                target = _find_source(word, world, target)
            case Kind.COUNT:
                target = _with(target, count=_count(word, argument))
            case Kind.THEME:
                target = _with(target, theme=_choose(word, list(themes), "theme"))
    return target


def _with(target: Target, **found: object) -> Target:
    return replace(target, **found)  # type: ignore[arg-type]


def _choose(word: str, names: Sequence[str], what: str) -> str:
    if word in names:
        return word
    raise CommandError(f"there is no {what} {word!r}{_near(word, names)}")


def _find_sandbox(word: str, world: World, selected: SandboxView | None) -> SandboxView:
    if word == SELECTED:
        if selected is None:
            raise CommandError("no sandbox is selected")
        return selected
    for view in world.sandboxes:
        if word in (view.name, view.id):
            return view
    if not world.sandboxes:
        raise CommandError("there is no sandbox yet")
    names = [view.name for view in world.sandboxes]
    raise CommandError(f"there is no sandbox {word!r}{_near(word, names)}")


def checkpoint_named(word: str, sandbox: SandboxView | None) -> CheckpointView:
    """Finds a checkpoint of a sandbox by its name. Raises CommandError."""
    if sandbox is None:
        raise CommandError("no sandbox is selected")
    for checkpoint in sandbox.tree.checkpoints:
        if word in (checkpoint.name, checkpoint.tag, checkpoint.id):
            return checkpoint
    if not sandbox.tree.checkpoints:
        raise CommandError(f"{sandbox.name} has no checkpoint")
    names = [checkpoint.name for checkpoint in sandbox.tree.checkpoints]
    raise CommandError(f"{sandbox.name} has no checkpoint {word!r}{_near(word, names)}")


def _find_source(word: str, world: World, target: Target) -> Target:
    """A save takes precedence over an image of the same name, as in the shell command."""
    saves = world.saves.of("")
    for save in saves.saves:
        if word == save.address:
            return _with(target, save=save)
    if (image := world.image(word)) is not None:
        return _with(target, image=image)
    if not saves.loaded:
        raise CommandError("the saves are just being read: enter tries again")
    names = [*(image.name for image in world.images), *(save.address for save in saves.saves)]
    raise CommandError(f"there is no image or save {word!r}{_near(word, names)}")


def _count(word: str, argument: Parameter) -> int:
    least, most = int(argument.least or 0), argument.limit
    if word.isascii() and word.isdigit():
        count = int(word[:6])
        if least <= count and (most is None or count <= most):
            return count
    raise CommandError(f"{word!r} is no number from {least} to {most}")


def selection_of(target: Target, selection: Selection) -> Selection:
    """Returns the selection for the order's action: what was named, or else what is selected."""
    if target.sandbox is None:
        return selection
    return Selection(sandbox=target.sandbox, checkpoint=target.checkpoint)


def why_not(target: Target, world: World, selection: Selection) -> str | None:
    """Returns why an order cannot be carried out now, or None. The reasons are the same as for
    keys."""
    about = selection_of(target, selection)
    if target.checkpoint is None:
        action = target.action
        return None if action is None else action.disabled_reason(world, about)
    if target.verb.name == "diff":
        return reasons.diff(world, about)  # it only reads
    checks: Mapping[str, Reason] = {
        "start": reasons.start,
        "revert": reasons.checkpoint,
        "clone": reasons.clone,
    }
    for reason in (reasons.go_there, checks.get(target.verb.name, reasons.always)):
        if (why := reasons.guarded(reason)(world, about)) is not None:
            return why
    return None
