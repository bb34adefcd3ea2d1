"""Completes the line behind the `:`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.actions.line import CommandError, LineVerb, current_word, find_verb, quoted
from quicksand_tui.model.amounts import age_text, clock_text, size_text
from quicksand_tui.model.world import Selection, World
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.verb import Kind, Parameter

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView


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
