"""The commands of the `:` line: splits a line into words, finds the action and its arguments, and
completes them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quicksand.things.status import Status

from quicksand_tui.actions import reasons
from quicksand_tui.actions.all_actions import Action, Group, Scope, in_scope
from quicksand_tui.model.amounts import age_text, clock_text, size_text
from quicksand_tui.model.shown_sandboxes import CheckpointView
from quicksand_tui.model.text import LINE_MAX, did_you_mean, sanitise
from quicksand_tui.model.world import Selection, World
from quicksand_tui.verbs import checkpoints, lazy_engine, mounts
from quicksand_tui.verbs.verb import Kind, Parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from quicksand.things.image_info import ImageInfo
    from quicksand.things.mount_facts import MountFacts
    from quicksand.things.save import SaveFacts

    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.verbs.verb import AnyVerb


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
    """Returns the words before the cursor, at the end of the line, and the word at the cursor."""
    words = split_words(line)
    if words and (not line[-1:].isspace() or not words[-1].is_whole):
        return [word.text for word in words[:-1]], words[-1]
    return [word.text for word in words], Word("", len(line))


def quoted(text: str) -> str:
    """Returns a name with the quotes that it needs in a line."""
    return shlex.quote(text)


SELECTED = "."
"""Stands for the selected sandbox in place of a name."""

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
    """The action of the shown screen with the same id, which goes first if no sandbox is named."""
    arguments: tuple[Parameter, ...] = ()
    """The arguments, all optional: the selection stands for a missing one, or the app asks."""
    aliases: tuple[str, ...] = ()
    verb: AnyVerb | None = None
    """The verb whose command does the same as this command of the line."""

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


def _more(verb: AnyVerb, about: str) -> LineVerb:
    return LineVerb(name=verb.name, about=about, arguments=verb.on_line, verb=verb)


MORE = (
    LineVerb(name="theme", about="Change the colours", arguments=(Parameter("theme", Kind.THEME),)),
    _more(checkpoints.TREE, "Look at a sandbox's checkpoints"),
    _more(checkpoints.DIFF, "Show files that differ between two checkpoints"),
    _more(mounts.unmount, "Take a directory of this host away"),
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
    shell = action.verb.name.split()[:1] if action.verb is not None else ()
    on_main = action.scope is Scope.MAIN
    return LineVerb(
        name=name,
        about=action.tooltip,
        action=action if on_main else None,
        here=here,
        arguments=_arguments_of(action) if on_main else (),
        aliases=tuple(word for word in (*shell, *action.aliases) if word != name),
        verb=action.verb,
    )


def _arguments_of(action: Action) -> tuple[Parameter, ...]:
    """Returns an action's own arguments, or those of its verb that the line takes."""
    if action.takes:
        return action.takes
    if action.verb is not None:
        return action.verb.on_line
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
    """A command as typed: its words, by the names of its parameters."""

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
    if (before := found.get(argument.name)) is not None:
        raise CommandError(f"there are two {argument.word}s: {before!r} and {word!r}")
    found[argument.name] = word


# The things that a command is about


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target that an order names."""

    order: Order
    sandbox: SandboxView | None = None
    """The sandbox that was named."""
    found: Mapping[str, Any] = field(default_factory=dict)
    """The things that were named, and the texts of other words, by parameter names."""

    @property
    def verb(self) -> LineVerb:
        return self.order.verb

    @property
    def action(self) -> Action | None:
        """The action: the shown screen's, or the main screen's if another sandbox is named."""
        here, main = self.verb.here, self.verb.action
        return here if here is not None and self.sandbox is None else main

    @property
    def checkpoint(self) -> CheckpointView | None:
        """The checkpoint that was named; the first of two."""
        return next((one for one in self.found.values() if isinstance(one, CheckpointView)), None)

    def word(self, name: str) -> str:
        """Returns the word of a parameter as typed; "" if it is missing."""
        return self.order.words.get(name, "")


def resolve(
    order: Order, world: World, selected: SandboxView | None, themes: Iterable[str]
) -> Target:
    """Finds the objects that an order's words name. Raises CommandError."""
    sandbox: SandboxView | None = None
    found: dict[str, Any] = {}
    for argument in order.verb.arguments:
        word = order.words.get(argument.name)
        if word is None:
            continue
        match argument.kind:
            case Kind.SANDBOX:
                sandbox = _find_sandbox(word, world, selected)
                continue
            case Kind.CHECKPOINT | Kind.TARGET:
                found[argument.name] = checkpoint_named(word, sandbox or selected)
                sandbox = sandbox or selected
            case Kind.MOUNTED:
                found[argument.name] = _mounted(word, sandbox or selected)
            case Kind.SOURCE:
                found[argument.name] = _find_source(word, world)
            case Kind.THEME:
                found[argument.name] = _choose(word, list(themes), "theme")
            case _:
                found[argument.name] = word
    return Target(order=order, sandbox=sandbox, found=found)


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


