"""The commands of the `:` line: the registry's actions, with arguments where they take some.

Pure: `parse` makes an `Order` of what is typed, `resolve` finds what it is about. How a line could
go on says `quicksand_tui.completion`; `quicksand_tui.orders` carries it out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from quicksand_tui import reasons
from quicksand_tui.action import Action, Group, Scope
from quicksand_tui.actions import in_scope
from quicksand_tui.command_text import CommandError, split_words, whole_words
from quicksand_tui.snapshot import Selection, Snapshot

if TYPE_CHECKING:
    from quicksand_tui.listed import ImageView, SandboxView
    from quicksand_tui.past import CheckpointView
    from quicksand_tui.saved import SaveView

SELECTED = "."
"""In place of a sandbox's name: the selected one."""
CLONES_MAX = 99


class Kind(Enum):
    """What a word of a command stands for."""

    SANDBOX = auto()
    CHECKPOINT = auto()
    """Of the sandbox before it, or of the selected one."""
    SOURCE = auto()
    """What a sandbox begins with: an image or a save."""
    THEME = auto()
    COUNT = auto()
    TEXT = auto()
    """New, so that nothing completes it."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A word of a command. All can be left out: what is then missing is the selected one, or is
    asked for."""

    name: str
    """As the usage shows it, in capitals."""
    kind: Kind
    options: tuple[str, ...] = ()
    """How it is introduced; none if its place tells."""
    by_place: bool = False
    """Whether its place tells, too."""
    is_rest: bool = False
    """The rest of the line, as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A command."""

    name: str
    about: str
    action: Action | None = None
    """What it does on the main screen; None for what only the command line can."""
    here: Action | None = None
    """The action of that id of the screen that is shown; it is meant if nothing is named."""
    arguments: tuple[Argument, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        words = [self.name]
        for argument in self.arguments:
            option = "" if argument in self.places else f"{argument.options[0]} "
            words.append(f"[{option}{argument.name}]")
        return " ".join(words)

    @property
    def places(self) -> tuple[Argument, ...]:
        """Arguments that need no option in front."""
        return tuple(found for found in self.arguments if found.by_place or not found.options)

    def option(self, word: str) -> Argument | None:
        return next((found for found in self.arguments if word in found.options), None)


SANDBOX = Argument("SANDBOX", Kind.SANDBOX)
_AT = Argument("CHECKPOINT", Kind.CHECKPOINT, ("--at",))
_NOTE = Argument("NOTE", Kind.TEXT, ("-m", "--message"))

ARGUMENTS: Mapping[str, tuple[Argument, ...]] = {
    "new": (Argument("SOURCE", Kind.SOURCE), Argument("NAME", Kind.TEXT)),
    "start": (SANDBOX, _AT),
    "checkpoint": (SANDBOX, Argument("TAG", Kind.TEXT), _NOTE),
    "revert": (SANDBOX, Argument("CHECKPOINT", Kind.CHECKPOINT)),
    "clone": (SANDBOX, Argument("COUNT", Kind.COUNT, ("-n", "--count"), by_place=True), _AT),
    "save": (SANDBOX, Argument("SAVE", Kind.TEXT), _NOTE),
    "filter": (Argument("WORDS", Kind.TEXT, is_rest=True),),
}
"""Of actions that take more than a sandbox, by their ids."""

ALIASES = {"quit": ("q",), "help": ("h",), "pause": ("resume",)}
NOT_TYPED = frozenset({"escape", "back", "command"})
"""Actions that are only keys."""


def verbs_of(scope: Scope) -> dict[str, Verb]:
    """The commands that a screen takes, by name: the main screen's, and its own actions."""
    verbs: dict[str, Verb] = {}
    main, own = list(in_scope(Scope.MAIN)), list(in_scope(scope))
    for action in (*main, *own):
        name = action.id.replace("_", "-")
        if action.id not in NOT_TYPED and name not in verbs:
            here = next((found for found in own if found.id == action.id), None)
            verbs[name] = _verb_of(name, action, here)
    theme = Argument("THEME", Kind.THEME)
    verbs.setdefault("theme", Verb(name="theme", about="Change the colours", arguments=(theme,)))
    tree = "Look at a sandbox's checkpoints"
    verbs.setdefault("tree", Verb(name="tree", about=tree, arguments=(SANDBOX,)))
    return verbs


def _verb_of(name: str, action: Action, here: Action | None) -> Verb:
    arguments: tuple[Argument, ...] = ()
    if action.scope is Scope.MAIN:
        about_one = (SANDBOX,) if action.group is Group.SANDBOX else ()
        arguments = ARGUMENTS.get(action.id, about_one)
    # What the command of the shell is called: rm for delete, logs for log.
    shell = action.command.split()[1:2]
    aliases = tuple(word for word in (*shell, *ALIASES.get(action.id, ())) if word != name)
    return Verb(
        name=name,
        about=action.tooltip,
        action=action if action.scope is Scope.MAIN else None,
        here=here,
        arguments=arguments,
        aliases=aliases,
    )


def find_verb(word: str, verbs: Mapping[str, Verb]) -> Verb:
    """By its name, or by another name. Raises CommandError."""
    if (verb := verbs.get(word)) is not None:
        return verb
    for verb in verbs.values():
        if word in verb.aliases:
            return verb
    names = [name for verb in verbs.values() for name in (verb.name, *verb.aliases)]
    raise CommandError(f"there is no command {word!r}{_near(word, names)}")


def _near(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word[:100], list(names), n=2, cutoff=0.65)
    return f"; did you mean {' or '.join(near)}?" if near else ""


@dataclass(frozen=True, slots=True)
class Order:
    """A command as typed: its words by the names of its arguments."""

    verb: Verb
    words: Mapping[str, str] = field(default_factory=dict)


def parse(line: str, verbs: Mapping[str, Verb]) -> Order | None:
    """What is typed, as a command; None if it is nothing. Raises CommandError, and nothing else."""
    line = line.lstrip(": \t")
    words = whole_words(line)
    if not words:
        return None
    verb = find_verb(words[0], verbs)
    rest = next((found for found in verb.arguments if found.is_rest), None)
    if rest is not None:
        return Order(verb, {rest.name: _rest_of(line)})
    found: dict[str, str] = {}
    given = iter(words[1:])
    is_option = True
    for word in given:
        if word == "--" and is_option:
            is_option = False
        elif is_option and len(word) > 1 and word.startswith("-"):
            argument, value = _take_option(verb, word, given)
            _put(found, argument, value)
        elif left := [argument for argument in verb.places if argument.name not in found]:
            found[left[0].name] = word
        else:
            raise CommandError(f"{word!r} is too much: {verb.usage}")
    return Order(verb, found)


def _rest_of(line: str) -> str:
    words = split_words(line)
    return line[words[1].start :].strip() if len(words) > 1 else ""


def _take_option(verb: Verb, word: str, given: Iterable[str]) -> tuple[Argument, str]:
    name, equals, value = word.partition("=")
    if (argument := verb.option(name)) is None:
        names = [option for found in verb.arguments for option in found.options]
        takes = f"it takes {', '.join(names)}" if names else "it takes none"
        raise CommandError(f"{verb.name} has no option {name!r}: {takes}")
    if equals:
        return argument, value
    for following in given:
        return argument, following
    raise CommandError(f"{name} needs a {argument.name} behind it")


def _put(found: dict[str, str], argument: Argument, word: str) -> None:
    if argument.name in found:
        raise CommandError(f"there are two {argument.name}s: {found[argument.name]!r} and {word!r}")
    found[argument.name] = word


# What a command is about


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What an order is about, found in the world."""

    order: Order
    sandbox: SandboxView | None = None
    """The one that was named."""
    checkpoint: CheckpointView | None = None
    image: ImageView | None = None
    save: SaveView | None = None
    count: int = 1
    theme: str = ""

    @property
    def verb(self) -> Verb:
        return self.order.verb

    @property
    def action(self) -> Action | None:
        """What it comes down to: the shown screen's action, unless another sandbox is named."""
        here, main = self.verb.here, self.verb.action
        return here if here is not None and self.sandbox is None else main

    def word(self, name: str) -> str:
        """A word as it was typed, or ""."""
        return self.order.words.get(name, "")


def resolve(
    order: Order, snapshot: Snapshot, selected: SandboxView | None, themes: Iterable[str]
) -> Target:
    """Find what the words of an order stand for. Raises CommandError."""
    sandbox: SandboxView | None = None
    target = Target(order=order)
    for argument in order.verb.arguments:
        word = order.words.get(argument.name)
        if word is None:
            continue
        match argument.kind:
            case Kind.SANDBOX:
                sandbox = _find_sandbox(word, snapshot, selected)
                target = _with(target, sandbox=sandbox)
            case Kind.CHECKPOINT:
                made = _find_checkpoint(word, sandbox or selected)
                target = _with(target, checkpoint=made, sandbox=sandbox or selected)
            case Kind.SOURCE:
                target = _find_source(word, snapshot, target)
            case Kind.COUNT:
                target = _with(target, count=_count(word))
            case Kind.THEME:
                target = _with(target, theme=_choose(word, list(themes), "theme"))
            case Kind.TEXT:
                pass
    return target


def _with(target: Target, **found: object) -> Target:
    return replace(target, **found)  # type: ignore[arg-type]


def _choose(word: str, names: Sequence[str], what: str) -> str:
    if word in names:
        return word
    raise CommandError(f"there is no {what} {word!r}{_near(word, names)}")


def _find_sandbox(word: str, snapshot: Snapshot, selected: SandboxView | None) -> SandboxView:
    if word == SELECTED:
        if selected is None:
            raise CommandError("no sandbox is selected")
        return selected
    for view in snapshot.sandboxes:
        if word in (view.name, view.id):
            return view
    if not snapshot.sandboxes:
        raise CommandError("there is no sandbox yet")
    names = [view.name for view in snapshot.sandboxes]
    raise CommandError(f"there is no sandbox {word!r}{_near(word, names)}")


def _find_checkpoint(word: str, sandbox: SandboxView | None) -> CheckpointView:
    if sandbox is None:
        raise CommandError("no sandbox is selected")
    for made in sandbox.past.checkpoints:
        if word in (made.name, made.tag, made.id):
            return made
    if not sandbox.past.checkpoints:
        raise CommandError(f"{sandbox.name} has no checkpoint")
    names = [made.name for made in sandbox.past.checkpoints]
    raise CommandError(f"{sandbox.name} has no checkpoint {word!r}{_near(word, names)}")


def _find_source(word: str, snapshot: Snapshot, target: Target) -> Target:
    """A save comes before an image of its name, as for the command of the shell."""
    saves = snapshot.saves
    for save in saves.saves:
        if word == save.address:
            return _with(target, save=save)
    if (image := snapshot.image(word)) is not None:
        return _with(target, image=image)
    if not saves.loaded:
        raise CommandError("the saves are just being read: enter tries again")
    names = [*(image.name for image in snapshot.images), *(save.address for save in saves.saves)]
    raise CommandError(f"there is no image or save {word!r}{_near(word, names)}")


def _count(word: str) -> int:
    if word.isascii() and word.isdigit() and 1 <= int(word[:6]) <= CLONES_MAX:
        return int(word)
    raise CommandError(f"{word!r} is no number from 1 to {CLONES_MAX}")


def selection_of(target: Target, selection: Selection) -> Selection:
    """What the order's action is about: what was named, else what is selected."""
    if target.sandbox is None:
        return selection
    return Selection(sandbox=target.sandbox, checkpoint=target.checkpoint)


def why_not(target: Target, snapshot: Snapshot, selection: Selection) -> str | None:
    """Why an order cannot be carried out now; the reasons are those of the keys."""
    about = selection_of(target, selection)
    if target.checkpoint is None:
        action = target.action
        return None if action is None else action.disabled_reason(snapshot, about)
    checks: Mapping[str, reasons.Reason] = {
        "start": reasons.start,
        "revert": reasons.checkpoint,
        "clone": reasons.clone,
    }
    for reason in (reasons.go_there, checks.get(target.verb.name, reasons.always)):
        if (why := reasons.guarded(reason)(snapshot, about)) is not None:
            return why
    return None
