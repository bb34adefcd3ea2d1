"""Writes actions of the app as commands that do the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from quicksand_tui.model.sandboxes import split_host
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.row import Kind
from quicksand_tui.verbs.rows import find_verb

if TYPE_CHECKING:
    from quicksand_tui.verbs.row import Parameter, VerbRecord

COMMAND_MAX = 4000
"""The most characters of a shown command; the rest is cut."""

OF_HOSTS = frozenset({Kind.SANDBOX, Kind.TRASHED})
"""What may be that of another machine."""

Value = str | int | Iterable[str] | None
"""The value of a parameter. None, False, "" and an empty list leave it out; a required argument
may be ""."""


def command_line(verb: str, /, **values: Value) -> str:
    """Returns the command of a verb, quoted for a shell and sanitised for the screen. ``values``
    and errors are those of `command_words`."""
    return shown_command(command_words(verb, **values))


def shown_command(words: Iterable[str], host: str = "") -> str:
    """Returns a command on the machine ``host``, quoted for a shell and sanitised for the
    screen."""
    there = ("--host", host) if host else ()
    return sanitise(shlex.join(["quicksand-tui", *there, *words]), limit=COMMAND_MAX)


def command_words(verb: str, /, **values: Value) -> list[str]:
    """Returns the words of a verb's command, without that of the program.

    ``values`` are named as the verb's parameters (`quicksand_tui.verbs.rows`), and their words
    keep this order, but for options of a verb that takes the rest, which come first. From the
    first argument on that could be taken for an option or for a part of the verb, arguments move to
    the end, behind ``--``. Raises LookupError for a verb or a parameter without a record.
    """
    record = find_verb(verb)
    words, behind = verb.split(), list[str]()
    given = [(record.parameter(name), value) for name, value in values.items()]
    if record.takes_rest:
        given.sort(key=lambda one: not one[0].flags)
    for parameter, value in given:
        found = _words(parameter, value)
        if not parameter.flags and (behind or _is_mistakable(record, parameter, found)):
            behind += found
        else:
            words += found
    return [*words, *(["--", *behind] if behind else [])]


def command_about(verb: str, subject: str, /, *flags: str, **values: Value) -> str:
    """Returns the command of a verb with ``flags``, and ``subject`` as its first argument unless
    that is "". A sandbox of another machine is named as the app does (`at_host`)."""
    first, host = find_verb(verb).subject, ""
    if first is not None and first.kind in OF_HOSTS:
        subject, host = split_host(subject)
    return shown_command(words_about(verb, subject, *flags, **values), host)


def words_about(verb: str, subject: str, /, *flags: str, **values: Value) -> list[str]:
    """Returns the words of `command_about` for a subject of the machine that carries them out."""
    first = find_verb(verb).subject
    about = {first.name: subject} if first is not None and subject else {}
    return command_words(verb, **dict.fromkeys(flags, True), **about, **values)


def _is_mistakable(record: VerbRecord, parameter: Parameter, words: list[str]) -> bool:
    """Whether words could be taken for an option, or for a part of the verb: ``checkpoint rm`` is
    one, but a sandbox may be called rm, too."""
    if any(word.startswith("-") for word in words):
        return True
    parts = (part.name.rpartition(" ")[2] for part in record.parts)
    return parameter == record.subject and not set(words).isdisjoint(parts)


def _words(parameter: Parameter, value: Value) -> list[str]:
    if parameter.is_flag:
        return [parameter.shown_flag] if value else []
    if value is None or (value == "" and not parameter.required):
        return []
    given = [str(value)] if isinstance(value, str | int) else list(value)
    if not parameter.flags:
        return given
    return [word for one in given for word in (parameter.shown_flag, one)]
