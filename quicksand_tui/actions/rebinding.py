"""Replaces the registry's keys by the user's, and reports problems in those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from quicksand.things.frozen import frozen

from quicksand_tui.actions.all_actions import ACTIONS, PREFIXED, Action, Scope
from quicksand_tui.model.keymap import (
    ALIKE,
    DEFAULT_PREFIX,
    RESERVED,
    Keymap,
    KeyNameError,
    Prefix,
    key_text,
    parse_key,
)
from quicksand_tui.model.text import did_you_mean


@frozen
class Assignment:
    """One line of the table of keys in the config."""

    target: str
    """An action's address, or an id for all actions that have it."""
    keys: tuple[str, ...]
    """The keys as typed. An empty tuple removes the action's keys."""
    line: int = 0


@frozen
class KeyProblem:
    """Says why an assignment or a part of it is ignored."""

    target: str
    what: str
    line: int = 0


def bind(
    assignments: Sequence[Assignment], prefix: Prefix = DEFAULT_PREFIX
) -> tuple[Keymap, list[KeyProblem]]:
    """Returns the keymap with all assignments that are possible, and why the others are not.
    Actions that are not named keep their keys; if two want the same key, the first one gets it."""
    problems: list[KeyProblem] = []
    wanted = _find_targets(assignments, problems)
    keys: dict[str, tuple[str, ...]] = {}
    for scope in Scope:
        actions = [action for action in ACTIONS if action.scope is scope]
        assigner = _KeyAssigner(scope, prefix)
        for action in actions:
            if action.address not in wanted:
                keys[action.address] = assigner.keep(action, action.keys)
        by_address = {action.address: action for action in actions}
        for address, assignment in wanted.items():
            if (named := by_address.get(address)) is not None:
                keys[address] = assigner.assign(named, assignment)
        for address in assigner.refused:
            named = by_address[address]
            keys[address] = assigner.keep(named, named.keys)
            if not keys[address]:
                assigner.report(
                    wanted[address], f"{address} has no key now: another one got its own"
                )
        problems += assigner.problems
    ordered = {action.address: keys[action.address] for action in ACTIONS}
    return Keymap(ordered, prefix), sorted(_unique(problems), key=lambda found: found.line)


def _find_targets(
    assignments: Iterable[Assignment], problems: list[KeyProblem]
) -> dict[str, Assignment]:
    """Returns the assignment for each action by address. An address takes precedence over an id."""
    plain: dict[str, Assignment] = {}
    exact: dict[str, Assignment] = {}
    for assignment in assignments:
        target = assignment.target
        named = [action.address for action in ACTIONS if target in (action.id, action.address)]
        if not named:
            problems.append(
                KeyProblem(
                    target=target,
                    line=assignment.line,
                    what=f"there is no such action{_near(target)}",
                )
            )
        into = exact if target in named else plain
        into |= dict.fromkeys(named, assignment)
    return plain | exact


def _near(target: str) -> str:
    names = sorted({name for action in ACTIONS for name in (action.id, action.address)})
    near = did_you_mean(target, names, cutoff=0.6)
    return near or "; `quicksand-tui config example` lists them all"


def _unique(problems: Iterable[KeyProblem]) -> list[KeyProblem]:
    return list(dict.fromkeys(problems))


@dataclass
class _KeyAssigner:
    """Assigns the keys of one scope."""

    scope: Scope
    prefix: Prefix
    taken: dict[str, Action] = field(default_factory=dict)
    problems: list[KeyProblem] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Addresses of the actions that got none of the wanted keys. They keep the rest of their usual
    ones."""

    def keep(self, action: Action, keys: Iterable[str]) -> tuple[str, ...]:
        free = tuple(key for key in keys if self.taken.get(key, action) is action)
        self.taken |= dict.fromkeys(free, action)
        return free

    def assign(self, action: Action, assignment: Assignment) -> tuple[str, ...]:
        """Returns the keys that an action gets. Reserved keys that the registry gives it stay."""
        fixed = [key for key in action.keys if self._is_reserved(key)]
        given: list[str] = []
        for text in assignment.keys:
            try:
                key = parse_key(text)
            except KeyNameError as error:
                self.report(assignment, f"{text!r} {error}")
                continue
            if why := self._why_not(action, key, fixed):
                self.report(assignment, why)
            elif key not in given:
                given.append(key)
        if assignment.keys and not given:
            self.refused.append(action.address)
            return ()
        given += [key for key in fixed if key not in given]
        return self.keep(action, given)

    def _is_reserved(self, key: str) -> bool:
        return self.scope not in PREFIXED and key in RESERVED

    def _why_not(self, action: Action, key: str, fixed: Sequence[str]) -> str:
        """Returns why an action cannot have a key; "" if it can."""
        shown = key_text(key)
        if key in ALIKE:
            return f"{shown} is what a terminal sends for {ALIKE[key]}"
        if self._is_reserved(key) and key not in fixed:
            return f"{shown} is reserved: {RESERVED[key]}"
        if self.scope in PREFIXED and key == self.prefix.key:
            return f"{shown} is the prefix: typed twice it goes to the guest"
        holder = self.taken.get(key)
        if holder is None or holder is action:
            return ""
        return (
            f"{shown} is the key of {holder.address} already, so {action.address} does not get it"
        )

    def report(self, assignment: Assignment, what: str) -> None:
        self.problems.append(KeyProblem(target=assignment.target, what=what, line=assignment.line))
