"""Writes actions of the app as commands that do the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from quicksand_tui.model.shown_sandboxes import shown, split_host
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.index import find_verb
from quicksand_tui.verbs.verb import Kind

if TYPE_CHECKING:
    from quicksand_tui.verbs.verb import AnyVerb, Parameter

COMMAND_MAX = 4000
"""The most characters of a shown command; the rest is cut."""

OF_HOSTS = frozenset({Kind.SANDBOX, Kind.TRASHED})
"""Kinds of things that may be those of another machine."""

Value = object
"""The value of a parameter: a list if the parameter can be repeated, else any value that is written
as its text. None, False, "", an empty list and the default leave the parameter out; a required
argument may be ""."""


def command_line(verb: str, /, **values: Value) -> str:
    """Returns the command of a verb, quoted for a shell and sanitised for the screen. ``values``
    and errors are those of `command_words`."""
    return shown_command(command_words(verb, **values))


def shown_command(words: Iterable[str], host: str = "") -> str:
    """Returns a command on the machine ``host``, quoted for a shell, sanitised for the screen."""
    there = ("--host", host) if host else ()
    return sanitise(shlex.join(["quicksand-tui", *there, *words]), limit=COMMAND_MAX)


def command_words(verb: str, /, **values: Value) -> list[str]:
    """Returns the words of a verb's command, without that of the program.

    ``values`` are named as the verb's parameters, and their words keep this order, but options of a
    verb that takes the rest come first. From the first argument on that could be taken for an
    option or for a part of the verb, arguments move to the end, behind ``--``. Raises LookupError
    for a verb or a parameter that does not exist.
    """
    return _words_of(find_verb(verb), values)


def command_about(verb: str, subject: str, /, *flags: str, **values: Value) -> str:
    """Returns the command of a verb with ``flags``, and ``subject`` as its first argument unless
    that is "". A sandbox of another machine is named as the app does (`at_host`)."""
    found = find_verb(verb)
    subject, host = split_subject(found, subject)
    given = {**dict.fromkeys(flags, True), **values}
    return shown_command(words_of(found, subject, given, as_shown=True), host)


def split_subject(verb: AnyVerb, subject: str) -> tuple[str, str]:
    """Returns the name of a verb's subject, and the machine where that is, "" for this one."""
    if verb.subject is not None and verb.subject.kind in OF_HOSTS:
        return split_host(subject)
    return subject, ""


def words_of(
    verb: AnyVerb, subject: str, values: Mapping[str, Value], *, as_shown: bool = False
) -> list[str]:
    """Returns the words of `command_words`: flags, ``subject``, other options, other arguments,
    each in the order of the help. ``subject`` is left out if it is "" or among the values. Things
    go by their names if the words are to be shown."""
    first = verb.subject
    if first is None or not subject or first.name in values:
        first = None
    else:
        values = {**values, first.name: subject}

    def place(found: Parameter) -> int:
        return 0 if found.is_flag else 1 if found == first else 2 if found.flags else 3

    given = {
        one.name: values[one.name]
        for one in sorted(verb.parameters, key=place)
        if one.name in values
    }
    return _words_of(
        verb, {name: _shown(one) for name, one in given.items()} if as_shown else given
    )


def _shown(value: Value) -> Value:
    if isinstance(value, str):
        return shown(value)
    return [*map(shown, value)] if isinstance(value, list | tuple) else value


def _words_of(verb: AnyVerb, values: Mapping[str, Value]) -> list[str]:
    words, behind = verb.name.split(), list[str]()
    given = [(verb.parameter(name), value) for name, value in values.items()]
    if verb.takes_rest:
        given.sort(key=lambda one: not one[0].flags)
    for parameter, value in given:
        found = _words(parameter, value)
        if not parameter.flags and (behind or _is_mistakable(verb, parameter, found)):
            behind += found
        else:
            words += found
    return [*words, *(["--", *behind] if behind else [])]


def _is_mistakable(verb: AnyVerb, parameter: Parameter, words: list[str]) -> bool:
    """Whether words could be taken for an option, or for a part of the verb: ``checkpoint rm`` is
    one, but a sandbox may be called rm, too."""
    if any(word.startswith("-") for word in words):
        return True
    parts = (part.name.rpartition(" ")[2] for part in verb.parts)
    return parameter == verb.subject and not set(words).isdisjoint(parts)


def _words(parameter: Parameter, value: Value) -> list[str]:
    if parameter.is_flag:
        return [parameter.shown_flag] if value else []
    if value is None or (value == "" and not parameter.required):
        return []
    if parameter.flags and value == parameter.default:
        return []
    if isinstance(value, Iterable) and not isinstance(value, str):
        given = [*map(str, value)]
    else:
        given = [str(value)]
    if not parameter.flags:
        return given
    return [word for one in given for word in (parameter.shown_flag, one)]
