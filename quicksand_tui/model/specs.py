"""Values between dialogs and the engine: the requests of forms, the report that comes back, and the
questions that ssh asks the user on the way to another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from quicksand.things.frozen import frozen


@frozen
class MountSpec:
    """The mount that a form asks for, as typed."""

    host: str
    guest: str
    readonly: bool = False
    protect: bool = False
    """Files that programs of this host run by themselves are read-only."""
    type: str = ""
    """The way of mounting it; "" for the usual way."""

    def __str__(self) -> str:
        mode = ":ro" if self.readonly else ":protect" if self.protect else ""
        return f"{self.host or 'HOST'}:{self.guest or 'GUEST'}{mode}"


@frozen
class NewSpec:
    """The sandbox that a form asks for, as typed; `quicksand_tui.forms.form_fields` checks it. The
    engine chooses the values that are not given."""

    image: str
    """The name, in a command, of the image or save that it starts from."""
    name: str
    save: str = ""
    """The key of the save; "" for an image."""
    is_file: bool = False
    """Whether ``image`` is the path of a file, as of a bundle, which may hold either."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """Options of the machine by their keywords, as in {"memory": "1G"}."""
    host: str = ""
    """The name of the machine on which it starts; "" is this one."""
    suggested: Mapping[str, str] = field(default_factory=dict)
    """The options that the image suggests, which apply where ``machine`` has none."""


@frozen
class ExportSpec:
    """The exported file that a form asks for, as typed."""

    file: str
    full: bool = False
    """Whether the file contains the image."""
    compress: bool = False
    replace: bool = False
    """Whether an existing file is replaced."""


@frozen
class ImportSpec:
    """The file that a form asks to import, as typed."""

    file: str
    name: str = ""
    """The save's new name; "" keeps its own."""


@frozen
class Told:
    """The result of an operation, in words for people."""

    summary: str
    """One line."""
    lines: tuple[str, ...] = ()
    """Further lines that the user should read."""


class SshQuestionKind(StrEnum):
    """The kinds of answers that ssh waits for; the values are the engine's
    (`quicksand.remote.askpass`)."""

    SECRET = "secret"  # noqa: S105 - the kind of question
    """A text: a password, a passphrase, "yes" or a fingerprint. ssh does not tell which."""
    CONFIRM = "confirm"
    """"yes" or "no"."""
    NOTICE = "none"
    """No answer: the user touches a security key."""


ANSWER_MAX = 1023
"""Bytes of an answer that ssh takes (readpass.c)."""


@frozen
class SshQuestion:
    """A question of ssh."""

    host: str
    """The destination of ssh, as the user named it."""
    prompt: str
    """The words of ssh or of that machine: bounded lines without control characters."""
    kind: SshQuestionKind