def _mounted(guest: str, sandbox: SandboxView | None) -> MountFacts:
    """Finds a mount by its path in the guest. Raises CommandError."""
    if sandbox is None:
        raise CommandError("no sandbox is selected")
    for mount in sandbox.mounts:
        if mount.guest == guest:
            return mount
    raise CommandError(f"nothing is mounted at {guest} in {sandbox.name}")


def _find_source(word: str, world: World) -> ImageInfo | SaveFacts:
    """Finds a save or an image by its name. A save goes before an image of the same name, as in the
    shell command."""
    saves = world.saves.of("")
    for save in saves.saves:
        if word == save.address:
            return save
    if (image := world.image(word)) is not None:
        return image
    if not saves.loaded:
        raise CommandError("the saves are just being read: enter tries again")
    names = [*(image.name for image in world.images), *(save.address for save in saves.saves)]
    raise CommandError(f"there is no image or save {word!r}{_near(word, names)}")


def selection_of(target: Target, selection: Selection) -> Selection:
    """Returns the selection for the order's action: the things that were named, or else the
    selected ones."""
    if target.sandbox is None:
        return selection
    return Selection(sandbox=target.sandbox, checkpoint=target.checkpoint)


def why_not(target: Target, world: World, selection: Selection) -> str | None:
    """Returns why an order cannot be carried out now, or None. The reasons are those of keys."""
    about, verb = selection_of(target, selection), target.verb.verb
    if target.checkpoint is None or verb is None:
        action = target.action
        return None if action is None else action.disabled_reason(world, about)
    if verb.reads:
        return reasons.diff(world, about)
    if world.read_only:
        return reasons.READ_ONLY
    if (why := reasons.go_there(world, about)) is not None:
        return why
    states = frozenset(Status) if verb.states is None else verb.states
    return reasons.find_wrong_state(states, world, about)


CANDIDATES_MAX = 200


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word that fits here."""

    text: str
    about: str = ""

    @property
    def typed(self) -> str:
        return quoted(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The possible completions of a line."""

    start: int
    """The offset in the line of the word that the candidates replace."""
    candidates: tuple[Candidate, ...] = ()
    hint: str = ""
    """One line that says which word is expected."""
    verb: LineVerb | None = None


def complete(
    line: str,
    verbs: Mapping[str, LineVerb],
    world: World,
    selected: SandboxView | None,
    themes: Iterable[str],
) -> Completion:
    """Completes a line at its end. Never raises."""
    skipped = len(line) - len(line.lstrip(": \t"))
    before, word = current_word(line[skipped:])
    start = skipped + word.start
    if not before:
        names = [Candidate(verb.name, verb.about) for verb in verbs.values()]
        aliases = [
            Candidate(alias, f"{verb.name}: {verb.about}")
            for verb in verbs.values()
            for alias in verb.aliases
            if word.text and alias.startswith(word.text) and alias not in verbs
        ]
        found = _matching(word.text, [*names, *aliases])
        hint = verbs[word.text].usage if word.text in verbs else ""
        return Completion(start=start, candidates=found, hint=hint, verb=verbs.get(word.text))
    try:
        verb = find_verb(before[0], verbs)
    except CommandError as error:
        return Completion(start=start, hint=str(error))
    argument, sandbox = _expected(verb, before[1:], word.text, world, selected)
    if argument is None and word.text.startswith("-"):
        options = [
            Candidate(option, found.word) for found in verb.arguments for option in found.flags
        ]
        candidates = _matching(word.text, options)
    elif argument is None:
        candidates = ()
    else:
        choices = _Choices(verb, world, selected, sandbox, themes)
        candidates = _matching(word.text, choices.candidates(argument.kind))
    return Completion(start=start, candidates=candidates, hint=verb.usage, verb=verb)


