"""How a line of the `:` line could go on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.command_text import CommandError, current_word, quoted
from quicksand_tui.commands import Argument, Kind, Verb, find_verb
from quicksand_tui.snapshot import Selection, Snapshot
from quicksand_tui.text import size_text

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView

CANDIDATES_MAX = 200


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word that could be typed here."""

    text: str
    about: str = ""

    @property
    def typed(self) -> str:
        return quoted(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """How a line could go on."""

    start: int
    """Where the word begins that the candidates are for."""
    candidates: tuple[Candidate, ...] = ()
    hint: str = ""
    """What is expected, in a line."""
    verb: Verb | None = None


def complete(
    line: str,
    verbs: Mapping[str, Verb],
    snapshot: Snapshot,
    selected: SandboxView | None,
    themes: Iterable[str],
) -> Completion:
    """How a line could go on at its end. Never raises."""
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
    argument, sandbox = _expected(verb, before[1:], word.text, snapshot, selected)
    if argument is None and word.text.startswith("-"):
        options = [
            Candidate(option, found.name) for found in verb.arguments for option in found.options
        ]
        candidates = _matching(word.text, options)
    elif argument is None:
        candidates = ()
    else:
        world = _World(verb, snapshot, selected, sandbox, themes)
        candidates = _matching(word.text, world.candidates(argument.kind))
    return Completion(start=start, candidates=candidates, hint=verb.usage, verb=verb)


def _matching(typed: str, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Those that begin so; if none does, those that have it within."""
    wanted = typed.lower()
    within = [found for found in candidates if wanted in found.text.lower()]
    begins = [found for found in within if found.text.lower().startswith(wanted)]
    return tuple((begins or within)[:CANDIDATES_MAX])


def _expected(
    verb: Verb,
    words: Sequence[str],
    typed: str,
    snapshot: Snapshot,
    selected: SandboxView | None,
) -> tuple[Argument | None, SandboxView | None]:
    """The argument that is typed behind ``words``, and the sandbox that was named."""
    places = list(verb.places)
    sandbox = selected
    open_option: Argument | None = None
    for word in words:
        if open_option is not None:
            open_option = None
        elif (option := verb.option(word)) is not None:
            open_option = option
        elif not word.startswith("-") and places and places.pop(0).kind is Kind.SANDBOX:
            named = (v for v in snapshot.sandboxes if word in (v.name, v.id))
            sandbox = next(named, selected)
    if open_option is not None:
        return open_option, sandbox
    return (None if typed.startswith("-") or not places else places[0]), sandbox


@dataclass(frozen=True, slots=True)
class _World:
    """What words can stand for."""

    verb: Verb
    snapshot: Snapshot
    selected: SandboxView | None
    sandbox: SandboxView | None
    themes: Iterable[str]

    def candidates(self, kind: Kind) -> list[Candidate]:
        ways: dict[Kind, Callable[[], list[Candidate]]] = {
            Kind.SANDBOX: self._sandboxes,
            Kind.CHECKPOINT: self._checkpoints,
            Kind.SOURCE: self._sources,
            Kind.THEME: lambda: [Candidate(name) for name in sorted(self.themes)],
        }
        return ways[kind]() if kind in ways else []

    def _sandboxes(self) -> list[Candidate]:
        """Those with which it is possible; if it is with none, all."""
        action, views = self.verb.action, self.snapshot.sandboxes
        if action is not None:
            able = [
                view
                for view in views
                if action.disabled_reason(self.snapshot, Selection(sandbox=view)) is None
            ]
            views = tuple(able) or views
        return [Candidate(view.name, view.state.value) for view in views]

    def _checkpoints(self) -> list[Candidate]:
        """The latest first."""
        past = self.sandbox.past.checkpoints if self.sandbox is not None else ()
        return [
            Candidate(made.name, made.note or ("automatic" if made.auto else ""))
            for made in reversed(past)
            if not made.error and not made.hidden
        ]

    def _sources(self) -> list[Candidate]:
        images = [
            Candidate(image.name, f"image {image.version}".strip())
            for image in self.snapshot.images
            if not image.error
        ]
        saves = [
            Candidate(save.address, f"save, {size_text(save.size)}")
            for save in self.snapshot.saves.saves
            if not save.trouble
        ]
        return [*images, *saves]