def _matching(typed: str, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Returns the candidates that begin with the typed word, or else those that contain it."""
    wanted = typed.lower()
    within = [found for found in candidates if wanted in found.text.lower()]
    begins = [found for found in within if found.text.lower().startswith(wanted)]
    return tuple((begins or within)[:CANDIDATES_MAX])


def _expected(
    verb: LineVerb,
    words: Sequence[str],
    typed: str,
    world: World,
    selected: SandboxView | None,
) -> tuple[Parameter | None, SandboxView | None]:
    """Returns the argument that comes after ``words``, and the sandbox that they name."""
    places = list(verb.places)
    sandbox = selected
    open_option: Parameter | None = None
    for word in words:
        if open_option is not None:
            open_option = None
        elif (option := verb.option(word)) is not None:
            open_option = option
        elif not word.startswith("-") and places and places.pop(0).kind is Kind.SANDBOX:
            named = (v for v in world.sandboxes if word in (v.name, v.id))
            sandbox = next(named, selected)
    if open_option is not None:
        return open_option, sandbox
    return (None if typed.startswith("-") or not places else places[0]), sandbox


@dataclass(frozen=True, slots=True)
class _Choices:
    """The candidates for each kind of word."""

    verb: LineVerb
    world: World
    selected: SandboxView | None
    sandbox: SandboxView | None
    themes: Iterable[str]

    def candidates(self, kind: Kind) -> list[Candidate]:
        ways: dict[Kind, Callable[[], list[Candidate]]] = {
            Kind.SANDBOX: self._sandboxes,
            Kind.CHECKPOINT: self._checkpoints,
            Kind.TARGET: self._checkpoints,
            Kind.SOURCE: self._sources,
            Kind.MOUNTED: self._mounted,
            Kind.PACKAGE: lambda: [Candidate(name) for name in lazy_engine.PUBLISHED],
            Kind.THEME: lambda: [Candidate(name) for name in sorted(self.themes)],
        }
        return ways[kind]() if kind in ways else []

    def _sandboxes(self) -> list[Candidate]:
        """Returns the sandboxes for which the verb is possible, or all if there are none."""
        action, views = self.verb.action, self.world.sandboxes
        if action is not None:
            able = [
                view
                for view in views
                if action.disabled_reason(self.world, Selection(sandbox=view)) is None
            ]
            views = tuple(able) or views
        return [Candidate(view.name, view.state.value) for view in views]

    def _checkpoints(self) -> list[Candidate]:
        """Returns the checkpoints, latest first. If several have one tag, all but the latest go by
        their ids, since the tag leads to the latest."""
        tree = self.sandbox.tree.checkpoints if self.sandbox is not None else ()
        found, taken = [], set[str]()
        for checkpoint in reversed(tree):
            if checkpoint.error:
                continue
            text = checkpoint.id if checkpoint.name in taken else checkpoint.name
            taken.add(checkpoint.name)
            found.append(Candidate(text, self._about(checkpoint, is_tag=text == checkpoint.name)))
        return found

    def _about(self, checkpoint: CheckpointView, *, is_tag: bool) -> str:
        """Describes a checkpoint so that it differs from the others, above all by its time."""
        parts = [
            "" if is_tag else checkpoint.tag,
            "automatic" if checkpoint.auto else "",
            checkpoint.note,
        ]
        if checkpoint.created:
            now = self.world.taken
            parts.append(
                f"{age_text(now - checkpoint.created)} ago, {clock_text(checkpoint.created, now)}"
            )
        return " · ".join(filter(None, parts))

    def _mounted(self) -> list[Candidate]:
        mounts = self.sandbox.mounts if self.sandbox is not None else ()
        return [Candidate(mount.guest, mount.host) for mount in mounts if mount.state.is_now]

    def _sources(self) -> list[Candidate]:
        images = [
            Candidate(
                image.name,
                f"image {image.version}".strip() if image.is_built else "image, not built yet",
            )
            for image in self.world.images
            if not image.error
        ]
        saves = [
            Candidate(save.address, f"save, {size_text(save.size)}")
            for save in self.world.saves.of("").saves
            if not save.trouble
        ]
        return [*images, *saves]
